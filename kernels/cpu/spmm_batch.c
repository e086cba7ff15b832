#include "kernels/cpu/spmm_batch.h"

#include <string.h>

#define AT_ROOM      (2 * OOC_BATCH_ENTRIES)
#define SORT_WORTH   8u    /* mean entries of a segment from which sorting pays */
#define SORT_BUCKETS 2048u /* of first columns */

void ooc_batch_open(ooc_batch *b, const ooc_spmm_ops *ops, const ooc_tile_view *t, uint32_t p,
                    uint32_t c0, uint32_t c1, ooc_dtype dense, ooc_panel_layout layout,
                    ooc_piece_list *list)
{
    const uint32_t run = p * t->n.n_chunks;

    b->ops = ops;
    b->t = t;
    b->layout = layout;
    b->col0 = 0;
    b->col1 = t->n.panel_columns;
    b->all_columns = true;
    b->pairs = t->len_base[p] == OOC_PAIR_PANEL;
    b->direct = t->n.vtype == dense;
    b->dense = dense;
    b->seg = t->seg_off[run + c0];
    b->seg_end = t->seg_off[run + c1];
    b->len_shift = b->pairs ? 0 : t->seg_off[run] - t->len_base[p];
    b->seg_ent = t->ent_off[run + c0];
    b->seg_done = 0;
    b->taken = 0;
    b->list = list;
    b->sort = false;
    b->panel_entries = t->ent_off[run + t->n.n_chunks] - t->ent_off[run];
    b->panel_segments = t->seg_off[run + t->n.n_chunks] - t->seg_off[run];
    b->next = b->end = NULL;
    memset(b->at, 0, OOC_AT_ALIGN * sizeof *b->at);
    b->view.at = b->at + OOC_AT_ALIGN;
    b->view.val = b->direct ? t->val : (const void *)&b->val;
    if (t->n.vtype != OOC_CONST)
        return;
    for (uint32_t i = 0; i < AT_ROOM; i++) {
        if (dense == OOC_F64)
            b->val.f64[i] = t->constant;
        else
            b->val.f32[i] = (float)t->constant;
    }
}

void ooc_batch_columns(ooc_batch *b, uint32_t col0, uint32_t col1)
{
    b->col0 = col0;
    b->col1 = col1;
    b->all_columns = col0 == 0 && col1 >= b->t->n.panel_columns;
}

void ooc_batch_sort(ooc_batch *b)
{
    b->sort = !b->pairs && b->panel_entries >= SORT_WORTH * b->panel_segments;
}

/* Place the pieces of the view and convert their values. */
static void set_entries(ooc_batch *b, const ooc_piece *piece, uint32_t n)
{
    const ooc_tile_view *t = b->t;

    b->ops->place(b->at + OOC_AT_ALIGN, piece, n, t->col, b->ent, b->col0, b->layout);
    if (!b->direct && t->n.vtype != OOC_CONST)
        b->ops->convert(t->n.vtype, t->val, b->dense, &b->val, piece, n, b->ent);
}

/* How many of the next pairs make a batch: whole rows, so that sums of a row do not depend on where
 * the walk began; a row longer than a batch is cut at multiples of it from the row's start. */
static uint32_t pairs_to_take(const ooc_batch *b)
{
    const uint16_t *row = b->t->seg_row + b->seg;
    const uint32_t rest = b->seg_end - b->seg;
    uint32_t n = OOC_PIECE;

    if (rest <= OOC_PIECE)
        return rest;
    while (n && row[n - 1] == row[OOC_PIECE])
        n--;
    return n ? n : OOC_PIECE;
}

/* Keep the pairs of the column range only. Order is kept. */
static void filter_pairs(ooc_batch *b, uint32_t count)
{
    const uint32_t width = b->col1 - b->col0;
    const uint16_t *row = b->t->seg_row + b->seg, *col = b->t->col + b->seg_ent;
    uint32_t *at = b->at + OOC_AT_ALIGN, n = 0;

    for (uint32_t i = 0; i < count; i++) {
        b->row[n] = row[i];
        b->ent[n] = b->seg_ent + i;
        at[n] = at[i];
        if (b->dense == OOC_F64)
            b->val.f64[n] = ((const double *)b->view.val)[i];
        else
            b->val.f32[n] = ((const float *)b->view.val)[i];
        n += (uint32_t)col[i] - b->col0 < width;
    }
    b->view.row = b->row;
    b->view.val = &b->val;
    b->view.n = n;
}

