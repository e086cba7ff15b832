/* Products with one tile against a naive long double oracle: every instruction set that the machine
 * has, value type, dense type, batch width and shape of tile; the bits under every split; memory
 * that must stay untouched. */
#include "kernels/cpu/spmm_cpu.h"
#include "kernels/cpu/split.h"
#include "tests/support/tile_maker.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SENTINEL 12345.0
#define PAD      3 /* unused elements behind each row of B */

static void *scratch;

typedef struct {
    ooc_dtype dense;
    uint64_t rows, ld, n; /* n elements in all, one guard row before and behind */
    void *data;           /* element of row 0 */
    void *base;
} dense_array;

static double get(const dense_array *a, uint64_t i)
{
    return a->dense == OOC_F64 ? ((double *)a->data)[i] : (double)((float *)a->data)[i];
}

static void set(const dense_array *a, uint64_t i, double v)
{
    if (a->dense == OOC_F64)
        ((double *)a->data)[i] = v;
    else
        ((float *)a->data)[i] = (float)v;
}

/* Rows of B zeros, ld = B + PAD, sentinels everywhere else. */
static dense_array dense_new(ooc_dtype dense, uint64_t rows, uint32_t B)
{
    dense_array a = {.dense = dense, .rows = rows, .ld = B + PAD, .n = (rows + 2) * (B + PAD)};

    a.base = malloc(a.n * ooc_dtype_bytes(dense));
    assert_non_null(a.base);
    a.data = a.base;
    for (uint64_t i = 0; i < a.n; i++)
        set(&a, i, SENTINEL);
    a.data = (char *)a.base + a.ld * ooc_dtype_bytes(dense);
    for (uint64_t r = 0; r < rows; r++)
        for (uint32_t b = 0; b < B; b++)
            set(&a, r * a.ld + b, 0);
    return a;
}

static void check_sentinels(const dense_array *a, uint32_t B)
{
    dense_array all = *a;

    all.data = a->base;
    for (uint64_t i = 0; i < a->n; i++) {
        const uint64_t r = i / a->ld, b = i % a->ld;

        if (r == 0 || r > a->rows || b >= B)
            assert_true(get(&all, i) == SENTINEL);
    }
}

/* Compare with the oracle; DESIGN section 9. Returns the largest share of the bound. */
static double check_product(const char *what, const tm_matrix *m, bool transpose,
                            const dense_array *in, const dense_array *out, uint32_t B)
{
    const uint64_t n_in = transpose ? m->n_rows : m->n_cols,
                   n_out = transpose ? m->n_cols : m->n_rows;
    const double u = in->dense == OOC_F64 ? 0x1p-53 : 0x1p-24;
    double *x = calloc(n_in * B + 1, sizeof *x), *want = calloc(n_out * B + 1, sizeof *want);
    double *scale = calloc(n_out * B + 1, sizeof *scale), worst = 0;
    uint32_t *len = calloc(n_out + 1, sizeof *len);

    for (uint64_t r = 0; r < n_in; r++)
        for (uint32_t b = 0; b < B; b++)
            x[r * B + b] = get(in, r * in->ld + b);
    tm_product(m, transpose, x, B, B, want, scale, len);
    for (uint64_t i = 0; i < n_out * B; i++) {
        const double got = get(out, i / B * out->ld + i % B);
        const double bound = 8 * u * sqrt(len[i / B]) * scale[i];

        if (!(fabs(got - want[i]) <= bound))
            fail_msg("%s B=%u transpose=%d row %llu: got %.17g want %.17g bound %g", what, B,
                     transpose, (unsigned long long)(i / B), got, want[i], bound);
        if (bound > 0)
            worst = fmax(worst, fabs(got - want[i]) / bound);
    }
    check_sentinels(out, B);
    free(x);
    free(want);
    free(scale);
    free(len);
    return worst;
}

