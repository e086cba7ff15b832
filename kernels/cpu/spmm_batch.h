/* spmm_batch.h - walk one panel of a tile in batches of pieces: long segments cut, segments put in
 * an order that suits the caches, values converted, columns turned into places, entries outside a
 * column range left out.
 *
 *     ooc_batch b;
 *     ooc_batch_open(&b, ops, t, p, c0, c1, OOC_F32, layout);
 *     ooc_batch_columns(&b, col0, col1);
 *     ooc_batch_sort(&b, list);
 *     while (ooc_batch_next(&b))
 *         ...b.view...
 *
 * The order: some thousand segments at a time, by their first column. Segments that begin close to
 * each other touch the same rows of X or G while these are in the L1 cache: rays of neighbouring
 * views of a scan through the same place, which stand hundreds of rows apart. */
#ifndef OOC_KERNELS_SPMM_BATCH_H
#define OOC_KERNELS_SPMM_BATCH_H

#include "kernels/cpu/spmm_ops.h"

#include <stdbool.h>

#define OOC_BATCH_PIECES  256u
#define OOC_BATCH_ENTRIES 1024u
#define OOC_LIST_PIECES   2048u /* sorted at once */

/* Where pieces are sorted; lives in the caller's scratch memory. */
typedef struct {
    struct ooc_list_piece {
        uint32_t ent; /* first entry in the tile */
        uint16_t row, len;
    } raw[OOC_LIST_PIECES], sorted[OOC_LIST_PIECES];
    uint16_t key[OOC_LIST_PIECES];
    uint16_t count[2048 + 1];
} ooc_piece_list;

typedef struct {
    ooc_batch_view view;     /* the current batch */
    uint32_t ent[OOC_PIECE]; /* first entry in the tile of each piece (or pair) of the view */
    uint32_t taken;          /* pieces or pairs so far, those left out too */

    const ooc_spmm_ops *ops;
    const ooc_tile_view *t;
    uint32_t col0, col1;
    ooc_panel_layout layout;
    bool all_columns;
    bool pairs;
    bool direct;           /* values are used where they stand */
    ooc_dtype dense;       /* what view.val is of */
    uint32_t seg, seg_end; /* next segment of the tile */
    uint32_t len_shift;    /* segment s has seg_len[s - len_shift] entries */
    uint32_t seg_ent;      /* its first entry ... */
    uint32_t seg_done;     /* ... and how many of its entries were taken */
    uint32_t panel_entries, panel_segments;
    ooc_piece_list *list;
    bool sort;
    const struct ooc_list_piece *next, *end; /* of the list */
    ooc_piece piece[OOC_BATCH_PIECES];
    uint16_t row[OOC_PIECE]; /* pairs of a column range */
    _Alignas(64) uint32_t at[OOC_AT_ALIGN + 2 * OOC_BATCH_ENTRIES];
    union {
        float f32[2 * OOC_BATCH_ENTRIES];
        double f64[2 * OOC_BATCH_ENTRIES];
    } val;
} ooc_batch;

/* Panel p, rows of chunks c0 .. c1-1, all columns; values as `dense`. */
void ooc_batch_open(ooc_batch *b, const ooc_spmm_ops *ops, const ooc_tile_view *t, uint32_t p,
                    uint32_t c0, uint32_t c1, ooc_dtype dense, ooc_panel_layout layout,
                    ooc_piece_list *list);

/* Before the first batch: columns col0 .. col1-1 of the panel only; col0 stands at place 0. */
void ooc_batch_columns(ooc_batch *b, uint32_t col0, uint32_t col1);

/* Before the first batch: sort where segments are long enough for it to pay. */
void ooc_batch_sort(ooc_batch *b);

/* The next batch; false: there is none. A batch may be empty (view.n 0). Where one begins and ends,
 * and the order, depend on the panel and on c0, never on the column range. In pair panels batches
 * are whole rows. */
bool ooc_batch_next(ooc_batch *b);
#endif
