/* The engine when something goes wrong: reads that fail, memory that is refused, stores that change
 * under it, interruptions and wrong requests. Each gives one status and one line, and the handle
 * stays usable. */
#include "tests/support/engine_rig.h"

#include "base/fault.h"
#include "io/tile_store.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define N_ROWS 240u
#define N_COLS 300u
#define BATCH  2u

static const ooc_codec codecs[] = {OOC_CODEC_RAW, OOC_CODEC_ZSTD, OOC_CODEC_AUTO};

typedef struct {
    engine_rig g;
    ooc_matrix_opts o;
    rig_array X, T, G, Y, want; /* want: the right G */
} bench;

static void bench_make(bench *b, ooc_codec codec, ooc_io io, bool no_resident)
{
    ooc_matrix *A;
    ooc_err e;

    rig_make(&b->g, CASE_RANDOM, N_ROWS, N_COLS, 15, OOC_F32, codec, 20, 64);
    b->o = (ooc_matrix_opts){.size = sizeof b->o,
                             .device = "cpu",
                             .vram_budget = 32u << 20,
                             .ram_budget = 16u << 20,
                             .max_batch = BATCH,
                             .n_threads = no_resident ? 2 : 1,
                             .io = io,
                             .no_resident = no_resident};
    b->X = rig_array_make(N_COLS, BATCH, 0, OOC_F32, 1);
    b->T = rig_array_make(N_ROWS, BATCH, 0, OOC_F32, 2);
    b->G = rig_array_make(N_COLS, BATCH, 0, OOC_F32, 0);
    b->Y = rig_array_make(N_ROWS, BATCH, 0, OOC_F32, 0);
    b->want = rig_array_make(N_COLS, BATCH, 0, OOC_F32, 0);
    if (ooc_matrix_open(&A, b->g.path, &b->o, &e) ||
        ooc_matrix_step(A, BATCH, &b->X.a, &b->T.a, NULL, NULL, &b->want.a, NULL, &e))
        fail_msg("%s", e.text);
    ooc_matrix_close(A);
}

static void bench_free(bench *b)
{
    rig_array_free(&b->X);
    rig_array_free(&b->T);
    rig_array_free(&b->G);
    rig_array_free(&b->Y);
    rig_array_free(&b->want);
    rig_free(&b->g);
}

static ooc_status step(bench *b, ooc_matrix *A, ooc_err *e)
{
    return ooc_matrix_step(A, BATCH, &b->X.a, &b->T.a, NULL, NULL, &b->G.a, NULL, e);
}

static ooc_matrix *open_bench(bench *b)
{
    ooc_matrix *A;
    ooc_err e;

    if (ooc_matrix_open(&A, b->g.path, &b->o, &e))
        fail_msg("%s", e.text);
    return A;
}

/* The step works and gives what it should, twice (the second time from what is resident). */
static void check_works(bench *b, ooc_matrix *A)
{
    ooc_err e;

    for (int i = 0; i < 2; i++) {
        if (step(b, A, &e))
            fail_msg("%s", e.text);
        assert_true(rig_same(&b->G, &b->want));
    }
}

/* EIO at read n = 1, 2, ... of a pass until one succeeds. */
static void a_failed_read_ends_the_call(void **state)
{
    (void)state;
    for (int i = 0; i < 12; i++) {
        bench b;
        ooc_matrix *A;
        ooc_err e;
        uint64_t n;

        bench_make(&b, codecs[i % 3], i / 3 % 2 ? OOC_IO_PREAD : OOC_IO_AUTO, i >= 6);
        for (n = 1;; n++) {
            ooc_status st;

            A = open_bench(&b);
            ooc_fault_set(OOC_FAULT_READ, n, false);
            st = step(&b, A, &e);
            ooc_fault_set(OOC_FAULT_READ, 0, false);
            if (!st) {
                ooc_matrix_close(A);
                break;
            }
            assert_int_equal(st, OOC_E_IO);
            assert_int_equal(e.sys, EIO);
            assert_in_range(e.tile, 0, b.g.n_tiles - 1);
            assert_non_null(strstr(e.text, b.g.path));
            check_works(&b, A);
            ooc_matrix_close(A);
        }
        assert_true(n == b.g.n_tiles + 1); /* small tiles: one read each */
        bench_free(&b);
    }
}