static void forward(const tm_tile *t, const dense_array *X, const dense_array *Y, uint32_t B)
{
    ooc_spmm_forward_cpu(&t->view, 0, t->view.n.n_chunks, X->rows, X->data, X->ld, Y->data, Y->ld,
                         B, X->dense, scratch);
}

static void adjoint(const tm_tile *t, const dense_array *R, const dense_array *G, uint32_t B)
{
    ooc_spmm_adjoint_cpu(&t->view, 0, t->view.n.n_panels, 0, t->view.n.panel_columns, G->rows,
                         R->data, R->ld, G->data, G->ld, B, R->dense, scratch);
}

static void fill_random(const dense_array *a, uint32_t B, uint64_t seed, bool integers)
{
    for (uint64_t r = 0; r < a->rows; r++)
        for (uint32_t b = 0; b < B; b++) {
            const double v = tm_random(&seed) * 2 - 1;

            set(a, r * a->ld + b, integers ? nearbyint(v * 8) : v);
        }
}

/* `what` names the split that should have given the same bits. */
static void check_same(const char *what, uint32_t B, const dense_array *a, const dense_array *b)
{
    if (memcmp(a->base, b->base, a->n * ooc_dtype_bytes(a->dense)) != 0)
        fail_msg("%s, B=%u, %s: other bits", what, B, ooc_isa_name((ooc_isa)ooc_cpu_isa(NULL)));
}

/* Every split gives the bits of the whole. */
static void check_splits(const tm_tile *t, const dense_array *X, const dense_array *Y,
                         const dense_array *R, const dense_array *G, uint32_t B)
{
    const ooc_tile_view *v = &t->view;
    dense_array Y2 = dense_new(Y->dense, Y->rows, B), G2 = dense_new(G->dense, G->rows, B);
    dense_array Y3 = dense_new(Y->dense, Y->rows, B), G3 = dense_new(G->dense, G->rows, B);
    ooc_forward_part fparts[8];
    ooc_adjoint_part aparts[8];
    uint32_t n;
    const uint32_t cut = v->n.panel_columns / 3;

    for (uint32_t c = v->n.n_chunks; c-- > 0;)
        ooc_spmm_forward_cpu(v, c, c + 1, X->rows, X->data, X->ld, Y2.data, Y2.ld, B, X->dense,
                             scratch);
    check_same("chunk by chunk", B, Y, &Y2);
    n = ooc_split_forward(v, 8, fparts);
    for (uint32_t i = 0; i < n; i++)
        ooc_spmm_forward_cpu(v, fparts[i].c0, fparts[i].c1, X->rows, X->data, X->ld, Y3.data, Y3.ld,
                             B, X->dense, scratch);
    check_same("ooc_split_forward", B, Y, &Y3);
    for (uint32_t p = v->n.n_panels; p-- > 0;) {
        ooc_spmm_adjoint_cpu(v, p, p + 1, cut, v->n.panel_columns, G->rows, R->data, R->ld, G2.data,
                             G2.ld, B, R->dense, scratch);
        ooc_spmm_adjoint_cpu(v, p, p + 1, 0, cut, G->rows, R->data, R->ld, G2.data, G2.ld, B,
                             R->dense, scratch);
    }
    check_same("panels in two column ranges", B, G, &G2);
    n = ooc_split_adjoint(v, G->rows, 8, aparts);
    for (uint32_t i = 0; i < n; i++)
        ooc_spmm_adjoint_cpu(v, aparts[i].p0, aparts[i].p1, aparts[i].col0, aparts[i].col1, G->rows,
                             R->data, R->ld, G3.data, G3.ld, B, R->dense, scratch);
    check_same("ooc_split_adjoint", B, G, &G3);
    free(Y2.base);
    free(G2.base);
    free(Y3.base);
    free(G3.base);
}

typedef struct {
    const char *name;
    uint32_t panel_columns, chunk_rows;
    tm_panels panels;
    bool integers; /* exact results wanted */
} how;

