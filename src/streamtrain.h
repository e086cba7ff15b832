/* streamtrain.h - public C API: products with a sparse matrix that streams from a tile store.
 *
 * A is M x N and fixed. X is N x B, Y = A*X is M x B, T is M x B (target), R = dLoss/dY is M x B,
 * G = transpose(A)*R is N x B. The B entries of a row are contiguous; rows are `ld` elements apart.
 *
 *     ooc_matrix *A;
 *     ooc_matrix_opts opts = {.size = sizeof opts, .vram_budget = 2u << 30, .max_batch = 8};
 *     if (ooc_matrix_open(&A, "ct.tiles", &opts, &err)) { ...err.text... }
 *     ooc_matrix_forward(A, 8, &X, &Y, &err);
 *     ooc_matrix_close(A);
 *
 * Memory:  what the budgets allow, taken at open; no call after that allocates.
 * Threads: one handle serves one thread at a time; several handles are independent.
 * Errors:  every call returns OOC_OK or a status and fills `err` (which may be NULL); outputs are
 * then unspecified, the handle stays usable unless the status is OOC_E_DEVICE. */
#ifndef STREAMTRAIN_H
#define STREAMTRAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "kernels/loss_hd.h"   /* ooc_loss_kind */
#include "kernels/tile_view.h" /* ooc_dtype */