static void every_refused_allocation_is_reported(void **state)
{
    bench b;
    ooc_matrix *A = NULL;
    ooc_err e;
    uint64_t n;

    (void)state;
    for (int i = 0; i < 2; i++) {
        bench_make(&b, OOC_CODEC_AUTO, i ? OOC_IO_PREAD : OOC_IO_AUTO, false);
        for (n = 1, A = NULL; !A; n++) {
            ooc_fault_set(OOC_FAULT_ALLOC, n, false);
            if (ooc_matrix_open(&A, b.g.path, &b.o, &e)) {
                assert_int_equal(e.code, OOC_E_NOMEM);
                assert_null(A);
            }
        }
        ooc_fault_set(OOC_FAULT_ALLOC, 0, false);
        assert_in_range(n, 10, 100);
        check_works(&b, A);
        ooc_matrix_close(A);
        bench_free(&b);
    }
}

static void flip(const char *path, uint64_t at)
{
    int fd = open(path, O_RDWR);
    uint8_t byte;

    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, (off_t)at), 1);
    byte ^= 0x10;
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
    assert_int_equal(fsync(fd), 0);
    close(fd);
}

/* A byte of a tile changes after the store was opened: found when the tile is read, wherever it is,
 * and not believed in any tier; put right again, everything works. */
static void a_damaged_tile_is_found_in_every_tier(void **state)
{
    (void)state;
    for (int i = 0; i < 9; i++) {
        bench b;
        ooc_store *s;
        ooc_tile_info t;
        ooc_err e;

        bench_make(&b, codecs[i % 3], OOC_IO_AUTO, i < 3);
        if (i >= 6)
            b.o.vram_budget = 3u << 20; /* most tiles in the RAM tier */
        assert_int_equal(ooc_store_open(&s, b.g.path, &e), OOC_OK);
        for (uint64_t k = 0; k < b.g.n_tiles; k += 6) {
            ooc_store_get_tile(s, k, &t);
            for (uint64_t at = 0; at < t.stored_bytes; at += t.stored_bytes / 4 + 40) {
                ooc_matrix *A = open_bench(&b);

                flip(b.g.path, t.file_off + at);
                assert_int_equal(step(&b, A, &e), OOC_E_FORMAT);
                assert_non_null(strstr(e.text, b.g.path));
                assert_true(e.tile == (int64_t)k);
                assert_int_equal(step(&b, A, &e), OOC_E_FORMAT);
                flip(b.g.path, t.file_off + at);
                check_works(&b, A);
                ooc_matrix_close(A);
            }
        }
        ooc_store_close(s);
        bench_free(&b);
    }
}

static void a_store_cut_while_open_is_found(void **state)
{
    bench b;
    ooc_matrix *A;
    ooc_store *s;
    ooc_tile_info t;
    ooc_err e;

    (void)state;
    bench_make(&b, OOC_CODEC_ZSTD, OOC_IO_AUTO, true);
    A = open_bench(&b);
    assert_int_equal(ooc_store_open(&s, b.g.path, &e), OOC_OK);
    ooc_store_get_tile(s, 7, &t);
    assert_int_equal(truncate(b.g.path, (off_t)t.file_off), 0);
    assert_int_equal(step(&b, A, &e), OOC_E_FORMAT);
    assert_non_null(strstr(e.text, "cut off"));
    assert_true(e.tile == 7);
    ooc_store_close(s);
    ooc_matrix_close(A);
    bench_free(&b);
}

/* A request in the middle of a sweep, and one that came while no call was running. */
static ooc_matrix *to_interrupt;
static void interrupt_at_tile_5(void *ctx, uint64_t done, uint64_t total)
{
    (void)ctx;
    assert_true(total == N_ROWS / 20 && done <= total);
    if (done == 5)
        ooc_matrix_interrupt(to_interrupt);
}

