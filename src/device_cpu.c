/* The CPU backend: kernels on the compute pool, host memory in place, calls that finish before they
 * return. */
#include "src/device.h"
#include "base/alloc.h"
#include "base/checked.h"
#include "base/clock.h"
#include "kernels/cpu/loss_cpu.h"
#include "kernels/cpu/split.h"
#include "kernels/cpu/spmm_cpu.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Parts a thread: enough to even out what one part takes longer than another, few enough that X and
 * G go through the cache seldom. */
#define PARTS_PER_THREAD 4u
#define MAX_LOSS_BLOCKS  ((OOC_MAX_TILE_ROWS + OOC_LOSS_ROWS - 1) / OOC_LOSS_ROWS)

struct cpu_device {
    ooc_device base;
    ooc_pool *pool;
    ooc_forward_part forward_part[OOC_MAX_PARTS];
    ooc_adjoint_part adjoint_part[OOC_MAX_PARTS];
};

/* What the tasks of one job see. */
struct run {
    struct cpu_device *d;
    const ooc_tile_job *job;
    atomic_bool failed;
    double *loss_sum;  /* [blocks] */
    bool decode_first; /* forward tasks decode their chunks, which the product then finds in a cache
                        */
    atomic_uint_fast64_t decode_ns; /* of all threads */
};

static struct cpu_device *cpu_of(ooc_device *d)
{
    return (struct cpu_device *)d;
}

static void cpu_close(ooc_device *d)
{
    ooc_free(d);
}

static ooc_status cpu_block_alloc(ooc_device *d, uint64_t bytes, void **out, ooc_err *err)
{
    (void)d;
    *out = bytes <= SIZE_MAX ? ooc_pages_alloc((size_t)bytes) : NULL;
    if (!*out)
        return ooc_fail(err, OOC_E_NOMEM, "cpu: the system does not give %" PRIu64 " bytes", bytes);
    return OOC_OK;
}

static void cpu_block_free(ooc_device *d, void *block, uint64_t bytes)
{
    (void)d;
    ooc_pages_free(block, (size_t)bytes);
}

static ooc_status cpu_host_register(ooc_device *d, void *p, uint64_t bytes, ooc_err *err)
{
    (void)d, (void)p, (void)bytes, (void)err;
    return OOC_OK;
}

static void cpu_host_unregister(ooc_device *d, void *p)
{
    (void)d, (void)p;
}

/* Streams and events hold nothing: the device stands in for them. */
static ooc_status cpu_stream_open(ooc_device *d, ooc_stream **out, ooc_err *err)
{
    (void)err;
    *out = (ooc_stream *)(void *)d;
    return OOC_OK;
}

static void cpu_stream_close(ooc_device *d, ooc_stream *s)
{
    (void)d, (void)s;
}

static ooc_status cpu_stream_sync(ooc_device *d, ooc_stream *s, ooc_err *err)
{
    (void)d, (void)s, (void)err;
    return OOC_OK;
}

static ooc_status cpu_event_open(ooc_device *d, ooc_event **out, ooc_err *err)
{
    (void)err;
    *out = (ooc_event *)(void *)d;
    return OOC_OK;
}

static void cpu_event_close(ooc_device *d, ooc_event *e)
{
    (void)d, (void)e;
}

static ooc_status cpu_event_record(ooc_device *d, ooc_event *e, ooc_stream *s, ooc_err *err)
{
    (void)d, (void)e, (void)s, (void)err;
    return OOC_OK;
}

static ooc_status cpu_event_wait(ooc_device *d, ooc_stream *s, ooc_event *e, ooc_err *err)
{
    (void)d, (void)s, (void)e, (void)err;
    return OOC_OK;
}

static ooc_status cpu_event_sync(ooc_device *d, ooc_event *e, ooc_err *err)
{
    (void)d, (void)e, (void)err;
    return OOC_OK;
}

static ooc_status cpu_event_query(ooc_device *d, ooc_event *e, bool *reached, ooc_err *err)
{
    (void)d, (void)e, (void)err;
    *reached = true;
    return OOC_OK;
}

static ooc_status cpu_copy(ooc_device *d, ooc_stream *s, const ooc_copy *c, ooc_err *err)
{
    (void)d, (void)s, (void)err;
    for (uint64_t r = 0; r < c->rows; r++)
        memcpy((char *)c->dst + r * c->dst_pitch, (const char *)c->src + r * c->src_pitch,
               (size_t)c->row_bytes);
    return OOC_OK;
}

struct zero_run {
    char *p;
    uint64_t pitch, row_bytes, rows, rows_per_task;
};

static void zero_task(void *ctx, uint32_t task, uint32_t thread)
{
    const struct zero_run *z = ctx;
    uint64_t r0 = task * z->rows_per_task;
    uint64_t r1 = ooc_min_u64(z->rows, r0 + z->rows_per_task);

    (void)thread;
    if (z->pitch == z->row_bytes) {
        memset(z->p + r0 * z->pitch, 0, (size_t)((r1 - r0) * z->row_bytes));
        return;
    }
    for (uint64_t r = r0; r < r1; r++)
        memset(z->p + r * z->pitch, 0, (size_t)z->row_bytes);
}

