/* Forward against a plain double implementation, gradients against central differences of it. */
#include "tests/unit/model_oracle.h"

#include "src/model/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    ooc_pool *pool;
    ooc_dense *dense;
    ooc_model *model;
    ooc_arena *arena;
    float *input, *X, *G;
    uint32_t samples[8], n_used;
} bed;

static float symmetric(ooc_rng *rng)
{
    return 2 * ooc_rng_uniform(rng) - 1;
}

/* The model alone in an arena of exactly the planned size. */
static void bed_open(bed *b, const ooc_model_opts *opts, uint32_t n_used, uint32_t threads)
{
    ooc_plan plan = {0};
    ooc_err err;
    ooc_rng rng;

    memset(b, 0, sizeof *b);
    b->pool = ooc_pool_new(threads);
    b->n_used = n_used;
    assert_int_equal(ooc_dense_cpu_open(&b->dense, b->pool, &err), OOC_OK);
    if (ooc_model_open(&b->model, opts, b->dense, &err))
        fail_msg("%s", err.text);
    ooc_model_plan(b->model, &plan);
    assert_int_equal(ooc_arena_open_host(&b->arena, "model", plan.total, &err), OOC_OK);
    assert_int_equal(ooc_model_start(b->model, b->arena, &err), OOC_OK);
    assert_int_equal(ooc_arena_free(b->arena), 0);
    assert_int_equal(ooc_model_init(b->model, 7, &err), OOC_OK);
    b->input = calloc(opts->batch * opts->n_in, sizeof(float));
    b->X = calloc(opts->batch * opts->n_out, sizeof(float));
    b->G = calloc(opts->batch * opts->n_out, sizeof(float));
    ooc_rng_seed(&rng, 11, 1);
    for (uint64_t i = 0; i < opts->batch * opts->n_in; i++)
        b->input[i] = symmetric(&rng);
    for (uint64_t i = 0; i < opts->batch * opts->n_out; i++)
        b->G[i] = symmetric(&rng);
    if (opts->kind == OOC_MODEL_PIXELS)
        for (uint64_t i = 0; i < ooc_model_block_floats(b->model); i++)
            ooc_model_weights(b->model)[i] = symmetric(&rng);
    for (uint32_t i = 0; i < n_used; i++)
        b->samples[i] = 2 * i + 1;
}

static void bed_close(bed *b)
{
    ooc_model_close(b->model);
    ooc_arena_close(b->arena);
    ooc_dense_close(b->dense);
    ooc_pool_free(b->pool);
    free(b->input);
    free(b->X);
    free(b->G);
}

static void sweep(bed *b)
{
    ooc_err err;

    if (ooc_model_forward(b->model, b->input, b->samples, b->n_used, true, b->X, &err) ||
        ooc_model_backward(b->model, b->input, b->samples, b->n_used, b->G, &err))
        fail_msg("%s", err.text);
}

/* sum(G * X) over the used samples, in double; X goes to `X` if not NULL (n_used x N). */
static double oracle_loss(const bed *b, const double *weights, double *X)
{
    const ooc_model_opts *o = ooc_model_get_opts(b->model);
    double *sample = calloc(o->n_in, sizeof *sample), *x = calloc(o->n_out, sizeof *x);
    double loss = 0;

    for (uint32_t s = 0; s < b->n_used; s++) {
        for (uint64_t i = 0; i < o->n_in; i++)
            sample[i] = (double)b->input[s * o->n_in + i];
        oracle_model(b->model, weights, sample, b->samples[s], x);
        for (uint64_t i = 0; i < o->n_out; i++)
            loss += x[i] * (double)b->G[i * o->batch + s];
        if (X)
            memcpy(X + s * o->n_out, x, o->n_out * sizeof *x);
    }
    free(sample);
    free(x);
    return loss;
}

