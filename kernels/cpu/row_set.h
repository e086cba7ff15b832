/* row_set.h - scratch of one call, and sets of the rows of its accumulators.
 *
 * "Row" here is a row of the accumulators: a row of Y in the forward product, a column of A (row of
 * G) in the adjoint. */
#ifndef OOC_KERNELS_ROW_SET_H
#define OOC_KERNELS_ROW_SET_H

#include "kernels/cpu/piece_list.h"

#define OOC_SCRATCH_BLOCK (1u << 20) /* bytes of rows: half of a common L2 cache */

/* A set of 16-bit row numbers as bits. */
typedef struct {
    uint64_t bits[65536 / 64];
} ooc_row_set;

/* What the caller's scratch memory holds. */
typedef struct {
    _Alignas(64) char block[OOC_BYTES_WITH_GAPS(OOC_SCRATCH_BLOCK)];
    ooc_row_set touched;
    uint8_t sample[65536]; /* adjoint: how often a sampled row had this column */
    uint16_t hub[65536];   /* adjoint: columns with many entries */
    ooc_piece_list list;
} ooc_scratch;

_Static_assert(sizeof(ooc_scratch) <= OOC_SPMM_SCRATCH_BYTES, "OOC_SPMM_SCRATCH_BYTES");

/* p + bytes, for bases outside the array whose indexed elements lie inside it. */
static inline void *ooc_shift(void *p, int64_t bytes)
{
    return (void *)((uintptr_t)p + (uintptr_t)bytes);
}

/* -0 and not 0: x + -0 is x for every x, bit for bit. `bytes`: a multiple of `type`'s size. */
void ooc_fill_neg_zero(ooc_dtype type, void *out, uint64_t bytes);

void ooc_row_set_clear(ooc_row_set *s);

/* False if it was there. */
static inline bool ooc_row_set_add(ooc_row_set *s, uint32_t row)
{
    const uint64_t bit = (uint64_t)1 << (row % 64);
    const bool is_new = !(s->bits[row / 64] & bit);

    s->bits[row / 64] |= bit;
    return is_new;
}

/* Fold (spmm_ops.h) every row of the set, ascending, and empty the set. */
void ooc_row_set_fold(ooc_row_set *s, ooc_fold_fn fold, void *G, uint64_t ldg, void *acc,
                      ooc_panel_layout l, uint32_t row0, uint32_t B);
#endif
