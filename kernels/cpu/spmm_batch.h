/* spmm_batch.h - walk one panel of a tile in batches of pieces: long segments cut, values converted
 * to the dense type, entries outside a column range left out.
 *
 *     ooc_batch b;
 *     ooc_batch_open(&b, t, p, c0, c1, col0, col1, OOC_F32);
 *     while (ooc_batch_next(&b, UINT32_MAX))
 *         ...b.view...
 */
#ifndef OOC_KERNELS_SPMM_BATCH_H
#define OOC_KERNELS_SPMM_BATCH_H

#include "kernels/cpu/spmm_ops.h"

#include <stdbool.h>

#define OOC_BATCH_PIECES  256u
#define OOC_BATCH_ENTRIES OOC_PIECE /* where values are converted, and of pairs */

typedef struct {
    ooc_batch_view view; /* the current batch */

    const ooc_tile_view *t;
    uint32_t col0, col1;
    bool all_columns;
    bool pairs;
    bool direct;           /* values are used where they stand */
    ooc_dtype dense;       /* what view.val is of */
    uint32_t seg, seg_end; /* next segment of the tile */
    uint32_t len_shift;    /* segment s has seg_len[s - len_shift] entries */
    uint32_t ent;          /* its first entry ... */
    uint32_t done;         /* ... and how many of its entries earlier batches took */
    ooc_piece piece[OOC_BATCH_PIECES];
    uint16_t row[OOC_BATCH_ENTRIES], col[OOC_BATCH_ENTRIES]; /* pairs of a column range */
    union {
        float f32[OOC_BATCH_ENTRIES];
        double f64[OOC_BATCH_ENTRIES];
    } val;
} ooc_batch;

/* Panel p, rows of chunks c0 .. c1-1, columns col0 .. col1-1 of the panel. */
void ooc_batch_open(ooc_batch *b, const ooc_tile_view *t, uint32_t p, uint32_t c0, uint32_t c1,
                    uint32_t col0, uint32_t col1, ooc_dtype dense);

/* The next batch with rows below row_stop; false: there is none (then the walk can go on with a
 * higher row_stop). A batch may be empty (view.n 0). */
bool ooc_batch_next(ooc_batch *b, uint32_t row_stop);

/* The row of the next segment, or UINT32_MAX at the end. */
static inline uint32_t ooc_batch_row(const ooc_batch *b)
{
    return b->seg < b->seg_end ? b->t->seg_row[b->seg] : UINT32_MAX;
}
#endif
