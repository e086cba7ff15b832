#include "tests/bench/bench_tiles.h"
#include "base/alloc.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    uint32_t col;
    float val;
} entry;

/* Rows of the tile being built, one after the other. */
typedef struct {
    entry *e;
    uint64_t n, room;
    uint64_t *row_off; /* [rows + 1] */
    uint32_t rows;
} rows_buffer;

static void *must(void *p)
{
    if (!p) {
        fprintf(stderr, "bench_tiles: no memory\n");
        exit(1);
    }
    return p;
}

static void put(rows_buffer *rb, uint32_t col, double val)
{
    if (rb->n == rb->room) {
        rb->room = rb->room * 2 + 4096;
        rb->e = must(realloc(rb->e, rb->room * sizeof(entry)));
    }
    rb->e[rb->n++] = (entry){col, (float)val};
}

static uint64_t next_random(uint64_t *s)
{
    *s = *s * 6364136223846793005u + 1442695040888963407u;
    return *s >> 32;
}

/* The row of view `view`, detector `det` by Joseph's method (DESIGN section 7). `order`: room for
 * 2 * size entries. */
static void ct_row(const bt_spec *s, rows_buffer *rb, uint32_t view, uint32_t det, entry *order)
{
    const double theta = 3.14159265358979323846 * view / s->views_all;
    const double c = cos(theta), si = sin(theta), half = (s->size - 1) / 2.0;
    const double t = (det - (s->detectors - 1) / 2.0) * s->size / s->detectors;
    const bool by_rows =
        fabs(c) >= fabs(si); /* step over image rows, interpolate between columns */
    const double along = by_rows ? c : si, across = by_rows ? si : c;
    uint32_t n = 0, *count;

    for (uint32_t k = 0; k < s->size; k++) {
        const double pos = (t - (k - half) * across) / along + half, fl = floor(pos);

        for (int j = 0; j < 2; j++) {
            const double q = fl + j, w = (1 - fabs(pos - q)) / fabs(along);

            if (q < 0 || q >= s->size || w <= 0)
                continue;
            if (by_rows)
                put(rb, k * s->size + (uint32_t)q, w);
            else
                order[n++] = (entry){(uint32_t)q * s->size + k, (float)w};
        }
    }
    if (by_rows)
        return;
    /* Stable counting sort by image row: columns then ascend. */
    count = must(calloc(s->size + 1u, sizeof *count));
    for (uint32_t i = 0; i < n; i++)
        count[order[i].col / s->size + 1]++;
    for (uint32_t i = 0; i < s->size; i++)
        count[i + 1] += count[i];
    for (uint32_t i = 0; i < n; i++)
        put(rb, 0, 0);
    for (uint32_t i = 0; i < n; i++)
        rb->e[rb->n - n + count[order[i].col / s->size]++] = order[i];
    free(count);
}

static int by_column(const void *a, const void *b)
{
    const entry *x = a, *y = b;

    return (x->col > y->col) - (x->col < y->col);
}

static void sort_unique(rows_buffer *rb, uint64_t first)
{
    uint64_t n = first;

    qsort(rb->e + first, rb->n - first, sizeof(entry), by_column);
    for (uint64_t i = first; i < rb->n; i++)
        if (n == first || rb->e[n - 1].col != rb->e[i].col)
            rb->e[n++] = rb->e[i];
    rb->n = n;
}

static void any_row(const bt_spec *s, rows_buffer *rb, uint64_t row, uint64_t *seed, entry *order)
{
    const uint64_t first = rb->n;

    if (!strcmp(s->kind, "ct")) {
        ct_row(s, rb, (uint32_t)(row / s->detectors), (uint32_t)(row % s->detectors), order);
        return;
    }
    for (uint32_t k = 0; k < s->per_row; k++) {
        const double u = (double)next_random(seed) * 0x1p-32;
        uint64_t col = (uint64_t)(u * (double)s->n_cols);

        if (!strcmp(s->kind, "banded"))
            col = (uint64_t)((double)row / (double)s->n_rows * (double)s->n_cols) + k;
        else if (!strcmp(s->kind, "power")) /* column k with probability ~ k^-0.6, scattered */
            col = (uint64_t)(pow(u, 2.5) * (double)s->n_cols) * 2654435761u % s->n_cols;
        if (col < s->n_cols)
            put(rb, (uint32_t)col, u - 0.3);
    }
    sort_unique(rb, first);
}

/* Panels of the rows in `rb`: how many entries and segments each has. */
typedef struct {
    uint32_t entries, segments;
} panel_count;

static void count_panels(const rows_buffer *rb, uint32_t width, panel_count *pc)
{
    for (uint32_t r = 0; r < rb->rows; r++) {
        uint32_t last = UINT32_MAX;

        for (uint64_t i = rb->row_off[r]; i < rb->row_off[r + 1]; i++) {
            const uint32_t p = rb->e[i].col / width;

            pc[p].entries++;
            pc[p].segments += p != last;
            last = p;
        }
    }
}

