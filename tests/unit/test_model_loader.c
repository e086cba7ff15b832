/* Batches: what they hold, in which order, and what is refused. */
#include "base/fault.h"
#include "io/npy.h"
#include "src/model/rng.h"
#include "src/train/batch_place.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SAMPLES = 7, M = 5 };

static char folder[] = "/tmp/ooc-loader-XXXXXX";

static const char *file_name(const char *name)
{
    static char path[8][64];
    static int next;

    next = (next + 1) % 8;
    snprintf(path[next], sizeof path[next], "%s/%s", folder, name);
    return path[next];
}

static const char *put_array(const char *name, const char *descr, uint32_t n_dims,
                             const uint64_t *shape, const void *data, size_t bytes)
{
    const char *path = file_name(name);
    ooc_npy_writer *w;
    ooc_err err;

    unlink(path);
    if (ooc_npy_writer_open(&w, path, descr, n_dims, shape, &err) ||
        ooc_npy_writer_write(w, data, bytes, &err) || ooc_npy_writer_commit(w, &err))
        fail_msg("%s", err.text);
    ooc_npy_writer_close(w);
    return path;
}

/* Entry m of sample s is 10 s + m. */
static const char *put_samples(const char *name)
{
    const uint64_t shape[2] = {SAMPLES, M};
    float data[SAMPLES * M];

    for (int i = 0; i < SAMPLES * M; i++)
        data[i] = (float)(10 * (i / M) + i % M);
    return put_array(name, "<f4", 2, shape, data, sizeof data);
}

typedef struct {
    ooc_sample_file input, target, weight;
    ooc_sample_set set;
    ooc_loader *loader;
    ooc_arena *arena;
} bed;

static void bed_open(bed *b, const char *input, const char *target, const char *weight,
                     uint32_t batch)
{
    ooc_plan plan = {0};
    ooc_err err;

    memset(b, 0, sizeof *b);
    b->target.fd = b->weight.fd = -1;
    if (ooc_sample_file_open(&b->input, "--data", input, M, &err) ||
        (target && ooc_sample_file_open(&b->target, "--target", target, M, &err)) ||
        (weight && ooc_sample_file_open(&b->weight, "--weights", weight, M, &err)))
        fail_msg("%s", err.text);
    b->set.input = &b->input;
    b->set.target = target ? &b->target : NULL;
    b->set.weight = weight ? &b->weight : NULL;
    assert_int_equal(ooc_loader_open(&b->loader, batch, &b->set, 1, &err), OOC_OK);
    ooc_loader_plan(b->loader, &plan);
    assert_int_equal(ooc_arena_open_host(&b->arena, "ram", plan.total, &err), OOC_OK);
    assert_int_equal(ooc_loader_start(b->loader, b->arena, &err), OOC_OK);
    assert_int_equal(ooc_arena_free(b->arena), 0);
}

static void bed_close(bed *b)
{
    ooc_loader_close(b->loader);
    ooc_arena_close(b->arena);
    ooc_sample_file_close(&b->input);
    ooc_sample_file_close(&b->target);
    ooc_sample_file_close(&b->weight);
}

/* From any batch on, the same samples as in a run from the beginning. */
static void test_order(void **state)
{
    const uint32_t batch = 3;
    bed b;

    (void)state;
    bed_open(&b, put_samples("order.npy"), NULL, NULL, batch);
    for (uint64_t first = 0; first < 7; first++) {
        const ooc_loader_run run = {
            .set = &b.set, .shuffle = true, .seed = 42, .first = first, .n = 9 - first};

        ooc_loader_begin(b.loader, &run);
        for (uint64_t k = first; k < 9; k++) {
            uint32_t order[SAMPLES];
            ooc_batch got;
            ooc_rng rng;
            ooc_err err;

            ooc_rng_seed(&rng, 42, 1 + k / 3);
            ooc_rng_shuffle(&rng, order, SAMPLES);
            assert_int_equal(ooc_loader_next(b.loader, &got, &err), OOC_OK);
            assert_int_equal(got.epoch, k / 3);
            assert_int_equal(got.n, k % 3 == 2 ? 1 : 3);
            for (uint32_t i = 0; i < got.n; i++) {
                assert_int_equal(got.number[i], order[k % 3 * batch + i]);
                assert_true(((const float *)got.input)[i * M + 2] ==
                            (float)(10 * got.number[i] + 2));
            }
        }
        {
            ooc_batch got;

            assert_int_equal(ooc_loader_next(b.loader, &got, NULL), OOC_E_ARG);
        }
    }
    bed_close(&b);
}

