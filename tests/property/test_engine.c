/* The engine: products against float64, and the same bits whatever the budgets, slots, I/O engine,
 * threads, strips and residency; nothing taken during a pass. */
#include "tests/support/engine_rig.h"

#include "base/alloc.h"
#include "base/fault.h"

#include <dirent.h>
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static ooc_matrix *open_or_fail(const char *path, const ooc_matrix_opts *o)
{
    ooc_matrix *A;
    ooc_err e;

    if (ooc_matrix_open(&A, path, o, &e))
        fail_msg("%s", e.text);
    return A;
}

static ooc_matrix_opts opts(uint32_t max_batch, ooc_dtype dense)
{
    return (ooc_matrix_opts){.size = sizeof(ooc_matrix_opts),
                             .device = "cpu",
                             .vram_budget = 64u << 20,
                             .ram_budget = 64u << 20,
                             .max_batch = max_batch,
                             .dense = dense,
                             .n_threads = 2};
}

static void multiply(ooc_matrix *A, bool transpose, const rig_array *in, rig_array *out)
{
    ooc_err e = {0};
    ooc_status st = transpose ? ooc_matrix_adjoint(A, in->B, &in->a, &out->a, &e)
                              : ooc_matrix_forward(A, in->B, &in->a, &out->a, &e);

    if (st)
        fail_msg("%s", e.text);
}

/* Both products of one matrix with B columns, rows `gap` elements further apart than need be. */
static void check_products(const engine_rig *g, const ooc_matrix_opts *o, uint32_t B, uint64_t gap)
{
    ooc_matrix *A = open_or_fail(g->path, o);
    uint64_t n[2] = {g->m.n_cols, g->m.n_rows};

    for (int t = 0; t < 2; t++) {
        rig_array in = rig_array_make(n[t], B, gap ? B + gap : 0, o->dense, 11);
        rig_array out = rig_array_make(n[!t], B, gap ? B + gap : 0, o->dense, 0);

        for (int round = 0; round < 2;
             round++) { /* the second finds what the first left resident */
            multiply(A, t, &in, &out);
            rig_check_product(g, t, &in, &out);
        }
        rig_array_free(&in);
        rig_array_free(&out);
    }
    ooc_matrix_close(A);
}

static const ooc_codec codecs[] = {OOC_CODEC_RAW, OOC_CODEC_ZSTD, OOC_CODEC_AUTO};

static void products_are_within_the_bounds(void **state)
{
    static const struct {
        uint64_t rows, cols, per_row;
        uint32_t tile_rows, panel;
    } shapes[] = {{1, 1, 1, 1, 1},           {1, 3000, 700, 1, 512},    {3000, 1, 1, 512, 65536},
                  {257, 300, 9, 32, 64},     {100, 20000, 40, 7, 4096}, {5000, 3, 2, 1000, 2},
                  {900, 900, 1, 256, 65536}, {64, 5000, 900, 64, 8192}};
    static const uint32_t batches[] = {1, 3, 8, 17};
    int n = 0;

    (void)state;
    for (int kind = 0; kind < CASE_KINDS; kind++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            engine_rig g;
            uint32_t B = batches[(s + (size_t)kind) % 4];
            ooc_matrix_opts o = opts(B, n % 5 == 4 ? OOC_F64 : OOC_F32);
            ooc_dtype vtypes[] = {OOC_F32, OOC_F64, OOC_F16, OOC_BF16};

            if (kind == CASE_DENSE && shapes[s].rows * shapes[s].cols > 500000)
                continue;
            rig_make(&g, (case_kind)kind, shapes[s].rows, shapes[s].cols, shapes[s].per_row,
                     n % 3 ? OOC_F32 : vtypes[n / 3 % 4], codecs[n % 3], shapes[s].tile_rows,
                     shapes[s].panel);
            o.no_resident = n % 2;
            o.n_threads = 1 + (uint32_t)n % 3;
            check_products(&g, &o, B, n % 4 == 1 ? 5 : 0);
            rig_free(&g);
            n++;
        }
    assert_in_range(n, 40, 100);
}

