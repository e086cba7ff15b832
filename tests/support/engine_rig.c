#include "tests/support/engine_rig.h"
#include "base/alloc.h"
#include "kernels/cpu/convert.h"

#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define GAP_MARK 123.25

static double number(uint64_t *state)
{
    return (double)(case_random(state) >> 11) * 0x1p-52 - 1.0;
}

/* Numbers of about 1 instead of random bits (which are not always finite), offsets from 0. */
static void tame(case_matrix *m)
{
    uint32_t size = ooc_dtype_bytes(m->vtype);
    uint64_t first = m->off[0], state = 5;

    for (uint64_t r = 0; r <= m->n_rows; r++)
        m->off[r] -= first;
    for (uint64_t i = 0; i < m->off[m->n_rows]; i++) {
        uint64_t bits = case_random(&state);
        double d = number(&state);
        float f = (float)d;
        uint16_t h = (uint16_t)((bits & 0x83ff) | (13 + bits / 0x10000 % 3) << 10); /* 1/4..2 */

        memcpy(&bits, &f, sizeof f);
        if (m->vtype == OOC_BF16)
            h = (uint16_t)((uint32_t)bits >> 16);
        if (m->vtype == OOC_F64)
            memcpy(m->val + i * size, &d, size);
        else if (m->vtype == OOC_F32)
            memcpy(m->val + i * size, &f, size);
        else
            memcpy(m->val + i * size, &h, size);
    }
}

void rig_make(engine_rig *g, case_kind kind, uint64_t n_rows, uint64_t n_cols, uint64_t per_row,
              ooc_dtype vtype, ooc_codec codec, uint32_t tile_rows, uint32_t panel_columns)
{
    static int number;
    ooc_pool *pool = ooc_pool_new(2);
    ooc_err e;

    assert_non_null(pool);
    snprintf(g->path, sizeof g->path, "rig-%d-%d.tiles", (int)getpid(), number++);
    g->m = case_make(kind, n_rows, n_cols, per_row, vtype, 7 + (uint64_t)number);
    if (kind != CASE_CONST && kind != CASE_BANDED)
        tame(&g->m);
    if (case_write(&g->m, g->path, panel_columns, codec, tile_rows, pool, &e))
        fail_msg("%s", e.text);
    g->n_tiles = (n_rows + tile_rows - 1) / tile_rows;
    ooc_pool_free(pool);
}

void rig_free(engine_rig *g)
{
    unlink(g->path);
    case_free(&g->m);
}

rig_array rig_array_make(uint64_t rows, uint32_t B, uint64_t ld, ooc_dtype dtype, uint64_t seed)
{
    rig_array x = {.a = {.ld = ld, .dtype = dtype, .device = OOC_HOST}, .rows = rows, .B = B};
    uint64_t items = rows * (ld ? ld : B), state = seed;

    x.a.data = malloc((size_t)(items ? items : 1) * ooc_dtype_bytes(dtype));
    assert_non_null(x.a.data);
    for (uint64_t i = 0; i < items; i++) {
        double v = ld && i % ld >= B ? GAP_MARK : seed ? number(&state) : (double)NAN;

        if (dtype == OOC_F64)
            ((double *)x.a.data)[i] = v;
        else
            ((float *)x.a.data)[i] = (float)v;
    }
    return x;
}

void rig_array_free(rig_array *x)
{
    free(x->a.data);
    x->a.data = NULL;
}

double rig_at(const rig_array *x, uint64_t row, uint32_t b)
{
    uint64_t i = row * (x->a.ld ? x->a.ld : x->B) + b;

    return x->a.dtype == OOC_F64 ? ((const double *)x->a.data)[i]
                                 : (double)((const float *)x->a.data)[i];
}

void rig_put(rig_array *x, uint64_t row, uint32_t b, double v)
{
    uint64_t i = row * (x->a.ld ? x->a.ld : x->B) + b;

    if (x->a.dtype == OOC_F64)
        ((double *)x->a.data)[i] = v;
    else
        ((float *)x->a.data)[i] = (float)v;
}

void rig_check_gap(const rig_array *x)
{
    for (uint64_t r = 0; r < x->rows; r++)
        for (uint64_t b = x->B; b < x->a.ld; b++)
            if (rig_at(x, r, (uint32_t)b) != GAP_MARK)
                fail_msg("row %" PRIu64 ": entry %" PRIu64 " behind B was written", r, b);
}

