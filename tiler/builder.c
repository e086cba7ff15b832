#include "tiler/builder.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/parse.h"
#include "tiler/value_convert.h"

#include <math.h>
#include <string.h>

#define MAX_TILE_ENTRIES (((uint64_t)1 << 31) - 1)

struct ooc_builder {
    ooc_builder_opts opts;
    ooc_tile_writer *writer;
    uint32_t width;     /* bytes of a stored value */
    uint64_t first_row; /* of the tile that is being filled */
    uint32_t n_rows;    /* complete rows in it; the row behind them is being filled */
    uint64_t *row_off;  /* [OOC_MAX_TILE_ROWS + 1]; [n_rows] = first entry of the open row */
    uint32_t *col;
    char *val;
    uint64_t n, capacity;            /* entries */
    uint64_t n_segments;             /* of the complete rows */
    uint64_t open_segments;          /* of the open row */
    uint64_t panel_first, panel_end; /* columns of the panel of the last entry of the open row */
    bool pending;                    /* a value that may get duplicates */
    uint64_t key;
    double sum;
    ooc_builder_stats stats;
};

static uint64_t csr_bytes(uint64_t entries, uint32_t width)
{
    return entries * (sizeof(uint32_t) + width);
}

/* Entries that a tile of this size holds at most: two bytes of column and the value. */
static uint64_t tile_entries(const ooc_tile_writer_opts *w, uint64_t tile_bytes)
{
    return ooc_min_u64(tile_bytes / (2 + ooc_dtype_bytes(w->vtype)) + 1, MAX_TILE_ENTRIES);
}

uint64_t ooc_builder_memory(const ooc_tile_writer_opts *writer, uint64_t tile_bytes,
                            uint32_t n_threads)
{
    uint64_t n = tile_entries(writer, tile_bytes);
    uint32_t rows = (uint32_t)ooc_min_u64(ooc_max_u64(writer->n_rows, 1), OOC_MAX_TILE_ROWS);

    return csr_bytes(n, ooc_dtype_bytes(writer->vtype)) +
           (OOC_MAX_TILE_ROWS + 1) * sizeof(uint64_t) +
           ooc_tile_writer_memory(writer, rows, n, n_threads);
}

ooc_status ooc_builder_open(ooc_builder **out, const ooc_builder_opts *opts,
                            ooc_tile_writer *writer, ooc_err *err)
{
    ooc_builder *b = ooc_calloc(1, sizeof *b);

    *out = NULL;
    if (!b)
        return ooc_fail(err, OOC_E_NOMEM, "no memory to build tiles");
    b->opts = *opts;
    b->writer = writer;
    b->width = ooc_dtype_bytes(opts->writer.vtype);
    b->row_off = ooc_malloc((OOC_MAX_TILE_ROWS + 1) * sizeof *b->row_off);
    if (!b->row_off) {
        ooc_builder_close(b);
        return ooc_fail(err, OOC_E_NOMEM, "no memory to build tiles");
    }
    b->row_off[0] = 0;
    *out = b;
    return OOC_OK;
}

void ooc_builder_close(ooc_builder *b)
{
    if (!b)
        return;
    ooc_free(b->row_off);
    ooc_free(b->col);
    ooc_free(b->val);
    ooc_free(b);
}

void ooc_builder_get_stats(const ooc_builder *b, ooc_builder_stats *out)
{
    *out = b->stats;
}

/* Room for at least `n` entries. Only a row that is longer than a tile comes back here after the
 * first time. */
