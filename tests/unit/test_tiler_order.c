/* Any order in, row order out: in memory, with spills, with several levels of merging, and where
 * rows settle on the way. The oracle is qsort. */
#include "base/alloc.h"
#include "tiler/order.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

typedef struct {
    uint64_t row, col;
    double val;
} triple;

typedef struct {
    uint64_t *key;
    double *val;
    uint64_t n, max;
    bool wide;
} collector;

static ooc_status collect(void *ctx, const ooc_entries *e, uint64_t n, ooc_err *err)
{
    collector *c = ctx;

    (void)err;
    assert_true(c->n + n <= c->max);
    for (uint64_t i = 0; i < n; i++) {
        c->key[c->n + i] = e->key[i];
        c->val[c->n + i] =
            c->wide ? ((const double *)e->val)[i] : (double)((const float *)e->val)[i];
    }
    c->n += n;
    return OOC_OK;
}

static int by_place(const void *a, const void *b)
{
    const triple *s = a, *t = b;

    if (s->row != t->row)
        return s->row < t->row ? -1 : 1;
    if (s->col != t->col)
        return s->col < t->col ? -1 : 1;
    return s->val < t->val ? -1 : s->val > t->val;
}

typedef struct {
    uint64_t n, n_rows, n_cols, area_bytes;
    uint32_t batch, pieces;
    int shape; /* 0: random, 1: all at one place, 2: skewed, 3: sorted, 4: descending */
    bool wide, transpose, settles;
    int expect_spill; /* 1: yes, 0: no, -1: either */
    uint32_t n_threads;
} order_case;

static uint64_t state = 12345;

