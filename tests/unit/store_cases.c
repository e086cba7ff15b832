#include "store_cases.h"
#include "base/alloc.h"
#include "io/sys.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t case_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* 64-byte aligned, of exactly this size for the address sanitizer; like a slot. */
static uint8_t *aligned_block(uint64_t bytes)
{
    return aligned_alloc(64, bytes ? (bytes + 63) & ~(uint64_t)63 : 64);
}

static int by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

static uint64_t row_entries(case_kind kind, uint64_t row, uint64_t n_cols, uint64_t per_row,
                            uint64_t *seed)
{
    uint64_t n = 0;

    switch (kind) {
    case CASE_EMPTY:
        break;
    case CASE_DENSE:
        n = n_cols;
        break;
    case CASE_CLUSTER:
        n = row % 7 == 3 ? per_row * 5 : row % 11 == 0;
        break;
    default:
        n = case_random(seed) % (2 * per_row + 1);
    }
    return n < n_cols ? n : n_cols;
}

static void put_value(case_matrix *m, case_kind kind, uint64_t at, uint64_t *seed)
{
    uint32_t width = ooc_dtype_bytes(m->vtype);
    uint64_t v = case_random(seed);

    /* Random bits are not always finite numbers; a store keeps any. */
    if (kind == CASE_CONST)
        v = m->vtype == OOC_F64 ? 0x3ff8000000000000u : m->vtype == OOC_F32 ? 0x3fc00000u : 0x3c00u;
    else if (kind == CASE_BANDED)
        v = 0x3f803c003f803c00u + (at % 5);
    memcpy(m->val + at * width, &v, width);
}

case_matrix case_make(case_kind kind, uint64_t n_rows, uint64_t n_cols, uint64_t per_row,
                      ooc_dtype vtype, uint64_t seed)
{
    case_matrix m = {.n_rows = n_rows, .n_cols = n_cols, .vtype = vtype};
    uint64_t most = n_rows * (kind == CASE_DENSE ? n_cols : per_row * 5 + 1) + 1, at = 0;

    m.off = malloc((n_rows + 1) * sizeof *m.off);
    m.col = malloc(most * sizeof *m.col);
    m.val = malloc(most * ooc_dtype_bytes(vtype));
    for (uint64_t r = 0; r < n_rows; r++) {
        uint64_t n = row_entries(kind, r, n_cols, per_row, &seed), kept = 0;
        uint32_t *c = m.col + at;

        m.off[r] = at + 1000; /* any start is allowed */
        for (uint64_t i = 0; i < n; i++)
            c[i] = kind == CASE_DENSE    ? (uint32_t)i
                   : kind == CASE_BANDED ? (uint32_t)((r * 3 + i) % n_cols)
                                         : (uint32_t)(case_random(&seed) % n_cols);
        qsort(c, n, sizeof *c, by_value);
        for (uint64_t i = 0; i < n; i++)
            if (!i || c[i] != c[kept - 1])
                c[kept++] = c[i];
        for (uint64_t i = 0; i < kept; i++)
            put_value(&m, kind, at + i, &seed);
        at += kept;
    }
    m.off[n_rows] = at + 1000;
    return m;
}

void case_free(case_matrix *m)
{
    free(m->off);
    free(m->col);
    free(m->val);
}

ooc_status case_write(const case_matrix *m, const char *path, uint32_t panel_columns,
                      ooc_codec codec, uint32_t tile_rows, ooc_pool *pool, ooc_err *err)
{
    ooc_tile_writer_opts o = {.n_rows = m->n_rows,
                              .n_cols = m->n_cols,
                              .vtype = m->vtype,
                              .panel_columns = panel_columns,
                              .codec = codec,
                              .force = true};
    ooc_tile_writer *w;
    ooc_status st = ooc_tile_writer_open(&w, path, &o, pool, err);

    for (uint64_t r = 0; !st && r < m->n_rows; r += tile_rows) {
        uint64_t left = m->n_rows - r, at = m->off[r] - m->off[0];
        ooc_csr_rows rows = {.n_rows = (uint32_t)(left < tile_rows ? left : tile_rows),
                             .row_off = m->off + r,
                             .col = m->col + at,
                             .val = m->val + at * ooc_dtype_bytes(m->vtype)};

        st = ooc_tile_writer_append(w, &rows, err);
    }
    if (!st)
        st = ooc_tile_writer_commit(w, err);
    ooc_tile_writer_close(w);
    return st;
}

ooc_status case_read_tile(const ooc_store *s, uint64_t k, uint8_t **stored, uint8_t **block,
                          ooc_err *err)
{
    const ooc_store_info *info = ooc_store_get_info(s);
    uint8_t *scratch = aligned_block(info->max_scratch_bytes);
    ooc_stored_tile t;
    ooc_tile_info i;
    ooc_status st;

    ooc_store_get_tile(s, k, &i);
    *stored = aligned_block(i.stored_bytes);
    *block = aligned_block(i.kernel_bytes);
    memset(*block, 0xa5, i.kernel_bytes);
    st = ooc_sys_pread(ooc_store_fd(s), "store", *stored, i.stored_bytes, i.file_off, err);
    if (!st)
        st = ooc_stored_tile_open(&t, s, k, *stored, err);
    for (uint32_t task = st ? 0 : t.n_tasks; !st && task-- > 0;) /* backwards: any order will do */
        st = ooc_stored_tile_decode(&t, task, *block, scratch, err);
    if (!st && i.raw && memcmp(*block, ooc_stored_tile_kernel_form(&t), i.kernel_bytes) != 0)
        st = ooc_fail(err, OOC_E_FORMAT, "a raw tile in place is not the same as copied");
    free(scratch);
    if (st) {
        free(*stored);
        free(*block);
        *stored = *block = NULL;
    }
    return st;
}

