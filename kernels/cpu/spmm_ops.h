/* spmm_ops.h - inside the CPU kernels: what one instruction set implements, and how work reaches
 * it.
 *
 * The drivers (spmm_forward.c, spmm_adjoint.c) choose blocks of columns and lists of pieces; the
 * instruction sets (spmm_scalar.c, spmm_avx2.c, spmm_avx512.c) only know how to run one list. */
#ifndef OOC_KERNELS_SPMM_OPS_H
#define OOC_KERNELS_SPMM_OPS_H

#include "kernels/cpu/panel_layout.h"
#include "kernels/cpu/spmm_cpu.h"

#include <stdbool.h>

#define OOC_PIECE       128u /* entries: the longest plain sum (DESIGN section 9, biased data) */
#define OOC_STRIP_BYTES 128u /* of a row of X: 32 columns of f32, 16 of f64 to a kernel call */
#define OOC_STRIP_MAX   32u
#define OOC_AHEAD       16u /* pieces: how far ahead a kernel fetches sorted ones */

/* Entries ent .. ent+len-1 of the tile, all of one row; 1 <= len <= OOC_PIECE. */
typedef struct {
    uint32_t ent;
    uint16_t row;
    uint16_t len;
} ooc_piece;

/* What to multiply: pieces, or (pair panels) the entries ent .. ent+n-1 with a row each. Column c
 * of the panel stands at place c - col0 of the layout. */
typedef struct {
    const ooc_piece *piece; /* NULL: pairs. OOC_AHEAD more than n can be read */
    const uint16_t *row;    /* pairs: row[0 .. n-1], ascending */
    uint32_t ent;
    uint32_t n;
    bool sorted;         /* pieces do not follow each other in the tile */
    const uint16_t *col; /* of the whole tile, as val */
    const void *val;
    ooc_dtype vtype;
    double constant; /* for vtype OOC_CONST */
    uint32_t col0;
    ooc_panel_layout l;
} ooc_work;

/* The dense side. forward: in = rows of X in the work's layout, out = Y of the tile's row 0.
 * adjoint: in = R of the tile's row 0, out = accumulators in the work's layout. */
typedef struct {
    const void *in;
    uint64_t ld_in; /* adjoint only: elements */
    void *out;
    uint64_t ld_out; /* forward only: elements */
    uint32_t B;      /* 1..OOC_STRIP_BYTES / size of the dense type */
} ooc_dense;

typedef void (*ooc_work_fn)(const ooc_work *w, const ooc_dense *d);
typedef void (*ooc_fold_fn)(void *G, uint64_t ldg, void *acc, ooc_panel_layout l,
                            const uint16_t *cols, uint32_t n, uint32_t col0, uint32_t B);

/* The functions of one dense type. The accumulators of the adjoint are of the dense type too; but
 * for B up to wide_max_b (f32 only) those of adjoint_wide are double: for so few columns that costs
 * no more instructions, and no sum can drift.
 *
 * copy_in:  the first B elements of n rows of X into a block, the rest of its rows 0
 * fold:     G[cols[i], 0..B) += acc[cols[i] - col0, 0..B) and acc = -0 there, for n columns; cols
 *           NULL: of rows 0 .. n-1 of both, and acc is left as it is */
typedef struct {
    ooc_work_fn forward, adjoint, adjoint_wide;
    void (*copy_in)(void *block, ooc_panel_layout l, const void *X, uint64_t ldx, uint32_t n,
                    uint32_t B);
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