static ooc_status grow(ooc_builder *b, uint64_t n, ooc_err *err)
{
    uint64_t usual = tile_entries(&b->opts.writer, b->opts.tile_bytes) / 4;
    uint64_t capacity = ooc_max_u64(ooc_max_u64(b->capacity + b->capacity / 4, n), usual);
    uint64_t need = csr_bytes(capacity, b->width);
    uint64_t row_entries = b->n - b->row_off[b->n_rows];
    uint32_t *col;
    char *val;

    if (row_entries > tile_entries(&b->opts.writer, b->opts.tile_bytes))
        need += ooc_tile_writer_memory(&b->opts.writer, 1, capacity, b->opts.n_threads);
    if (need > b->opts.memory_bytes && capacity > usual) {
        char text[32];

        return ooc_fail(
            err, OOC_E_BUDGET,
            "%s: row %llu has more than %llu entries; a tile that holds it needs --ram-budget %s",
            b->opts.name, (unsigned long long)(b->first_row + b->n_rows),
            (unsigned long long)row_entries, ooc_format_size(need + b->opts.other_bytes, text));
    }
    col = ooc_realloc(b->col, capacity * sizeof *col);
    if (col)
        b->col = col;
    val = col ? ooc_realloc(b->val, capacity * b->width) : NULL;
    if (!val)
        return ooc_fail(err, OOC_E_NOMEM, "no memory for a tile of %llu entries",
                        (unsigned long long)capacity);
    b->val = val;
    b->capacity = capacity;
    return OOC_OK;
}

/* Hand the complete rows to the writer; the open row moves to the front. */
static ooc_status emit(ooc_builder *b, ooc_err *err)
{
    uint64_t done = b->row_off[b->n_rows];
    ooc_csr_rows rows = {b->n_rows, b->row_off, b->col, b->val};
    ooc_status st = ooc_tile_writer_append(b->writer, &rows, err);

    if (st)
        return st;
    b->stats.n_tiles++;
    b->first_row += b->n_rows;
    b->n_rows = 0;
    b->n_segments = 0;
    b->n -= done;
    if (b->n) { /* else the arrays may not be there yet */
        memmove(b->col, b->col + done, b->n * sizeof *b->col);
        memmove(b->val, b->val + done * b->width, b->n * b->width);
    }
    return OOC_OK;
}

/* The open row is complete: put it into the tile, after cutting the tile before it if it would
 * become too large. */
static ooc_status end_row(ooc_builder *b, ooc_err *err)
{
    uint64_t row_entries = b->n - b->row_off[b->n_rows];
    ooc_status st = OOC_OK;

    if (row_entries > b->stats.longest_row_entries) {
        b->stats.longest_row_entries = row_entries;
        b->stats.longest_row = b->first_row + b->n_rows;
    }
    if (row_entries > MAX_TILE_ENTRIES)
        return ooc_fail(err, OOC_E_UNSUPPORTED,
                        "%s: row %llu has %llu entries; a row may have at most %llu", b->opts.name,
                        (unsigned long long)(b->first_row + b->n_rows),
                        (unsigned long long)row_entries, (unsigned long long)MAX_TILE_ENTRIES);
    if (b->n_rows && (b->n > MAX_TILE_ENTRIES ||
                      ooc_tile_kernel_bytes(&b->opts.writer, b->n_rows + 1, b->n,
                                            b->n_segments + b->open_segments) > b->opts.tile_bytes))
        st = emit(b, err);
    if (st)
        return st;
    b->n_segments += b->open_segments;
    b->open_segments = 0;
    b->panel_first = b->panel_end = 0;
    b->row_off[++b->n_rows] = b->n;
    return b->n_rows == OOC_MAX_TILE_ROWS ? emit(b, err) : OOC_OK;
}

