#include "tiler/order.h"

#include "base/alloc.h"
#include "base/checked.h"

#include <math.h>
#include <string.h>

/* Settled entries go on when this many have come together: enough for all threads, little enough to
 * stay near the cache. */
#define FLUSH_ENTRIES ((uint64_t)1 << 20)

struct ooc_order {
    ooc_order_opts opts;
    ooc_pool *pool;
    ooc_sorter *sorter;
    ooc_spill *spill; /* NULL: nothing was spilled yet */
    int col_bits;
    uint32_t expand; /* entries that one entry of the file becomes */
    void *block;
    uint64_t block_bytes;
    ooc_entries base;     /* the block as arrays of 2 * capacity */
    ooc_entries a, b;     /* the halves: entries, and scratch for sorting them */
    uint64_t capacity, n; /* of a */
    uint64_t settled_row; /* rows below are complete */
    uint64_t flushed_row; /* ... and were given to the sink */
    uint64_t flush_at;    /* entries */
    uint64_t n_pushed;
    /* of the push that runs */
    const ooc_batch *batch;
    uint64_t piece_to[OOC_BATCH_PIECES];
    uint64_t bad[OOC_BATCH_PIECES]; /* index of the first entry that is refused, or UINT64_MAX */
};

bool ooc_order_shape(const ooc_order_opts *opts, uint64_t *n_rows, uint64_t *n_cols)
{
    uint64_t factor = opts->part == OOC_PART_STACK ? 2 : 1;

    return ooc_mul_u64(opts->transpose ? opts->source->n_cols : opts->source->n_rows, factor,
                       n_rows) &&
           ooc_mul_u64(opts->transpose ? opts->source->n_rows : opts->source->n_cols, factor,
                       n_cols);
}

int ooc_order_col_bits(uint64_t n_cols)
{
    return n_cols < 2 ? 0 : 64 - __builtin_clzll(n_cols - 1);
}

uint64_t ooc_order_entry_bytes(bool wide)
{
    return 2 * (8 + ooc_value_bytes(wide));
}

static ooc_status set_up(ooc_order *o, ooc_err *err)
{
    uint64_t n_rows, n_cols;

    if (!ooc_order_shape(&o->opts, &n_rows, &n_cols))
        return ooc_fail(err, OOC_E_UNSUPPORTED, "%s: the matrix is too large", o->opts.name);
    o->col_bits = ooc_order_col_bits(n_cols);
    if (o->col_bits + ooc_order_col_bits(n_rows) > 63)
        return ooc_fail(err, OOC_E_UNSUPPORTED,
                        "%s: %llu x %llu: row and column numbers do not fit 63 bits together",
                        o->opts.name, (unsigned long long)n_rows, (unsigned long long)n_cols);
    o->expand = o->opts.part == OOC_PART_STACK ? 4 : 1;
    o->capacity = o->opts.area_bytes / ooc_order_entry_bytes(o->opts.wide);
    if (2 * o->capacity < OOC_MERGE_MIN)
        o->capacity = OOC_MERGE_MIN / 2;
    o->flush_at = ooc_min_u64(FLUSH_ENTRIES, o->capacity / 2);
    o->block_bytes = o->capacity * ooc_order_entry_bytes(o->opts.wide);
    o->block = ooc_pages_alloc(o->block_bytes);
    o->sorter = ooc_sorter_new(o->pool, o->opts.wide);
    if (!o->block || !o->sorter)
        return ooc_fail(err, OOC_E_NOMEM, "no memory for %llu bytes to sort in",
                        (unsigned long long)o->block_bytes);
    o->base.key = o->block;
    o->base.val = o->base.key + 2 * o->capacity;
    o->a = o->base;
    o->b = ooc_entries_at(o->base, o->capacity, o->opts.wide);
    return OOC_OK;
}

