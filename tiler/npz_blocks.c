#include "tiler/npz_blocks.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "tiler/index_sources.h"
#include "tiler/npy_seq.h"

#include <math.h>

#define AHEAD ((size_t)1024)

/* A sequence of whole numbers, one at a time, some read ahead. */
typedef struct {
    ooc_seq *seq;
    double value[AHEAD]; /* exact: below 2^53, or refused by the sequence */
    size_t at, held;
} numbers;

typedef struct {
    ooc_source base;
    ooc_zip *zip;
    numbers ptr, index; /* dia: index holds the offsets, ptr is not used */
    ooc_seq *val;
    uint64_t n_blocks, block; /* dia: diagonals */
    uint64_t height, width;   /* of a block; dia: width of `data` */
    uint64_t within;          /* items of the block that were read */
    uint64_t block_row, n_block_rows, row_end;
    double column; /* of the block; dia: offset of the diagonal */
} blocks;

static ooc_status next_number(numbers *n, double *out, ooc_err *err)
{
    if (n->at == n->held) {
        n->held = (size_t)ooc_min_u64(AHEAD, n->seq->n_items - n->seq->at);
        n->at = 0;
        if (!n->held)
            return ooc_fail(err, OOC_E_FORMAT, "%s: has too few items", n->seq->name);
        ooc_status st = ooc_seq_read_value(n->seq, n->value, NULL, n->held, err);

        if (st)
            return st;
    }
    *out = n->value[n->at++];
    return OOC_OK;
}

static void close_blocks(ooc_source *base)
{
    blocks *s = (blocks *)base;

    ooc_seq_close(s->ptr.seq);
    ooc_seq_close(s->index.seq);
    ooc_seq_close(s->val);
    ooc_zip_close(s->zip);
    ooc_free(s);
}

static ooc_status finish(blocks *s, ooc_err *err)
{
    ooc_status st = s->ptr.seq ? ooc_seq_finish(s->ptr.seq, err) : OOC_OK;

    if (!st)
        st = ooc_seq_finish(s->index.seq, err);
    return st ? st : ooc_seq_finish(s->val, err);
}

static ooc_status end_batch(blocks *s, ooc_batch *b, uint32_t n, ooc_err *err)
{
    ooc_batch_cut(b, n);
    s->base.done = s->n_blocks ? (double)s->block / (double)s->n_blocks : 1;
    return b->end ? finish(s, err) : OOC_OK;
}

/* --- bsr --- */

/* Go to the row of blocks that block number s->block is in; false: behind the last. */
static ooc_status find_block_row(blocks *s, bool *found, ooc_err *err)
{
    ooc_status st = OOC_OK;
    double end;

    while (!st && s->block == s->row_end && s->block_row < s->n_block_rows) {
        st = next_number(&s->ptr, &end, err);
        if (!st && !(end >= (double)s->row_end && end <= (double)s->n_blocks))
            st = ooc_fail(err, OOC_E_FORMAT,
                          "%s: item %llu is %.0f, between %llu and %llu was "
                          "expected",
                          s->ptr.seq->name, (unsigned long long)(s->block_row + 1), end,
                          (unsigned long long)s->row_end, (unsigned long long)s->n_blocks);
        if (!st) {
            s->row_end = (uint64_t)end;
            s->block_row++; /* counts from 1 */
        }
    }
    *found = s->block < s->row_end;
    return st;
}

static ooc_status next_bsr(ooc_source *base, ooc_batch *b, ooc_pool *pool, ooc_err *err)
{
    blocks *s = (blocks *)base;
    uint64_t items = s->height * s->width;
    uint32_t n = 0;
    ooc_status st = OOC_OK;

    (void)pool;
    while (n < b->capacity && !b->end) {
        uint32_t take;
        bool found = true;

        if (!s->within) {
            st = find_block_row(s, &found, err);
            if (!st && found)
                st = next_number(&s->index, &s->column, err);
            if (!st && found && !(s->column >= 0 && s->column <= (double)base->info.n_cols))
                st = ooc_fail(err, OOC_E_FORMAT, "%s: item %llu is %.0f, no column of blocks",
                              s->index.seq->name, (unsigned long long)s->block, s->column);
            b->end = !found;
        }
        if (st || !found)
            break;
        take = (uint32_t)ooc_min_u64(b->capacity - n, items - s->within);
        st = ooc_seq_read_value(s->val, b->val + n, b->imag ? b->imag + n : NULL, take, err);
        if (st)
            break;
        for (uint32_t i = 0; i < take; i++, n++, s->within++) {
            b->row[n] = (s->block_row - 1) * s->height + s->within / s->width;
            b->col[n] = (uint64_t)s->column * s->width + s->within % s->width;
        }
        if (s->within == items) {
            s->within = 0;
            s->block++;
        }
    }
    if (st)
        return st;
    b->settled = s->block_row ? (s->block_row - 1) * s->height : 0;
    return end_batch(s, b, n, err);
}

/* --- dia --- */