bool rig_same(const rig_array *x, const rig_array *y)
{
    for (uint64_t r = 0; r < x->rows; r++)
        for (uint32_t b = 0; b < x->B; b++) {
            double u = rig_at(x, r, b), v = rig_at(y, r, b);

            if (memcmp(&u, &v, sizeof u) != 0)
                return false;
        }
    return true;
}

static double value_at(const case_matrix *m, uint64_t i)
{
    uint32_t size = ooc_dtype_bytes(m->vtype);
    uint16_t half;
    float f;
    double d;

    switch (m->vtype) {
    case OOC_F64:
        memcpy(&d, m->val + i * size, sizeof d);
        return d;
    case OOC_F32:
        memcpy(&f, m->val + i * size, sizeof f);
        return (double)f;
    case OOC_F16:
        memcpy(&half, m->val + i * size, sizeof half);
        return (double)ooc_f32_from_f16(half);
    default:
        memcpy(&half, m->val + i * size, sizeof half);
        return (double)ooc_f32_from_bf16(half);
    }
}

/* sum, sum of absolute terms, and their number, for every output row and one column. */
struct sums {
    double *sum, *abs;
    uint64_t *len;
};

static void reference(const engine_rig *g, bool transpose, const rig_array *in, uint32_t b,
                      struct sums *s, uint64_t n_out)
{
    memset(s->sum, 0, n_out * sizeof *s->sum);
    memset(s->abs, 0, n_out * sizeof *s->abs);
    memset(s->len, 0, n_out * sizeof *s->len);
    for (uint64_t r = 0; r < g->m.n_rows; r++)
        for (uint64_t i = g->m.off[r] - g->m.off[0]; i < g->m.off[r + 1] - g->m.off[0]; i++) {
            uint64_t c = g->m.col[i], out = transpose ? c : r;
            double term = value_at(&g->m, i) * rig_at(in, transpose ? r : c, b);

            s->sum[out] += term;
            s->abs[out] += fabs(term);
            s->len[out]++;
        }
}

void rig_check_product(const engine_rig *g, bool transpose, const rig_array *in,
                       const rig_array *out)
{
    double u = in->a.dtype == OOC_F64 ? 0x1p-53 : 0x1p-24;
    struct sums s = {calloc(out->rows + 1, sizeof *s.sum), calloc(out->rows + 1, sizeof *s.abs),
                     calloc(out->rows + 1, sizeof *s.len)};

    assert_true(s.sum && s.abs && s.len);
    for (uint32_t b = 0; b < in->B; b++) {
        reference(g, transpose, in, b, &s, out->rows);
        for (uint64_t r = 0; r < out->rows; r++) {
            double got = rig_at(out, r, b), bound = 8 * u * sqrt((double)s.len[r]) * s.abs[r];

            if (!(fabs(got - s.sum[r]) <= bound))
                fail_msg("%s row %" PRIu64 ", column %u of %u: got %.17g, expected %.17g, bound %g "
                         "(%s, %" PRIu64 " x %" PRIu64 ")",
                         transpose ? "adjoint" : "forward", r, b, in->B, got, s.sum[r], bound,
                         g->path, g->m.n_rows, g->m.n_cols);
        }
    }
    rig_check_gap(out);
    free(s.sum);
    free(s.abs);
    free(s.len);
}

void rig_forward(const engine_rig *g, const rig_array *x, double *y)
{
    for (uint64_t r = 0; r < g->m.n_rows; r++)
        for (uint32_t b = 0; b < x->B; b++) {
            double sum = 0;

            for (uint64_t i = g->m.off[r] - g->m.off[0]; i < g->m.off[r + 1] - g->m.off[0]; i++)
                sum += value_at(&g->m, i) * rig_at(x, g->m.col[i], b);
            y[r * x->B + b] = sum;
        }
}

void rig_smallest(const engine_rig *g, ooc_matrix_opts o, uint64_t *vram, uint64_t *ram)
{
    uint64_t *found[2] = {vram, ram};
    ooc_matrix *A;
    ooc_err e;

    o.vram_budget = 1;
    o.ram_budget = 1;
    for (int i = 0; i < 2; i++) {
        const char *at;

        assert_int_equal(ooc_matrix_open(&A, g->path, &o, &e), OOC_E_BUDGET);
        assert_null(A);
        at = strstr(e.text, "at least ");
        assert_non_null(at);
        *found[i] = strtoull(at + 9, NULL, 10);
        *(i ? &o.ram_budget : &o.vram_budget) = *found[i];
    }
}