ooc_status ooc_order_open(ooc_order **out, const ooc_order_opts *opts, ooc_pool *pool, ooc_err *err)
{
    ooc_order *o = ooc_calloc(1, sizeof *o);
    ooc_status st;

    *out = NULL;
    if (!o)
        return ooc_fail(err, OOC_E_NOMEM, "no memory to sort the entries");
    o->opts = *opts;
    o->pool = pool;
    st = set_up(o, err);
    if (st) {
        ooc_order_close(o);
        return st;
    }
    *out = o;
    return OOC_OK;
}

void ooc_order_close(ooc_order *o)
{
    if (!o)
        return;
    ooc_pages_free(o->block, o->block_bytes);
    ooc_sorter_free(o->sorter);
    ooc_spill_close(o->spill);
    ooc_free(o);
}

uint64_t ooc_order_spilled_bytes(const ooc_order *o)
{
    return o->spill ? ooc_spill_bytes(o->spill) : 0;
}

uint64_t ooc_order_entries(const ooc_order *o)
{
    return o->n_pushed;
}

/* Give the settled entries to the sink; the rest moves to the front. */
static ooc_status flush(ooc_order *o, bool all, ooc_err *err)
{
    uint64_t go = o->n, width = ooc_value_bytes(o->opts.wide);
    ooc_status st;

    ooc_sorter_sort(o->sorter, &o->a, &o->b, o->n);
    if (!all) {
        uint64_t low = 0, high = o->n;

        while (low < high) {
            uint64_t mid = low + (high - low) / 2;

            if (o->a.key[mid] >> o->col_bits < o->settled_row)
                low = mid + 1;
            else
                high = mid;
        }
        go = low;
    }
    st = go ? o->opts.sink(o->opts.sink_ctx, &o->a, go, err) : OOC_OK;
    o->n -= go;
    memmove(o->a.key, o->a.key + go, o->n * 8);
    memmove(o->a.val, (char *)o->a.val + go * width, o->n * width);
    o->flushed_row = o->settled_row;
    /* An unfinished row that fills most of the area must not be sorted at every batch. */
    o->flush_at = ooc_max_u64(ooc_min_u64(FLUSH_ENTRIES, o->capacity / 2), 2 * o->n);
    return st;
}

static ooc_status spill(ooc_order *o, ooc_err *err)
{
    ooc_status st = OOC_OK;

    if (!o->n)
        return OOC_OK;
    if (!o->spill)
        st = ooc_spill_open(&o->spill, o->opts.tmp_dir, o->opts.wide, err);
    if (st)
        return st;
    ooc_sorter_sort(o->sorter, &o->a, &o->b, o->n);
    st = ooc_spill_write(o->spill, &o->a, o->n, err);
    o->n = 0;
    return st;
}

static ooc_status make_room(ooc_order *o, uint64_t n, ooc_err *err)
{
    ooc_status st = OOC_OK;

    if (o->n + n <= o->capacity)
        return OOC_OK;
    if (!o->spill && o->settled_row > o->flushed_row)
        st = flush(o, false, err);
    if (!st && o->n + n > o->capacity)
        st = spill(o, err);
    return st;
}

static inline uint64_t key_of(const ooc_order *o, uint64_t row, uint64_t col)
{
    return o->opts.transpose ? col << o->col_bits | row : row << o->col_bits | col;
}

static inline void put(const ooc_order *o, uint64_t at, uint64_t key, double value)
{
    o->a.key[at] = key;
    if (o->opts.wide)
        ((double *)o->a.val)[at] = value;
    else
        ((float *)o->a.val)[at] = (float)value;
}

/* One complex entry as its place in [Re -Im; Im Re]. */
static void put_stack(const ooc_order *o, uint64_t at, uint64_t row, uint64_t col, double re,
                      double im)
{
    uint64_t M = o->opts.source->n_rows, N = o->opts.source->n_cols;

    put(o, at, key_of(o, row, col), re);
    put(o, at + 1, key_of(o, row, col + N), -im);
    put(o, at + 2, key_of(o, row + M, col), im);
    put(o, at + 3, key_of(o, row + M, col + N), re);
}

