/* spmm_ops.h - inside the CPU kernels: what one instruction set implements, and how work reaches
 * it.
 *
 * The drivers (spmm_forward.c, spmm_adjoint.c) cut a tile into batches of pieces; the instruction
 * sets (spmm_scalar.c, spmm_avx2.c, spmm_avx512.c) only know how to run one batch. */
#ifndef OOC_KERNELS_SPMM_OPS_H
#define OOC_KERNELS_SPMM_OPS_H

#include "kernels/cpu/panel_layout.h"
#include "kernels/cpu/spmm_cpu.h"

#define OOC_PIECE       512u /* entries: the longest plain sum (DESIGN section 9, biased data) */
#define OOC_STRIP_BYTES 128u /* of a row of X: 32 columns of f32, 16 of f64 to a kernel call */
#define OOC_STRIP_MAX   32u

/* Some entries of one segment: at[at..at+len), val[val..val+len), 1 <= len <= OOC_PIECE. */
typedef struct {
    uint32_t at; /* a multiple of OOC_AT_ALIGN */
    uint32_t val;
    uint16_t row;
    uint16_t len;
} ooc_piece;

#define OOC_AT_ALIGN 16u

/* One batch. Entries are pieces, or (pair panels) single ones with a row each. */
typedef struct {
    const ooc_piece *piece; /* NULL: pairs, entry i is row[i], at[i], val[i] */
    uint32_t n;             /* pieces or pairs */
    const uint16_t *row;    /* pairs only */
    const uint32_t *at; /* where the row of each column is: bytes from in (forward), out (adjoint);
                           64-byte aligned; at[-1] may be read */
    const void *val;    /* f32 or f64, as each kernel says */
} ooc_batch_view;

/* The dense side of a call. forward: in = rows of X, out = Y of the tile's row 0. adjoint: in = R
 * of the tile's row 0, out = accumulators. */
typedef struct {
    const void *in;
    uint64_t ld_in; /* adjoint only: elements */
    void *out;
    uint64_t ld_out; /* forward only: elements */
    uint32_t B;      /* 1..OOC_STRIP_BYTES / size of the dense type */
} ooc_dense_view;

typedef void (*ooc_batch_fn)(const ooc_batch_view *a, const ooc_dense_view *d);
typedef void (*ooc_fold_fn)(void *G, uint64_t ldg, void *acc, ooc_panel_layout l,
                            const uint16_t *cols, uint32_t n, uint32_t col0, uint32_t B);

/* The functions of one dense type. Values are of the dense type too, and so are the accumulators of
 * the adjoint; but for B up to wide_max_b (f32 only) adjoint_wide has accumulators in double: for
 * so few columns that costs no more instructions, and no sum can drift.
 *
 * copy_in:  the first B elements of n rows of X into a block, the rest of its rows 0
 * fold:     G[cols[i], 0..B) += acc[cols[i] - col0, 0..B) and acc = -0 there, for n columns; cols
 *           NULL: of rows 0 .. n-1 of both, and acc is left as it is */
typedef struct {
    ooc_batch_fn forward, adjoint, adjoint_wide;
    void (*copy_in)(void *block, ooc_panel_layout l, const void *X, uint64_t ldx, uint32_t n,
                    uint32_t B);
    ooc_fold_fn fold, fold_wide;
    uint32_t wide_max_b;
} ooc_spmm_type_ops;

typedef struct {
    ooc_spmm_type_ops f32, f64;
    /* at[piece[i].at + k] = place of column col[ent[i] + k] - col0 in the layout, k < piece[i].len
       (or a little more: up to a multiple of OOC_AT_ALIGN) */
    void (*place)(uint32_t *at, const ooc_piece *piece, uint32_t n, const uint16_t *col,
                  const uint32_t *ent, uint32_t col0, ooc_panel_layout l);
    /* out[piece[i].at + k] = in[ent[i] + k], k < piece[i].len; out_type OOC_F32 or OOC_F64, in_type
       not OOC_CONST */
    void (*convert)(ooc_dtype in_type, const void *in, ooc_dtype out_type, void *out,
                    const ooc_piece *piece, uint32_t n, const uint32_t *ent);
} ooc_spmm_ops;

extern const ooc_spmm_ops ooc_spmm_scalar;
#if OOC_X86_64
extern const ooc_spmm_ops ooc_spmm_avx2;
extern const ooc_spmm_ops ooc_spmm_avx512;
#endif

/* The table in use. */
const ooc_spmm_ops *ooc_spmm_ops_get(void);
#endif
