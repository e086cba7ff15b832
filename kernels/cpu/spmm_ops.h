/* spmm_ops.h - inside the CPU kernels: what one instruction set implements, and how work reaches
 * it.
 *
 * The drivers (spmm_forward.c, spmm_adjoint.c) cut a tile into batches of pieces; the instruction
 * sets (spmm_scalar.c, spmm_avx2.c, spmm_avx512.c) only know how to run one batch. */
#ifndef OOC_KERNELS_SPMM_OPS_H
#define OOC_KERNELS_SPMM_OPS_H

#include "kernels/cpu/spmm_cpu.h"

#define OOC_PIECE       512u /* entries: the longest plain sum (DESIGN section 9, biased data) */
#define OOC_STRIP_BYTES 128u /* of a row of X: 32 columns of f32, 16 of f64 to a kernel call */
#define OOC_STRIP_MAX   32u

/* Some entries of one segment: col[off..off+len), val[off..off+len), 1 <= len <= OOC_PIECE. */
typedef struct {
    uint32_t off;
    uint16_t row;
    uint16_t len;
} ooc_piece;

/* One batch. Entries are pieces, or (pair panels) single ones with a row each. */
typedef struct {
    const ooc_piece *piece; /* NULL: pairs, entry i is row[i], col[i], val[i] */
    uint32_t n;             /* pieces or pairs */
    const uint16_t *row;    /* pairs only */
    const uint16_t *col;
    const void *val; /* of the dense type */
} ooc_batch_view;

/* The dense side of a call. forward: in = X of the panel's column 0, out = Y of the tile's row 0.
 * adjoint: in = R of the tile's row 0, out = accumulators of column col0 of the panel. */
typedef struct {
    const void *in;
    uint64_t ld_in;
    void *out;
    uint64_t ld_out;
    uint32_t col0;
    uint32_t B; /* 1..OOC_STRIP_BYTES / size of the dense type */
} ooc_dense_view;

typedef void (*ooc_batch_fn)(const ooc_batch_view *a, const ooc_dense_view *d);

/* G[cols[i], 0..B) += acc[cols[i] - col0, 0..B), and acc = -0 there, for n columns. cols NULL: of
 * rows 0 .. n-1 of both, and acc is left as it is. */
typedef void (*ooc_fold_fn)(void *G, uint64_t ldg, void *acc, uint64_t lda, const uint16_t *cols,
                            uint32_t n, uint32_t col0, uint32_t B);

/* The functions of one dense type. Accumulators of the adjoint are of the dense type in rows of
 * `acc_pad` elements or a multiple of it; up to B = wide_max_b they are double (f32 only): for so
 * few columns double costs no more instructions, and no sum can drift. */
typedef struct {
    ooc_batch_fn forward, adjoint, adjoint_wide;
    ooc_fold_fn fold, fold_wide;
    uint32_t wide_max_b;
} ooc_spmm_type_ops;

typedef struct {
    ooc_spmm_type_ops f32, f64;
} ooc_spmm_ops;

extern const ooc_spmm_ops ooc_spmm_scalar;
#if OOC_X86_64
extern const ooc_spmm_ops ooc_spmm_avx2;
extern const ooc_spmm_ops ooc_spmm_avx512;
#endif

/* The table in use. */
const ooc_spmm_ops *ooc_spmm_ops_get(void);
#endif