static bool next_pairs(ooc_batch *b)
{
    const ooc_tile_view *t = b->t;
    const uint32_t n = pairs_to_take(b);
    const ooc_piece all = {.len = (uint16_t)n};

    if (!n)
        return false;
    b->ent[0] = b->seg_ent;
    set_entries(b, &all, 1);
    b->view.piece = NULL;
    b->view.n = n;
    b->view.row = t->seg_row + b->seg;
    b->view.val = b->direct
                      ? (const char *)t->val + (uint64_t)b->seg_ent * ooc_dtype_bytes(t->n.vtype)
                      : (const void *)&b->val;
    if (b->all_columns)
        for (uint32_t i = 0; i < n; i++)
            b->ent[i] = b->seg_ent + i;
    else
        filter_pairs(b, n);
    b->seg += n;
    b->seg_ent += n;
    b->taken += n;
    return true;
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

/* Stable counting sort by the first column. */
static void sort_list(ooc_piece_list *l, uint32_t n, const uint16_t *col, uint32_t panel_columns)
{
    const uint32_t per_bucket = (panel_columns + SORT_BUCKETS - 1) / SORT_BUCKETS;
    const uint32_t shift = 31u - (uint32_t)__builtin_clz(per_bucket * 2 - 1);
    uint32_t sum = 0;

    memset(l->count, 0, sizeof l->count);
    for (uint32_t i = 0; i < n; i++) {
        l->key[i] = (uint16_t)(col[l->raw[i].ent] >> shift);
        l->count[l->key[i]]++;
    }
    for (uint32_t k = 0; k < SORT_BUCKETS; k++) {
        const uint32_t here = l->count[k];

        l->count[k] = (uint16_t)sum;
        sum += here;
    }
    for (uint32_t i = 0; i < n; i++)
        l->sorted[l->count[l->key[i]]++] = l->raw[i];
}

/* Cut the next segments into pieces. */
static bool fill_list(ooc_batch *b)
{
    const ooc_tile_view *t = b->t;
    struct ooc_list_piece *out = b->list->raw;
    uint32_t n = 0, seg = b->seg, done = b->seg_done, ent = b->seg_ent;

    while (seg < b->seg_end && n < OOC_LIST_PIECES) {
        const uint32_t rest = t->seg_len[seg - b->len_shift] - done;
        const uint32_t take = rest < OOC_PIECE ? rest : OOC_PIECE;

        out[n++] = (struct ooc_list_piece){ent, t->seg_row[seg], (uint16_t)take};
        ent += take;
        done += take;
        if (take == rest) {
            seg++;
            done = 0;
        }
    }
    b->seg = seg;
    b->seg_done = done;
    b->seg_ent = ent;
    if (b->sort)
        sort_list(b->list, n, t->col, t->n.panel_columns);
    b->next = b->sort ? b->list->sorted : out;
    b->end = b->next + n;
    return n > 0;
}

/* Cut a piece of the list down to the column range. */
static struct ooc_list_piece in_columns(const ooc_batch *b, struct ooc_list_piece p)
{
    const uint16_t *cols = b->t->col + p.ent;
    const uint32_t lo = lower_bound(cols, p.len, b->col0);

    p.ent += lo;
    p.len = (uint16_t)lower_bound(cols + lo, p.len - lo, b->col1);
    return p;
}

static void prefetch_lines(const char *p, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes + 63; i += 64)
        __builtin_prefetch(p + i, 0, 2);
}

static void prefetch(const ooc_batch *b, const struct ooc_list_piece *p, uint32_t n)
{
    const uint32_t size = ooc_dtype_bytes(b->t->n.vtype);

    for (; n && p < b->end; p++, n--) {
        prefetch_lines((const char *)(b->t->col + p->ent), p->len * 2u);
        if (size)
            prefetch_lines((const char *)b->t->val + (uint64_t)p->ent * size, p->len * size);
    }
}

bool ooc_batch_next(ooc_batch *b)
{
    uint32_t used = 0, seen = 0, n = 0, took = 0; /* seen: with those left out */

    if (b->pairs)
        return next_pairs(b);
    if (b->next == b->end && !fill_list(b))
        return false;
    for (; b->next < b->end && took < OOC_BATCH_PIECES; b->next++, took++) {
        struct ooc_list_piece p = *b->next;
        const uint32_t room = (p.len + OOC_AT_ALIGN - 1) / OOC_AT_ALIGN * OOC_AT_ALIGN;

        if (room > AT_ROOM - seen)
            break;
        seen += room;
        if (!b->all_columns && !(p = in_columns(b, p)).len)
            continue;
        b->ent[n] = p.ent;
        b->piece[n++] = (ooc_piece){used, b->direct ? p.ent : used, p.row, p.len};
        used += room;
    }
    prefetch(b, b->next, took);
    b->taken += took;
    b->view.n = n;
    b->view.piece = b->piece;
    b->view.row = NULL;
    set_entries(b, b->piece, n);
    return true;
}