static void an_interruption_ends_one_call(void **state)
{
    bench b;
    ooc_matrix *A;
    ooc_err e;

    (void)state;
    for (int i = 0; i < 4; i++) {
        bench_make(&b, codecs[i % 3], i % 2 ? OOC_IO_PREAD : OOC_IO_AUTO, i < 2);
        A = open_bench(&b);
        ooc_matrix_interrupt(A);
        assert_int_equal(step(&b, A, &e), OOC_E_INTERRUPTED);
        check_works(&b, A);
        ooc_matrix_close(A);
        b.o.progress = interrupt_at_tile_5;
        to_interrupt = A = open_bench(&b);
        assert_int_equal(step(&b, A, &e), OOC_E_INTERRUPTED);
        assert_int_equal(step(&b, A, &e), OOC_E_INTERRUPTED);
        ooc_matrix_close(A);
        bench_free(&b);
    }
}

#define REFUSED(call, words)                                                                       \
    do {                                                                                           \
        memset(&e, 0, sizeof e);                                                                   \
        assert_int_equal((call), OOC_E_ARG);                                                       \
        assert_int_equal(e.code, OOC_E_ARG);                                                       \
        if (!strstr(e.text, words))                                                                \
            fail_msg("'%s' does not say '%s'", e.text, words);                                     \
    } while (0)

static void wrong_requests_are_refused(void **state)
{
    bench b;
    ooc_matrix *A;
    ooc_array bad;
    ooc_loss_opts loss = {.size = sizeof loss};
    ooc_err e;

    (void)state;
    bench_make(&b, OOC_CODEC_RAW, OOC_IO_AUTO, false);
    A = open_bench(&b);
    REFUSED(ooc_matrix_forward(NULL, BATCH, &b.X.a, &b.Y.a, &e), "NULL");
    REFUSED(ooc_matrix_forward(A, 0, &b.X.a, &b.Y.a, &e), "B is 0");
    REFUSED(ooc_matrix_forward(A, BATCH, NULL, &b.Y.a, &e), "NULL");
    REFUSED(ooc_matrix_forward(A, BATCH, &b.X.a, NULL, &e), "Y is missing");
    REFUSED(ooc_matrix_adjoint(A, BATCH, NULL, &b.G.a, &e), "NULL");
    REFUSED(ooc_matrix_adjoint(A, BATCH, &b.T.a, NULL, &e), "G is missing");
    REFUSED(ooc_matrix_step(A, BATCH, &b.X.a, NULL, NULL, NULL, &b.G.a, NULL, &e), "T is missing");
    bad = b.X.a;
    bad.ld = 1;
    REFUSED(ooc_matrix_forward(A, BATCH, &bad, &b.Y.a, &e), "ld 1");
    bad.ld = UINT64_MAX / 2;
    REFUSED(ooc_matrix_forward(A, BATCH, &bad, &b.Y.a, &e), "too large");
    bad = b.X.a;
    bad.data = NULL;
    REFUSED(ooc_matrix_forward(A, BATCH, &bad, &b.Y.a, &e), "X: data is NULL");
    bad.data = (char *)b.X.a.data + 1;
    REFUSED(ooc_matrix_forward(A, BATCH, &bad, &b.Y.a, &e), "aligned");
    bad = b.X.a;
    bad.dtype = OOC_F64;
    REFUSED(ooc_matrix_forward(A, BATCH, &bad, &b.Y.a, &e), "opened for OOC_F32");
    REFUSED(ooc_matrix_forward(A, BATCH, &b.X.a, &bad, &e), "differs in type");
    bad.dtype = OOC_F16;
    REFUSED(ooc_matrix_forward(A, BATCH, &bad, &b.Y.a, &e), "OOC_F32 or OOC_F64");
    bad = b.X.a;
    bad.device = 0;
    REFUSED(ooc_matrix_forward(A, BATCH, &bad, &b.Y.a, &e), "cuda:0");
    bad.device = -7;
    REFUSED(ooc_matrix_forward(A, BATCH, &bad, &b.Y.a, &e), "-7");
    loss.size = 0;
    REFUSED(ooc_matrix_step(A, BATCH, &b.X.a, &b.T.a, &loss, NULL, &b.G.a, NULL, &e), "loss.size");
    loss.size = sizeof loss;
    loss.kind = (ooc_loss_kind)9;
    REFUSED(ooc_matrix_step(A, BATCH, &b.X.a, &b.T.a, &loss, NULL, &b.G.a, NULL, &e), "loss.kind");
    loss.kind = OOC_LOSS_MSE;
    bad = b.T.a;
    bad.ld = 1;
    loss.W = &bad;
    loss.w_per_column = true;
    REFUSED(ooc_matrix_step(A, BATCH, &b.X.a, &b.T.a, &loss, NULL, &b.G.a, NULL, &e), "W: ld 1");
    assert_int_equal(ooc_matrix_forward(A, BATCH, NULL, NULL, NULL), OOC_E_ARG); /* without err */
    check_works(&b, A);
    ooc_matrix_close(A);
    bench_free(&b);
}

