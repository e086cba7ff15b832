/* The CUDA backend: blocks, streams, events, copies and tile jobs of one card.
 *
 * Streams do not wait for the default stream; order comes from events alone. Every call makes the
 * device current and then the caller's again. */
#include "src/cuda_check.h"
#include "src/device.h"
#include "base/alloc.h"
#include "kernels/cuda/loss_cuda.h"
#include "kernels/cuda/spmm_cuda.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MAX_ORDINALS 64

struct ooc_stream {
    cudaStream_t s;
};

struct ooc_event {
    cudaEvent_t e;
};

namespace
{
struct cuda_device {
    ooc_device base; /* first: the table's functions get a pointer to it */
    ooc_cuda_state state;
    ooc_gpu gpu;
    cudaEvent_t caller[MAX_ORDINALS]; /* for wait_caller, made when first needed */
};

cuda_device *of(const ooc_device *d)
{
    return reinterpret_cast<cuda_device *>(const_cast<ooc_device *>(d));
}

/* ---- blocks and host memory ---- */

ooc_status block_alloc(ooc_device *d, uint64_t bytes, void **out, ooc_err *err)
{
    cuda_device *c = of(d);
    ooc_cuda_scope scope(c->state.ordinal);
    size_t free_bytes = 0, total = 0;
    ooc_status st;

    *out = NULL;
    st = OOC_CUDA(&c->state, err, cudaMalloc, out, bytes);
    if (st != OOC_E_NOMEM)
        return st;
    *out = NULL;
    st = OOC_CUDA(&c->state, err, cudaMemGetInfo, &free_bytes, &total);
    if (st)
        return st;
    return ooc_fail(err, OOC_E_NOMEM,
                    "%s has no block of %" PRIu64 " bytes: %zu of %zu are free (the driver and "
                    "other programs hold the rest); a budget of at most %zu would fit",
                    c->state.name, bytes, free_bytes, total, free_bytes / 10 * 9);
}

void block_free(ooc_device *d, void *block, uint64_t bytes)
{
    cuda_device *c = of(d);
    ooc_cuda_scope scope(c->state.ordinal);

    (void)bytes;
    (void)cudaFree(block); /* also on a broken device: the block is ours */
}

ooc_status host_register(ooc_device *d, void *p, uint64_t bytes, ooc_err *err)
{
    cuda_device *c = of(d);
    ooc_cuda_scope scope(c->state.ordinal);

    return OOC_CUDA(&c->state, err, cudaHostRegister, p, bytes, cudaHostRegisterDefault);
}

void host_unregister(ooc_device *d, void *p)
{
    cuda_device *c = of(d);
    ooc_cuda_scope scope(c->state.ordinal);

    (void)cudaHostUnregister(p);
}

/* ---- streams and events ---- */

ooc_status stream_open(ooc_device *d, ooc_stream **out, ooc_err *err)
{
    cuda_device *c = of(d);
    ooc_cuda_scope scope(c->state.ordinal);
    ooc_stream *s = static_cast<ooc_stream *>(ooc_calloc(1, sizeof *s));
    ooc_status st;

    *out = NULL;
    if (!s)
        return ooc_fail(err, OOC_E_NOMEM, "%s: no memory for a stream", c->state.name);
    st = OOC_CUDA(&c->state, err, cudaStreamCreateWithFlags, &s->s, cudaStreamNonBlocking);
    if (st) {
        ooc_free(s);
        return st;
    }
    *out = s;
    return OOC_OK;
}

ooc_status stream_sync(ooc_device *d, ooc_stream *s, ooc_err *err)
{
    cuda_device *c = of(d);
    /* On a broken device too: what was queued before may still be at work on memory that the caller
     * is about to give back. */
    cudaError_t e = cudaStreamSynchronize(s->s);
    ooc_status st = ooc_cuda_usable(&c->state, err);

    return st ? st : ooc_cuda_result(&c->state, err, "cudaStreamSynchronize", e);
}

void stream_close(ooc_device *d, ooc_stream *s)
{
    (void)d;
    if (!s)
        return;
    (void)cudaStreamDestroy(s->s); /* also on a broken device: the handle is ours */
    ooc_free(s);
}

ooc_status event_open(ooc_device *d, ooc_event **out, ooc_err *err)
{
    cuda_device *c = of(d);
    ooc_cuda_scope scope(c->state.ordinal);
    ooc_event *e = static_cast<ooc_event *>(ooc_calloc(1, sizeof *e));
    ooc_status st;

    *out = NULL;
    if (!e)
        return ooc_fail(err, OOC_E_NOMEM, "%s: no memory for an event", c->state.name);
    st = OOC_CUDA(&c->state, err, cudaEventCreateWithFlags, &e->e, cudaEventDisableTiming);
    if (st) {
        ooc_free(e);
        return st;
    }
    *out = e;
    return OOC_OK;
}

void event_close(ooc_device *d, ooc_event *e)
{
    (void)d;
    if (!e)
        return;
    (void)cudaEventDestroy(e->e);
    ooc_free(e);
}

ooc_status event_record(ooc_device *d, ooc_event *e, ooc_stream *s, ooc_err *err)
{
    return OOC_CUDA(&of(d)->state, err, cudaEventRecord, e->e, s->s);
}

ooc_status event_wait(ooc_device *d, ooc_stream *s, ooc_event *e, ooc_err *err)
{
    return OOC_CUDA(&of(d)->state, err, cudaStreamWaitEvent, s->s, e->e, 0);
}

ooc_status event_sync(ooc_device *d, ooc_event *e, ooc_err *err)
{
    return OOC_CUDA(&of(d)->state, err, cudaEventSynchronize, e->e);
}

ooc_status event_query(ooc_device *d, ooc_event *e, bool *reached, ooc_err *err)
{
    cuda_device *c = of(d);
    ooc_status st = ooc_cuda_usable(&c->state, err);
    cudaError_t r;

    if (st)
        return st;
    r = cudaEventQuery(e->e);
    *reached = r == cudaSuccess;
    return r == cudaErrorNotReady ? OOC_OK : ooc_cuda_result(&c->state, err, "cudaEventQuery", r);
}

/* An event belongs to the device of the stream that it is recorded on: one for each. */
ooc_status wait_caller(ooc_device *d, ooc_stream *s, int ordinal, void *caller, ooc_err *err)
{
    cuda_device *c = of(d);
    ooc_status st = OOC_OK;

    if (ordinal < 0 || ordinal >= MAX_ORDINALS)
        return ooc_fail(err, OOC_E_ARG, "cuda:%d is no device of a caller's array", ordinal);
    ooc_cuda_scope scope(ordinal);
    cudaEvent_t *e = &c->caller[ordinal];
    if (!*e)
        st = OOC_CUDA(&c->state, err, cudaEventCreateWithFlags, e, cudaEventDisableTiming);
    if (!st)
        st = OOC_CUDA(&c->state, err, cudaEventRecord, *e, static_cast<cudaStream_t>(caller));
    if (!st)
        st = OOC_CUDA(&c->state, err, cudaStreamWaitEvent, s->s, *e, 0);
    return st;
}

/* ---- copies ---- */

ooc_status copy_peer(cuda_device *c, ooc_stream *s, const ooc_copy *k, ooc_err *err)
{
    cudaMemcpy3DPeerParms p = {};

    if (k->rows == 1)
        return OOC_CUDA(&c->state, err, cudaMemcpyPeerAsync, k->dst, k->dst_ordinal, k->src,
                        k->src_ordinal, k->row_bytes, s->s);
    p.srcPtr = make_cudaPitchedPtr(const_cast<void *>(k->src), k->src_pitch, k->row_bytes, k->rows);
    p.dstPtr = make_cudaPitchedPtr(k->dst, k->dst_pitch, k->row_bytes, k->rows);
    p.srcDevice = k->src_ordinal;
    p.dstDevice = k->dst_ordinal;
    p.extent = make_cudaExtent(k->row_bytes, k->rows, 1);
    return OOC_CUDA(&c->state, err, cudaMemcpy3DPeerAsync, &p, s->s);
}

ooc_status copy(ooc_device *d, ooc_stream *s, const ooc_copy *k, ooc_err *err)
{
    static const cudaMemcpyKind kinds[] = {cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost,
                                           cudaMemcpyDeviceToDevice};
    cuda_device *c = of(d);
    ooc_cuda_scope scope(c->state.ordinal);

    if (!k->rows || !k->row_bytes)
        return OOC_OK;
    if (k->kind == OOC_COPY_PEER)
        return copy_peer(c, s, k, err);
    if (k->rows == 1)
        return OOC_CUDA(&c->state, err, cudaMemcpyAsync, k->dst, k->src, k->row_bytes,
                        kinds[k->kind], s->s);
    return OOC_CUDA(&c->state, err, cudaMemcpy2DAsync, k->dst, k->dst_pitch, k->src, k->src_pitch,
                    k->row_bytes, k->rows, kinds[k->kind], s->s);
}

ooc_status zero(ooc_device *d, ooc_stream *s, void *p, uint64_t pitch, uint64_t row_bytes,
                uint64_t rows, ooc_err *err)
{
    cuda_device *c = of(d);
    ooc_cuda_scope scope(c->state.ordinal);

    if (!rows || !row_bytes)
        return OOC_OK;
    if (rows == 1 || pitch == row_bytes)
        return OOC_CUDA(&c->state, err, cudaMemsetAsync, p, 0, rows * row_bytes, s->s);
    return OOC_CUDA(&c->state, err, cudaMemset2DAsync, p, pitch, 0, row_bytes, rows, s->s);
}

/* ---- tile jobs ---- */

/* Workspace: the table of segment offsets, and behind it the partial sums of the loss. */
uint64_t table_bytes(const ooc_work_shape *shape)
{
    uint64_t panels = (shape->n_cols + shape->panel_columns - 1) / shape->panel_columns;
    uint64_t items = ooc_seg_table_bound(shape->max_kernel_bytes, panels * shape->max_tile_chunks);

    return (items * sizeof(uint32_t) + 255) / 256 * 256;
}

const uint64_t sums_bytes = OOC_LOSS_BLOCKS * sizeof(double);

uint64_t work_bytes(const ooc_device *d, const ooc_work_shape *shape)
{
    (void)d;
    return sums_bytes + table_bytes(shape);
}

double *work_sums(void *work)
{
    return static_cast<double *>(work);
}

uint32_t *work_table(void *work)
{
    return reinterpret_cast<uint32_t *>(static_cast<char *>(work) + sums_bytes);
}

cudaError_t loss(const ooc_tile_job *j, cudaStream_t s)
{
    ooc_gpu_loss l = {};

    l.kind = j->loss_kind;
    l.dense = j->dense;
    l.rows = j->view.n.n_rows;
    l.B = j->B;
    l.Y = j->Y, l.ldy = j->ldy;
    l.T = j->T, l.ldt = j->ldt;
    l.W = j->W, l.ldw = j->ldw;
    l.R = j->R, l.ldr = j->ldr;
    l.w_per_column = j->w_per_column;
    l.scale = j->scale;
    return ooc_loss_cuda(s, &l, j->loss, work_sums(j->work));
}

ooc_status tile_run(ooc_device *d, ooc_stream *s, const ooc_tile_job *j, ooc_err *err)
{
    cuda_device *c = of(d);
    ooc_cuda_scope scope(c->state.ordinal);
    uint32_t *table = work_table(j->work);
    ooc_status st = ooc_cuda_usable(&c->state, err);

    if (!st && j->todo & OOC_DO_FORWARD) {
        st = ooc_cuda_result(&c->state, err, "launch of the segment table",
                             ooc_seg_table_cuda(s->s, &j->view, table));
        if (!st)
            st = ooc_cuda_result(&c->state, err, "launch of the forward product",
                                 ooc_spmm_forward_cuda(s->s, &j->view, table, j->X, j->ldx, j->Y,
                                                       j->ldy, j->B, j->dense));
    }
    if (!st && j->todo & OOC_DO_LOSS)
        st = ooc_cuda_result(&c->state, err, "launch of the loss", loss(j, s->s));
    if (!st && j->todo & OOC_DO_ADJOINT)
        st = ooc_cuda_result(&c->state, err, "launch of the adjoint product",
                             ooc_spmm_adjoint_cuda(s->s, &c->gpu, &j->view, j->R, j->ldr, j->G,
                                                   j->ldg, j->n_cols, j->B, j->dense));
    return st;
}

ooc_status weight_sum(ooc_device *d, ooc_stream *s, const void *W, uint64_t ldw, uint64_t rows,
                      uint32_t n_cols, ooc_dtype dense, double *sum, void *work, ooc_err *err)
{
    cuda_device *c = of(d);
    ooc_cuda_scope scope(c->state.ordinal);
    ooc_status st = ooc_cuda_usable(&c->state, err);

    return st ? st
              : ooc_cuda_result(
                    &c->state, err, "launch of the weights' sum",
                    ooc_weight_sum_cuda(s->s, W, ldw, rows, n_cols, dense, sum, work_sums(work)));
}

/* ---- open and close ---- */

void close_device(ooc_device *d)
{
    cuda_device *c = of(d);

    if (!d)
        return;
    for (cudaEvent_t e : c->caller)
        if (e)
            (void)cudaEventDestroy(e);
    ooc_free(c);
}

const ooc_device_ops cuda_ops = {
    close_device, block_alloc,  block_free,  host_register, host_unregister,
    stream_open,  stream_close, stream_sync, event_open,    event_close,
    event_record, event_wait,   event_sync,  event_query,   wait_caller,
    copy,         zero,         work_bytes,  tile_run,      weight_sum,
};

/* Error 35 with a version, and only then, means an old driver. */
ooc_status find_card(int ordinal, ooc_err *err)
{
    int driver = 0, runtime = 0, n = 0;
    cudaError_t e = cudaGetDeviceCount(&n);

    (void)cudaGetLastError();
    if (e == cudaErrorInsufficientDriver) {
        if (cudaDriverGetVersion(&driver) != cudaSuccess)
            driver = 0;
        (void)cudaRuntimeGetVersion(&runtime);
        if (driver)
            return ooc_fail(err, OOC_E_DRIVER_OLD,
                            "cuda:%d: the driver serves CUDA %d.%d, this build needs %d.%d: update "
                            "the driver, or build with an older toolkit (12.0 or later)",
                            ordinal, driver / 1000, driver % 1000 / 10, runtime / 1000,
                            runtime % 1000 / 10);
        return ooc_fail(err, OOC_E_NO_DEVICE, "cuda:%d: no NVIDIA driver is installed", ordinal);
    }
    if (e == cudaErrorNoDevice || (e == cudaSuccess && n == 0))
        return ooc_fail(err, OOC_E_NO_DEVICE, "cuda:%d: the driver finds no card", ordinal);
    if (e != cudaSuccess)
        return ooc_fail(err, OOC_E_DEVICE, "cuda:%d: cudaGetDeviceCount: %s (%s)", ordinal,
                        cudaGetErrorName(e), cudaGetErrorString(e));
    if (ordinal >= n || ordinal >= MAX_ORDINALS)
        return ooc_fail(err, OOC_E_NO_DEVICE, "cuda:%d: there %s %d card%s, numbered from 0",
                        ordinal, n == 1 ? "is" : "are", n, n == 1 ? "" : "s");
    return OOC_OK;
}

/* The context comes to be with the first call that needs it: what is gone then is its share (and
 * that of other programs). */
ooc_status read_props(cuda_device *c, ooc_err *err)
{
    ooc_device_props *p = &c->base.props;
    ooc_cuda_scope scope(c->state.ordinal);
    cudaDeviceProp prop;
    size_t free_bytes = 0, total = 0;
    int n_sm = 0, shared = 0;
    ooc_status st = OOC_CUDA(&c->state, err, cudaSetDevice, c->state.ordinal);

    if (!st)
        st = OOC_CUDA(&c->state, err, cudaMemGetInfo, &free_bytes, &total);
    if (!st)
        st = OOC_CUDA(&c->state, err, cudaGetDeviceProperties, &prop, c->state.ordinal);
    if (!st)
        st = OOC_CUDA(&c->state, err, cudaDeviceGetAttribute, &n_sm, cudaDevAttrMultiProcessorCount,
                      c->state.ordinal);
    if (!st)
        st = OOC_CUDA(&c->state, err, cudaDeviceGetAttribute, &shared,
                      cudaDevAttrMaxSharedMemoryPerBlockOptin, c->state.ordinal);
    if (st)
        return st;
    snprintf(p->name, sizeof p->name, "%s", c->state.name);
    snprintf(p->model, sizeof p->model, "%.127s", prop.name);
    p->ordinal = c->state.ordinal;
    p->host_visible = false;
    p->total_bytes = total;
    p->free_bytes = free_bytes;
    p->context_bytes = total - free_bytes;
    c->gpu.n_sm = static_cast<uint32_t>(n_sm);
    c->gpu.shared_bytes = static_cast<uint32_t>(shared);
    return OOC_OK;
}
} // namespace

extern "C" ooc_status ooc_device_cuda_open(ooc_device **out, int ordinal, ooc_pool *pool,
                                           ooc_err *err)
{
    cuda_device *c;
    ooc_status st;

    (void)pool;
    *out = NULL;
    st = find_card(ordinal, err);
    if (st)
        return st;
    c = static_cast<cuda_device *>(ooc_calloc(1, sizeof *c));
    if (!c)
        return ooc_fail(err, OOC_E_NOMEM, "cuda:%d: no memory for a device", ordinal);
    c->base.ops = &cuda_ops;
    c->state.ordinal = ordinal;
    snprintf(c->state.name, sizeof c->state.name, "cuda:%d", ordinal);
    st = read_props(c, err);
    if (st) {
        close_device(&c->base);
        return st;
    }
    *out = &c->base;
    return OOC_OK;
}
