#include "kernels/cpu/piece_list.h"

#include <string.h>

#define SORT_WORTH 8.0f /* mean entries of a segment from which sorting pays */

void ooc_walk_open(ooc_walk *w, const ooc_tile_view *t, uint32_t p, uint32_t c0, uint32_t c1,
                   ooc_piece_list *list)
{
    const uint32_t run = p * t->n.n_chunks;

    w->t = t;
    w->col0 = 0;
    w->col1 = t->n.panel_columns;
    w->sort = false;
    w->pairs = t->len_base[p] == OOC_PAIR_PANEL;
    w->seg = t->seg_off[run + c0];
    w->seg_end = t->seg_off[run + c1];
    w->len_shift = w->pairs ? 0 : t->seg_off[run] - t->len_base[p];
    w->ent = t->ent_off[run + c0];
    w->done = 0;
    w->mean_segment = ooc_panel_mean_segment(t, p);
    w->list = list;
    w->work.val = t->val;
    w->work.col = t->col;
    w->work.vtype = t->n.vtype;
    w->work.constant = t->constant;
}

bool ooc_walk_sorting_pays(const ooc_walk *w)
{
    return !w->pairs && w->mean_segment >= SORT_WORTH;
}

static bool all_columns(const ooc_walk *w)
{
    return w->col0 == 0 && w->col1 >= w->t->n.panel_columns;
}

/* Keep the pairs ent .. ent+n-1 that are in the column range, in the list's own arrays. */
static void filter_pairs(ooc_walk *w, const uint16_t *row, uint32_t n)
{
    const uint32_t width = w->col1 - w->col0, size = ooc_dtype_bytes(w->work.vtype);
    ooc_piece_list *l = w->list;
    uint32_t kept = 0;

    for (uint32_t i = 0; i < n; i++) {
        const uint16_t c = w->t->col[w->ent + i];

        l->row[kept] = row[i];
        l->col[kept] = c;
        memcpy((char *)l->val + kept * size,
               (const char *)w->t->val + (uint64_t)(w->ent + i) * size, size);
        kept += (uint32_t)c - w->col0 < width;
    }
    w->work.n = kept;
    w->work.ent = 0;
    w->work.row = l->row;
    w->work.col = l->col;
    w->work.val = l->val;
}

static bool next_pairs(ooc_walk *w)
{
    const uint16_t *row = w->t->seg_row + w->seg;
    const uint32_t n = ooc_whole_rows(row, w->seg_end - w->seg, OOC_SLICE);

    if (!n)
        return false;
    w->work.piece = NULL;
    if (all_columns(w)) {
        w->work.n = n;
        w->work.ent = w->ent;
        w->work.row = row;
    } else {
        filter_pairs(w, row, n);
    }
    w->seg += n;
    w->ent += n;
    return true;
}

/* Cut the next segments into at most OOC_LIST_PIECES pieces; returns how many. */
static uint32_t fill(ooc_walk *w, ooc_piece *out)
{
    const uint16_t *seg_row = w->t->seg_row, *seg_len = w->t->seg_len;
    uint32_t n = 0, seg = w->seg, done = w->done, ent = w->ent;

    while (seg < w->seg_end && n < OOC_LIST_PIECES) {
        const uint32_t rest = seg_len[seg - w->len_shift] - done;
        const uint32_t take = rest < OOC_PIECE ? rest : OOC_PIECE;

        out[n++] = (ooc_piece){ent, seg_row[seg], (uint16_t)take};
        ent += take;
        done = take == rest ? 0 : done + take;
        seg += take == rest;
    }
    w->seg = seg;
    w->done = done;
    w->ent = ent;
    return n;
}

/* Stable counting sort by the first column. */
static void sort(ooc_piece_list *l, uint32_t n, const uint16_t *col, uint32_t panel_columns)
{
    const uint32_t per_bucket = (panel_columns + OOC_LIST_BUCKETS - 1) / OOC_LIST_BUCKETS;
    const uint32_t shift = per_bucket > 1 ? 32u - (uint32_t)__builtin_clz(per_bucket - 1) : 0;
    uint32_t sum = 0;

    memset(l->count, 0, sizeof l->count);
    for (uint32_t i = 0; i < n; i++) {
        l->key[i] = (uint16_t)(col[l->unsorted[i].ent] >> shift);
        l->count[l->key[i]]++;
    }
    for (uint32_t k = 0; k < OOC_LIST_BUCKETS; k++) {
        const uint32_t here = l->count[k];

        l->count[k] = (uint16_t)sum;
        sum += here;
    }
    for (uint32_t i = 0; i < n; i++)
        l->piece[l->count[l->key[i]]++] = l->unsorted[i];
}

/* The first of n ascending columns that is not below `col`. */
static uint32_t lower_bound(const uint16_t *cols, uint32_t n, uint32_t col)
{
    uint32_t lo = 0;

    while (n) {
        uint32_t half = n / 2;

        if (cols[lo + half] < col) {
            lo += half + 1;
            n -= half + 1;
        } else {
            n = half;
        }
    }
    return lo;
}

/* Cut pieces first .. end-1 down to the column range and move what is left to `to`; returns the new
 * end. */
static uint32_t filter(const ooc_walk *w, uint32_t first, uint32_t end, uint32_t to)
{
    ooc_piece *piece = w->list->piece;

    for (uint32_t i = first; i < end; i++) {
        ooc_piece p = piece[i];
        const uint16_t *cols = w->t->col + p.ent;
        const uint32_t lo = lower_bound(cols, p.len, w->col0);

        p.ent += lo;
        p.len = (uint16_t)lower_bound(cols + lo, p.len - lo, w->col1);
        piece[to] = p;
        to += p.len > 0;
    }
    return to;
}

bool ooc_walk_next(ooc_walk *w)
{
    ooc_piece_list *l = w->list;
    uint32_t n;

    if (w->pairs)
        return next_pairs(w);
    n = fill(w, w->sort ? l->unsorted : l->piece);
    if (!n)
        return false;
    if (w->sort)
        sort(l, n, w->t->col, w->t->n.panel_columns);
    l->n = 0;
    l->n_slices = 0;
    for (uint32_t first = 0; first < n; first += OOC_SLICE) {
        const uint32_t end = n - first < OOC_SLICE ? n : first + OOC_SLICE;

        l->n = all_columns(w) ? end : filter(w, first, end, l->n);
        l->slice_end[l->n_slices++] = (uint16_t)l->n;
    }
    for (uint32_t i = 0; i < OOC_AHEAD; i++)
        l->piece[l->n + i] = l->piece[l->n ? l->n - 1 : 0];
    w->work.piece = l->piece;
    w->work.sorted = w->sort;
    w->work.n = l->n;
    return true;
}
