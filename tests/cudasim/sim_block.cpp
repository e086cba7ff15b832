#include "sim_block.h"
#include "sim_fiber.h"

#include <stdio.h>
#include <stdlib.h>
#include <string>
#include <vector>

const sim_place *sim_here;
uint3 sim_block_idx;
dim3 sim_block_dim, sim_grid_dim;

namespace
{
struct thread {
    sim_place place; /* first: sim_here points at it */
    sim_fiber *fiber;
    bool done;
};

struct warp {
    uint64_t value[2]
                  [32]; /* two, so that a slow lane still reads while a fast one brings the next */
    unsigned arrived;
    unsigned generation;
    sim_collective what;
    unsigned waiting[32];
};

struct static_part {
    const void *tag;
    size_t off;
};

std::vector<thread> &threads = *new std::vector<thread>; /* holds the fibers till the end */
std::vector<warp> warps;
std::vector<unsigned> ready; /* a ring of linear thread numbers */
unsigned ready_head, ready_count;
unsigned n_threads, n_done, n_at_barrier;
bool interleave;
std::vector<unsigned> at_barrier;
std::vector<unsigned char> shared_dynamic, shared_static;
std::vector<static_part> static_parts;
size_t static_used;
const std::function<void()> *kernel_body;
std::string kernel_name;
uint64_t threads_run;

const size_t static_limit = 48 * 1024;

[[noreturn]] void stuck(const char *why)
{
    fprintf(stderr, "cudasim: kernel %s, block (%u,%u,%u): %s\n", kernel_name.c_str(),
            sim_block_idx.x, sim_block_idx.y, sim_block_idx.z, why);
    abort();
}

void make_ready(unsigned t)
{
    ready[(ready_head + ready_count++) % SIM_MAX_THREADS] = t;
}

/* Lanes that an exchange sets free. Mostly they go on at once: a warp runs as far as it can before
 * another one begins, and its stacks stay in the cache. */
void make_ready_lane(unsigned t)
{
    if (interleave) {
        make_ready(t);
        return;
    }
    ready_head = (ready_head + SIM_MAX_THREADS - 1) % SIM_MAX_THREADS;
    ready[ready_head] = t;
    ready_count++;
}

thread *self()
{
    return reinterpret_cast<thread *>(const_cast<sim_place *>(sim_here));
}

/* sim_here moves while others run: keep our own pointer across the switch. */
void block_here(thread *t)
{
    sim_fiber_yield(t->fiber);
    sim_here = &t->place;
}

void thread_main(void *arg)
{
    thread *t = static_cast<thread *>(arg);

    sim_here = &t->place;
    (*kernel_body)();
    t->done = true;
    n_done++;
    sim_fiber_exit(t->fiber);
}

uint64_t mix(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

void prepare_threads()
{
    n_threads = sim_block_dim.x * sim_block_dim.y * sim_block_dim.z;
    if (threads.empty()) {
        threads.resize(SIM_MAX_THREADS);
        for (thread &t : threads)
            t.fiber = sim_fiber_new();
        warps.resize(SIM_MAX_THREADS / 32);
        ready.resize(SIM_MAX_THREADS);
        at_barrier.resize(SIM_MAX_THREADS);
        shared_static.resize(static_limit);
    }
    for (unsigned i = 0; i < n_threads; i++) {
        thread &t = threads[i];

        t.place.thread = {i % sim_block_dim.x, i / sim_block_dim.x % sim_block_dim.y,
                          i / (sim_block_dim.x * sim_block_dim.y)};
        t.place.linear = i;
        t.place.lane = i % 32;
        t.place.warp = i / 32;
    }
}

void run_block(uint64_t seed)
{
    n_done = n_at_barrier = 0;
    ready_head = ready_count = 0;
    static_parts.clear();
    static_used = 0;
    memset(shared_static.data(), 0xff, shared_static.size() < 4096 ? shared_static.size() : 4096);
    if (!shared_dynamic.empty())
        memset(shared_dynamic.data(), 0xff, shared_dynamic.size());
    for (unsigned w = 0; w * 32 < n_threads; w++) {
        warps[w].arrived = 0;
        warps[w].generation = 0;
    }
    unsigned start = static_cast<unsigned>(seed % n_threads);
    bool backwards = (seed >> 32) & 1;
    interleave = (seed >> 33 & 7) == 1;
    for (unsigned k = 0; k < n_threads; k++) {
        unsigned at = (start + k) % n_threads, t = backwards ? n_threads - 1 - at : at;

        threads[t].done = false;
        sim_fiber_start(threads[t].fiber, thread_main, &threads[t]);
        make_ready(t);
    }
    while (ready_count) {
        unsigned t = ready[ready_head];

        ready_head = (ready_head + 1) % SIM_MAX_THREADS;
        ready_count--;
        sim_fiber_enter(threads[t].fiber);
    }
    if (n_done != n_threads)
        stuck("threads wait for others that have ended or wait elsewhere");
    threads_run += n_threads;
}
} // namespace

void sim_syncthreads()
{
    thread *t = self();

    at_barrier[n_at_barrier++] = t->place.linear;
    if (n_at_barrier < n_threads) {
        block_here(t);
        return;
    }
    n_at_barrier = 0;
    for (unsigned i = 0; i + 1 < n_threads; i++)
        make_ready(at_barrier[i]);
}

const uint64_t *sim_warp_exchange(sim_collective what, unsigned mask, uint64_t mine)
{
    thread *t = self();
    warp &w = warps[t->place.warp];
    uint64_t *buf = w.value[w.generation & 1];

    if (mask != 0xffffffffu)
        stuck("a warp exchange with a partial mask");
    if (t->place.warp * 32 + 32 > n_threads)
        stuck("a warp exchange in a warp that is not full");
    if (w.arrived == 0)
        w.what = what;
    else if (w.what != what)
        stuck("lanes of one warp meet in different exchanges");
    buf[t->place.lane] = mine;
    w.waiting[w.arrived++] = t->place.linear;
    if (w.arrived < 32) {
        block_here(t);
        return buf;
    }
    w.arrived = 0;
    w.generation++;
    for (unsigned i = 0; i < 31; i++)
        make_ready_lane(w.waiting[i]);
    return buf;
}

void *sim_dynamic_shared()
{
    return shared_dynamic.data();
}

void *sim_static_shared(const void *tag, size_t bytes)
{
    for (const static_part &p : static_parts)
        if (p.tag == tag)
            return shared_static.data() + p.off;
    if (static_used + bytes > static_limit)
        stuck("more than 48 KiB of static shared memory");
    static_parts.push_back({tag, static_used});
    memset(shared_static.data() + static_used, 0xff, bytes);
    static_used += (bytes + 63) & ~static_cast<size_t>(63);
    return shared_static.data() + static_parts.back().off;
}

void sim_run_kernel(const char *name, dim3 grid, dim3 block, size_t shared_bytes, uint64_t seed,
                    const std::function<void()> &body)
{
    uint64_t n_blocks = static_cast<uint64_t>(grid.x) * grid.y * grid.z;
    uint64_t first = seed ? mix(seed) % n_blocks : 0;
    bool backwards = seed && (mix(seed + 1) & 1);

    kernel_name = name;
    kernel_body = &body;
    sim_grid_dim = grid;
    sim_block_dim = block;
    prepare_threads();
    shared_dynamic = std::vector<unsigned char>(shared_bytes, 0xff); /* exact: ASan sees its end */
    for (uint64_t k = 0; k < n_blocks; k++) {
        uint64_t at = (first + k) % n_blocks, b = backwards ? n_blocks - 1 - at : at;

        sim_block_idx = {static_cast<unsigned>(b % grid.x),
                         static_cast<unsigned>(b / grid.x % grid.y),
                         static_cast<unsigned>(b / (static_cast<uint64_t>(grid.x) * grid.y))};
        run_block(seed ? mix(seed + b + 2) : 0);
    }
    kernel_body = nullptr;
}

uint64_t sim_threads_run()
{
    return threads_run;
}
