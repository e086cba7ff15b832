#include "tests/support/tile_maker.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *must(void *p)
{
    if (!p) {
        fprintf(stderr, "tile_maker: no memory\n");
        abort();
    }
    return p;
}

tm_matrix tm_matrix_new(uint32_t n_rows, uint64_t n_cols, uint32_t room)
{
    return (tm_matrix){n_rows, n_cols, 0, must(calloc(room + 1u, sizeof(tm_entry)))};
}

void tm_matrix_free(tm_matrix *m)
{
    free(m->e);
    m->e = NULL;
}

void tm_add(tm_matrix *m, uint32_t row, uint64_t col, double val)
{
    m->e[m->n++] = (tm_entry){row, col, val};
}

tm_matrix tm_rows(const tm_matrix *m, uint32_t first, uint32_t n)
{
    tm_matrix part = tm_matrix_new(n, m->n_cols, m->n);

    for (uint32_t i = 0; i < m->n; i++)
        if (m->e[i].row >= first && m->e[i].row - first < n)
            tm_add(&part, m->e[i].row - first, m->e[i].col, m->e[i].val);
    return part;
}

static uint16_t bf16_bits(double v)
{
    float f = (float)v;
    uint32_t u;

    memcpy(&u, &f, 4);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}

/* Round to 11 significant bits, subnormals below 2^-14; finite halves only. */
static uint16_t f16_bits(double v)
{
    const uint16_t sign = signbit(v) ? 0x8000 : 0;
    double a = fabs(v);
    int exp;

    if (a < 0x1p-14)
        return (uint16_t)(sign | (uint16_t)nearbyint(a * 0x1p24));
    frexp(a, &exp); /* a = m * 2^exp, 0.5 <= m < 1 */
    return (uint16_t)(sign + (uint16_t)((exp + 14 - 1) << 10) +
                      (uint16_t)nearbyint(ldexp(a, 11 - exp)));
}

static double f16_value(uint16_t h)
{
    const int exp = h >> 10 & 31, mantissa = h & 0x3ff;
    const double a = exp ? ldexp(1024 + mantissa, exp - 25) : ldexp(mantissa, -24);

    return h & 0x8000 ? -a : a;
}

static double bf16_value(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float f;

    memcpy(&f, &u, 4);
    return (double)f;
}

void tm_round_values(tm_matrix *m, ooc_dtype vtype)
{
    for (uint32_t i = 0; i < m->n; i++) {
        double *v = &m->e[i].val;

        if (vtype == OOC_F32)
            *v = (double)(float)*v;
        else if (vtype == OOC_F16)
            *v = f16_value(f16_bits(*v));
        else if (vtype == OOC_BF16)
            *v = bf16_value(bf16_bits(*v));
        else if (vtype == OOC_CONST)
            *v = m->e[0].val;
    }
}

static void store_value(ooc_dtype vtype, void *val, uint32_t i, double v)
{
    if (vtype == OOC_F32)
        ((float *)val)[i] = (float)v;
    else if (vtype == OOC_F64)
        ((double *)val)[i] = v;
    else if (vtype == OOC_F16)
        ((uint16_t *)val)[i] = f16_bits(v);
    else if (vtype == OOC_BF16)
        ((uint16_t *)val)[i] = bf16_bits(v);
}

/* What build() fills; NULL arrays: count only. */
typedef struct {
    uint32_t *chunk_row, *panel_id, *len_base, *seg_off, *ent_off;
    uint16_t *seg_row, *seg_len, *col;
    void *val;
} arrays;

/* The entries of `m` in panel `id` and chunk rows row0 .. row1-1: count or write. */
static void build_run(const tm_matrix *m, ooc_tile_counts *n, uint32_t id, uint32_t row0,
                      uint32_t row1, bool pairs, const arrays *a)
{
    const uint64_t c0 = (uint64_t)id * n->panel_columns;
    uint32_t last_row = UINT32_MAX, len = 0;

    for (uint32_t i = 0; i < m->n; i++) {
        const tm_entry *e = &m->e[i];

        if (e->row < row0 || e->row >= row1 || e->col < c0 || e->col - c0 >= n->panel_columns)
            continue;
        if (pairs || e->row != last_row || len == OOC_MAX_SEGMENT) {
            if (a)
                a->seg_row[n->n_segments] = (uint16_t)e->row;
            n->n_segments++;
            n->n_lens += !pairs;
            len = 0;
        }
        last_row = e->row;
        len++;
        if (a) {
            if (!pairs)
                a->seg_len[n->n_lens - 1] = (uint16_t)len;
            a->col[n->n_entries] = (uint16_t)(e->col - c0);
            store_value(n->vtype, a->val, n->n_entries, e->val);
        }
        n->n_entries++;
    }
}