static void test_shuffle_is_a_permutation(void **state)
{
    uint32_t order[1000], seen[1000] = {0}, fixed = 0;
    ooc_rng rng;

    (void)state;
    ooc_rng_seed(&rng, 3, 1);
    ooc_rng_shuffle(&rng, order, 1000);
    for (uint32_t i = 0; i < 1000; i++) {
        seen[order[i]]++;
        fixed += order[i] == i;
    }
    for (uint32_t i = 0; i < 1000; i++)
        assert_int_equal(seen[i], 1);
    assert_true(fixed < 20);
}

static ooc_status place(bed *b, ooc_pool *pool, const float *row_weights, float *input, float *T,
                        float *W, ooc_err *err)
{
    const ooc_loader_run run = {.set = &b->set, .n = 1};
    const ooc_batch_arrays a = {.pool = pool,
                                .set = &b->set,
                                .M = M,
                                .B = 4,
                                .row_weights = row_weights,
                                .input = input,
                                .T = T,
                                .W = W};
    ooc_batch batch;
    ooc_status st;

    ooc_loader_begin(b->loader, &run);
    st = ooc_loader_next(b->loader, &batch, err);
    if (!st)
        batch.n = 3; /* as if the last one were missing */
    return st ? st : ooc_batch_place(&a, &batch, err);
}

static void test_types_and_places(void **state)
{
    const uint64_t shape[3] = {SAMPLES, 1, M};
    uint16_t data[SAMPLES * M];
    double target[SAMPLES * M];
    uint8_t weight[SAMPLES * M];
    float input[4 * M], T[M * 4] = {0}, W[M * 4] = {0};
    ooc_pool *pool = ooc_pool_new(2);
    ooc_err err;
    bed b;

    (void)state;
    for (int i = 0; i < SAMPLES * M; i++) {
        data[i] = (uint16_t)(60000 + i);
        target[i] = i * 0.5;
        weight[i] = (uint8_t)(i % 3);
    }
    bed_open(&b, put_array("u2.npy", "<u2", 3, shape, data, sizeof data),
             put_array("f8.npy", "<f8", 3, shape, target, sizeof target),
             put_array("u1.npy", "|u1", 3, shape, weight, sizeof weight), 4);
    for (int i = 0; i < 4 * M; i++)
        input[i] = NAN;
    assert_int_equal(place(&b, pool, NULL, input, T, W, &err), OOC_OK);
    for (int s = 0; s < 4; s++)
        for (int m = 0; m < M; m++) {
            assert_true(input[s * M + m] == (s < 3 ? (float)(60000 + s * M + m) : 0));
            assert_true(T[m * 4 + s] == (s < 3 ? (float)(s * M + m) * 0.5f : 0));
            assert_true(W[m * 4 + s] == (s < 3 ? (float)((s * M + m) % 3) : 0));
        }
    bed_close(&b);
    ooc_pool_free(pool);
}

