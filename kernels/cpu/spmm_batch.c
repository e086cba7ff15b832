#include "kernels/cpu/spmm_batch.h"
#include "kernels/cpu/convert.h"

#include <string.h>

void ooc_batch_open(ooc_batch *b, const ooc_tile_view *t, uint32_t p, uint32_t c0, uint32_t c1,
                    uint32_t col0, uint32_t col1, ooc_dtype dense)
{
    const uint32_t run = p * t->n.n_chunks;

    b->t = t;
    b->col0 = col0;
    b->col1 = col1;
    b->all_columns = col0 == 0 && col1 >= t->n.panel_columns;
    b->pairs = t->len_base[p] == OOC_PAIR_PANEL;
    b->direct = t->n.vtype == dense;
    b->dense = dense;
    b->seg = t->seg_off[run + c0];
    b->seg_end = t->seg_off[run + c1];
    b->len_shift = b->pairs ? 0 : t->seg_off[run] - t->len_base[p];
    b->ent = t->ent_off[run + c0];
    b->done = 0;
    if (t->n.vtype == OOC_CONST)
        ooc_fill_values(dense, t->constant, OOC_BATCH_ENTRIES, &b->val);
}

/* Point the view at entries first .. first+count-1. */
static void set_entries(ooc_batch *b, uint32_t first, uint32_t count)
{
    const ooc_tile_view *t = b->t;
    const char *val = (const char *)t->val + (uint64_t)first * ooc_dtype_bytes(t->n.vtype);

    b->view.col = t->col + first;
    b->view.val = val;
    if (b->direct)
        return;
    b->view.val = &b->val;
    if (t->n.vtype != OOC_CONST)
        ooc_convert_values(t->n.vtype, val, b->dense, &b->val, count);
}

/* Keep the pairs of the column range only. Order is kept. */
static void filter_pairs(ooc_batch *b, uint32_t count)
{
    const uint32_t width = b->col1 - b->col0;
    const uint16_t *row = b->view.row, *col = b->view.col;
    uint32_t n = 0;

    if (b->direct) {
        memcpy(&b->val, b->view.val, (size_t)count * ooc_dtype_bytes(b->dense));
        b->view.val = &b->val;
    }
    for (uint32_t i = 0; i < count; i++) {
        b->row[n] = row[i];
        b->col[n] = col[i];
        if (b->t->n.vtype != OOC_CONST) {
            if (b->dense == OOC_F64)
                b->val.f64[n] = b->val.f64[i];
            else
                b->val.f32[n] = b->val.f32[i];
        }
        n += (uint32_t)col[i] - b->col0 < width;
    }
    b->view.row = b->row;
    b->view.col = b->col;
    b->view.n = n;
}

/* How many of the next pairs make a batch: whole rows, so that sums of a row do not depend on where
 * the walk began; a row longer than a batch is cut at multiples of the batch from its start. */
static uint32_t pairs_to_take(const ooc_batch *b, uint32_t row_stop)
{
    const uint16_t *row = b->t->seg_row + b->seg;
    const uint32_t rest = b->seg_end - b->seg;
    uint32_t n = rest < OOC_BATCH_ENTRIES ? rest : OOC_BATCH_ENTRIES;

    while (n && row[n - 1] >= row_stop)
        n--;
    if (n < OOC_BATCH_ENTRIES || n == rest || row[n - 1] != row[n])
        return n;
    while (n && row[n - 1] == row[OOC_BATCH_ENTRIES])
        n--;
    return n ? n : OOC_BATCH_ENTRIES;
}

static bool next_pairs(ooc_batch *b, uint32_t row_stop)
{
    const uint32_t n = pairs_to_take(b, row_stop);

    if (!n)
        return false;
    b->view.piece = NULL;
    b->view.n = n;
    b->view.row = b->t->seg_row + b->seg;
    set_entries(b, b->ent, n);
    if (!b->all_columns)
        filter_pairs(b, n);
    b->seg += n;
    b->ent += n;
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

/* Add the piece of entries off .. off+len-1 (from the batch's first), less what the column range
 * leaves out. */
static void add_piece(ooc_batch *b, const uint16_t *cols, uint32_t row, uint32_t off, uint32_t len)
{
    if (!b->all_columns) {
        const uint32_t lo = lower_bound(cols + off, len, b->col0);

        len = lo + lower_bound(cols + off + lo, len - lo, b->col1) - lo;
        off += lo;
        if (!len)
            return;
    }
    b->piece[b->view.n++] = (ooc_piece){off, (uint16_t)row, (uint16_t)len};
}

bool ooc_batch_next(ooc_batch *b, uint32_t row_stop)
{
    const ooc_tile_view *t = b->t;
    const uint32_t first = b->ent + b->done;
    const uint32_t room = b->direct ? UINT32_MAX : OOC_BATCH_ENTRIES;
    uint32_t used = 0;

    if (b->pairs)
        return next_pairs(b, row_stop);
    if (b->seg == b->seg_end || t->seg_row[b->seg] >= row_stop)
        return false;
    b->view.n = 0;
    b->view.piece = b->piece;
    b->view.row = NULL;
    while (b->seg < b->seg_end && b->view.n < OOC_BATCH_PIECES && t->seg_row[b->seg] < row_stop) {
        const uint32_t len = t->seg_len[b->seg - b->len_shift];
        uint32_t take = len - b->done < OOC_PIECE ? len - b->done : OOC_PIECE;

        if (take > room - used)
            break;
        add_piece(b, t->col + first, t->seg_row[b->seg], used, take);
        used += take;
        b->done += take;
        if (b->done == len) {
            b->seg++;
            b->ent += len;
            b->done = 0;
        }
    }
    set_entries(b, first, used);
    return true;
}