static ooc_status refuse_value(const ooc_builder *b, uint64_t row, uint64_t col, double stored,
                               ooc_err *err)
{
    uint64_t file_row = b->opts.transposed ? col : row, file_col = b->opts.transposed ? row : col;
    const char *type = ooc_value_type_name(b->opts.writer.vtype);

    if (!isfinite(b->sum))
        return ooc_fail(err, OOC_E_NOT_FINITE,
                        "%s: the values at row %llu, column %llu (counted from 0) add up to %g; "
                        "correct them, or keep such values with --allow-nonfinite",
                        b->opts.name, (unsigned long long)file_row, (unsigned long long)file_col,
                        b->sum);
    if (!isfinite(stored))
        return ooc_fail(
            err, OOC_E_NOT_FINITE,
            "%s: the value %.10g at row %llu, column %llu (counted from 0) is too large "
            "for %s; use a wider type such as --values f64",
            b->opts.name, b->sum, (unsigned long long)file_row, (unsigned long long)file_col, type);
    return ooc_fail(err, OOC_E_ARG,
                    "%s: %s cannot hold the whole number %.17g at row %llu, column %llu (counted "
                    "from 0) exactly; use --values f64",
                    b->opts.name, type, b->sum, (unsigned long long)file_row,
                    (unsigned long long)file_col);
}

/* The sum at `key` is final: append it to the open row. */
static ooc_status end_entry(ooc_builder *b, ooc_err *err)
{
    uint64_t row = b->key >> b->opts.col_bits;
    uint64_t col = b->key & (((uint64_t)1 << b->opts.col_bits) - 1);
    double stored;
    ooc_status st;

    b->pending = false;
    while (b->first_row + b->n_rows < row) {
        st = end_row(b, err);
        if (st)
            return st;
    }
    if (b->n == b->capacity) {
        st = grow(b, b->n + 1, err);
        if (st)
            return st;
    }
    stored = ooc_value_store(b->val, b->n, b->opts.writer.vtype, b->sum);
    if ((!isfinite(stored) && !(b->opts.allow_nonfinite && !isfinite(b->sum))) ||
        (b->opts.exact && isfinite(stored) && stored != b->sum))
        return refuse_value(b, row, col, stored, err);
    if (b->opts.drop_zeros && stored == 0) {
        b->stats.n_dropped++;
        return OOC_OK;
    }
    if (col >= b->panel_end) {
        b->panel_first = col / b->opts.writer.panel_columns * b->opts.writer.panel_columns;
        b->panel_end = b->panel_first + b->opts.writer.panel_columns;
        b->open_segments++;
    }
    b->col[b->n++] = (uint32_t)col;
    b->stats.n_entries++;
    return OOC_OK;
}

static ooc_status refuse_duplicate(const ooc_builder *b, ooc_err *err)
{
    uint64_t row = b->key >> b->opts.col_bits;
    uint64_t col = b->key & (((uint64_t)1 << b->opts.col_bits) - 1);

    return ooc_fail(err, OOC_E_UNSUPPORTED,
                    "%s: row %llu, column %llu (counted from 0) has several values; their sum's "
                    "magnitude is not the sum of the magnitudes, so --part abs cannot be used: add "
                    "them up in the file first",
                    b->opts.name, (unsigned long long)(b->opts.transposed ? col : row),
                    (unsigned long long)(b->opts.transposed ? row : col));
}

ooc_status ooc_builder_push(void *builder, const ooc_entries *e, uint64_t n, ooc_err *err)
{
    ooc_builder *b = builder;

    for (uint64_t i = 0; i < n; i++) {
        double v = b->opts.wide ? ((const double *)e->val)[i] : (double)((const float *)e->val)[i];
        ooc_status st = OOC_OK;

        if (b->pending && e->key[i] == b->key) {
            b->stats.n_duplicates++;
            if (b->opts.refuse_duplicates)
                return refuse_duplicate(b, err);
            b->sum += v;
            continue;
        }
        if (b->pending)
            st = end_entry(b, err);
        if (st)
            return st;
        b->pending = true;
        b->key = e->key[i];
        b->sum = v;
    }
    return OOC_OK;
}

ooc_status ooc_builder_finish(ooc_builder *b, ooc_err *err)
{
    ooc_status st = b->pending ? end_entry(b, err) : OOC_OK;

    while (!st && b->first_row + b->n_rows < b->opts.writer.n_rows)
        st = end_row(b, err);
    if (!st && b->n_rows)
        st = emit(b, err);
    return st;
}
