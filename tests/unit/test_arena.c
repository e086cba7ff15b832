/* Plan and arena: what was planned can be taken, to the byte; one byte less is refused with the
 * parts. */
#include "src/arena.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void plan_and_arena_agree(void **state)
{
    ooc_plan plan = {0};
    ooc_arena *a;
    ooc_err e;
    void *p, *q;

    (void)state;
    ooc_plan_add(&plan, "X", 1000, 4);
    ooc_plan_add(&plan, "G", 1, 4097);
    assert_int_equal(plan.total, 4096 + 8192);
    assert_int_equal(ooc_arena_open_host(&a, "cpu", plan.total, &e), OOC_OK);
    assert_int_equal(ooc_arena_take(a, "X", 4000, &p, &e), OOC_OK);
    assert_int_equal(ooc_arena_take(a, "G", 4097, &q, &e), OOC_OK);
    memset(p, 1, 4000);
    memset(q, 2, 4097);
    assert_int_equal(*(char *)p, 1);
    assert_int_equal(ooc_arena_free(a), 0);
    assert_int_equal(ooc_arena_take(a, "more", 1, &p, &e), OOC_E_BUDGET);
    assert_null(p);
    assert_int_equal(ooc_arena_peak(a), plan.total);
    ooc_arena_release(a, 0);
    assert_int_equal(ooc_arena_used(a), 0);
    ooc_arena_close(a);
    assert_int_equal(ooc_plan_refuse(&plan, "--vram-budget", plan.total - 1, "try less", &e),
                     OOC_E_BUDGET);
    assert_non_null(strstr(e.text, "X 4096"));
    assert_non_null(strstr(e.text, "12288"));
}

static void overflow_is_seen(void **state)
{
    ooc_plan plan = {0};

    (void)state;
    ooc_plan_add(&plan, "X", UINT64_MAX / 2, 4);
    ooc_plan_add(&plan, "Y", 1, 1);
    assert_true(plan.total == UINT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plan_and_arena_agree),
        cmocka_unit_test(overflow_is_seen),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