static void check_forward(const bed *b, const double *weights)
{
    const ooc_model_opts *o = ooc_model_get_opts(b->model);
    double *X = calloc(b->n_used * o->n_out, sizeof *X), worst = 0, largest = 0;

    oracle_loss(b, weights, X);
    for (uint32_t s = 0; s < b->n_used; s++)
        for (uint64_t i = 0; i < o->n_out; i++) {
            worst = fmax(worst, fabs((double)b->X[i * o->batch + s] - X[s * o->n_out + i]));
            largest = fmax(largest, fabs(X[s * o->n_out + i]));
        }
    free(X);
    if (!(worst <= 2e-6 * largest))
        fail_msg("forward: error %g, largest value %g", worst, largest);
}

/* A handful of elements of a tensor: all would take minutes. */
static void check_gradient(const bed *b, double *weights, const ooc_param *t)
{
    const float *g = ooc_model_gradients(b->model) + t->off;
    const double h = 1e-6;
    double worst = 0, scale = 0;
    ooc_rng rng;

    for (uint64_t i = 0; i < t->n; i++)
        scale = fmax(scale, fabs((double)g[i]));
    ooc_rng_seed(&rng, t->off, 2);
    for (int k = 0; k < 12; k++) {
        const uint64_t i = ooc_rng_below(&rng, t->n);
        const double w = weights[t->off + i];
        double up, down;

        weights[t->off + i] = w + h;
        up = oracle_loss(b, weights, NULL);
        weights[t->off + i] = w - h;
        down = oracle_loss(b, weights, NULL);
        weights[t->off + i] = w;
        worst = fmax(worst, fabs((up - down) / (2 * h) - (double)g[i]));
    }
    if (!(worst <= 1e-5 * (scale + 1e-3)))
        fail_msg("%s: gradient off by %g, largest %g", t->name, worst, scale);
}

static void check_model(const ooc_model_opts *opts, uint32_t n_used)
{
    bed b;
    uint64_t n;
    double *weights;

    bed_open(&b, opts, n_used, 2);
    n = ooc_model_block_floats(b.model);
    weights = calloc(n, sizeof *weights);
    sweep(&b);
    for (uint64_t i = 0; i < n; i++)
        weights[i] = (double)ooc_model_weights(b.model)[i];
    check_forward(&b, weights);
    for (uint32_t i = 0; i < ooc_model_n_params(b.model); i++)
        check_gradient(&b, weights, ooc_model_param(b.model, i));
    free(weights);
    bed_close(&b);
}

/* The gradients of `b` after one sweep; the caller frees them. */
static float *gradients_of(const ooc_model_opts *opts, uint32_t n_used)
{
    bed b;
    size_t bytes;
    float *g;

    bed_open(&b, opts, n_used, 2);
    sweep(&b);
    bytes = ooc_model_block_floats(b.model) * sizeof(float);
    g = malloc(bytes);
    memcpy(g, ooc_model_gradients(b.model), bytes);
    bed_close(&b);
    return g;
}

static void check_recompute(const ooc_model_opts *opts, uint32_t n_used)
{
    ooc_model_opts again = *opts;
    float *a, *b, *c;
    size_t n = 0;
    bed bed_a;

    again.recompute = true;
    a = gradients_of(opts, n_used);
    b = gradients_of(&again, n_used);
    c = gradients_of(opts, n_used);
    bed_open(&bed_a, opts, n_used, 2);
    n = ooc_model_block_floats(bed_a.model) * sizeof(float);
    bed_close(&bed_a);
    assert_memory_equal(a, b, n);
    assert_memory_equal(a, c, n);
    free(a);
    free(b);
    free(c);
}

static ooc_model_opts unet_opts(uint64_t h, uint64_t w, uint64_t h_out, uint64_t w_out,
                                uint32_t batch, uint32_t levels, uint64_t c0)
{
    ooc_model_opts o = {.kind = OOC_MODEL_UNET,
                        .batch = batch,
                        .n_in = h * w,
                        .n_out = h_out * w_out,
                        .in_shape = {h, w},
                        .out_shape = {h_out, w_out},
                        .n_widths = levels,
                        .train = true};

    for (uint32_t i = 0; i < levels; i++)
        o.widths[i] = c0 + i;
    return o;
}