struct triple {
    uint64_t row, col, bits;
};

static int by_place(const void *a, const void *b)
{
    const struct triple *x = a, *y = b;

    if (x->row != y->row)
        return x->row < y->row ? -1 : 1;
    return x->col < y->col ? -1 : x->col > y->col;
}

/* The half that has this value; found by trying all, so that nothing of the writer is reused. */
static uint64_t half_of(double value)
{
    static uint32_t last = 0x3c00;
    static double last_value = 1;

    if (value == last_value && signbit(value) == signbit(last_value))
        return last;
    for (uint32_t h = 0; h < 65536; h++) {
        int e = h >> 10 & 31, f = h & 1023;
        double v = e ? ldexp(1024 + f, e - 25) : ldexp(f, -24);

        if (e < 31 && copysign(v, h >> 15 ? -1 : 1) == value &&
            (h >> 15) == (signbit(value) != 0)) {
            last_value = value;
            return last = h;
        }
    }
    return 0xdead;
}

static uint64_t value_bits(const ooc_tile_view *v, uint32_t e, ooc_dtype store)
{
    uint32_t width = ooc_dtype_bytes(v->n.vtype);
    uint64_t bits = 0;
    float f = (float)v->constant;

    if (v->n.vtype != OOC_CONST)
        memcpy(&bits, (const uint8_t *)v->val + (uint64_t)e * width, width);
    else if (store == OOC_F64)
        memcpy(&bits, &v->constant, 8);
    else if (store == OOC_F32)
        memcpy(&bits, &f, 4);
    else if (store == OOC_F16)
        bits = half_of(v->constant);
    else {
        memcpy(&bits, &f, 4);
        bits >>= 16;
    }
    return bits;
}

static uint32_t expand(const ooc_tile_view *v, uint64_t first_row, ooc_dtype store,
                       struct triple *out)
{
    uint32_t n = 0;

    for (uint32_t p = 0; p < v->n.n_panels; p++)
        for (uint32_t c = 0; c < v->n.n_chunks; c++) {
            uint64_t run = (uint64_t)p * v->n.n_chunks + c;
            uint32_t e = v->ent_off[run];

            for (uint32_t s = v->seg_off[run]; s < v->seg_off[run + 1]; s++) {
                uint32_t len = 1;

                if (v->len_base[p] != OOC_PAIR_PANEL)
                    len = v->seg_len[v->len_base[p] + s - v->seg_off[(uint64_t)p * v->n.n_chunks]];
                for (uint32_t i = 0; i < len; i++, e++)
                    out[n++] =
                        (struct triple){first_row + v->seg_row[s],
                                        (uint64_t)v->panel_id[p] * v->n.panel_columns + v->col[e],
                                        value_bits(v, e, store)};
            }
        }
    return n;
}

static const char *compare_tile(const case_matrix *m, const ooc_tile_info *i, const void *block)
{
    const ooc_tile_view v = ooc_tile_view_of(&i->n, i->constant, block);
    uint64_t at = m->off[i->first_row] - m->off[0], n = i->n.n_entries;
    struct triple *t = malloc((n + 1) * sizeof *t);
    uint32_t width = ooc_dtype_bytes(m->vtype);
    const char *what = NULL;

    if (m->off[i->first_row + i->n.n_rows] - m->off[i->first_row] != n)
        what = "a tile has another number of entries";
    else if (expand(&v, i->first_row, m->vtype, t) != n)
        what = "the lengths of a tile do not sum up";
    else
        qsort(t, n, sizeof *t, by_place);
    for (uint64_t r = i->first_row, e = 0; !what && e < n; e++) {
        uint64_t bits = 0;

        memcpy(&bits, m->val + (at + e) * width, width);
        while (m->off[r + 1] - m->off[0] <= at + e)
            r++;
        if (t[e].row != r || t[e].col != m->col[at + e])
            what = "an entry stands elsewhere";
        else if (t[e].bits != bits)
            what = "an entry has another value";
    }
    free(t);
    return what;
}

const char *case_compare(const case_matrix *m, const char *path, ooc_status *st, ooc_err *err)
{
    const char *what = NULL;
    const ooc_store_info *info;
    ooc_store *s;

    *st = ooc_store_open(&s, path, err);
    if (*st)
        return "it does not open";
    info = ooc_store_get_info(s);
    if (m && (info->n_rows != m->n_rows || info->n_cols != m->n_cols || info->vtype != m->vtype ||
              info->n_entries != m->off[m->n_rows] - m->off[0]))
        what = "another shape";
    for (uint64_t k = 0; !what && k < info->n_tiles; k++) {
        uint8_t *stored, *block;
        ooc_tile_info i;

        ooc_store_get_tile(s, k, &i);
        *st = case_read_tile(s, k, &stored, &block, err);
        if (*st) {
            what = "a tile does not decode";
            break;
        }
        if (m)
            what = compare_tile(m, &i, block);
        free(stored);
        free(block);
    }
    ooc_store_close(s);
    return what;
}