/* Forward, adjoint and a step, all outputs. */
typedef struct {
    rig_array Y, G, Y2, G2;
    double loss;
} outputs;

static outputs run_all(const char *path, const ooc_matrix_opts *o, const rig_array *X,
                       const rig_array *T, int rounds)
{
    ooc_matrix *A = open_or_fail(path, o);
    uint64_t M = T->rows, N = X->rows;
    ooc_loss_opts loss = {.size = sizeof loss, .kind = OOC_LOSS_HUBER};
    ooc_dtype d = X->a.dtype;
    outputs out = {rig_array_make(M, X->B, 0, d, 0), rig_array_make(N, X->B, 0, d, 0),
                   rig_array_make(M, X->B, 0, d, 0), rig_array_make(N, X->B, 0, d, 0), NAN};
    ooc_err e = {0};

    for (int i = 0; i < rounds; i++) {
        multiply(A, false, X, &out.Y);
        multiply(A, true, T, &out.G);
        if (ooc_matrix_step(A, X->B, &X->a, &T->a, &loss, &out.Y2.a, &out.G2.a, &out.loss, &e))
            fail_msg("%s", e.text);
    }
    ooc_matrix_close(A);
    return out;
}

static void free_outputs(outputs *o)
{
    rig_array_free(&o->Y);
    rig_array_free(&o->G);
    rig_array_free(&o->Y2);
    rig_array_free(&o->G2);
}

static void bits_depend_on_nothing(void **state)
{
    (void)state;
    for (size_t c = 0; c < 3; c++) {
        engine_rig g;
        uint64_t vram, ram;
        outputs want = {0};
        rig_array X, T;

        rig_make(&g, CASE_BANDED, 700, 1500, 30, OOC_F32, codecs[c], 32, 256);
        X = rig_array_make(1500, 4, 0, OOC_F32, 3);
        T = rig_array_make(700, 4, 0, OOC_F32, 5);
        rig_smallest(&g, opts(4, OOC_F32), &vram, &ram);
        for (uint32_t i = 0; i < 24; i++) {
            ooc_matrix_opts o = opts(4, OOC_F32);
            outputs got;

            o.io = i % 3 == 2 ? OOC_IO_PREAD : OOC_IO_AUTO;
            o.n_slots = i % 5;
            o.n_threads = 1 + i % 4;
            o.pass = i % 2 ? OOC_PASS_TWO : OOC_PASS_FUSED;
            rig_smallest(&g, o, &vram, &ram);
            o.vram_budget = vram + (i % 4) * 30000;
            o.ram_budget = ram + (i / 4 % 3) * 50000;
            o.no_resident = i % 7 == 6;
            got = run_all(g.path, &o, &X, &T, 1 + (int)(i % 3));
            if (i && !(rig_same(&got.Y, &want.Y) && rig_same(&got.G, &want.G) &&
                       rig_same(&got.Y2, &want.Y2) && rig_same(&got.G2, &want.G2) &&
                       memcmp(&got.loss, &want.loss, sizeof want.loss) == 0))
                fail_msg("codec %d, variant %u differs from variant 0", (int)codecs[c], i);
            if (i)
                free_outputs(&got);
            else
                want = got;
        }
        assert_true(rig_same(&want.Y, &want.Y2));
        free_outputs(&want);
        rig_array_free(&X);
        rig_array_free(&T);
        rig_free(&g);
    }
}

/* l and l' of one entry, in float64, as streamtrain.h writes them. */
static double loss_entry(ooc_loss_kind kind, double y, double t, double *dl)
{
    double d = y - t;

    switch (kind) {
    case OOC_LOSS_MSE:
        *dl = 2 * d;
        return d * d;
    case OOC_LOSS_L1:
        *dl = (d > 0) - (d < 0);
        return fabs(d);
    case OOC_LOSS_HUBER:
        *dl = fabs(d) <= 1 ? d : (d > 0) - (d < 0);
        return fabs(d) <= 1 ? d * d / 2 : fabs(d) - 0.5;
    default:
        *dl = 1 - t / (y + 1e-8);
        return y - t * log(y + 1e-8);
    }
}

