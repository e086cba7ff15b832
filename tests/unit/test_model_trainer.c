/* The training loop from the inside: steps take no memory, a stop leaves the weights of the step
 * before, every failure on the way out is clean. */
#include "base/alloc.h"
#include "base/fault.h"
#include "io/npy.h"
#include "src/train/trainer.h"
#include "tests/unit/store_cases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { M = 120, N = 64, SAMPLES = 5 };

static char folder[] = "/tmp/ooc-trainer-XXXXXX";

static int set_up(void **state)
{
    case_matrix m = case_make(CASE_RANDOM, M, N, 10, OOC_F32, 3);
    const uint64_t shape[2] = {SAMPLES, M};
    ooc_pool *pool = ooc_pool_new(1);
    float data[SAMPLES * M];
    ooc_npy_writer *w = NULL;
    ooc_err err;
    int failed;

    (void)state;
    if (!mkdtemp(folder) || chdir(folder))
        return 1;
    for (uint64_t i = 0; i < m.off[M]; i++) { /* any bits so far */
        const float v = (float)(1 + i % 5) * 0.125f;

        memcpy(m.val + i * sizeof v, &v, sizeof v);
    }
    for (int i = 0; i < SAMPLES * M; i++)
        data[i] = (float)(i % 7) * 0.25f;
    failed = case_write(&m, "a.tiles", 64, OOC_CODEC_ZSTD, 16, pool, &err) ||
             ooc_npy_writer_open(&w, "x.npy", "<f4", 2, shape, &err) ||
             ooc_npy_writer_write(w, data, sizeof data, &err) || ooc_npy_writer_commit(w, &err);
    ooc_npy_writer_close(w);
    ooc_pool_free(pool);
    case_free(&m);
    return failed;
}

static int tear_down(void **state)
{
    char command[80];

    (void)state;
    snprintf(command, sizeof command, "rm -r %s", folder);
    return chdir("/") || system(command);
}

static ooc_train_opts options(ooc_model_kind model)
{
    ooc_train_opts o = {.matrix = "a.tiles",
                        .data = "x.npy",
                        .model = model,
                        .widths_given = true,
                        .n_widths = model == OOC_MODEL_PIXELS ? 0 : 2,
                        .widths = {3, 4},
                        .in_shape = {12, 10},
                        .epochs = OOC_NO_LIMIT,
                        .steps = 12,
                        .batch = 2,
                        .n_threads = 1};

    return o;
}

typedef struct {
    uint64_t allocs; /* before this step */
    uint64_t n_steps;
    ooc_trainer *stop; /* at step stop_at */
    uint64_t stop_at;
} watch;

static void on_step(void *ctx, const ooc_step_info *info, uint64_t n_steps)
{
    watch *w = ctx;

    (void)n_steps;
    if (w->n_steps++ && ooc_alloc_count() != w->allocs)
        fail_msg("step %llu took memory", (unsigned long long)info->step);
    w->allocs = ooc_alloc_count();
    if (w->stop && info->step == w->stop_at)
        ooc_trainer_interrupt(w->stop);
}

/* What the refusal of a budget of one byte says is needed. */
static uint64_t smallest(const ooc_train_opts *o)
{
    ooc_trainer *t;
    ooc_err err = {0};

    assert_int_equal(ooc_trainer_open(&t, o, &err), OOC_E_BUDGET);
    return strtoull(strstr(err.text, "at least ") + 9, NULL, 10);
}

/* The smallest budgets, so that tiles stream; validation after each epoch. */
static void test_no_allocation(void **state)
{
    (void)state;
    for (int model = OOC_MODEL_UNET; model <= OOC_MODEL_PIXELS; model++) {
        ooc_train_opts o = options((ooc_model_kind)model);
        ooc_train_summary summary;
        ooc_trainer *t;
        watch w = {0};
        ooc_err err = {0};

        o.val = model == OOC_MODEL_PIXELS ? NULL : "x.npy";
        o.vram_budget = 1;
        o.vram_budget = smallest(&o);
        o.ram_budget = 1;
        o.ram_budget = smallest(&o);
        o.on_step = on_step;
        o.ctx = &w;
        if (ooc_trainer_open(&t, &o, &err) || ooc_trainer_run(t, &summary, &err))
            fail_msg("%s", err.text);
        assert_int_equal(w.n_steps, 12);
        assert_true(summary.tiles_read >= 12);
        ooc_trainer_close(t);
    }
}

static void *read_all(const char *path, size_t *bytes)
{
    FILE *f = fopen(path, "rb");
    void *all = malloc(1 << 20);

    assert_non_null(f);
    *bytes = fread(all, 1, 1 << 20, f);
    fclose(f);
    return all;
}

/* Interrupted behind step 5, the checkpoint is that of a run of five steps. */
static void test_interrupt(void **state)
{
    ooc_train_opts o = options(OOC_MODEL_UNET);
    ooc_train_summary summary;
    size_t n[2];
    void *saved[2];

    (void)state;
    for (int i = 0; i < 2; i++) {
        ooc_trainer *t;
        watch w = {.stop_at = 5};
        ooc_err err = {0};

        o.save = i ? "b.safetensors" : "a.safetensors";
        o.steps = i ? 5 : 12;
        o.on_step = on_step;
        o.ctx = &w;
        assert_int_equal(ooc_trainer_open(&t, &o, &err), OOC_OK);
        w.stop = i ? NULL : t;
        assert_int_equal(ooc_trainer_run(t, &summary, &err), i ? OOC_OK : OOC_E_INTERRUPTED);
        assert_int_equal(summary.interrupted, !i);
        assert_int_equal(summary.n_steps, 5);
        ooc_trainer_close(t);
        saved[i] = read_all(o.save, &n[i]);
    }
    assert_int_equal(n[0], n[1]);
    assert_memory_equal(saved[0], saved[1], n[0]);
    free(saved[0]);
    free(saved[1]);
}

/* Every allocation fails once: a status and a text, nothing leaks (address sanitizer). */
static void test_allocation_fails(void **state)
{
    ooc_train_opts o = options(OOC_MODEL_UNET);

    (void)state;
    o.steps = 1;
    o.val = "x.npy";
    o.save = "c.safetensors";
    o.log = "c.jsonl";
    o.preview = "pictures";
    o.predict = "f.npy";
    for (uint64_t nth = 1; nth < 10000; nth++) {
        ooc_train_summary summary;
        ooc_trainer *t;
        ooc_err err = {0};
        ooc_status st;

        ooc_fault_set(OOC_FAULT_ALLOC, nth, false);
        st = ooc_trainer_open(&t, &o, &err);
        if (!st)
            st = ooc_trainer_run(t, &summary, &err);
        ooc_fault_set(OOC_FAULT_ALLOC, 0, false);
        ooc_trainer_close(t);
        if (!st) {
            print_message("%llu allocations\n", (unsigned long long)nth - 1);
            assert_true(nth > 50);
            return;
        }
        if (st != OOC_E_NOMEM || !err.text[0])
            fail_msg("allocation %llu: status %d \"%s\"", (unsigned long long)nth, (int)st,
                     err.text);
    }
    fail_msg("never came through");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_no_allocation),
                                       cmocka_unit_test(test_interrupt),
                                       cmocka_unit_test(test_allocation_fails)};

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