static double check_tile(const how *h, const tm_matrix *m, ooc_dtype vtype, ooc_dtype dense,
                         uint32_t B)
{
    tm_matrix rounded = tm_rows(m, 0, m->n_rows);
    tm_tile t;
    dense_array X = dense_new(dense, m->n_cols, B), Y = dense_new(dense, m->n_rows, B);
    dense_array R = dense_new(dense, m->n_rows, B), G = dense_new(dense, m->n_cols, B);
    double worst;

    tm_round_values(&rounded, vtype);
    t = tm_tile_new(&rounded, h->panel_columns, h->chunk_rows, vtype, h->panels);
    fill_random(&X, B, 1, h->integers);
    fill_random(&R, B, 2, h->integers);
    forward(&t, &X, &Y, B);
    adjoint(&t, &R, &G, B);
    worst = check_product(h->name, &rounded, false, &X, &Y, B);
    worst = fmax(worst, check_product(h->name, &rounded, true, &R, &G, B));
    if (h->integers)
        assert_true(worst == 0);
    check_splits(&t, &X, &Y, &R, &G, B);
    forward(&t, &X, &Y, B); /* adds: twice the result, exactly so for integers */
    if (h->integers) {
        for (uint64_t r = 0; r < Y.rows; r++)
            for (uint32_t b = 0; b < B; b++)
                set(&Y, r * Y.ld + b, get(&Y, r * Y.ld + b) / 2);
        assert_true(check_product(h->name, &rounded, false, &X, &Y, B) == 0);
    }
    tm_tile_free(&t);
    tm_matrix_free(&rounded);
    free(X.base);
    free(Y.base);
    free(R.base);
    free(G.base);
    return worst;
}

/* Random rows of random length, some empty, some with runs of neighbours. */
static tm_matrix random_matrix(uint32_t n_rows, uint64_t n_cols, double density, bool integers,
                               uint64_t seed)
{
    tm_matrix m = tm_matrix_new(n_rows, n_cols, (uint32_t)(n_rows * n_cols));

    for (uint32_t r = 0; r < n_rows; r++) {
        const double row_density = r % 5 == 3 ? 0 : r % 7 == 1 ? 1 : density * 2 * tm_random(&seed);
        bool run = false;

        for (uint64_t c = 0; c < n_cols; c++) {
            const double v = tm_random(&seed) * 2 - 1;

            if (r % 3 == 0) /* runs: begin with the density, go on with 7 in 8 */
                run = tm_random(&seed) < (run ? 0.875 : row_density / 4);
            else
                run = tm_random(&seed) < row_density;
            if (run)
                tm_add(&m, r, c, integers ? nearbyint(v * 8) + 0.0 : v);
        }
    }
    return m;
}

static const ooc_dtype vtypes[] = {OOC_F32, OOC_F64, OOC_F16, OOC_BF16, OOC_CONST};
static const uint32_t batches[] = {1, 2, 3, 4, 5, 8, 11, 16, 17, 24, 32, 33, 64, 70};

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static int next_isa(int isa)
{
    while (++isa <= (int)OOC_ISA_AVX512)
        if (ooc_cpu_isa_set((ooc_isa)isa) == 0)
            return isa;
    return -1;
}

static void all_types_and_batches(void **state)
{
    static const how hows[] = {
        {"one panel", 65536, 100, TM_SEGMENTS, false},
        {"segments", 64, 7, TM_SEGMENTS, false},
        {"pairs", 64, 7, TM_PAIRS, false},
        {"mixed", 50, 64, TM_MIXED, false},
        {"integers", 33, 10, TM_MIXED, true},
    };

    (void)state;
    for (int isa = next_isa(-1); isa >= 0; isa = next_isa(isa)) {
        double worst = 0;
        unsigned cases = 0;

        for (uint32_t i = 0; i < COUNT(hows) * COUNT(vtypes) * COUNT(batches) * 2; i++) {
            const how *h = &hows[i % COUNT(hows)];
            const ooc_dtype vtype = vtypes[i / COUNT(hows) % COUNT(vtypes)];
            const uint32_t B = batches[i / COUNT(hows) / COUNT(vtypes) % COUNT(batches)];
            const ooc_dtype dense =
                i / COUNT(hows) / COUNT(vtypes) / COUNT(batches) ? OOC_F64 : OOC_F32;
            tm_matrix m = random_matrix(64, 170, 0.1, h->integers, i);

            worst = fmax(worst, check_tile(h, &m, vtype, dense, B));
            tm_matrix_free(&m);
            cases++;
        }
        print_message("%s: %u cases, largest error %.3f of the bound\n", ooc_isa_name((ooc_isa)isa),
                      cases, worst);
    }
}