static ooc_status cpu_zero(ooc_device *d, ooc_stream *s, void *p, uint64_t pitch,
                           uint64_t row_bytes, uint64_t rows, ooc_err *err)
{
    struct zero_run z = {p, pitch, row_bytes, rows, 0};
    uint32_t n_tasks = PARTS_PER_THREAD * ooc_pool_threads(cpu_of(d)->pool);

    (void)s, (void)err;
    if (!rows || !row_bytes)
        return OOC_OK;
    z.rows_per_task = (rows + n_tasks - 1) / n_tasks;
    ooc_parallel_for(cpu_of(d)->pool, (uint32_t)((rows + z.rows_per_task - 1) / z.rows_per_task),
                     zero_task, &z);
    return OOC_OK;
}

/* Scratch of the kernels for each thread, then the sums of the loss blocks. */
static uint64_t cpu_work_bytes(const ooc_device *d, const ooc_work_shape *shape)
{
    const struct cpu_device *c = (const struct cpu_device *)d;

    (void)shape;
    return (uint64_t)ooc_pool_threads(c->pool) * OOC_SPMM_SCRATCH_BYTES +
           MAX_LOSS_BLOCKS * sizeof(double);
}

static void *scratch_of(const struct run *run, uint32_t thread)
{
    return (char *)run->job->work + (size_t)thread * OOC_SPMM_SCRATCH_BYTES;
}

/* Address of row `row` of an array of the job's dense type. */
static void *row_of(const ooc_tile_job *job, const void *array, uint64_t ld, uint64_t row)
{
    return (char *)(uintptr_t)array + row * ld * ooc_dtype_bytes(job->dense);
}

static void prepare_task(void *ctx, uint32_t task, uint32_t thread)
{
    struct run *run = ctx;

    if (!atomic_load_explicit(&run->failed, memory_order_relaxed) &&
        !run->job->prepare(run->job->prepare_ctx, task, thread))
        atomic_store(&run->failed, true);
}

static void forward_task(void *ctx, uint32_t task, uint32_t thread)
{
    struct run *run = ctx;
    const ooc_tile_job *job = run->job;
    const ooc_forward_part *part = &run->d->forward_part[task];
    uint32_t r0 = job->view.chunk_row[part->c0], r1 = job->view.chunk_row[part->c1];

    if (run->decode_first) {
        uint64_t began = ooc_now_ns();

        for (uint32_t c = part->c0; c < part->c1; c++)
            prepare_task(run, c, thread);
        atomic_fetch_add_explicit(&run->decode_ns, ooc_now_ns() - began, memory_order_relaxed);
        if (atomic_load_explicit(&run->failed, memory_order_relaxed))
            return;
    }
    for (uint32_t r = r0; r < r1; r++)
        memset(row_of(job, job->Y, job->ldy, r), 0, (size_t)job->B * ooc_dtype_bytes(job->dense));
    ooc_spmm_forward_cpu(&job->view, part->c0, part->c1, job->n_cols, job->X, job->ldx, job->Y,
                         job->ldy, job->B, job->dense, scratch_of(run, thread));
}

static void loss_task(void *ctx, uint32_t task, uint32_t thread)
{
    struct run *run = ctx;
    const ooc_tile_job *job = run->job;
    uint64_t r0 = (uint64_t)task * OOC_LOSS_ROWS;
    uint64_t rows = ooc_min_u64(OOC_LOSS_ROWS, job->view.n.n_rows - r0);
    ooc_loss_job loss = {.kind = job->loss_kind, .dense = job->dense};

    (void)thread;
    loss.Y = row_of(job, job->Y, job->ldy, r0);
    loss.ldy = job->ldy;
    loss.T = row_of(job, job->T, job->ldt, r0);
    loss.ldt = job->ldt;
    loss.W = job->W ? row_of(job, job->W, job->ldw, r0) : NULL;
    loss.ldw = job->ldw;
    loss.w_per_entry = job->w_per_column;
    loss.scale = job->scale;
    loss.R = row_of(job, job->R, job->ldr, r0);
    loss.ldr = job->ldr;
    run->loss_sum[task] = ooc_loss_rows_cpu(&loss, rows, job->B);
}

static void adjoint_task(void *ctx, uint32_t task, uint32_t thread)
{
    struct run *run = ctx;
    const ooc_tile_job *job = run->job;
    const ooc_adjoint_part *part = &run->d->adjoint_part[task];

    ooc_spmm_adjoint_cpu(&job->view, part->p0, part->p1, part->col0, part->col1, job->n_cols,
                         job->R, job->ldr, job->G, job->ldg, job->B, job->dense,
                         scratch_of(run, thread));
}