/* Write panel `id` as panel p of the block; `cursor` walks each row's entries. */
static void write_panel(const rows_buffer *rb, ooc_tile_counts *n, uint32_t id, uint32_t p,
                        bool pairs, uint32_t chunk_rows, uint64_t *cursor, const ooc_tile_view *v)
{
    uint32_t *seg_off = (uint32_t *)v->seg_off, *ent_off = (uint32_t *)v->ent_off;
    uint16_t *seg_row = (uint16_t *)v->seg_row, *seg_len = (uint16_t *)v->seg_len;
    uint16_t *col = (uint16_t *)v->col;
    float *val = (float *)v->val;

    for (uint32_t r = 0; r < rb->rows; r++) {
        uint32_t len = 0;

        if (r % chunk_rows == 0) {
            seg_off[p * n->n_chunks + r / chunk_rows] = n->n_segments;
            ent_off[p * n->n_chunks + r / chunk_rows] = n->n_entries;
        }
        for (; cursor[r] < rb->row_off[r + 1] && rb->e[cursor[r]].col / n->panel_columns == id;
             cursor[r]++, len++) {
            col[n->n_entries] = (uint16_t)(rb->e[cursor[r]].col % n->panel_columns);
            val[n->n_entries++] = rb->e[cursor[r]].val;
            if (pairs)
                seg_row[n->n_segments++] = (uint16_t)r;
        }
        if (len && !pairs) {
            seg_row[n->n_segments++] = (uint16_t)r;
            seg_len[n->n_lens++] = (uint16_t)len;
        }
    }
}

static void build_tile(const bt_spec *s, const rows_buffer *rb, bt_matrix *m, uint64_t first_row)
{
    const uint32_t width = s->panel_columns, all = (uint32_t)((s->n_cols + width - 1) / width);
    const uint64_t bytes = rb->n * 6 + 1;
    ooc_tile_counts n = {.n_rows = rb->rows, .panel_columns = width, .vtype = OOC_F32};
    panel_count *pc = must(calloc(all, sizeof *pc));
    uint64_t *cursor = must(malloc(rb->rows * sizeof *cursor));
    uint32_t chunk_rows, p = 0;
    ooc_tile_layout l;
    ooc_tile_view v;

    n.n_chunks = (uint32_t)((bytes + s->chunk_bytes - 1) / s->chunk_bytes);
    chunk_rows = (rb->rows + n.n_chunks - 1) / n.n_chunks;
    n.n_chunks = (rb->rows + chunk_rows - 1) / chunk_rows;
    count_panels(rb, width, pc);
    for (uint32_t id = 0; id < all; id++) {
        const bool pairs = pc[id].entries < s->pairs_below * pc[id].segments;

        n.n_panels += pc[id].entries > 0;
        n.n_entries += pc[id].entries;
        n.n_segments += pairs ? pc[id].entries : pc[id].segments;
        n.n_lens += pairs ? 0 : pc[id].segments;
    }
    l = ooc_tile_layout_of(&n);
    m->tile = must(realloc(m->tile, (m->n_tiles + 1u) * sizeof *m->tile));
    m->tile[m->n_tiles].block = must(ooc_pages_alloc(l.total));
    m->tile[m->n_tiles].bytes = l.total;
    m->tile[m->n_tiles].first_row = first_row;
    v = ooc_tile_view_of(&n, 0, m->tile[m->n_tiles].block);
    m->tile[m->n_tiles++].view = v;
    m->n_entries += n.n_entries;
    m->kernel_bytes += l.total;

    memcpy(cursor, rb->row_off, rb->rows * sizeof *cursor);
    n.n_entries = n.n_segments = n.n_lens = 0;
    for (uint32_t id = 0; id < all; id++) {
        const bool pairs = pc[id].entries < s->pairs_below * pc[id].segments;

        if (!pc[id].entries)
            continue;
        ((uint32_t *)v.panel_id)[p] = id;
        ((uint32_t *)v.len_base)[p] = pairs ? OOC_PAIR_PANEL : n.n_lens;
        write_panel(rb, &n, id, p++, pairs, chunk_rows, cursor, &v);
    }
    ((uint32_t *)v.seg_off)[p * n.n_chunks] = n.n_segments;
    ((uint32_t *)v.ent_off)[p * n.n_chunks] = n.n_entries;
    for (uint32_t c = 0; c <= n.n_chunks; c++)
        ((uint32_t *)v.chunk_row)[c] = c < n.n_chunks ? c * chunk_rows : n.n_rows;
    free(pc);
    free(cursor);
}

bt_matrix bt_build(const bt_spec *s)
{
    bt_matrix m = {.n_rows = s->n_rows, .n_cols = s->n_cols};
    rows_buffer rb = {.row_off = must(calloc(OOC_MAX_TILE_ROWS + 1u, sizeof *rb.row_off))};
    entry *order = must(malloc(2u * (s->size + 1u) * sizeof *order));
    uint64_t seed = 7;

    for (uint64_t row = 0; row < s->n_rows; row++) {
        any_row(s, &rb, row, &seed, order);
        rb.row_off[++rb.rows] = rb.n;
        if (rb.n * 6 >= s->tile_bytes || rb.rows == OOC_MAX_TILE_ROWS || row + 1 == s->n_rows) {
            build_tile(s, &rb, &m, row + 1 - rb.rows);
            rb.n = rb.rows = 0;
        }
    }
    free(rb.e);
    free(rb.row_off);
    free(order);
    return m;
}

void bt_free(bt_matrix *m)
{
    for (uint32_t i = 0; i < m->n_tiles; i++)
        ooc_pages_free(m->tile[i].block, m->tile[i].bytes);
    free(m->tile);
}