static void wrong_options_are_refused(void **state)
{
    bench b;
    ooc_matrix *A;
    ooc_matrix_opts o;
    ooc_err e;

    (void)state;
    bench_make(&b, OOC_CODEC_RAW, OOC_IO_AUTO, false);
    REFUSED(ooc_matrix_open(NULL, b.g.path, &b.o, &e), "NULL");
    REFUSED(ooc_matrix_open(&A, NULL, &b.o, &e), "NULL");
    o = b.o;
    o.size = 0;
    REFUSED(ooc_matrix_open(&A, b.g.path, &o, &e), "size");
    o = b.o;
    o.dense = OOC_BF16;
    REFUSED(ooc_matrix_open(&A, b.g.path, &o, &e), "dense");
    o = b.o;
    o.n_slots = 65;
    REFUSED(ooc_matrix_open(&A, b.g.path, &o, &e), "slots");
    o = b.o;
    o.device = "tpu";
    REFUSED(ooc_matrix_open(&A, b.g.path, &o, &e), "tpu");
    o = b.o;
    o.io = (ooc_io)7;
    REFUSED(ooc_matrix_open(&A, b.g.path, &o, &e), "opts.io");
    o = b.o;
    o.max_batch = UINT32_MAX;
    assert_int_equal(ooc_matrix_open(&A, b.g.path, &o, &e), OOC_E_BUDGET);
    assert_null(A);
    /* A caller of an older version knows fewer options and counters. */
    o = b.o;
    o.size = offsetof(ooc_matrix_opts, n_threads);
    o.n_threads = UINT32_MAX;
    assert_int_equal(ooc_matrix_open(&A, b.g.path, &o, &e), OOC_OK);
    {
        ooc_matrix_stats s;

        memset(&s, 0x55, sizeof s);
        s.size = offsetof(ooc_matrix_stats, read_bytes);
        ooc_matrix_get_stats(A, &s);
        assert_true(s.passes == 0 && s.read_bytes == 0x5555555555555555u);
    }
    ooc_matrix_close(A);
    assert_int_equal(ooc_matrix_open(&A, b.g.path, NULL, &e), OOC_OK); /* all defaults */
    ooc_matrix_close(A);
    ooc_matrix_close(NULL);
    assert_int_equal(ooc_matrix_open(&A, "no such file", NULL, &e), OOC_E_IO);
    assert_null(A);
    bench_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failed_read_ends_the_call),
        cmocka_unit_test(every_refused_allocation_is_reported),
        cmocka_unit_test(a_damaged_tile_is_found_in_every_tier),
        cmocka_unit_test(a_store_cut_while_open_is_found),
        cmocka_unit_test(an_interruption_ends_one_call),
        cmocka_unit_test(wrong_requests_are_refused),
        cmocka_unit_test(wrong_options_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