static uint64_t next_random(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static triple make(const order_case *c, uint64_t i)
{
    triple t = {next_random() % c->n_rows, next_random() % c->n_cols, (double)(i % 1000)};

    if (c->shape == 1)
        t.row = c->n_rows / 2, t.col = c->n_cols / 2;
    else if (c->shape == 2)
        t.row = next_random() % 10 ? 0 : t.row;
    else if (c->shape == 3)
        t.row = i * c->n_rows / c->n, t.col = i % c->n_cols;
    else if (c->shape == 4)
        t.row = c->n_rows - 1 - i * c->n_rows / c->n;
    return t;
}

static void push_all(const order_case *c, ooc_order *o, const triple *t)
{
    uint64_t *row = malloc(c->batch * sizeof *row), *col = malloc(c->batch * sizeof *col);
    double *val = malloc(c->batch * sizeof *val);
    ooc_batch b = {.row = row, .col = col, .val = val, .capacity = c->batch};
    ooc_err err;

    for (uint64_t at = 0; at < c->n;) {
        uint32_t n = (uint32_t)(c->n - at < c->batch ? c->n - at : c->batch);

        for (uint32_t i = 0; i < n; i++) {
            row[i] = t[at + i].row;
            col[i] = t[at + i].col;
            val[i] = t[at + i].val;
        }
        b.n_pieces = 0;
        for (uint32_t i = 0; i < n; i += n / c->pieces + 1) {
            uint32_t size = n - i < n / c->pieces + 1 ? n - i : n / c->pieces + 1;

            b.piece[b.n_pieces].first = i;
            b.piece[b.n_pieces++].n = size;
        }
        at += n;
        b.settled = at < c->n ? t[at].row : c->n_rows;
        if (ooc_order_push(o, &b, &err))
            fail_msg("%s", err.text);
    }
    free(row);
    free(col);
    free(val);
}

static void run(const order_case *c)
{
    triple *t = malloc((c->n + 1) * sizeof *t);
    collector out = {
        .key = malloc((c->n + 1) * 8), .val = malloc((c->n + 1) * 8), .max = c->n, .wide = c->wide};
    ooc_source_info info = {.n_rows = c->n_rows,
                            .n_cols = c->n_cols,
                            .settles = c->settles ? OOC_SETTLES_ROWS : OOC_SETTLES_NOTHING};
    ooc_pool *pool = ooc_pool_new(c->n_threads);
    ooc_order_opts opts = {.source = &info,
                           .transpose = c->transpose,
                           .wide = c->wide,
                           .area_bytes = c->area_bytes,
                           .tmp_dir = "/tmp",
                           .name = "test",
                           .sink = collect,
                           .sink_ctx = &out};
    int bits = ooc_order_col_bits(c->transpose ? c->n_rows : c->n_cols);
    ooc_order *o;
    ooc_err err;

    for (uint64_t i = 0; i < c->n; i++)
        t[i] = make(c, i);
    if (ooc_order_open(&o, &opts, pool, &err))
        fail_msg("%s", err.text);
    push_all(c, o, t);
    if (ooc_order_finish(o, &err))
        fail_msg("%s", err.text);
    if (c->expect_spill >= 0)
        assert_int_equal(ooc_order_spilled_bytes(o) > 0, c->expect_spill);
    ooc_order_close(o);
    ooc_pool_free(pool);
    for (uint64_t i = 0; c->transpose && i < c->n; i++) {
        uint64_t row = t[i].row;

        t[i].row = t[i].col;
        t[i].col = row;
    }
    assert_true(out.n == c->n);
    for (uint64_t i = 1; i < c->n; i++)
        assert_true(out.key[i - 1] <= out.key[i]);
    /* Equal places may come in any order: compare as sets. */
    qsort(t, c->n, sizeof *t, by_place);
    for (uint64_t i = 0; i < c->n; i++) {
        uint64_t end = i;
        double want = 0, got = 0;

        for (; end < c->n && t[end].row == t[i].row && t[end].col == t[i].col; end++) {
            want += t[end].val;
            got += out.val[end];
            assert_true(out.key[end] == (t[i].row << bits | t[i].col));
        }
        assert_true(want == got);
        i = end - 1;
    }
    free(t);
    free(out.key);
    free(out.val);
}

#define BIG ((uint64_t)64 << 20)

static void test_in_memory(void **unused)
{
    (void)unused;
    run(&(order_case){0, 5, 5, BIG, 100, 3, 0, true, false, false, 0, 2});
    run(&(order_case){1, 1, 1, BIG, 100, 3, 0, true, false, false, 0, 2});
    run(&(order_case){200000, 1000, 77, BIG, 9999, 7, 0, true, false, false, 0, 3});
    run(&(order_case){200000, 1000, 77, BIG, 9999, 7, 0, false, true, false, 0, 3});
    run(&(order_case){100000, 1ull << 40, 1ull << 22, BIG, 50000, 1, 0, false, false, false, 0, 2});
}

static void test_shapes(void **unused)
{
    (void)unused;
    for (int shape = 1; shape <= 4; shape++)
        for (int wide = 0; wide < 2; wide++) {
            run(&(order_case){150000, 3000, 5000, BIG, 8192, 5, shape, wide, false, false, 0, 2});
            run(&(order_case){150000, 3000, 5000, 1, 4096, 5, shape, wide, false, false, 1, 2});
        }
}

static void test_levels(void **unused)
{
    (void)unused;
    /* Runs of 4,096 entries, merged five at a time: three levels. */
    run(&(order_case){300000, 100000, 100000, 1, 4096, 5, 0, true, false, false, 1, 2});
    run(&(order_case){300000, 100000, 100000, 1, 4096, 5, 0, false, true, false, 1, 4});
    run(&(order_case){300000, 3, 2, 1, 4096, 1, 0, false, false, false, 1, 1});
}

static void test_settled(void **unused)
{
    (void)unused;
    /* Sorted rows flow through: an area that holds a fraction of them is enough. */
    run(&(order_case){300000, 30000, 50, 1, 2048, 2, 3, true, false, true, 0, 2});
    /* One long row does not fit the area: it is spilled. */
    run(&(order_case){100000, 1, 5000000, 1, 2048, 2, 3, true, false, true, 1, 2});
    run(&(order_case){100000, 2, 5000000, 1, 2048, 2, 3, false, false, true, 1, 2});
}

static void test_refused(void **unused)
{
    uint64_t row[] = {0, 4}, col[] = {0, 1};
    double val[] = {1, 2};
    ooc_batch b = {.row = row, .col = col, .val = val, .capacity = 2, .n_pieces = 1};
    ooc_source_info info = {.n_rows = 4, .n_cols = 2};
    collector out = {.key = (uint64_t[2]){0}, .val = (double[2]){0}, .max = 2};
    ooc_pool *pool = ooc_pool_new(1);
    ooc_order_opts opts = {
        .source = &info, .name = "test", .tmp_dir = "/tmp", .sink = collect, .sink_ctx = &out};
    ooc_order *o;
    ooc_err err;

    (void)unused;
    b.piece[0].n = 2;
    assert_int_equal(ooc_order_open(&o, &opts, pool, &err), OOC_OK);
    assert_int_equal(ooc_order_push(o, &b, &err), OOC_E_FORMAT);
    assert_non_null(strstr(err.text, "row 4, column 1"));
    row[1] = 3;
    val[1] = strtod("nan", NULL);
    assert_int_equal(ooc_order_push(o, &b, &err), OOC_E_NOT_FINITE);
    assert_non_null(strstr(err.text, "row 3, column 1"));
    ooc_order_close(o);
    info.n_rows = (uint64_t)1 << 40;
    info.n_cols = (uint64_t)1 << 30;
    assert_int_equal(ooc_order_open(&o, &opts, pool, &err), OOC_E_UNSUPPORTED);
    assert_int_equal(ooc_spill_check_space("/tmp", UINT64_MAX, &err), OOC_E_BUDGET);
    ooc_pool_free(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_in_memory), cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_levels),    cmocka_unit_test(test_settled),
        cmocka_unit_test(test_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