static void test_unet(void **state)
{
    static const struct {
        uint64_t h, w, h_out, w_out;
        uint32_t batch, n_used, levels;
        uint64_t c0;
    } cases[] = {{8, 8, 8, 8, 1, 1, 1, 3},    {7, 9, 5, 6, 1, 1, 2, 2},
                 {13, 10, 9, 21, 1, 1, 3, 4}, {8, 12, 11, 7, 3, 3, 2, 3},
                 {9, 11, 6, 6, 4, 2, 3, 2},   {5, 4, 40, 3, 1, 1, 2, 5},
                 {16, 16, 1, 1, 2, 1, 2, 16}, {1, 1, 2, 3, 1, 1, 1, 2}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const ooc_model_opts o = unet_opts(cases[i].h, cases[i].w, cases[i].h_out, cases[i].w_out,
                                           cases[i].batch, cases[i].levels, cases[i].c0);

        check_model(&o, cases[i].n_used);
        check_recompute(&o, cases[i].n_used);
    }
}

static void test_mlp(void **state)
{
    static const uint32_t hidden[] = {0, 1, 2, 3};

    (void)state;
    for (size_t i = 0; i < sizeof hidden / sizeof *hidden; i++) {
        ooc_model_opts o = {.kind = OOC_MODEL_MLP,
                            .batch = 1 + (uint32_t)i,
                            .n_in = 17,
                            .n_out = 23,
                            .n_widths = hidden[i],
                            .widths = {5, 7, 3},
                            .train = true};

        check_model(&o, o.batch);
        check_model(&o, 1);
        check_recompute(&o, o.batch);
    }
}

static void test_pixels(void **state)
{
    ooc_model_opts o = {.kind = OOC_MODEL_PIXELS,
                        .batch = 1,
                        .n_in = 4,
                        .n_out = 33,
                        .n_samples = 7,
                        .train = true};

    (void)state;
    check_model(&o, 1);
    o.batch = 3;
    check_model(&o, 3);
    check_model(&o, 2);
}

/* What recomputation is for. */
static void test_recompute_is_smaller(void **state)
{
    ooc_model_opts o = unet_opts(700, 384, 640, 640, 1, 3, 16);
    uint64_t total[2];

    (void)state;
    o.widths[1] = 32;
    o.widths[2] = 64;
    for (int i = 0; i < 2; i++) {
        ooc_pool *pool = ooc_pool_new(1);
        ooc_dense *dense;
        ooc_model *m;
        ooc_plan plan = {0};
        ooc_err err;

        o.recompute = i == 1;
        assert_int_equal(ooc_dense_cpu_open(&dense, pool, &err), OOC_OK);
        assert_int_equal(ooc_model_open(&m, &o, dense, &err), OOC_OK);
        ooc_model_plan(m, &plan);
        total[i] = plan.total;
        ooc_model_close(m);
        ooc_dense_close(dense);
        ooc_pool_free(pool);
    }
    print_message("plain %llu bytes, recomputed %llu bytes\n", (unsigned long long)total[0],
                  (unsigned long long)total[1]);
    assert_true(total[1] < total[0] * 2 / 3);
}

static void refused(const ooc_model_opts *o, const char *words)
{
    ooc_err err = {0};

    assert_int_equal(ooc_model_check(o, &err), OOC_E_ARG);
    if (!strstr(err.text, words))
        fail_msg("\"%s\" does not say \"%s\"", err.text, words);
}

static void test_wrong_options(void **state)
{
    ooc_model_opts o = unet_opts(8, 8, 8, 8, 1, 2, 2);

    (void)state;
    o.n_in = 65;
    refused(&o, "65");
    o = unet_opts(8, 8, 8, 8, 1, 2, 2);
    o.out_shape[0] = 0;
    refused(&o, "such as 8x8");
    o = unet_opts(8, 8, 8, 8, 1, 5, 2);
    refused(&o, "at least 16x16");
    o = unet_opts(8, 8, 8, 8, 1, 2, 0);
    refused(&o, "1 to 4096");
    o = unet_opts(8, 8, 8, 8, 0, 2, 1);
    refused(&o, "--batch-size");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unet), cmocka_unit_test(test_mlp), cmocka_unit_test(test_pixels),
        cmocka_unit_test(test_recompute_is_smaller), cmocka_unit_test(test_wrong_options)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
