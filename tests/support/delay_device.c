#include "tests/support/delay_device.h"
#include "tests/unit/store_cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_STREAMS 8

typedef enum { OP_COPY, OP_ZERO, OP_JOB, OP_WAIT } op_kind;

typedef struct {
    op_kind kind;
    ooc_copy copy;
    struct {
        void *p;
        uint64_t pitch, row_bytes, rows;
    } zero;
    ooc_tile_job job;
    ooc_stream *wait_for; /* OP_WAIT: until this stream has run `until` operations */
    uint64_t until;
} op;

struct ooc_stream {
    op *queue; /* of all operations ever given */
    uint64_t given, run, room;
};

struct ooc_event {
    ooc_stream *stream; /* NULL: never recorded */
    uint64_t at;
};

struct delay_device {
    ooc_device base;
    ooc_device *cpu;
    delay_opts *opts;
    uint64_t state;
    ooc_stream *stream[MAX_STREAMS];
    int n_streams;
};

static struct delay_device *of(ooc_device *d)
{
    return (struct delay_device *)d;
}

/* True if this call is the one to be left out. */
static bool skipped(ooc_device *d)
{
    return ++of(d)->opts->n_calls == of(d)->opts->skip;
}

/* False for a tile that is not (or no longer) there: with a wait left out kernels must not run into
 * the void; that nothing is computed then shows as a wrong result. */
static bool is_sane(const ooc_tile_job *job)
{
    const ooc_tile_view *v = &job->view;
    uint64_t runs = (uint64_t)v->n.n_panels * v->n.n_chunks, lens = 0;

    if (v->chunk_row[v->n.n_chunks] != v->n.n_rows || v->seg_off[runs] != v->n.n_segments ||
        v->ent_off[runs] != v->n.n_entries)
        return false;
    for (uint32_t c = 0; c < v->n.n_chunks; c++)
        if (v->chunk_row[c] >= v->chunk_row[c + 1])
            return false;
    for (uint64_t i = 0; i < runs; i++)
        if (v->seg_off[i] > v->seg_off[i + 1] || v->ent_off[i] > v->ent_off[i + 1])
            return false;
    for (uint32_t s = 0; s < v->n.n_segments; s++)
        if (v->seg_row[s] >= v->n.n_rows)
            return false;
    for (uint32_t s = 0; s < v->n.n_lens; s++)
        lens += v->seg_len[s];
    for (uint32_t p = 0; p < v->n.n_panels; p++) {
        uint64_t first = (uint64_t)v->panel_id[p] * v->n.panel_columns;

        for (uint32_t i = v->ent_off[p * v->n.n_chunks]; i < v->ent_off[(p + 1) * v->n.n_chunks];
             i++)
            if (v->col[i] >= v->n.panel_columns || first + v->col[i] >= job->n_cols)
                return false;
    }
    return v->n.n_lens != v->n.n_segments || lens == v->n.n_entries;
}

static void run_until(struct delay_device *d, ooc_stream *s, uint64_t until)
{
    const ooc_device_ops *cpu = d->cpu->ops;

    while (s->run < until) {
        const op *o = &s->queue[s->run++];

        switch (o->kind) {
        case OP_COPY:
            (void)cpu->copy(d->cpu, NULL, &o->copy, NULL);
            break;
        case OP_ZERO:
            (void)cpu->zero(d->cpu, NULL, o->zero.p, o->zero.pitch, o->zero.row_bytes, o->zero.rows,
                            NULL);
            break;
        case OP_JOB:
            if (is_sane(&o->job))
                (void)cpu->tile_run(d->cpu, NULL, &o->job, NULL);
            break;
        case OP_WAIT:
            run_until(d, o->wait_for, o->until);
            break;
        }
    }
}

/* Perhaps run some of what is queued. */
static void maybe_run(struct delay_device *d)
{
    while (d->n_streams && (case_random(&d->state) & 255) < d->opts->eager) {
        uint64_t i = case_random(&d->state) % (uint64_t)d->n_streams;
        ooc_stream *s = d->stream[i];

        if (d->opts->only && !(d->opts->only >> i & 1))
            continue;
        run_until(d, s, s->run < s->given ? s->run + 1 : s->run);
    }
}

static ooc_status push(ooc_device *d, ooc_stream *s, op *o)
{
    if (s->given == s->room) {
        s->room = 2 * s->room + 64;
        s->queue = realloc(s->queue, s->room * sizeof *s->queue);
        if (!s->queue)
            abort();
    }
    s->queue[s->given++] = *o;
    free(o);
    maybe_run(of(d));
    return OOC_OK;
}

static op *new_op(op_kind kind)
{
    op *o = calloc(1, sizeof *o);

    if (!o)
        abort();
    o->kind = kind;
    return o;
}

static void delay_close(ooc_device *d)
{
    ooc_device_close(of(d)->cpu);
    free(d);
}

static ooc_status delay_block_alloc(ooc_device *d, uint64_t bytes, void **out, ooc_err *err)
{
    return of(d)->cpu->ops->block_alloc(of(d)->cpu, bytes, out, err);
}

static void delay_block_free(ooc_device *d, void *block, uint64_t bytes)
{
    of(d)->cpu->ops->block_free(of(d)->cpu, block, bytes);
}

static ooc_status delay_register(ooc_device *d, void *p, uint64_t bytes, ooc_err *err)
{
    (void)d, (void)p, (void)bytes, (void)err;
    return OOC_OK;
}