static ooc_status next_dia(ooc_source *base, ooc_batch *b, ooc_pool *pool, ooc_err *err)
{
    blocks *s = (blocks *)base;
    uint32_t n = 0;

    (void)pool;
    while (n < b->capacity && s->block < s->n_blocks) {
        uint32_t take = (uint32_t)ooc_min_u64(b->capacity - n, s->width - s->within), first = n;
        ooc_status st = s->within ? OOC_OK : next_number(&s->index, &s->column, err);

        if (!st)
            st = ooc_seq_read_value(s->val, b->val + n, b->imag ? b->imag + n : NULL, take, err);
        if (st)
            return st;
        for (uint32_t i = 0; i < take; i++, s->within++) {
            double row = (double)s->within - s->column;
            double re = b->val[first + i], im = b->imag ? b->imag[first + i] : 0;

            /* Zeros fill up the array, they are no entries; ends of diagonals hang over. */
            if (!(row >= 0 && row < (double)base->info.n_rows) || s->within >= base->info.n_cols ||
                (re == 0 && im == 0))
                continue;
            b->row[n] = (uint64_t)row;
            b->col[n] = s->within;
            b->val[n] = re;
            if (b->imag)
                b->imag[n] = im;
            n++;
        }
        if (s->within == s->width) {
            s->within = 0;
            s->block++;
        }
        if (!s->width)
            s->block = s->n_blocks;
    }
    b->end = s->block == s->n_blocks;
    return end_batch(s, b, n, err);
}

/* --- opening --- */

static ooc_status refuse_array(const blocks *s, const char *what, ooc_err *err)
{
    return ooc_fail(err, OOC_E_FORMAT, "%s: the array data.npy %s", ooc_zip_path(s->zip), what);
}

static ooc_status open_parts(blocks *s, bool bsr, ooc_npy *data, ooc_err *err)
{
    ooc_status st = ooc_npz_seq(&s->val, s->zip, "data", data, err);

    if (!st)
        st = ooc_npz_seq(&s->index.seq, s->zip, bsr ? "indices" : "offsets", NULL, err);
    if (!st && bsr)
        st = ooc_npz_seq(&s->ptr.seq, s->zip, "indptr", NULL, err);
    if (!st && data->n_dims != (bsr ? 3 : 2))
        st = refuse_array(
            s, bsr ? "does not have three dimensions" : "does not have two dimensions", err);
    if (!st && data->fortran_order)
        st = ooc_fail(err, OOC_E_UNSUPPORTED,
                      "%s: data.npy is in Fortran order; save the matrix as csr",
                      ooc_zip_path(s->zip));
    if (!st &&
        (!ooc_elem_is_index(s->index.seq->elem) || (bsr && !ooc_elem_is_index(s->ptr.seq->elem))))
        st = ooc_fail(err, OOC_E_FORMAT, "%s: indices must be whole numbers", ooc_zip_path(s->zip));
    if (!st && s->index.seq->n_items != data->shape[0])
        st = refuse_array(s, "has another number of items than the indices", err);
    return st;
}

static ooc_status new_blocks(blocks **out, ooc_zip *z, const uint64_t shape[2], bool bsr,
                             ooc_npy *data, ooc_err *err)
{
    blocks *s = ooc_calloc(1, sizeof *s);
    ooc_status st;

    *out = NULL;
    if (!s) {
        ooc_zip_close(z);
        return ooc_fail(err, OOC_E_NOMEM, "no memory to read the matrix");
    }
    s->zip = z;
    s->base.close = close_blocks;
    st = open_parts(s, bsr, data, err);
    if (st) {
        close_blocks(&s->base);
        return st;
    }
    s->n_blocks = data->shape[0];
    s->base.info =
        (ooc_source_info){.n_rows = shape[0],
                          .n_cols = shape[1],
                          .max_entries = s->val->n_items,
                          .wide = ooc_elem_is_wide(s->val->elem),
                          .integer = ooc_elem_is_index(s->val->elem),
                          .is_complex = ooc_elem_is_complex(s->val->elem),
                          .value_type = ooc_elem_name(s->val->elem),
                          .memory_bytes = sizeof *s + ooc_zip_memory(z) + 3 * OOC_SEQ_MEMORY};
    *out = s;
    return OOC_OK;
}

ooc_status ooc_bsr_source(ooc_source **out, ooc_zip *z, const uint64_t shape[2], ooc_err *err)
{
    ooc_npy data;
    double first = 0;
    blocks *s;
    ooc_status st = new_blocks(&s, z, shape, true, &data, err);

    *out = NULL;
    if (st)
        return st;
    s->height = data.shape[1];
    s->width = data.shape[2];
    s->n_block_rows = s->ptr.seq->n_items - 1;
    s->base.next = next_bsr;
    s->base.info.settles = OOC_SETTLES_ROWS;
    if (!s->height || !s->width || !s->ptr.seq->n_items ||
        shape[0] / s->height != s->n_block_rows || shape[0] % s->height || shape[1] % s->width)
        st =
            refuse_array(s, "has blocks of a size that does not fit the shape and indptr.npy", err);
    if (!st)
        st = next_number(&s->ptr, &first, err);
    if (!st && fabs(first) > 0)
        st = ooc_fail(err, OOC_E_FORMAT, "%s: begins with %.0f, expected 0", s->ptr.seq->name,
                      first);
    if (st) {
        close_blocks(&s->base);
        return st;
    }
    *out = &s->base;
    return OOC_OK;
}

ooc_status ooc_dia_source(ooc_source **out, ooc_zip *z, const uint64_t shape[2], ooc_err *err)
{
    ooc_npy data;
    blocks *s;
    ooc_status st = new_blocks(&s, z, shape, false, &data, err);

    *out = NULL;
    if (st)
        return st;
    s->width = data.shape[1];
    s->base.next = next_dia;
    *out = &s->base;
    return OOC_OK;
}