/* Weights: none, a row, an entry; some are 0 where T is NaN. */
static void step_matches_float64(void **state)
{
    (void)state;
    for (int i = 0; i < 24; i++) {
        engine_rig g;
        ooc_loss_kind kind = (ooc_loss_kind)(i % 4);
        int weights = i / 4 % 3;
        uint32_t B = 1 + (uint32_t)i % 5, wB = weights == 2 ? B : 1;
        ooc_matrix_opts o = opts(1 + (uint32_t)i % 3, OOC_F64); /* also strips */
        uint64_t M = 300, N = 200;
        double *y = malloc(M * B * sizeof *y), total = 0, sum = 0, loss = NAN;
        rig_array X = rig_array_make(N, B, B + 2, OOC_F64, 21), T, W, R, G, Gref;
        ooc_loss_opts lo = {.size = sizeof lo, .kind = kind, .w_per_column = weights == 2};
        ooc_matrix *A;
        ooc_err e;

        assert_non_null(y);
        rig_make(&g, CASE_RANDOM, M, N, 12, OOC_F64, codecs[i % 3], i % 2 ? 50 : 300, 64);
        T = rig_array_make(M, B, 0, OOC_F64, 22);
        W = rig_array_make(M, wB, 0, OOC_F64, 23);
        R = rig_array_make(M, B, 0, OOC_F64, 0);
        G = rig_array_make(N, B, B + 1, OOC_F64, 0);
        Gref = rig_array_make(N, B, 0, OOC_F64, 0);
        if (kind == OOC_LOSS_POISSON) /* y must be positive: X and the values then are */
            for (uint64_t r = 0; r < N; r++)
                for (uint32_t b = 0; b < B; b++)
                    rig_put(&X, r, b, fabs(rig_at(&X, r, b)) + 0.1);
        rig_forward(&g, &X, y);
        for (uint64_t r = 0; r < M; r++)
            for (uint32_t b = 0; b < B; b++) {
                double w = weights ? fabs(rig_at(&W, r, b % wB)) : 1;

                if (weights && r % 7 == 3)
                    w = 0;
                if (weights && b < wB)
                    rig_put(&W, r, b, w);
                if (w == 0)
                    rig_put(&T, r, b, (double)NAN);
                total += w;
            }
        for (uint64_t r = 0; r < M; r++)
            for (uint32_t b = 0; b < B; b++) {
                double w = weights ? rig_at(&W, r, b % wB) : 1, dl = 0;
                double l = w > 0 ? loss_entry(kind, y[r * B + b], rig_at(&T, r, b), &dl) : 0;

                sum += w * l;
                rig_put(&R, r, b, w > 0 ? w * dl / total : 0);
            }
        lo.W = weights ? &W.a : NULL;
        o.pass = i % 2 ? OOC_PASS_TWO : OOC_PASS_AUTO;
        A = open_or_fail(g.path, &o);
        if (ooc_matrix_step(A, B, &X.a, &T.a, &lo, NULL, &G.a, &loss, &e))
            fail_msg("%s", e.text);
        if (isfinite(sum)) {
            double bound = 1e-11 * fmax(1, fabs(sum / total));

            if (!(fabs(loss - sum / total) <= bound))
                fail_msg("kind %d, weights %d: loss %.17g, expected %.17g", (int)kind, weights,
                         loss, sum / total);
            multiply(A, true, &R, &Gref);
            for (uint64_t c = 0; c < N; c++)
                for (uint32_t b = 0; b < B; b++)
                    if (!(fabs(rig_at(&G, c, b) - rig_at(&Gref, c, b)) <= 1e-11))
                        fail_msg("kind %d, weights %d: G[%" PRIu64 ", %u] is %.17g, expected %.17g",
                                 (int)kind, weights, c, b, rig_at(&G, c, b), rig_at(&Gref, c, b));
        }
        rig_check_gap(&G);
        ooc_matrix_close(A);
        free(y);
        rig_array_free(&X);
        rig_array_free(&T);
        rig_array_free(&W);
        rig_array_free(&R);
        rig_array_free(&G);
        rig_array_free(&Gref);
        rig_free(&g);
    }
}