static void test_not_finite(void **state)
{
    const uint64_t shape[2] = {SAMPLES, M};
    float data[SAMPLES * M] = {0}, row_weights[M] = {1, 1, 0, 2, 1}, input[4 * M], T[M * 4];
    ooc_pool *pool = ooc_pool_new(1);
    ooc_err err;
    bed b;

    (void)state;
    data[1 * M + 2] = NAN;
    bed_open(&b, put_array("nan.npy", "<f4", 2, shape, data, sizeof data), NULL, NULL, 4);
    assert_int_equal(place(&b, pool, NULL, input, T, NULL, &err), OOC_E_NOT_FINITE);
    assert_non_null(strstr(err.text, "sample 1, entry 2"));
    assert_int_equal(place(&b, pool, row_weights, input, T, NULL, &err), OOC_OK);
    assert_true(input[1 * M + 2] == 0.0f);
    bed_close(&b);
    data[1 * M + 2] = 0;
    data[2 * M + 4] = INFINITY;
    bed_open(&b, put_samples("in.npy"), put_array("inf.npy", "<f4", 2, shape, data, sizeof data),
             NULL, 4);
    assert_int_equal(place(&b, pool, row_weights, input, T, NULL, &err), OOC_E_NOT_FINITE);
    assert_non_null(strstr(err.text, "inf.npy: sample 2, entry 4"));
    bed_close(&b);
    data[2 * M + 4] = -1;
    bed_open(&b, put_samples("in.npy"), NULL,
             put_array("negative.npy", "<f4", 2, shape, data, sizeof data), 4);
    assert_int_equal(place(&b, pool, NULL, input, T, T, &err), OOC_E_FORMAT);
    assert_non_null(strstr(err.text, "at least 0"));
    bed_close(&b);
    ooc_pool_free(pool);
}

static void refused(const char *descr, uint32_t n_dims, uint64_t a, uint64_t b, const char *words)
{
    const uint64_t shape[2] = {a, b};
    const size_t bytes = (size_t)(a * (n_dims > 1 ? b : 1)) * (size_t)(descr[2] - '0');
    void *data = calloc(1, bytes + 1);
    ooc_sample_file f;
    ooc_err err;

    assert_int_equal(ooc_sample_file_open(&f, "--data",
                                          put_array("bad.npy", descr, n_dims, shape, data, bytes),
                                          M, &err),
                     OOC_E_ARG);
    if (!strstr(err.text, words))
        fail_msg("\"%s\" does not say \"%s\"", err.text, words);
    free(data);
}

static void test_wrong_files(void **state)
{
    ooc_sample_file f;
    ooc_err err;

    (void)state;
    refused("<i4", 2, SAMPLES, M, "uint8 or uint16");
    refused(">f4", 2, SAMPLES, M, "big-endian");
    refused("<f4", 2, SAMPLES, M + 1, "5 entries");
    refused("<f4", 2, M, SAMPLES, "transpose");
    refused("<f4", 1, SAMPLES, 0, "(7)");
    refused("<f4", 2, 0, M, "(0, 5)");
    assert_int_equal(ooc_sample_file_open(&f, "--data", "/nonexistent.npy", M, &err), OOC_E_IO);
}

/* A read that fails is the batch's error; the loader goes on afterwards. */
static void test_read_fails(void **state)
{
    const ooc_loader_run run = {.n = 3};
    ooc_loader_run r = run;
    ooc_batch got;
    ooc_err err;
    bed b;

    (void)state;
    bed_open(&b, put_samples("fault.npy"), NULL, NULL, 3);
    r.set = &b.set;
    ooc_fault_set(OOC_FAULT_READ, 2, false);
    ooc_loader_begin(b.loader, &r);
    assert_int_equal(ooc_loader_next(b.loader, &got, &err), OOC_E_IO);
    assert_non_null(strstr(err.text, "fault.npy"));
    ooc_fault_set(OOC_FAULT_READ, 0, false);
    ooc_loader_begin(b.loader, &r);
    for (int i = 0; i < 3; i++)
        assert_int_equal(ooc_loader_next(b.loader, &got, &err), OOC_OK);
    bed_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_order),
                                       cmocka_unit_test(test_shuffle_is_a_permutation),
                                       cmocka_unit_test(test_types_and_places),
                                       cmocka_unit_test(test_not_finite),
                                       cmocka_unit_test(test_wrong_files),
                                       cmocka_unit_test(test_read_fails)};
    char command[80];
    int failed;

    if (!mkdtemp(folder))
        return 1;
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command) ? 1 : failed;
}