static void run_loss(struct run *run)
{
    const ooc_tile_job *job = run->job;
    uint32_t blocks = (job->view.n.n_rows + OOC_LOSS_ROWS - 1) / OOC_LOSS_ROWS;
    double sum = 0;

    ooc_parallel_for(run->d->pool, blocks, loss_task, run);
    for (uint32_t i = 0; i < blocks; i++) /* a fixed order: the same bits with any threads */
        sum += run->loss_sum[i];
    *job->loss += sum;
}

/* Wall time since `*since`, which moves on. */
static uint64_t lap(uint64_t *since)
{
    uint64_t now = ooc_now_ns(), ns = now - *since;

    *since = now;
    return ns;
}

static bool failed(struct run *run)
{
    return atomic_load(&run->failed);
}

/* Forward; with it, or before the adjoint alone, the preparation. */
static void run_forward(struct run *run, uint32_t want, ooc_job_times *t)
{
    const ooc_tile_job *job = run->job;
    ooc_pool *pool = run->d->pool;
    uint64_t since = ooc_now_ns(), both, decode;

    run->decode_first = job->prepare && job->prepare_by_chunk && (job->todo & OOC_DO_FORWARD);
    if (job->prepare && !run->decode_first) {
        ooc_parallel_for(pool, job->n_prepare, prepare_task, run);
        t->decode_ns = lap(&since);
    }
    if (!(job->todo & OOC_DO_FORWARD) || failed(run))
        return;
    ooc_parallel_for(pool, ooc_split_forward(&job->view, want, run->d->forward_part), forward_task,
                     run);
    both = lap(&since);
    decode = atomic_load(&run->decode_ns) / ooc_pool_threads(pool);
    if (decode > both)
        decode = both;
    t->decode_ns += decode;
    t->forward_ns = both - decode;
}

static ooc_status cpu_tile_run(ooc_device *d, ooc_stream *s, const ooc_tile_job *job, ooc_err *err)
{
    struct cpu_device *c = cpu_of(d);
    struct run run = {.d = c, .job = job};
    uint32_t want = (uint32_t)ooc_min_u64(OOC_MAX_PARTS,
                                          (uint64_t)PARTS_PER_THREAD * ooc_pool_threads(c->pool));
    ooc_job_times t = {0};
    uint64_t since;

    (void)s;
    run.loss_sum = (double *)scratch_of(&run, ooc_pool_threads(c->pool));
    run_forward(&run, want, &t);
    if (failed(&run))
        return job->prepare_error(job->prepare_ctx, err);
    since = ooc_now_ns();
    if (job->todo & OOC_DO_LOSS) {
        run_loss(&run);
        t.loss_ns = lap(&since);
    }
    if (job->todo & OOC_DO_ADJOINT) {
        ooc_parallel_for(c->pool, ooc_split_adjoint(&job->view, job->n_cols, want, c->adjoint_part),
                         adjoint_task, &run);
        t.adjoint_ns = lap(&since);
    }
    if (job->times) {
        job->times->decode_ns += t.decode_ns;
        job->times->forward_ns += t.forward_ns;
        job->times->loss_ns += t.loss_ns;
        job->times->adjoint_ns += t.adjoint_ns;
    }
    return OOC_OK;
}

static const ooc_device_ops cpu_ops = {
    .close = cpu_close,
    .block_alloc = cpu_block_alloc,
    .block_free = cpu_block_free,
    .host_register = cpu_host_register,
    .host_unregister = cpu_host_unregister,
    .stream_open = cpu_stream_open,
    .stream_close = cpu_stream_close,
    .stream_sync = cpu_stream_sync,
    .event_open = cpu_event_open,
    .event_close = cpu_event_close,
    .event_record = cpu_event_record,
    .event_wait = cpu_event_wait,
    .event_sync = cpu_event_sync,
    .event_query = cpu_event_query,
    .copy = cpu_copy,
    .zero = cpu_zero,
    .work_bytes = cpu_work_bytes,
    .tile_run = cpu_tile_run,
};

ooc_status ooc_device_cpu_open(ooc_device **out, ooc_pool *pool, ooc_err *err)
{
    const char *why = NULL;
    int isa = ooc_cpu_isa(&why);
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    struct cpu_device *c;

    *out = NULL;
    if (isa < 0)
        return ooc_fail(err, OOC_E_ARG, "cpu: %s", why);
    c = ooc_calloc(1, sizeof *c);
    if (!c)
        return ooc_fail(err, OOC_E_NOMEM, "cpu: no memory for the device");
    c->base.ops = &cpu_ops;
    c->pool = pool;
    snprintf(c->base.props.name, sizeof c->base.props.name, "cpu");
    snprintf(c->base.props.model, sizeof c->base.props.model, "%s", ooc_isa_name((ooc_isa)isa));
    c->base.props.ordinal = OOC_HOST;
    c->base.props.host_visible = true;
    c->base.props.total_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * page;
    c->base.props.free_bytes = (uint64_t)sysconf(_SC_AVPHYS_PAGES) * page;
    *out = &c->base;
    return OOC_OK;
}
