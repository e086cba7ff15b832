/* device.h - what computes: one struct of function pointers, one table per backend (CPU, CUDA).
 *
 * The pass (pass.c) is written once against this table. A backend is described by data
 * (ooc_device_props), never by asking which one it is; only device.c knows what was built in.
 *
 * Memory:  a device hands out whole blocks; one arena a device is laid over one block.
 * Order:   work given to a stream runs in the order given; streams are ordered against each other
 *          by events only. The CPU backend's calls finish before they return, so its streams and
 *          events hold nothing. A caller must not rely on that.
 * Errors:  asynchronous failures show up at a later call or synchronization (OOC_E_DEVICE, the text
 *          names the call); after a sticky error every later call on that device says so again.
 * Threads: a device, its streams and events belong to one thread at a time. */
#ifndef OOC_SRC_DEVICE_H
#define OOC_SRC_DEVICE_H

#include "base/err.h"
#include "base/parallel.h"
#include "kernels/tile_view.h"
#include "src/streamtrain.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ooc_stream ooc_stream; /* defined by each backend */
typedef struct ooc_event ooc_event;
typedef struct ooc_device ooc_device;

typedef struct {
    char name[32];   /* "cpu", "cuda:0": what opens it again */
    char model[128]; /* of the hardware, for reports */
    int ordinal;     /* OOC_HOST for the CPU, else the CUDA ordinal; as in ooc_array.device */
    /* Its kernels read and write host memory in place: slots, X, Y, G need no copies, and a tile
     * job may carry a `prepare` hook. */
    bool host_visible;
    uint64_t total_bytes;
    uint64_t free_bytes;    /* when it was opened, after the context was made */
    uint64_t context_bytes; /* the driver's own share of device memory, 0 where there is none */
} ooc_device_props;

/* Directions of a copy. PEER: between the memories of two devices, through the host where there is
 * no peer access. */
typedef enum { OOC_COPY_H2D, OOC_COPY_D2H, OOC_COPY_D2D, OOC_COPY_PEER } ooc_copy_kind;

/* `rows` rows of `row_bytes` bytes each; rows lie `*_pitch` bytes apart. A flat copy is one row. */
typedef struct {
    ooc_copy_kind kind;
    void *dst;
    const void *src;
    uint64_t dst_pitch, src_pitch;
    uint64_t row_bytes, rows;
    int dst_ordinal, src_ordinal; /* PEER only */
} ooc_copy;

/* What a tile job does, in this order. */
enum {
    OOC_DO_FORWARD = 1, /* Y[0..m) = A_tile * X                (overwrites Y) */
    OOC_DO_LOSS = 2,    /* *loss += sum w*l(Y, T); R = scale * w * l'(Y, T)  (R may be Y) */
    OOC_DO_ADJOINT = 4  /* G += transpose(A_tile) * R          (adds into G) */
};

/* One visit of one tile. m = view.n.n_rows. All addresses are the device's (or, where the device is
 * host_visible, anybody's). X and G: row 0 is column 0 of the matrix; Y, R, T, W: row 0 is the
 * tile's first row. Leading dimensions in elements. Everything must stay valid until the stream has
 * run the job; the struct itself only during the call. */
typedef struct {
    uint32_t todo;
    ooc_tile_view view;
    uint64_t n_cols; /* of the matrix: rows of X and G */
    uint32_t B;
    ooc_dtype dense; /* of X, Y, R, T, W, G: OOC_F32 or OOC_F64 */
    const void *X;
    uint64_t ldx;
    void *Y;
    uint64_t ldy;
    const void *T;
    uint64_t ldt;
    const void *W; /* m x 1 (every column of T alike), or m x B if w_per_column; NULL: all 1 */
    uint64_t ldw;
    bool w_per_column;
    ooc_loss_kind loss_kind;
    double scale; /* 1 / (sum of the weights of all M*B entries) */
    double *loss; /* device address */
    void *R;
    uint64_t ldr;
    void *G;
    uint64_t ldg;
    void *work; /* ops->work_bytes() bytes of the device, used by one job at a time */
    /* host_visible devices only; NULL: the block is ready. Called once for each task
     * 0..n_prepare-1 by pool threads before anything reads the block: decodes and checks it. With
     * prepare_by_chunk task c makes chunk c ready, and the view's tables are ready before. Once it
     * has returned false the job stops early and fails with what prepare_error then gives. */
    bool (*prepare)(void *ctx, uint32_t task, uint32_t thread);
    ooc_status (*prepare_error)(void *ctx, ooc_err *err);
    void *prepare_ctx;
    uint32_t n_prepare;
    bool prepare_by_chunk;
    /* Added to by host_visible devices: wall time of the parts. May be NULL. */
    struct ooc_job_times *times;
} ooc_tile_job;

typedef struct ooc_job_times {
    uint64_t decode_ns, forward_ns, loss_ns, adjoint_ns;
} ooc_job_times;

/* What bounds a job's workspace. */
typedef struct {
    uint32_t max_tile_rows, max_tile_chunks, panel_columns;
    uint64_t max_kernel_bytes; /* of the largest tile */
    uint64_t n_cols;
    uint32_t max_batch;
    ooc_dtype dense;
} ooc_work_shape;