static void odd_shapes(void **state)
{
    static const uint32_t widths[] = {1, 2, 4, 7, 8, 16, 32, 40};

    (void)state;
    for (int isa = next_isa(-1); isa >= 0; isa = next_isa(isa))
        for (uint32_t i = 0; i < COUNT(widths); i++) {
            const uint32_t B = widths[i];
            const how one = {"one", 16, 1, TM_SEGMENTS, false};
            const how tall = {"tall", 65536, 999, TM_SEGMENTS, false};
            const how wide = {"many panels", 16, 3, TM_MIXED, false};
            tm_matrix empty = tm_matrix_new(5, 9, 0), single = tm_matrix_new(1, 1, 1);
            tm_matrix row = random_matrix(1, 5000, 0.3, false, 3);
            tm_matrix columns = random_matrix(4000, 3, 0.7, false, 4);

            tm_add(&single, 0, 0, 0.5);
            check_tile(&one, &empty, OOC_F32, OOC_F32, B);
            check_tile(&one, &single, OOC_F32, OOC_F32, B);
            check_tile(&tall, &columns, OOC_F32, OOC_F32, B);
            check_tile(&tall, &columns, OOC_F64, OOC_F64, B);
            check_tile(&wide, &row, OOC_F32, OOC_F32, B); /* 313 panels */
            check_tile(&wide, &row, OOC_CONST, OOC_F64, B);
            tm_matrix_free(&empty);
            tm_matrix_free(&single);
            tm_matrix_free(&row);
            tm_matrix_free(&columns);
        }
}

/* Two full rows of 65,536 columns in one panel: segments of 65,535 and 1; wide enough that the
 * accumulators of B = 40 need several column ranges. */
static void longest_segments(void **state)
{
    static const uint32_t widths[] = {1, 2, 8, 16, 40};
    const how h = {"longest segments", 65536, 2, TM_SEGMENTS, false};

    (void)state;
    for (int isa = next_isa(-1); isa >= 0; isa = next_isa(isa))
        for (uint32_t i = 0; i < COUNT(widths); i++) {
            tm_matrix m = tm_matrix_new(2, 65536, 2 * 65536);

            for (uint32_t e = 0; e < 2 * 65536; e++)
                tm_add(&m, e / 65536, e % 65536, 1.0 / (1 + e % 97) - 0.2);
            check_tile(&h, &m, OOC_F32, OOC_F32, widths[i]);
            tm_matrix_free(&m);
        }
}

/* A hundred-thousand-fold sum of equal numbers, in rows (forward) or columns (adjoint) that go
 * through several tiles. Plain f32 sums fail this. */
