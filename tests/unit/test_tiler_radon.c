/* The radon: source against the definition, written down as plainly as possible. */
#include "tiler/reader.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

typedef struct {
    double *A; /* dense, or NULL */
    uint64_t n_entries;
} result;

/* All of a source; checks order and bounds on the way. */
static result read_all(const char *name, uint32_t capacity, bool dense)
{
    ooc_source_request request = {.path = name, .memory_bytes = 1 << 20, .n_threads = 2};
    uint64_t *row = malloc(capacity * sizeof *row), *col = malloc(capacity * sizeof *col);
    double *val = malloc(capacity * sizeof *val);
    ooc_batch b = {.row = row, .col = col, .val = val, .capacity = capacity};
    ooc_pool *pool = ooc_pool_new(2);
    uint64_t last_row = 0, last_col = 0;
    result r = {0};
    ooc_source *s;
    ooc_err err;

    if (ooc_source_open(&s, NULL, &request, &err))
        fail_msg("%s", err.text);
    assert_true(s->info.settles == OOC_SETTLES_ROWS && !s->info.wide);
    r.A = dense ? calloc(s->info.n_rows * s->info.n_cols, sizeof *r.A) : NULL;
    do {
        b.n_pieces = 0;
        b.settled = 0;
        assert_int_equal(s->next(s, &b, pool, &err), OOC_OK);
        for (uint32_t p = 0; p < b.n_pieces; p++)
            for (uint32_t i = b.piece[p].first; i < b.piece[p].first + b.piece[p].n; i++) {
                assert_true(row[i] < s->info.n_rows && col[i] < s->info.n_cols);
                assert_true(!r.n_entries || row[i] > last_row ||
                            (row[i] == last_row && col[i] > last_col));
                assert_true(val[i] == (double)(float)val[i] && val[i] != 0);
                last_row = row[i];
                last_col = col[i];
                r.n_entries++;
                if (dense)
                    r.A[row[i] * s->info.n_cols + col[i]] = val[i];
            }
        assert_true(b.settled > last_row || !r.n_entries);
    } while (!b.end);
    assert_true(r.n_entries <= s->info.max_entries);
    ooc_source_close(s);
    ooc_pool_free(pool);
    free(row);
    free(col);
    free(val);
    return r;
}

/* Add `weight` at pixel (x, y), where x and y are relative to the centre and whole pixels apart. */
static void add(double *image, int S, double column, double row, double weight)
{
    if (column >= 0 && column < S && row >= 0 && row < S)
        image[(int)row * S + (int)column] += weight;
}

static void naive_ray(double *image, int V, int D, int S, int view, int detector)
{
    double theta = M_PI * view / V, c = cos(theta), s = sin(theta);
    double t = (detector - (D - 1) / 2.0) * S / D, mid = (S - 1) / 2.0;

    for (int k = 0; k < S; k++) {
        if (fabs(c) >= fabs(s)) {
            double column = (t - (k - mid) * s) / c + mid, low = floor(column);

            add(image, S, low, k, (1 - (column - low)) / fabs(c));
            add(image, S, low + 1, k, (column - low) / fabs(c));
        } else {
            double row = (t - (k - mid) * c) / s + mid, low = floor(row);

            add(image, S, k, low, (1 - (row - low)) / fabs(s));
            add(image, S, k, low + 1, (row - low) / fabs(s));
        }
    }
}

static void check(int V, int D, int S, uint32_t capacity)
{
    char name[64];
    double *image = malloc((size_t)S * (size_t)S * sizeof *image);
    result r;

    snprintf(name, sizeof name, "radon:%dx%d:%d", V, D, S);
    r = read_all(name, capacity, true);
    for (int ray = 0; ray < V * D; ray++) {
        for (int i = 0; i < S * S; i++)
            image[i] = 0;
        naive_ray(image, V, D, S, ray / D, ray % D);
        for (int i = 0; i < S * S; i++) {
            double got = r.A[(size_t)ray * (size_t)(S * S) + (size_t)i];

            if (fabs(got - image[i]) > 1e-7 * fabs(image[i]) + 1e-12)
                fail_msg("%s: ray %d pixel %d: got %.9g, expected %.9g", name, ray, i, got,
                         image[i]);
        }
    }
    free(r.A);
    free(image);
}

static void test_small(void **unused)
{
    (void)unused;
    check(1, 1, 1, 8192);
    check(1, 1, 2, 8192);
    check(2, 3, 1, 8192);
    check(4, 5, 5, 8192);
    check(8, 16, 16, 8192);
    check(7, 11, 13, 8192);
    check(12, 40, 17, 8192);
    check(180, 12, 16, 8192);
    check(31, 3, 64, 8192);
    check(700, 9, 2, 8300); /* the last piece of a batch has fewer rays than the others */
}

static void test_refused(void **unused)
{
    static const char *const names[] = {
        "radon:",       "radon:7x5",   "radon:7x5:",      "radon:0x5:4",           "radon:7x5:0",
        "radon:7x5:4x", "radon:7:5:4", "radon:7x5:99999", "radon:99999999999x5:4", "nothing"};
    ooc_source *s;
    ooc_err err;

    (void)unused;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        ooc_source_request request = {.path = names[i], .n_threads = 1};

        assert_int_equal(ooc_source_open(&s, NULL, &request, &err), OOC_E_ARG);
        assert_null(s);
    }
}

/* The count that the design promises; long, so only where it is asked for. */
static void test_count(void **unused)
{
    result r;

    (void)unused;
    if (!getenv("OOC_SLOW_TESTS"))
        skip();
    r = read_all("radon:700x384:512", 1 << 20, false);
    print_message("radon:700x384:512 has %llu entries\n", (unsigned long long)r.n_entries);
    assert_true(llabs((long long)r.n_entries - 233783464) < 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_count),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
