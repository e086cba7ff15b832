/* Streams and events: queues whose order against each other the seed chooses, within what events
 * allow. */
#include "sim_state.h"

#include <string.h>

enum sim_mood { MOOD_EAGER, MOOD_LAZY, MOOD_RANDOM };

struct sim_op {
    const char *what;
    std::function<void()> run;
    std::shared_ptr<sim_stream_data> after; /* a wait: that stream must have done ... */
    uint64_t after_seq;                     /* ... this many operations */
    const char *host;
    size_t host_bytes;
};

struct sim_stream_data {
    int device;
    uint64_t given, done;
    sim_mood mood;
    unsigned mood_left;
    std::deque<sim_op> queue;
};

struct sim_stream {
    std::shared_ptr<sim_stream_data> data;
};

struct sim_event {
    std::shared_ptr<sim_stream_data> stream; /* as last recorded; empty: never */
    uint64_t seq;
    int device;
};

namespace
{
std::vector<std::shared_ptr<sim_stream_data>> streams; /* the first n_devices: default streams */
std::vector<sim_stream *> handles;
cudaError_t async_error;
uint64_t bus_bytes, n_pageable;
bool running;

std::shared_ptr<sim_stream_data> stream_of(cudaStream_t s)
{
    if (!s)
        return streams[static_cast<size_t>(sim_device_now)];
    for (const sim_stream *h : handles)
        if (h == s)
            return s->data;
    return nullptr;
}

std::shared_ptr<sim_stream_data> new_stream(int device)
{
    auto d = std::make_shared<sim_stream_data>();

    d->device = device;
    d->given = d->done = 0;
    d->mood_left = 0;
    d->mood = MOOD_EAGER;
    streams.push_back(d);
    return d;
}

bool head_may_run(const sim_stream_data &s)
{
    return !s.queue.empty() &&
           (!s.queue.front().after || s.queue.front().after->done >= s.queue.front().after_seq);
}

void run_head(sim_stream_data &s)
{
    sim_op op = std::move(s.queue.front());

    s.queue.pop_front();
    if (op.run) {
        running = true;
        if (sim_enter(CUDASIM_EXECUTION) != cudaSuccess) {
            async_error = cudaErrorIllegalAddress;
        } else if (async_error == cudaSuccess) {
            sim_memory_open(s.device, !strcmp(op.what, "copy"));
            op.run();
            sim_memory_close();
        }
        running = false;
    }
    s.done++;
}

void force(sim_stream_data &s, uint64_t seq)
{
    while (s.done < seq) {
        sim_op &head = s.queue.front();

        if (head.after)
            force(*head.after, head.after_seq);
        run_head(s);
    }
}

void new_mood(sim_stream_data &s)
{
    uint64_t r = sim_random();

    if (sim_config.seed == 0)
        s.mood = MOOD_EAGER;
    else if (sim_config.seed == 1)
        s.mood = MOOD_LAZY;
    else
        s.mood = r % 5 < 2 ? MOOD_EAGER : r % 5 < 4 ? MOOD_LAZY : MOOD_RANDOM;
    s.mood_left = 10 + static_cast<unsigned>(r >> 8) % 90;
}

void queue_op(const std::shared_ptr<sim_stream_data> &s, sim_op op)
{
    s->queue.push_back(std::move(op));
    s->given++;
    sim_progress();
}
} // namespace

void sim_streams_reset()
{
    for (sim_stream *h : handles)
        delete h;
    handles.clear();
    streams.clear();
    async_error = cudaSuccess;
    bus_bytes = n_pageable = 0;
    running = false;
    for (int d = 0; d < sim_config.n_devices; d++)
        new_stream(d);
}

/* Each stream in turn, in an order drawn anew: what a mood lets run may free a wait elsewhere. */
void sim_progress()
{
    bool moved = true;

    if (running)
        return;
    while (moved) {
        moved = false;
        size_t first = sim_config.seed ? sim_random() % streams.size() : 0;
        for (size_t i = 0; i < streams.size(); i++) {
            sim_stream_data &s = *streams[(first + i) % streams.size()];

            if (s.queue.empty())
                continue;
            if (s.mood_left == 0)
                new_mood(s);
            s.mood_left--;
            if (s.mood == MOOD_LAZY || (s.mood == MOOD_RANDOM && sim_random() % 3))
                continue;
            if (head_may_run(s)) {
                run_head(s);
                moved = true;
            }
        }
    }
}

void sim_run_all(int device)
{
    for (size_t i = 0; i < streams.size(); i++)
        if (device < 0 || streams[i]->device == device)
            force(*streams[i], streams[i]->given);
}

void sim_force(cudaStream_t s)
{
    auto d = stream_of(s);

    if (d)
        force(*d, d->given);
}

int sim_stream_device(cudaStream_t s)
{
    auto d = stream_of(s);

    return d ? d->device : -1;
}