#ifdef __cplusplus
extern "C" {
#endif

#define OOC_HOST (-1) /* ooc_array.device: ordinary host memory */

/* A dense row-major array of the caller's, N x B or M x B. */
typedef struct {
    void *data;
    uint64_t ld;     /* elements from one row to the next, >= B; 0 means B */
    ooc_dtype dtype; /* OOC_F32 or OOC_F64; all arrays of one call alike */
    int device;      /* OOC_HOST, or the ordinal of a CUDA device */
    void *stream;    /* the caller's CUDA stream, ordered against by events; NULL on the host */
} ooc_array;

typedef enum { OOC_IO_AUTO = 0, OOC_IO_URING, OOC_IO_PREAD } ooc_io;
typedef enum { OOC_PASS_AUTO = 0, OOC_PASS_FUSED, OOC_PASS_TWO } ooc_pass;

/* Zero means the default everywhere. */
typedef struct {
    size_t size;          /* sizeof(ooc_matrix_opts) */
    const char *device;   /* "auto", "cpu", "cuda:0", ...; NULL: "auto" */
    uint64_t vram_budget; /* bytes; default: 80 % of what is free on a GPU, 2 GiB on the CPU */
    uint64_t ram_budget;  /* bytes; default 1 GiB */
    uint32_t max_batch; /* largest B that one sweep serves, default 1; wider calls run in strips */
    ooc_dtype dense;    /* widest dense type of the calls to come; default OOC_F32 */
    uint32_t n_slots;   /* tile slots in each stage, default: as many as pay, at least 2 */
    uint32_t n_threads; /* compute threads, default: the processors of this process */
    ooc_io io;
    ooc_pass pass;    /* for ooc_matrix_step */
    bool no_resident; /* keep no tile between passes (for measuring) */
    /* X and G of all calls are on the matrix device itself: no room for copies of them is planned
     * (others are then refused). Means nothing on the CPU. */
    bool arrays_on_device;
    void (*warn)(void *ctx, const char *line); /* things worth saying once; NULL: not said */
    void *warn_ctx;
    /* Called by the calling thread behind each tile of a sweep; must be cheap. NULL: not called. */
    void (*progress)(void *ctx, uint64_t tiles_done, uint64_t n_tiles);
    void *progress_ctx;
    /* Asked by the calling thread between tiles, at most every 100 ms; true stops the call with
     * OOC_E_INTERRUPTED. For languages that run signal handlers in that thread. NULL: not asked. */
    bool (*interrupted)(void *ctx);
    void *interrupted_ctx;
} ooc_matrix_opts;

typedef struct ooc_matrix ooc_matrix;

/* Open the store at `path`, plan the budgets, take the memory. On success the caller owns *out and
 * ends it with ooc_matrix_close(). On failure *out is NULL: OOC_E_IO, OOC_E_FORMAT, OOC_E_BUDGET
 * (which part needs how many bytes), OOC_E_ARG, OOC_E_NO_DEVICE, OOC_E_NOMEM. */
ooc_status ooc_matrix_open(ooc_matrix **out, const char *path, const ooc_matrix_opts *opts,
                           ooc_err *err);
void ooc_matrix_close(ooc_matrix *m); /* NULL is allowed */

typedef struct {
    size_t size;
    uint64_t n_rows, n_cols, n_entries;
    uint64_t n_tiles;
    uint64_t stored_bytes; /* all tiles as they stand on disk */
    uint64_t kernel_bytes; /* all tiles in kernel form */
    ooc_dtype values;      /* element type of the stored values */
} ooc_matrix_shape;

void ooc_matrix_get_shape(const ooc_matrix *m, ooc_matrix_shape *out);

/* Y = A*X (overwrites Y). X: N x B, Y: M x B. */
ooc_status ooc_matrix_forward(ooc_matrix *m, uint32_t B, const ooc_array *X, const ooc_array *Y,
                              ooc_err *err);
/* G = transpose(A)*R (overwrites G). R: M x B, G: N x B. */
ooc_status ooc_matrix_adjoint(ooc_matrix *m, uint32_t B, const ooc_array *R, const ooc_array *G,
                              ooc_err *err);

/* The loss of Y = A*X against T, a weighted mean over all M*B entries:
 *     loss = sum(w * l(y, t)) / sum(w),   R = w * l'(y, t) / sum(w)
 *     mse      l = (y-t)^2                    l' = 2(y-t)
 *     l1       l = |y-t|                      l' = sign(y-t), 0 at 0
 *     huber    l = d*d/2 for |d| <= 1, else |d|-1/2, with d = y-t
 *     poisson  l = y - t*log(y + 1e-8)        l' = 1 - t/(y + 1e-8)
 * An entry of weight 0 is left out whatever t and y are there (dead detectors may hold NaN). */
typedef struct {
    size_t size;
    ooc_loss_kind kind;
    const ooc_array
        *W; /* M x 1 (ld 1, the same for all B columns) or M x B weights >= 0; NULL: all 1 */
    bool w_per_column; /* W is M x B */
} ooc_loss_opts;

/* One training step through A: loss and G = transpose(A)*R, in one visit of each tile (fused) or in
 * two passes, as opts.pass says. loss NULL: mse without weights. Y may be NULL; else it receives
 * A*X. G may be NULL: only the loss. Bits do not depend on the pass. Where all weights are 0 the
 * loss and G are 0. */
ooc_status ooc_matrix_step(ooc_matrix *m, uint32_t B, const ooc_array *X, const ooc_array *T,
                           const ooc_loss_opts *loss, const ooc_array *Y, const ooc_array *G,
                           double *loss_out, ooc_err *err);

/* Counters since open or since the last reset. */
typedef struct {
    size_t size;
    uint64_t passes;
    uint64_t tiles_read, read_bytes; /* from disk */
    uint64_t decoded_bytes;          /* kernel-form bytes produced by decoding */
    uint64_t read_wait_ns;           /* time compute waited for the disk */
    uint64_t decode_ns, forward_ns, loss_ns, adjoint_ns; /* wall time of each stage */
    uint64_t tiles_resident_device, tiles_resident_ram;
    uint64_t device_budget, device_peak_bytes; /* of the matrix device's arena */
    uint64_t host_budget, host_peak_bytes;     /* of the RAM tier and the I/O slots */
    uint32_t n_slots, n_threads;
    ooc_io io;          /* the engine in use */
    const char *isa;    /* "avx512", "sm_86", ...; lives as long as the handle */
    const char *device; /* "cpu", "cuda:0"; the same */
} ooc_matrix_stats;

void ooc_matrix_get_stats(const ooc_matrix *m, ooc_matrix_stats *out);
void ooc_matrix_reset_stats(ooc_matrix *m);

/* Make a running call of `m`, or else the next one, stop soon with OOC_E_INTERRUPTED. Safe from a
 * signal handler or another thread. Forgotten once a call has returned so. */
void ooc_matrix_interrupt(ooc_matrix *m);

const char *ooc_version(void);

#ifdef __cplusplus
}
#endif
#endif