static void loss_alone_and_zero_weights(void **state)
{
    engine_rig g;
    ooc_matrix_opts o = opts(2, OOC_F32);
    rig_array X = rig_array_make(80, 2, 0, OOC_F32, 1), T = rig_array_make(60, 2, 0, OOC_F32, 2);
    rig_array W = rig_array_make(60, 1, 0, OOC_F32, 1), G = rig_array_make(80, 2, 0, OOC_F32, 0);
    ooc_loss_opts lo = {.size = sizeof lo, .W = &W.a};
    double with_G = NAN, alone = NAN;
    ooc_matrix *A;
    ooc_err e;

    (void)state;
    rig_make(&g, CASE_RANDOM, 60, 80, 9, OOC_F32, OOC_CODEC_ZSTD, 16, 32);
    A = open_or_fail(g.path, &o);
    assert_int_equal(ooc_matrix_step(A, 2, &X.a, &T.a, NULL, NULL, &G.a, &with_G, &e), OOC_OK);
    assert_int_equal(ooc_matrix_step(A, 2, &X.a, &T.a, NULL, NULL, NULL, &alone, &e), OOC_OK);
    assert_true(with_G == alone && with_G > 0);
    for (uint64_t r = 0; r < 60; r++)
        rig_put(&W, r, 0, 0);
    assert_int_equal(ooc_matrix_step(A, 2, &X.a, &T.a, &lo, NULL, &G.a, &alone, &e), OOC_OK);
    assert_true(alone == 0);
    for (uint64_t c = 0; c < 80; c++)
        assert_true(rig_at(&G, c, 0) == 0 && rig_at(&G, c, 1) == 0);
    rig_put(&W, 3, 0, -1);
    assert_int_equal(ooc_matrix_step(A, 2, &X.a, &T.a, &lo, NULL, &G.a, &alone, &e), OOC_E_ARG);
    ooc_matrix_close(A);
    rig_array_free(&X);
    rig_array_free(&T);
    rig_array_free(&W);
    rig_array_free(&G);
    rig_free(&g);
}

static void adjoint_is_the_transpose(void **state)
{
    engine_rig g;
    ooc_matrix_opts o = opts(1, OOC_F32);

    (void)state;
    for (size_t c = 0; c < 3; c++) {
        rig_array X = rig_array_make(4000, 1, 0, OOC_F32, 31), Y, R, G;
        double left = 0, right = 0, norm_y = 0, norm_r = 0;
        ooc_matrix *A;

        rig_make(&g, CASE_RANDOM, 3000, 4000, 60, OOC_F32, codecs[c], 200, 512);
        Y = rig_array_make(3000, 1, 0, OOC_F32, 0);
        R = rig_array_make(3000, 1, 0, OOC_F32, 32);
        G = rig_array_make(4000, 1, 0, OOC_F32, 0);
        A = open_or_fail(g.path, &o);
        multiply(A, false, &X, &Y);
        multiply(A, true, &R, &G);
        for (uint64_t r = 0; r < 3000; r++) {
            left += rig_at(&Y, r, 0) * rig_at(&R, r, 0);
            norm_y += rig_at(&Y, r, 0) * rig_at(&Y, r, 0);
            norm_r += rig_at(&R, r, 0) * rig_at(&R, r, 0);
        }
        for (uint64_t r = 0; r < 4000; r++)
            right += rig_at(&X, r, 0) * rig_at(&G, r, 0);
        assert_true(fabs(left - right) <= 1e-6 * sqrt(norm_y) * sqrt(norm_r));
        ooc_matrix_close(A);
        rig_array_free(&X);
        rig_array_free(&Y);
        rig_array_free(&R);
        rig_array_free(&G);
        rig_free(&g);
    }
}