static void delay_unregister(ooc_device *d, void *p)
{
    (void)d, (void)p;
}

static ooc_status delay_stream_open(ooc_device *d, ooc_stream **out, ooc_err *err)
{
    ooc_stream *s = calloc(1, sizeof *s);

    (void)err;
    if (!s || of(d)->n_streams == MAX_STREAMS)
        abort();
    of(d)->stream[of(d)->n_streams++] = s;
    *out = s;
    return OOC_OK;
}

static void delay_stream_close(ooc_device *d, ooc_stream *s)
{
    if (!s)
        return;
    run_until(of(d), s, s->given);
    for (int i = 0; i < of(d)->n_streams; i++)
        if (of(d)->stream[i] == s)
            of(d)->stream[i] = of(d)->stream[--of(d)->n_streams];
    free(s->queue);
    free(s);
}

static ooc_status delay_stream_sync(ooc_device *d, ooc_stream *s, ooc_err *err)
{
    (void)err;
    if (!skipped(d))
        run_until(of(d), s, s->given);
    return OOC_OK;
}

static ooc_status delay_event_open(ooc_device *d, ooc_event **out, ooc_err *err)
{
    (void)d, (void)err;
    *out = calloc(1, sizeof **out);
    if (!*out)
        abort();
    return OOC_OK;
}

static void delay_event_close(ooc_device *d, ooc_event *e)
{
    (void)d;
    free(e);
}

static ooc_status delay_event_record(ooc_device *d, ooc_event *e, ooc_stream *s, ooc_err *err)
{
    (void)err;
    if (!skipped(d)) {
        e->stream = s;
        e->at = s->given;
    }
    maybe_run(of(d));
    return OOC_OK;
}

static ooc_status delay_event_wait(ooc_device *d, ooc_stream *s, ooc_event *e, ooc_err *err)
{
    op *o;

    (void)err;
    if (skipped(d) || !e->stream)
        return OOC_OK;
    o = new_op(OP_WAIT);
    o->wait_for = e->stream;
    o->until = e->at;
    return push(d, s, o);
}

static ooc_status delay_event_sync(ooc_device *d, ooc_event *e, ooc_err *err)
{
    (void)err;
    if (!skipped(d) && e->stream)
        run_until(of(d), e->stream, e->at);
    return OOC_OK;
}

static ooc_status delay_event_query(ooc_device *d, ooc_event *e, bool *reached, ooc_err *err)
{
    (void)err;
    maybe_run(of(d));
    *reached = !e->stream || e->stream->run >= e->at;
    return OOC_OK;
}

static ooc_status delay_copy(ooc_device *d, ooc_stream *s, const ooc_copy *c, ooc_err *err)
{
    op *o = new_op(OP_COPY);

    (void)err;
    o->copy = *c;
    return push(d, s, o);
}

static ooc_status delay_zero(ooc_device *d, ooc_stream *s, void *p, uint64_t pitch,
                             uint64_t row_bytes, uint64_t rows, ooc_err *err)
{
    op *o = new_op(OP_ZERO);

    (void)err;
    o->zero.p = p;
    o->zero.pitch = pitch;
    o->zero.row_bytes = row_bytes;
    o->zero.rows = rows;
    return push(d, s, o);
}

static uint64_t delay_work_bytes(const ooc_device *d, const ooc_work_shape *shape)
{
    const ooc_device *cpu = ((const struct delay_device *)d)->cpu;

    return cpu->ops->work_bytes(cpu, shape);
}

static ooc_status delay_tile_run(ooc_device *d, ooc_stream *s, const ooc_tile_job *job,
                                 ooc_err *err)
{
    op *o = new_op(OP_JOB);

    if (job->prepare)
        return ooc_fail(err, OOC_E_DEVICE, "a job for this device must be ready");
    o->job = *job;
    o->job.times = NULL;
    return push(d, s, o);
}

static const ooc_device_ops delay_ops = {
    .close = delay_close,
    .block_alloc = delay_block_alloc,
    .block_free = delay_block_free,
    .host_register = delay_register,
    .host_unregister = delay_unregister,
    .stream_open = delay_stream_open,
    .stream_close = delay_stream_close,
    .stream_sync = delay_stream_sync,
    .event_open = delay_event_open,
    .event_close = delay_event_close,
    .event_record = delay_event_record,
    .event_wait = delay_event_wait,
    .event_sync = delay_event_sync,
    .event_query = delay_event_query,
    .copy = delay_copy,
    .zero = delay_zero,
    .work_bytes = delay_work_bytes,
    .tile_run = delay_tile_run,
};

ooc_status delay_device_open(ooc_device **out, ooc_pool *pool, delay_opts *opts, ooc_err *err)
{
    struct delay_device *d = calloc(1, sizeof *d);
    ooc_status st;

    *out = NULL;
    if (!d)
        return ooc_fail(err, OOC_E_NOMEM, "delay: no memory");
    st = ooc_device_cpu_open(&d->cpu, pool, err);
    if (st) {
        free(d);
        return st;
    }
    d->base.ops = &delay_ops;
    d->base.props = d->cpu->props;
    snprintf(d->base.props.name, sizeof d->base.props.name, "delay:0");
    d->base.props.ordinal = 0;
    d->base.props.host_visible = false;
    d->opts = opts;
    d->state = opts->seed;
    *out = &d->base;
    return OOC_OK;
}
