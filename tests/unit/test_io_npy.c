/* .npy headers: what NumPy writes, what hostile files hold, and our own writer. */
#include "io/npy.h"
#include "io/sys.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* A version `major` stream around `text` in buf[512]; its size. */
static size_t stream(char *buf, int major, const char *text)
{
    size_t n = strlen(text), at = major == 1 ? 10 : 12;

    memset(buf, 0, 512);
    memcpy(buf, "\x93NUMPY", 6);
    buf[6] = (char)major;
    buf[8] = (char)n;
    memcpy(buf + at, text, n);
    return at + n;
}

static void good_headers(void **state)
{
    char buf[512];
    bool more;
    ooc_npy a;
    ooc_err err;
    size_t n;

    (void)state;
    n = stream(buf, 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }   \n");
    assert_int_equal(ooc_npy_parse(&a, buf, n, n + 48, "a", &more, &err), OOC_OK);
    assert_int_equal(a.kind, 'f');
    assert_int_equal(a.item_bytes, 4);
    assert_int_equal(a.n_dims, 2);
    assert_int_equal(a.shape[0] * 10 + a.shape[1], 34);
    assert_int_equal(a.n_items, 12);
    assert_int_equal(a.data_off, n);
    assert_false(a.big_endian || a.fortran_order || more);
    assert_int_equal(ooc_npy_parse(&a, buf, n, n + 47, "a", &more, &err), OOC_E_FORMAT);
    assert_false(more);
    assert_int_equal(ooc_npy_parse(&a, buf, n, UINT64_MAX, "a", &more, &err), OOC_OK);

    n = stream(buf, 2, "{\"shape\":(7L,),\"fortran_order\":True,\"descr\":\">i8\"}");
    assert_int_equal(ooc_npy_parse(&a, buf, n, n + 56, "a", &more, &err), OOC_OK);
    assert_true(a.big_endian && a.fortran_order && a.kind == 'i' && a.n_dims == 1);
    for (size_t cut = 0; cut < n; cut++) {
        assert_int_equal(ooc_npy_parse(&a, buf, cut, n + 56, "a", &more, &err), OOC_E_FORMAT);
        assert_true(more);
    }
    n = stream(buf, 3, "{'descr': '|b1', 'fortran_order': False, 'shape': ()}");
    assert_int_equal(ooc_npy_parse(&a, buf, n, n + 1, "a", &more, &err), OOC_OK);
    assert_true(a.kind == 'b' && a.n_dims == 0 && a.n_items == 1);
    n = stream(buf, 1, "{'descr': '<c16', 'fortran_order': False, 'shape': (0, 5)}");
    assert_int_equal(ooc_npy_parse(&a, buf, n, n, "a", &more, &err), OOC_OK);
    assert_true(a.kind == 'c' && a.n_items == 0);
}

static void bad_headers(void **state)
{
    static const char *const texts[] = {
        "",
        "{}",
        "{'descr': '<f4', 'fortran_order': False}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4)",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-3,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3,) 'x': 1}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), 'x': 1}",
        "{'descr': '<f4', 'fortran_order': Maybe, 'shape': (3,)}",
        "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (3,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3,)} x",
        "{'descr': '|O', 'fortran_order': False, 'shape': (3,)}",
        "{'descr': '<U3', 'fortran_order': False, 'shape': (3,)}",
        "{'descr': '<f3', 'fortran_order': False, 'shape': (3,)}",
        "{'descr': '<f16', 'fortran_order': False, 'shape': (3,)}",
        "{'descr': '<f0', 'fortran_order': False, 'shape': (3,)}",
        "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (3,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3,",
        "{'descr",
    };
    char buf[512];
    bool more;
    ooc_npy a;
    ooc_err err;
    size_t n;

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        n = stream(buf, 1, texts[i]);
        if (n < 12) /* shorter than any header: more is asked for */
            continue;
        if (ooc_npy_parse(&a, buf, n, UINT64_MAX, "a", &more, &err) != OOC_E_FORMAT || more)
            fail_msg("accepted: %s", texts[i]);
    }
    n = stream(buf, 4, "{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}");
    assert_int_equal(ooc_npy_parse(&a, buf, n, UINT64_MAX, "a", &more, &err), OOC_E_FORMAT);
    buf[0] = 'P';
    assert_int_equal(ooc_npy_parse(&a, buf, n, UINT64_MAX, "a", &more, &err), OOC_E_FORMAT);
}

static void round_trip(void **state)
{
    static const uint64_t shape[] = {2, 3};
    static const float data[6] = {1, 2, 3, 4, 5, 6};
    char path[] = "/tmp/test_io_npy.XXXXXX";
    ooc_npy_writer *w;
    float back[6];
    ooc_npy a;
    ooc_err err;
    int fd = mkstemp(path);

    (void)state;
    ooc_sys_close(fd);
    assert_int_equal(ooc_npy_writer_open(&w, path, "<x4", 2, shape, &err), OOC_E_ARG);
    assert_int_equal(ooc_npy_writer_open(&w, path, "<f4", 2, shape, &err), OOC_OK);
    assert_int_equal(ooc_npy_writer_write(w, data, 20, &err), OOC_OK);
    assert_int_equal(ooc_npy_writer_commit(w, &err), OOC_E_ARG);
    assert_int_equal(ooc_npy_writer_write(w, data + 5, 8, &err), OOC_E_ARG);
    assert_int_equal(ooc_npy_writer_write(w, data + 5, 4, &err), OOC_OK);
    assert_int_equal(ooc_npy_writer_commit(w, &err), OOC_OK);
    ooc_npy_writer_close(w);
    assert_int_equal(ooc_npy_open(&fd, &a, path, &err), OOC_OK);
    assert_int_equal(a.data_off % 64, 0);
    assert_int_equal(a.n_items, 6);
    assert_int_equal(ooc_sys_pread(fd, path, back, sizeof back, a.data_off, &err), OOC_OK);
    assert_memory_equal(back, data, sizeof data);
    ooc_sys_close(fd);

    /* Given up half-way: the file that was there stays. */
    assert_int_equal(ooc_npy_writer_open(&w, path, "|u1", 1, shape, &err), OOC_OK);
    ooc_npy_writer_close(w);
    assert_int_equal(ooc_npy_open(&fd, &a, path, &err), OOC_OK);
    ooc_sys_close(fd);
    assert_int_equal(truncate(path, 140), 0);
    assert_int_equal(ooc_npy_open(&fd, &a, path, &err), OOC_E_FORMAT);
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(ooc_npy_open(&fd, &a, path, &err), OOC_E_FORMAT);
    assert_int_equal(fd, -1);
    unlink(path);
    ooc_npy_writer_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_headers),
        cmocka_unit_test(bad_headers),
        cmocka_unit_test(round_trip),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