static void build(const tm_matrix *m, ooc_tile_counts *n, uint32_t chunk_rows, tm_panels panels,
                  const arrays *a)
{
    const uint32_t all_panels = (uint32_t)((m->n_cols + n->panel_columns - 1) / n->panel_columns);
    bool *used = must(calloc(all_panels + 1u, sizeof *used));
    uint32_t p = 0;

    for (uint32_t i = 0; i < m->n; i++)
        used[m->e[i].col / n->panel_columns] = true;
    n->n_chunks = (m->n_rows + chunk_rows - 1) / chunk_rows;
    n->n_entries = n->n_segments = n->n_lens = 0;
    for (uint32_t id = 0; id < all_panels; id++) {
        const bool pairs = panels == TM_PAIRS || (panels == TM_MIXED && p % 2);

        if (!used[id])
            continue;
        if (a) {
            a->panel_id[p] = id;
            a->len_base[p] = pairs ? OOC_PAIR_PANEL : n->n_lens;
        }
        for (uint32_t c = 0; c < n->n_chunks; c++) {
            const uint32_t row0 = c * chunk_rows;
            const uint32_t row1 = row0 + chunk_rows < m->n_rows ? row0 + chunk_rows : m->n_rows;

            if (a) {
                a->seg_off[p * n->n_chunks + c] = n->n_segments;
                a->ent_off[p * n->n_chunks + c] = n->n_entries;
            }
            build_run(m, n, id, row0, row1, pairs, a);
        }
        p++;
    }
    n->n_panels = p;
    if (a) {
        a->seg_off[p * n->n_chunks] = n->n_segments;
        a->ent_off[p * n->n_chunks] = n->n_entries;
        for (uint32_t c = 0; c <= n->n_chunks; c++)
            a->chunk_row[c] = c < n->n_chunks ? c * chunk_rows : m->n_rows;
    }
    free(used);
}

tm_tile tm_tile_new(const tm_matrix *m, uint32_t panel_columns, uint32_t chunk_rows,
                    ooc_dtype vtype, tm_panels panels)
{
    ooc_tile_counts n = {.n_rows = m->n_rows, .panel_columns = panel_columns, .vtype = vtype};
    ooc_tile_layout l;
    tm_tile t;
    char *b;

    build(m, &n, chunk_rows, panels, NULL);
    l = ooc_tile_layout_of(&n);
    t.block = b = must(aligned_alloc(64, l.total + 64));
    memset(b, 0, l.total);
    build(m, &n, chunk_rows, panels,
          &(arrays){(uint32_t *)(b + l.chunk_row), (uint32_t *)(b + l.panel_id),
                    (uint32_t *)(b + l.len_base), (uint32_t *)(b + l.seg_off),
                    (uint32_t *)(b + l.ent_off), (uint16_t *)(b + l.seg_row),
                    (uint16_t *)(b + l.seg_len), (uint16_t *)(b + l.col), b + l.val});
    t.view = ooc_tile_view_of(&n, vtype == OOC_CONST && m->n ? m->e[0].val : 0, b);
    return t;
}

void tm_tile_free(tm_tile *t)
{
    free(t->block);
}

void tm_product(const tm_matrix *m, bool transpose, const double *in, uint64_t ld_in, uint32_t B,
                double *out, double *scale, uint32_t *len)
{
    const uint64_t n_out = transpose ? m->n_cols : m->n_rows;
    long double *sum = must(calloc(n_out * B + 1, sizeof *sum));

    for (uint32_t i = 0; i < m->n; i++) {
        const tm_entry *e = &m->e[i];
        const uint64_t from = transpose ? e->row : e->col, to = transpose ? e->col : e->row;

        len[to]++;
        for (uint32_t b = 0; b < B; b++) {
            sum[to * B + b] += (long double)e->val * (long double)in[from * ld_in + b];
            scale[to * B + b] += fabs(e->val * in[from * ld_in + b]);
        }
    }
    for (uint64_t i = 0; i < n_out * B; i++)
        out[i] += (double)sum[i];
    free(sum);
}

double tm_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 11) * 0x1p-53;
}