typedef struct ooc_device_ops {
    void (*close)(ooc_device *d); /* NULL is allowed; blocks, streams and events are gone before */

    /* A block of device memory, aligned to 256 (where the host reads and writes it, to 4096), not
     * zeroed. OOC_E_NOMEM says how much is free. */
    ooc_status (*block_alloc)(ooc_device *d, uint64_t bytes, void **out, ooc_err *err);
    void (*block_free)(ooc_device *d, void *block, uint64_t bytes);

    /* Page-lock host memory for asynchronous copies (pages, exact size). Undo before freeing it.
     * Only speed depends on it. */
    ooc_status (*host_register)(ooc_device *d, void *p, uint64_t bytes, ooc_err *err);
    void (*host_unregister)(ooc_device *d, void *p);

    ooc_status (*stream_open)(ooc_device *d, ooc_stream **out, ooc_err *err);
    /* Its work must be done (stream_sync). NULL is allowed. */
    void (*stream_close)(ooc_device *d, ooc_stream *s);
    ooc_status (*stream_sync)(ooc_device *d, ooc_stream *s, ooc_err *err);

    ooc_status (*event_open)(ooc_device *d, ooc_event **out, ooc_err *err);
    void (*event_close)(ooc_device *d, ooc_event *e); /* NULL is allowed */
    /* Marks the work given to `s` so far. An event that was never recorded counts as reached. */
    ooc_status (*event_record)(ooc_device *d, ooc_event *e, ooc_stream *s, ooc_err *err);
    /* Work given to `s` from now on waits for `e` as it stands now. */
    ooc_status (*event_wait)(ooc_device *d, ooc_stream *s, ooc_event *e, ooc_err *err);
    ooc_status (*event_sync)(ooc_device *d, ooc_event *e, ooc_err *err); /* the host waits */
    ooc_status (*event_query)(ooc_device *d, ooc_event *e, bool *reached, ooc_err *err);

    /* Work given to `s` from now on waits for what a caller's own stream on device `ordinal`
     * (ooc_array.stream; NULL: the default stream) has queued so far. The other way round is not
     * needed: a call of the engine returns when its results are there. Nothing is created here: the
     * backend keeps an event for it. NULL where there are no such streams (CPU). */
    ooc_status (*wait_caller)(ooc_device *d, ooc_stream *s, int ordinal, void *caller,
                              ooc_err *err);

    ooc_status (*copy)(ooc_device *d, ooc_stream *s, const ooc_copy *c, ooc_err *err);
    /* Zero bytes in `rows` rows of `row_bytes`, `pitch` bytes apart. */
    ooc_status (*zero)(ooc_device *d, ooc_stream *s, void *p, uint64_t pitch, uint64_t row_bytes,
                       uint64_t rows, ooc_err *err);

    /* Bytes of ooc_tile_job.work. */
    uint64_t (*work_bytes)(const ooc_device *d, const ooc_work_shape *shape);
    ooc_status (*tile_run)(ooc_device *d, ooc_stream *s, const ooc_tile_job *job, ooc_err *err);
    /* *sum += the weights of `rows` rows of `n_cols` columns, in a fixed order; `sum` is a device
     * address, W device memory. `work` as for tile_run. NULL where all W are host memory (CPU). */
    ooc_status (*weight_sum)(ooc_device *d, ooc_stream *s, const void *W, uint64_t ldw,
                             uint64_t rows, uint32_t n_cols, ooc_dtype dense, double *sum,
                             void *work, ooc_err *err);
} ooc_device_ops;

/* What every backend's device begins with. */
struct ooc_device {
    const ooc_device_ops *ops;
    ooc_device_props props;
};

/* Open a device by name: "cpu", "cuda:0", ... or "auto" (or NULL): the first GPU that works, else
 * the CPU. `pool` is the compute pool (CPU kernels); it must outlive the device. `warn` (may be
 * NULL) is told once when auto falls back to the CPU in a build that has CUDA.
 * OOC_E_ARG: not a device name. OOC_E_NO_DEVICE, OOC_E_DRIVER_OLD, OOC_E_UNSUPPORTED (CUDA not
 * built in): the reason is in the text. On failure *out is NULL. */
ooc_status ooc_device_open(ooc_device **out, const char *name, ooc_pool *pool,
                           void (*warn)(void *ctx, const char *line), void *warn_ctx, ooc_err *err);
void ooc_device_close(ooc_device *d); /* NULL is allowed */

/* The backends, for device.c (and tests). cuda: fails as ooc_device_open says. */
ooc_status ooc_device_cpu_open(ooc_device **out, ooc_pool *pool, ooc_err *err);
ooc_status ooc_device_cuda_open(ooc_device **out, int ordinal, ooc_pool *pool, ooc_err *err);

/* Flat copies and zeroing, in terms of the table. */
static inline ooc_status ooc_device_copy_flat(ooc_device *d, ooc_stream *s, ooc_copy_kind kind,
                                              void *dst, const void *src, uint64_t bytes,
                                              ooc_err *err)
{
    ooc_copy c = {kind, dst, src, bytes, bytes, bytes, 1, 0, 0};

    return d->ops->copy(d, s, &c, err);
}

#ifdef __cplusplus
}
#endif
#endif