static void check_biased(const tm_matrix *m, uint32_t tile_rows, uint32_t panel_columns,
                         tm_panels panels, uint32_t B, double x)
{
    dense_array X = dense_new(OOC_F32, m->n_cols, B), Y = dense_new(OOC_F32, m->n_rows, B);
    dense_array R = dense_new(OOC_F32, m->n_rows, B), G = dense_new(OOC_F32, m->n_cols, B);

    for (uint64_t i = 0; i < X.rows * B; i++)
        set(&X, i / B * X.ld + i % B, x);
    for (uint64_t i = 0; i < R.rows * B; i++)
        set(&R, i / B * R.ld + i % B, x);
    for (uint32_t r = 0; r < m->n_rows; r += tile_rows) {
        tm_matrix part = tm_rows(m, r, m->n_rows - r < tile_rows ? m->n_rows - r : tile_rows);
        tm_tile t = tm_tile_new(&part, panel_columns, 5000, OOC_F32, panels);

        ooc_spmm_forward_cpu(&t.view, 0, t.view.n.n_chunks, X.rows, X.data, X.ld,
                             (float *)Y.data + r * Y.ld, Y.ld, B, OOC_F32, scratch);
        ooc_spmm_adjoint_cpu(&t.view, 0, t.view.n.n_panels, 0, panel_columns, G.rows,
                             (float *)R.data + r * R.ld, R.ld, G.data, G.ld, B, OOC_F32, scratch);
        tm_tile_free(&t);
        tm_matrix_free(&part);
    }
    check_product("biased", m, false, &X, &Y, B);
    check_product("biased", m, true, &R, &G, B);
    free(X.base);
    free(Y.base);
    free(R.base);
    free(G.base);
}

static void biased_sums(void **state)
{
    const uint32_t n = 200000;
    static const uint32_t widths[] = {1, 4, 9, 32};

    (void)state;
    for (int isa = next_isa(-1); isa >= 0; isa = next_isa(isa))
        for (uint32_t i = 0; i < COUNT(widths); i++) {
            tm_matrix row = tm_matrix_new(1, n, n), column = tm_matrix_new(n, 2, 2 * n);
            tm_matrix arrow = tm_matrix_new(n, n, 3 * n), comb = tm_matrix_new(1, 5 * n, n);

            for (uint32_t k = 0; k < n; k++) {
                tm_add(&row, 0, k, (double)0.1f);
                tm_add(&column, k, 0, (double)0.1f);
                if (k % 3)
                    tm_add(&column, k, 1, (double)0.7f);
                tm_add(&arrow, 0, k, (double)0.1f);
                if (k % 10 == 0)
                    tm_add(&comb, 0, 5 * k, (double)0.1f);
            }
            for (uint32_t k = 1; k < n; k++) {
                tm_add(&arrow, k, 0, (double)0.1f);
                tm_add(&arrow, k, k, (double)0.3f);
            }
            check_biased(&row, 1, 65536, TM_SEGMENTS, widths[i], 1);
            check_biased(&column, 60000, 65536, TM_SEGMENTS, widths[i], 1);
            if (widths[i] == 1 || widths[i] == 9) {
                check_biased(&arrow, 65536, 65536, TM_PAIRS, widths[i], 1);
                check_biased(&comb, 1, 50, TM_PAIRS, widths[i], 0.77);
            }
            tm_matrix_free(&row);
            tm_matrix_free(&column);
            tm_matrix_free(&arrow);
            tm_matrix_free(&comb);
        }
}

static void isa_choice(void **state)
{
    const char *why;

    (void)state;
    assert_int_equal(ooc_cpu_isa_set(OOC_ISA_SCALAR), 0);
    assert_int_equal(ooc_cpu_isa(&why), OOC_ISA_SCALAR);
    assert_int_equal(ooc_cpu_isa_set((ooc_isa)17), -1);
    assert_int_equal(ooc_cpu_isa(NULL), OOC_ISA_SCALAR);
    assert_string_equal(ooc_isa_name(OOC_ISA_AVX2), "avx2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_types_and_batches),
        cmocka_unit_test(odd_shapes),
        cmocka_unit_test(longest_segments),
        cmocka_unit_test(biased_sums),
        cmocka_unit_test(isa_choice),
    };
    int failed;

    scratch = aligned_alloc(64, OOC_SPMM_SCRATCH_BYTES);
    memset(scratch, 0x7f, OOC_SPMM_SCRATCH_BYTES);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(scratch);
    return failed;
}
