/* piece_list.h - the segments of one panel as lists of pieces: long ones cut, in an order that
 * suits the caches, entries outside a column range left out.
 *
 *     ooc_walk w;
 *     ooc_walk_open(&w, t, p, c0, c1, list);
 *     ...w.col0 = .., w.col1 = .., w.sort = ooc_walk_sorting_pays(&w)...
 *     while (ooc_walk_next(&w))
 *         ...list->piece[0 .. list->n), or pairs...
 *
 * The order where it is sorted: some thousand segments at a time, by their first column. Segments
 * that begin close to each other touch the same rows of X or G while these are in the L1 cache:
 * rays of neighbouring views of a scan through the same place, which stand hundreds of rows apart.
 */
#ifndef OOC_KERNELS_PIECE_LIST_H
#define OOC_KERNELS_PIECE_LIST_H

#include "kernels/cpu/spmm_ops.h"

#include <stdbool.h>

#define OOC_LIST_PIECES  2048u
#define OOC_SLICE        256u /* pieces (pairs) */
#define OOC_LIST_BUCKETS 2048u

/* Lives in the caller's scratch memory. */
typedef struct {
    ooc_piece piece[OOC_LIST_PIECES + OOC_AHEAD];
    uint32_t n;
    /* Slice s ends before piece slice_end[s]. Slices are cut before any piece is left out, so the
     * same ones for every column range. */
    uint32_t n_slices;
    uint16_t slice_end[OOC_LIST_PIECES / OOC_SLICE];

    ooc_piece unsorted[OOC_LIST_PIECES];
    uint16_t key[OOC_LIST_PIECES];
    uint16_t count[OOC_LIST_BUCKETS];
    uint16_t row[OOC_SLICE], col[OOC_SLICE]; /* pairs of a column range */
    uint64_t val[OOC_SLICE];
} ooc_piece_list;

typedef struct {
    ooc_work work; /* the current list, or slice of pairs */
    const ooc_tile_view *t;
    uint32_t col0, col1; /* columns col0 .. col1-1 of the panel only */
    bool sort;
    uint32_t seg, seg_end; /* next segment of the tile */
    uint32_t len_shift;    /* segment s has seg_len[s - len_shift] entries */
    uint32_t ent;          /* next entry */
    uint32_t done;         /* how many entries of the next segment were taken */
    bool pairs;
    float mean_segment;
    ooc_piece_list *list;
} ooc_walk;

/* Panel p, rows of chunks c0 .. c1-1, all columns, unsorted. The caller sets work.l and work.col0.
 */
void ooc_walk_open(ooc_walk *w, const ooc_tile_view *t, uint32_t p, uint32_t c0, uint32_t c1,
                   ooc_piece_list *list);

/* The mean number of entries of a segment of panel p (1 for pairs). */
static inline float ooc_panel_mean_segment(const ooc_tile_view *t, uint32_t p)
{
    const uint32_t run = p * t->n.n_chunks, end = run + t->n.n_chunks;

    return (float)(t->ent_off[end] - t->ent_off[run]) / (float)(t->seg_off[end] - t->seg_off[run]);
}

/* True where segments are long enough. Depends on the panel only. */
bool ooc_walk_sorting_pays(const ooc_walk *w);

/* The next list of pieces (work and list->slice_end), or slice of pairs (work; whole rows, or parts
 * of one row). False: there is none. A list may be empty. */
bool ooc_walk_next(ooc_walk *w);

/* How many of the next `rest` pairs make a slice of at most `max`: whole rows, so that sums of a
 * row do not depend on where the walk began; a row longer than that is cut at multiples of `max`
 * from its start. */
static inline uint32_t ooc_whole_rows(const uint16_t *row, uint32_t rest, uint32_t max)
{
    uint32_t n = max;

    if (rest <= max)
        return rest;
    while (n && row[n - 1] == row[max])
        n--;
    return n ? n : max;
}
#endif
