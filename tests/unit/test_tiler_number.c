/* The number parser against strtod: every result must be the same bits. */
#include "tiler/text_number.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static uint64_t state = 88172645463325252u;

static uint64_t next_random(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static void check(const char *number)
{
    char text[1300] = {0};
    double want, got = 0;
    const char *end;
    int n = snprintf(text, sizeof text, "%s\n", number);

    want = strtod(number, NULL);
    end = ooc_text_double(text, &got);
    if (end != text + n - 1 || memcmp(&want, &got, sizeof got) != 0)
        fail_msg("%s: got %.17g, expected %.17g", number, got, want);
}

static void test_random_doubles(void **unused)
{
    static const int precisions[] = {17, 16, 15, 9, 6, 18, 19, 30};
    char text[400];

    (void)unused;
    for (int i = 0; i < 400000; i++) {
        uint64_t bits = next_random();
        double v;

        if (i % 2) /* magnitudes that matrices have, too */
            bits = (bits & ~(0x7ffull << 52)) | (uint64_t)(1023 - 60 + next_random() % 90) << 52;
        memcpy(&v, &bits, sizeof v);
        if (!isfinite(v))
            continue;
        snprintf(text, sizeof text, i % 3 ? "%.*g" : "%.*e", precisions[i % 8], v);
        check(text);
    }
}

static void test_random_digits(void **unused)
{
    char text[80];

    (void)unused;
    for (int i = 0; i < 400000; i++) {
        uint64_t w = next_random() >> (next_random() % 64);
        int e = (int)(next_random() % 700) - 350;

        snprintf(text, sizeof text, "%llue%d", (unsigned long long)w, e);
        check(text);
        snprintf(text, sizeof text, "-%llu.%05u", (unsigned long long)(w >> 30),
                 (unsigned)(next_random() % 100000));
        check(text);
    }
}

/* Numbers half way between two doubles, and their neighbours in the last digit. */
static void test_halves(void **unused)
{
    char text[80];

    (void)unused;
    for (int i = 0; i < 100000; i++) {
        uint64_t m = ((uint64_t)1 << 53) + (next_random() >> 11);
        int shift = (int)(next_random() % 10) + 1;
        uint64_t half = (m << shift) + ((uint64_t)1 << (shift - 1));

        for (int d = -1; d <= 1; d++) {
            snprintf(text, sizeof text, "%llu", (unsigned long long)(half + (uint64_t)d));
            check(text);
            snprintf(text, sizeof text, "%llue-3", (unsigned long long)(half + (uint64_t)d));
            check(text);
        }
    }
}

static void test_named(void **unused)
{
    static const char *const numbers[] = {
        "0",
        "-0",
        "0.0",
        "1",
        ".5",
        "5.",
        "+3",
        "1e5",
        "1E-5",
        "1e+5",
        "9007199254740993",
        "9007199254740992",
        "1.7976931348623157e308",
        "1.7976931348623159e308",
        "1e309",
        "-1e400",
        "4.9e-324",
        "2.4703282292062327e-324",
        "2.4703282292062328e-324",
        "2.2250738585072011e-308",
        "2.2250738585072014e-308",
        "1e-400",
        "0e500",
        "0000000000000000000000000001.5",
        "0.00000000000000000000000000000000000000000001234567890123456789",
        "123456789012345678901234567890",
        "8.5070591730234616e37",
        "inf",
        "-inf",
        "Infinity",
        "1e99999999999999999999",
        "18446744073709551615",
        "18446744073709551616"};
    char longest[1100];

    (void)unused;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        check(numbers[i]);
    memset(longest, '7', 1000);
    longest[1000] = 0;
    longest[1] = '.';
    check(longest);
}

static void test_refused(void **unused)
{
    static const char *const texts[] = {"\n",   "x\n",   "-\n",   ".\n",
                                        "1e\n", "1e+\n", "+-1\n", "e5\n"};
    char padded[64] = {0};
    double v;
    uint64_t u;

    (void)unused;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        strcpy(padded, texts[i]);
        assert_null(ooc_text_double(padded, &v));
    }
    assert_null(ooc_text_u64("18446744073709551616\n", &u));
    assert_null(ooc_text_u64("99999999999999999999999\n", &u));
    assert_null(ooc_text_u64("-1\n", &u));
    assert_non_null(ooc_text_u64("18446744073709551615\n", &u));
    assert_true(u == UINT64_MAX);
    strcpy(padded, "1.5D+02\n");
    assert_non_null(ooc_text_double(padded, &v));
    assert_true(v == 150);
    strcpy(padded, "NaN\n");
    assert_non_null(ooc_text_double(padded, &v));
    assert_true(isnan(v));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_doubles), cmocka_unit_test(test_random_digits),
        cmocka_unit_test(test_halves),         cmocka_unit_test(test_named),
        cmocka_unit_test(test_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
