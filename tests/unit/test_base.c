/* The ground floor: errors, numbers, allocation faults, the pool. */
#include "base/alloc.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/parallel.h"
#include "base/parse.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void sizes(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {
        {"0", 0},
        {"4096", 4096},
        {"1K", 1024},
        {"64M", 64 << 20},
        {"1.5G", 1610612736u},
        {"8GiB", 8589934592u},
        {"2t", 2199023255552u},
    };
    static const char *const bad[] = {"",
                                      "-1",
                                      "+1",
                                      " 1",
                                      "1 ",
                                      "1KB",
                                      "M",
                                      "0x10",
                                      "1.K",
                                      "1e3",
                                      "1.5",
                                      "nan",
                                      "99999999999999999999",
                                      "99999999999T",
                                      "1,5G"};
    uint64_t bytes;

    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_true(ooc_parse_size(good[i].text, &bytes));
        assert_int_equal(bytes, good[i].bytes);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (ooc_parse_size(bad[i], &bytes))
            fail_msg("'%s' was taken for %llu", bad[i], (unsigned long long)bytes);
}

static void lists_and_shapes(void **state)
{
    uint64_t v[3], h, w;
    uint32_t n;
    double d;

    (void)state;
    assert_true(ooc_parse_u64_list("16,32,64", v, 3, &n));
    assert_int_equal(n, 3);
    assert_int_equal(v[2], 64);
    assert_false(ooc_parse_u64_list("16,32,64,1", v, 3, &n));
    assert_false(ooc_parse_u64_list("16,", v, 3, &n));
    assert_false(ooc_parse_u64_list("", v, 3, &n));
    assert_true(ooc_parse_shape("700x384", &h, &w));
    assert_int_equal(h * 1000 + w, 700384);
    assert_false(ooc_parse_shape("700x0", &h, &w));
    assert_false(ooc_parse_shape("700", &h, &w));
    assert_true(ooc_parse_double("1e-4", &d));
    assert_false(ooc_parse_double("nan", &d));
    assert_false(ooc_parse_double("1e999", &d));
    assert_false(ooc_parse_double("0x1p3", &d));
}

static void errors(void **state)
{
    ooc_err e;

    (void)state;
    errno = ENOENT;
    assert_int_equal(ooc_fail_errno(&e, OOC_E_IO, "open %s", "a\nb"), OOC_E_IO);
    assert_string_equal(e.text, "open a b: No such file or directory");
    assert_int_equal(e.sys, ENOENT);
    assert_int_equal(ooc_fail_wrap(&e, OOC_E_IO, "--data"), OOC_E_IO);
    assert_string_equal(e.text, "--data: open a b: No such file or directory");
    assert_int_equal(ooc_fail(NULL, OOC_E_ARG, "x"), OOC_E_ARG);
    assert_int_equal(ooc_exit_code(OOC_E_BUDGET), 2);
    assert_int_equal(ooc_exit_code(OOC_E_FORMAT), 1);
    assert_int_equal(ooc_exit_code(OOC_E_INTERRUPTED), 130);
}

static void allocation_faults(void **state)
{
    (void)state;
#if OOC_ENABLE_FAULTS
    void *p;
    uint64_t before = ooc_alloc_count();

    ooc_fault_set(OOC_FAULT_ALLOC, 2, false);
    p = ooc_malloc(8);
    assert_non_null(p);
    assert_null(ooc_malloc(8));
    ooc_free(p);
    p = ooc_malloc(8);
    assert_non_null(p);
    ooc_free(p);
    assert_int_equal(ooc_alloc_count() - before, 3);
    ooc_fault_set(OOC_FAULT_ALLOC, 0, false);
#else
    skip();
#endif
    assert_null(ooc_calloc(SIZE_MAX, 2));
}

static void count_task(void *ctx, uint32_t task, uint32_t thread)
{
    atomic_uint *seen = ctx;

    assert_true(thread < 4);
    atomic_fetch_add(&seen[task], 1);
}

static void pool_runs_each_task_once(void **state)
{
    static atomic_uint seen[1000];
    ooc_pool *pool = ooc_pool_new(4);

    (void)state;
    assert_non_null(pool);
    for (uint32_t round = 1; round <= 50; round++) {
        ooc_parallel_for(pool, 1000, count_task, seen);
        for (int i = 0; i < 1000; i++)
            assert_int_equal(atomic_load(&seen[i]), round);
    }
    ooc_parallel_for(pool, 0, count_task, seen);
    ooc_pool_free(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes),
        cmocka_unit_test(lists_and_shapes),
        cmocka_unit_test(errors),
        cmocka_unit_test(allocation_faults),
        cmocka_unit_test(pool_runs_each_task_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