static void take_piece(void *ctx, uint32_t p, uint32_t thread)
{
    ooc_order *o = ctx;
    const ooc_batch *in = o->batch;
    const ooc_source_info *info = o->opts.source;
    uint64_t at = o->piece_to[p];
    uint64_t first = in->piece[p].first, end = first + in->piece[p].n;
    bool any_value = o->opts.allow_nonfinite;

    (void)thread;
    o->bad[p] = UINT64_MAX;
    for (uint64_t i = first; i < end; i++) {
        uint64_t row = in->row[i], col = in->col[i];
        double re = in->val[i], im = in->imag ? in->imag[i] : 0;

        if (row >= info->n_rows || col >= info->n_cols ||
            (!any_value && !(isfinite(re) && isfinite(im)))) {
            o->bad[p] = i;
            return;
        }
        if (o->opts.part == OOC_PART_STACK) {
            put_stack(o, at, row, col, re, im);
            at += 4;
            continue;
        }
        if (o->opts.part == OOC_PART_IMAG)
            re = im;
        else if (o->opts.part == OOC_PART_ABS)
            re = hypot(re, im);
        put(o, at++, key_of(o, row, col), re);
    }
}

static ooc_status refuse(const ooc_order *o, uint64_t i, ooc_err *err)
{
    const ooc_source_info *info = o->opts.source;
    uint64_t row = o->batch->row[i], col = o->batch->col[i];

    if (row >= info->n_rows || col >= info->n_cols)
        return ooc_fail(err, OOC_E_FORMAT,
                        "%s: an entry at row %llu, column %llu (counted from 0) lies outside of "
                        "the %llu x %llu matrix; the file is damaged or its shape is wrong",
                        o->opts.name, (unsigned long long)row, (unsigned long long)col,
                        (unsigned long long)info->n_rows, (unsigned long long)info->n_cols);
    return ooc_fail(err, OOC_E_NOT_FINITE,
                    "%s: the value at row %llu, column %llu (counted from 0) is %g; correct it, or "
                    "keep such values with --allow-nonfinite",
                    o->opts.name, (unsigned long long)row, (unsigned long long)col,
                    isfinite(o->batch->val[i]) && o->batch->imag ? o->batch->imag[i]
                                                                 : o->batch->val[i]);
}

static bool settles(const ooc_order *o)
{
    return o->opts.part != OOC_PART_STACK &&
           o->opts.source->settles == (o->opts.transpose ? OOC_SETTLES_COLS : OOC_SETTLES_ROWS);
}

ooc_status ooc_order_push(ooc_order *o, const ooc_batch *batch, ooc_err *err)
{
    uint64_t n = 0;
    ooc_status st;

    for (uint32_t p = 0; p < batch->n_pieces; p++)
        n += (uint64_t)batch->piece[p].n * o->expand;
    st = make_room(o, n, err);
    if (st)
        return st;
    if (n > o->capacity)
        return ooc_fail(err, OOC_E_BUDGET, "a batch of %llu entries exceeds the area to sort in",
                        (unsigned long long)n);
    n = o->n;
    for (uint32_t p = 0; p < batch->n_pieces; p++) {
        o->piece_to[p] = n;
        n += (uint64_t)batch->piece[p].n * o->expand;
    }
    o->batch = batch;
    ooc_parallel_for(o->pool, batch->n_pieces, take_piece, o);
    for (uint32_t p = 0; p < batch->n_pieces; p++)
        if (o->bad[p] != UINT64_MAX)
            return refuse(o, o->bad[p], err);
    o->n_pushed += n - o->n;
    o->n = n;
    if (settles(o))
        o->settled_row = ooc_max_u64(o->settled_row, batch->settled);
    if (!o->spill && o->n >= o->flush_at && o->settled_row > o->flushed_row)
        st = flush(o, false, err);
    return st;
}

ooc_status ooc_order_finish(ooc_order *o, ooc_err *err)
{
    ooc_status st;

    if (!o->spill)
        return o->n ? flush(o, true, err) : OOC_OK;
    st = spill(o, err);
    if (st)
        return st;
    return ooc_spill_merge(o->spill, &o->base, 2 * o->capacity, o->sorter, o->pool, o->opts.sink,
                           o->opts.sink_ctx, &o->opts.watch, err);
}
