/* Learning rates, and adam and sgd against their formulas in double. */
#include "src/train/optimizer.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

enum { N = 37, STEPS = 20 };

typedef struct {
    ooc_pool *pool;
    ooc_dense *dense;
    ooc_model *model;
    ooc_arena *arena;
    ooc_optimizer optimizer;
} bed;

/* A pixels model: one tensor, whose gradients the test writes itself. */
static void bed_open(bed *b, const ooc_optimizer_opts *opts)
{
    const ooc_model_opts m = {
        .kind = OOC_MODEL_PIXELS, .batch = 1, .n_in = 1, .n_out = N, .n_samples = 1, .train = true};
    ooc_plan plan = {0};
    ooc_err err;

    b->pool = ooc_pool_new(2);
    assert_int_equal(ooc_dense_cpu_open(&b->dense, b->pool, &err), OOC_OK);
    assert_int_equal(ooc_model_open(&b->model, &m, b->dense, &err), OOC_OK);
    ooc_optimizer_init(&b->optimizer, opts, b->model);
    ooc_model_plan(b->model, &plan);
    ooc_optimizer_plan(&b->optimizer, &plan);
    assert_int_equal(ooc_arena_open_host(&b->arena, "test", plan.total, &err), OOC_OK);
    assert_int_equal(ooc_model_start(b->model, b->arena, &err), OOC_OK);
    assert_int_equal(ooc_optimizer_start(&b->optimizer, b->model, b->arena, &err), OOC_OK);
    assert_int_equal(ooc_arena_free(b->arena), 0);
}

static void bed_close(bed *b)
{
    ooc_model_close(b->model);
    ooc_dense_close(b->dense);
    ooc_arena_close(b->arena);
    ooc_pool_free(b->pool);
}

typedef struct {
    double w[N], m[N], v[N];
} oracle;

static double gradient_at(int step, int i)
{
    return sin(1 + step * 3 + i) * (i % 5 == 0 ? 1e-3 : 1);
}

static void oracle_step(oracle *o, const ooc_optimizer_opts *p, int step)
{
    const double lr = ooc_optimizer_rate(p, (uint64_t)step);
    double norm = 0, scale = 1;

    for (int i = 0; i < N; i++)
        norm += gradient_at(step, i) * gradient_at(step, i);
    if (p->clip_norm > 0)
        scale = fmin(1, p->clip_norm / (sqrt(norm) + 1e-6));
    for (int i = 0; i < N; i++) {
        const double g = scale * gradient_at(step, i) + p->weight_decay * o->w[i];

        if (p->kind == OOC_OPTIM_SGD) {
            o->m[i] = p->momentum * o->m[i] + g;
            o->w[i] -= lr * o->m[i];
            continue;
        }
        o->m[i] = 0.9 * o->m[i] + 0.1 * g;
        o->v[i] = 0.999 * o->v[i] + 0.001 * g * g;
        o->w[i] -= lr * (o->m[i] / (1 - pow(0.9, step + 1))) /
                   (sqrt(o->v[i] / (1 - pow(0.999, step + 1))) + 1e-8);
    }
}

static void check(const ooc_optimizer_opts *opts)
{
    oracle o;
    bed b;

    bed_open(&b, opts);
    memset(&o, 0, sizeof o);
    for (int i = 0; i < N; i++)
        ooc_model_weights(b.model)[i] = (float)(o.w[i] = i * 0.0625);
    for (int step = 0; step < STEPS; step++) {
        double norm, squares = 0;
        ooc_err err;

        for (int i = 0; i < N; i++) {
            ooc_model_gradients(b.model)[i] = (float)gradient_at(step, i);
            squares += gradient_at(step, i) * gradient_at(step, i);
        }
        assert_int_equal(ooc_optimizer_step(&b.optimizer, b.model, (uint64_t)step, &norm, &err),
                         OOC_OK);
        assert_true(fabs(norm - sqrt(squares)) < 1e-6 * norm);
        oracle_step(&o, opts, step);
        for (int i = 0; i < N; i++)
            if (fabs((double)ooc_model_weights(b.model)[i] - o.w[i]) > 2e-6)
                fail_msg("step %d, weight %d: %g, expected %g", step, i,
                         (double)ooc_model_weights(b.model)[i], o.w[i]);
    }
    bed_close(&b);
}

static void test_updates(void **state)
{
    const ooc_optimizer_opts cases[] = {
        {.kind = OOC_OPTIM_ADAM, .lr = 0.01},
        {.kind = OOC_OPTIM_ADAM, .lr = 0.02, .weight_decay = 0.1, .clip_norm = 0.5},
        {.kind = OOC_OPTIM_SGD, .lr = 0.01},
        {.kind = OOC_OPTIM_SGD, .lr = 0.01, .momentum = 0.9, .weight_decay = 0.05},
        {.kind = OOC_OPTIM_SGD, .lr = 0.05, .momentum = 0.5, .clip_norm = 1e3},
        {.kind = OOC_OPTIM_SGD,
         .lr = 0.05,
         .clip_norm = 0.1,
         .rate = OOC_RATE_COSINE,
         .warmup_steps = 4,
         .total_steps = STEPS}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check(&cases[i]);
}

static void test_rates(void **state)
{
    ooc_optimizer_opts o = {.lr = 2, .warmup_steps = 4, .total_steps = 14};

    (void)state;
    assert_float_equal(ooc_optimizer_rate(&o, 0), 0.5, 1e-12);
    assert_float_equal(ooc_optimizer_rate(&o, 3), 2, 1e-12);
    assert_float_equal(ooc_optimizer_rate(&o, 13), 2, 1e-12);
    o.rate = OOC_RATE_COSINE;
    assert_float_equal(ooc_optimizer_rate(&o, 1), 1, 1e-12);
    assert_float_equal(ooc_optimizer_rate(&o, 4), 2, 1e-12);
    assert_float_equal(ooc_optimizer_rate(&o, 9), 1, 1e-12);
    assert_true(ooc_optimizer_rate(&o, 13) > 0);
    assert_float_equal(ooc_optimizer_rate(&o, 14), 0, 1e-12);
    assert_float_equal(ooc_optimizer_rate(&o, 100), 0, 1e-12);
    o.total_steps = 3; /* over before the warm-up ends */
    assert_float_equal(ooc_optimizer_rate(&o, 2), 1.5, 1e-12);
}

static void test_not_finite(void **state)
{
    const ooc_optimizer_opts opts = {.kind = OOC_OPTIM_ADAM, .lr = 0.01};
    double norm;
    ooc_err err;
    bed b;

    (void)state;
    bed_open(&b, &opts);
    memset(ooc_model_gradients(b.model), 0, N * sizeof(float));
    ooc_model_weights(b.model)[3] = 5;
    ooc_model_gradients(b.model)[7] = NAN;
    assert_int_equal(ooc_optimizer_step(&b.optimizer, b.model, 0, &norm, &err), OOC_E_NOT_FINITE);
    assert_true(ooc_model_weights(b.model)[3] == 5.0f);
    bed_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_updates), cmocka_unit_test(test_rates),
                                       cmocka_unit_test(test_not_finite)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