static int entries_of(const char *folder)
{
    DIR *d = opendir(folder);
    int n = 0;

    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

/* Bytes read, allocations, opens and threads of passes with every kind of residency. */
static void a_pass_takes_nothing(void **state)
{
    engine_rig g;

    (void)state;
    rig_make(&g, CASE_BANDED, 900, 700, 25, OOC_F32, OOC_CODEC_ZSTD, 64, 128);
    for (int i = 0; i < 4; i++) {
        ooc_matrix_opts o = opts(3, OOC_F32);
        rig_array X = rig_array_make(700, 3, 0, OOC_F32, 1),
                  T = rig_array_make(900, 3, 0, OOC_F32, 2),
                  G = rig_array_make(700, 3, 0, OOC_F32, 0);
        uint64_t before_alloc, before_open;
        int before_threads, before_files;
        double loss;
        ooc_matrix *A;
        ooc_err e;

        o.io = i % 2 ? OOC_IO_PREAD : OOC_IO_AUTO;
        o.no_resident = i < 2;
        o.pass = i % 3 ? OOC_PASS_TWO : OOC_PASS_FUSED;
        A = open_or_fail(g.path, &o);
        before_alloc = ooc_alloc_count();
        before_open = ooc_fault_visits(OOC_FAULT_OPEN);
        before_threads = entries_of("/proc/self/task");
        before_files = entries_of("/proc/self/fd");
        for (int round = 0; round < 3; round++)
            assert_int_equal(ooc_matrix_step(A, 3, &X.a, &T.a, NULL, NULL, &G.a, &loss, &e),
                             OOC_OK);
        assert_true(ooc_alloc_count() == before_alloc);
        assert_true(ooc_fault_visits(OOC_FAULT_OPEN) == before_open);
        assert_int_equal(entries_of("/proc/self/task"), before_threads);
        assert_int_equal(entries_of("/proc/self/fd"), before_files);
        ooc_matrix_close(A);
        rig_array_free(&X);
        rig_array_free(&T);
        rig_array_free(&G);
    }
    rig_free(&g);
}

static void fused_reads_half_and_resident_nothing(void **state)
{
    static const ooc_pass passes[] = {OOC_PASS_FUSED, OOC_PASS_TWO};
    engine_rig g;
    uint64_t bytes[2] = {0};

    (void)state;
    rig_make(&g, CASE_BANDED, 900, 700, 25, OOC_F32, OOC_CODEC_RAW, 64, 128);
    for (int i = 0; i < 4; i++) {
        ooc_matrix_opts o = opts(1, OOC_F32);
        rig_array X = rig_array_make(700, 1, 0, OOC_F32, 1),
                  T = rig_array_make(900, 1, 0, OOC_F32, 2),
                  G = rig_array_make(700, 1, 0, OOC_F32, 0);
        ooc_matrix_stats s = {.size = sizeof s};
        ooc_matrix_shape shape = {.size = sizeof shape};
        ooc_matrix *A;
        ooc_err e;

        o.pass = passes[i % 2];
        o.no_resident = i < 2;
        A = open_or_fail(g.path, &o);
        ooc_matrix_get_shape(A, &shape);
        assert_true(shape.n_tiles == g.n_tiles && shape.n_entries == g.m.off[900] - g.m.off[0]);
        for (int round = 0; round < 2; round++) {
            ooc_matrix_reset_stats(A);
            assert_int_equal(ooc_matrix_step(A, 1, &X.a, &T.a, NULL, NULL, &G.a, NULL, &e), OOC_OK);
        }
        ooc_matrix_get_stats(A, &s);
        if (o.no_resident) {
            bytes[i] = s.read_bytes;
            assert_true(s.tiles_read == g.n_tiles * (uint64_t)(i + 1));
            assert_true(s.tiles_resident_device + s.tiles_resident_ram == 0);
        } else {
            assert_true(s.read_bytes == 0 && s.tiles_read == 0);
            assert_true(s.tiles_resident_device + s.tiles_resident_ram == g.n_tiles);
        }
        assert_true(s.device_peak_bytes <= o.vram_budget && s.host_peak_bytes <= o.ram_budget);
        ooc_matrix_close(A);
        rig_array_free(&X);
        rig_array_free(&T);
        rig_array_free(&G);
    }
    assert_true(bytes[0] > 0 && bytes[1] == 2 * bytes[0]);
    rig_free(&g);
}

static void smallest_budgets_work_and_one_byte_less_is_refused(void **state)
{
    (void)state;
    for (size_t c = 0; c < 2; c++)
        for (uint32_t slots = 0; slots < 4; slots++) {
            engine_rig g;
            ooc_matrix_opts o = opts(5, OOC_F32);
            uint64_t vram, ram;
            ooc_matrix *A;
            ooc_err e;

            rig_make(&g, CASE_CLUSTER, 400, 600, 20, OOC_F32, codecs[c], 40, 100);
            o.n_slots = slots;
            o.pass = slots % 2 ? OOC_PASS_TWO : OOC_PASS_AUTO;
            rig_smallest(&g, o, &vram, &ram);
            o.vram_budget = vram;
            o.ram_budget = ram;
            check_products(&g, &o, 5, 0);
            o.vram_budget = vram - 1;
            assert_int_equal(ooc_matrix_open(&A, g.path, &o, &e), OOC_E_BUDGET);
            assert_non_null(strstr(e.text, "R block"));
            o.vram_budget = vram;
            o.ram_budget = ram - 1;
            assert_int_equal(ooc_matrix_open(&A, g.path, &o, &e), OOC_E_BUDGET);
            assert_non_null(strstr(e.text, "I/O slots"));
            assert_null(A);
            rig_free(&g);
        }
}

static void sleep_in_the_first_tile(void *ctx, uint64_t tiles_done, uint64_t n_tiles)
{
    const struct timespec t = {.tv_nsec = 120000000};

    (void)ctx;
    (void)n_tiles;
    if (tiles_done == 1)
        nanosleep(&t, NULL);
}

static bool yes_once(void *ctx)
{
    int *asked = ctx;

    return (*asked)++ == 0;
}

/* opts.interrupted ends a pass of more than 100 ms once, and is not asked in shorter ones. */
static void asks_whether_to_stop(void **state)
{
    engine_rig g;
    int asked = 0;
    ooc_matrix_opts o = opts(1, OOC_F32);
    rig_array X = rig_array_make(700, 1, 0, OOC_F32, 1), Y = rig_array_make(900, 1, 0, OOC_F32, 0);
    ooc_matrix *A;
    ooc_err e = {0};

    (void)state;
    rig_make(&g, CASE_BANDED, 900, 700, 25, OOC_F32, OOC_CODEC_ZSTD, 64, 128);
    o.interrupted = yes_once;
    o.interrupted_ctx = &asked;
    A = open_or_fail(g.path, &o);
    multiply(A, false, &X, &Y);
    assert_int_equal(asked, 0);
    ooc_matrix_close(A);
    o.progress = sleep_in_the_first_tile;
    A = open_or_fail(g.path, &o);
    assert_int_equal(ooc_matrix_forward(A, 1, &X.a, &Y.a, &e), OOC_E_INTERRUPTED);
    assert_int_equal(asked, 1);
    multiply(A, false, &X, &Y);
    rig_check_product(&g, false, &X, &Y);
    ooc_matrix_close(A);
    rig_array_free(&X);
    rig_array_free(&Y);
    rig_free(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_within_the_bounds),
        cmocka_unit_test(bits_depend_on_nothing),
        cmocka_unit_test(step_matches_float64),
        cmocka_unit_test(loss_alone_and_zero_weights),
        cmocka_unit_test(adjoint_is_the_transpose),
        cmocka_unit_test(a_pass_takes_nothing),
        cmocka_unit_test(fused_reads_half_and_resident_nothing),
        cmocka_unit_test(smallest_budgets_work_and_one_byte_less_is_refused),
        cmocka_unit_test(asks_whether_to_stop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