void sim_enqueue(cudaStream_t s, const char *what, std::function<void()> run, const void *host,
                 size_t host_bytes)
{
    queue_op(stream_of(s),
             {what, std::move(run), nullptr, 0, static_cast<const char *>(host), host_bytes});
}

bool sim_host_pending(const void *p, size_t bytes)
{
    const char *c = static_cast<const char *>(p);

    for (const auto &s : streams)
        for (const sim_op &op : s->queue)
            if (op.host && op.host < c + bytes && c < op.host + op.host_bytes)
                return true;
    return false;
}

cudaError_t sim_take_async_error()
{
    return async_error;
}

void sim_note_bus(uint64_t bytes)
{
    bus_bytes += bytes;
}

void sim_note_pageable()
{
    n_pageable++;
}

uint64_t cudasim_bus_bytes(void)
{
    return bus_bytes;
}

uint64_t cudasim_n_pageable(void)
{
    return n_pageable;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags)
{
    SIM_ENTER(CUDASIM_STREAM);
    *s = nullptr;
    if (flags != cudaStreamNonBlocking) /* the other kind's implicit order is not simulated */
        return sim_leave(cudaErrorInvalidValue);
    *s = new sim_stream{new_stream(sim_device_now)};
    handles.push_back(*s);
    sim_live(1);
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    SIM_ENTER_RELEASE();
    auto d = stream_of(s);

    if (!s || !d)
        return sim_leave(cudaErrorInvalidResourceHandle);
    /* What is queued still runs, at some time; an empty stream is forgotten. Events that were
     * recorded on it keep its data alive. */
    for (size_t i = 0; i < streams.size() && d->queue.empty(); i++)
        if (streams[i] == d) {
            streams.erase(streams.begin() + static_cast<std::ptrdiff_t>(i));
            break;
        }
    for (size_t i = 0; i < handles.size(); i++)
        if (handles[i] == s) {
            handles.erase(handles.begin() + static_cast<std::ptrdiff_t>(i));
            break;
        }
    delete s;
    sim_live(-1);
    return sim_leave(injected_);
}

cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    SIM_ENTER(CUDASIM_SYNC);
    auto d = stream_of(s);

    if (!d)
        return sim_leave(cudaErrorInvalidResourceHandle);
    if (!sim_site_skipped("stream sync"))
        force(*d, d->given);
    return sim_leave(async_error);
}

cudaError_t cudaDeviceSynchronize()
{
    SIM_ENTER(CUDASIM_SYNC);
    if (!sim_site_skipped("device sync"))
        sim_run_all(sim_device_now);
    return sim_leave(async_error);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned)
{
    SIM_ENTER(CUDASIM_WAIT);
    auto d = stream_of(s);

    if (!d || !e)
        return sim_leave(cudaErrorInvalidResourceHandle);
    if (sim_site_skipped("event wait") || !e->stream || e->stream == d)
        return cudaSuccess;
    queue_op(d, {"wait", nullptr, e->stream, e->seq, nullptr, 0});
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned)
{
    SIM_ENTER(CUDASIM_EVENT);
    *e = new sim_event{nullptr, 0, sim_device_now};
    sim_live(1);
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    SIM_ENTER_RELEASE();
    if (!e)
        return sim_leave(cudaErrorInvalidResourceHandle);
    delete e;
    sim_live(-1);
    return sim_leave(injected_);
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
    SIM_ENTER(CUDASIM_RECORD);
    auto d = stream_of(s);

    if (!d || !e || d->device != e->device)
        return sim_leave(cudaErrorInvalidResourceHandle);
    if (sim_site_skipped("event record"))
        return cudaSuccess;
    e->stream = d;
    queue_op(d, {"record", nullptr, nullptr, 0, nullptr, 0});
    e->seq = d->given;
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
    SIM_ENTER(CUDASIM_SYNC);
    if (!e)
        return sim_leave(cudaErrorInvalidResourceHandle);
    if (!sim_site_skipped("event sync") && e->stream)
        force(*e->stream, e->seq);
    return sim_leave(async_error);
}

cudaError_t cudaEventQuery(cudaEvent_t e)
{
    SIM_ENTER(CUDASIM_SYNC);
    sim_progress();
    if (async_error != cudaSuccess)
        return sim_leave(async_error);
    if (e->stream && e->stream->done < e->seq) {
        /* Polling must come to an end under every seed. */
        if (sim_random() % 4 == 0)
            force(*e->stream, e->stream->done + 1);
        return cudaErrorNotReady;
    }
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end)
{
    SIM_ENTER(CUDASIM_OTHER);
    *ms = 1;
    for (cudaEvent_t e : {begin, end})
        if (!e->stream || e->stream->done < e->seq)
            return sim_leave(cudaErrorNotReady);
    return cudaSuccess;
}
