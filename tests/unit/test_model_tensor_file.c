/* safetensors: what is written is read back; whatever is damaged is refused. */
#include "base/alloc.h"
#include "base/fault.h"
#include "src/train/tensor_file.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char path[] = "/tmp/ooc-tensor-file-XXXXXX";
static unsigned char buffer[1 << 20];

static ooc_status move(void *ctx, void *to, const void *from, uint64_t bytes, ooc_err *err)
{
    (void)ctx;
    (void)err;
    memcpy(to, from, bytes);
    return OOC_OK;
}

static float small[6] = {1, -2, 3.5f, 0, 1e-30f, 7};
static float large[300000]; /* more than one buffer */

static ooc_tensor_entry entry(const char *name, uint32_t n_dims, uint64_t a, uint64_t b, void *at)
{
    ooc_tensor_entry e = {.n_dims = n_dims, .shape = {a, b}, .n = n_dims > 1 ? a * b : a, .at = at};

    snprintf(e.name, sizeof e.name, "%s", name);
    return e;
}

static ooc_status write_file(ooc_err *err)
{
    const ooc_tensor_entry list[] = {entry("a.weight", 2, 2, 3, small),
                                     entry("b", 1, 300000, 0, large), entry("none", 1, 0, 0, NULL)};
    const ooc_tensor_text texts[] = {{"step", "12"}, {"model", "unet"}};

    for (int i = 0; i < 300000; i++)
        large[i] = (float)i * 0.25f;
    return ooc_tensor_file_write(path, list, 3, texts, 2, move, NULL, buffer, err);
}

static void test_round_trip(void **state)
{
    static float back[300000];
    ooc_tensor_entry b = entry("b", 1, 300000, 0, back), a = entry("a.weight", 2, 2, 3, back);
    ooc_tensor_file *f;
    ooc_err err;

    (void)state;
    assert_int_equal(write_file(&err), OOC_OK);
    assert_int_equal(ooc_tensor_file_open(&f, path, &err), OOC_OK);
    assert_int_equal(ooc_tensor_file_count(f), 3);
    assert_string_equal(ooc_tensor_file_text(f, "step"), "12");
    assert_null(ooc_tensor_file_text(f, "epoch"));
    assert_true(ooc_tensor_file_has(f, "none"));
    assert_int_equal(ooc_tensor_file_read(f, &b, move, NULL, buffer, &err), OOC_OK);
    assert_memory_equal(back, large, sizeof large);
    assert_int_equal(ooc_tensor_file_read(f, &a, move, NULL, buffer, &err), OOC_OK);
    assert_memory_equal(back, small, sizeof small);
    a.shape[0] = 3;
    a.shape[1] = 2;
    assert_int_equal(ooc_tensor_file_read(f, &a, move, NULL, buffer, &err), OOC_E_FORMAT);
    assert_non_null(strstr(err.text, "(2, 3)"));
    b = entry("c", 1, 1, 0, back);
    assert_int_equal(ooc_tensor_file_read(f, &b, move, NULL, buffer, &err), OOC_E_FORMAT);
    ooc_tensor_file_close(f);
}

static void put_file(const void *bytes, size_t n)
{
    int fd = open(path, O_WRONLY | O_TRUNC | O_CREAT, 0600);

    assert_int_equal(write(fd, bytes, n), (ssize_t)n);
    close(fd);
}

/* A header of our own in front of `data_bytes` bytes. */
static ooc_status open_header(const char *json, size_t data_bytes, ooc_err *err)
{
    static unsigned char file[4096];
    const size_t n = strlen(json);
    ooc_tensor_file *f;
    ooc_status st;

    memset(file, 0, sizeof file);
    file[0] = (unsigned char)n;
    file[1] = (unsigned char)(n >> 8);
    memcpy(file + 8, json, n);
    put_file(file, 8 + n + data_bytes);
    st = ooc_tensor_file_open(&f, path, err);
    ooc_tensor_file_close(f);
    return st;
}

#define T(shape, begin, end)                                                                       \
    "\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":[" begin "," end "]"

static void test_damaged_headers(void **state)
{
    static const struct {
        const char *json;
        size_t data_bytes;
    } bad[] = {{"", 0},
               {"[]", 0},
               {"{\"a\":3}", 0},
               {"{\"a\":{" T("[2]", "0", "8") "}", 8},
               {"{\"a\":{" T("[2]", "0", "8") "}}", 7},
               {"{\"a\":{" T("[2]", "0", "8") "}}", 9},
               {"{\"a\":{" T("[2]", "0", "12") "}}", 12},
               {"{\"a\":{" T("[2]", "8", "0") "}}", 8},
               {"{\"a\":{" T("[-2]", "0", "8") "}}", 8},
               {"{\"a\":{" T("[1.5]", "0", "6") "}}", 6},
               {"{\"a\":{" T("[4294967296,4294967296,4]", "0", "0") "}}", 0},
               {"{\"a\":{" T("[1e300]", "0", "8") "}}", 8},
               {"{\"a\":{" T("[1,1,1,1,1,1,1,1,1]", "0", "4") "}}", 4},
               {"{\"a\":{" T("[1]", "0", "4") "},\"b\":{" T("[1]", "0", "4") "}}", 8},
               {"{\"a\":{" T("[1]", "0", "4") "},\"a\":{" T("[1]", "4", "8") "}}", 8},
               {"{\"a\":{\"dtype\":\"X9\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4},
               {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4}};
    ooc_err err;

    (void)state;
    assert_int_equal(open_header("{\"a\":{" T("[2]", "0", "8") "}}", 8, &err), OOC_OK);
    assert_int_equal(open_header("{\"__metadata__\":{}}", 0, &err), OOC_OK);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (open_header(bad[i].json, bad[i].data_bytes, &err) != OOC_E_FORMAT)
            fail_msg("accepted: %s with %zu bytes", bad[i].json, bad[i].data_bytes);
}

/* Cut anywhere, the file is refused: its header says how long it must be. */
static void test_cut_off(void **state)
{
    static unsigned char file[2000000];
    size_t n;
    ooc_err err;
    FILE *in;

    (void)state;
    assert_int_equal(write_file(&err), OOC_OK);
    in = fopen(path, "rb");
    n = fread(file, 1, sizeof file, in);
    fclose(in);
    for (size_t keep = 0; keep < n; keep += keep < 600 ? 1 : 100003) {
        ooc_tensor_file *f;

        put_file(file, keep);
        assert_int_equal(ooc_tensor_file_open(&f, path, &err), OOC_E_FORMAT);
        assert_null(f);
    }
}

/* Each write, sync, rename and allocation fails once: the old file stays, whole. */
static void test_faults(void **state)
{
    static const ooc_fault_site sites[] = {OOC_FAULT_ALLOC, OOC_FAULT_WRITE, OOC_FAULT_SYNC,
                                           OOC_FAULT_OPEN};

    (void)state;
    for (size_t s = 0; s < sizeof sites / sizeof *sites; s++)
        for (uint64_t nth = 1; nth < 1000; nth++) {
            ooc_tensor_file *f;
            ooc_status st;
            ooc_err err;

            put_file("old", 3);
            ooc_fault_set(sites[s], nth, false);
            st = write_file(&err);
            ooc_fault_set(sites[s], 0, false);
            if (st == OOC_OK)
                break;
            /* only opening and syncing the folder come after the new file is in place */
            if (ooc_tensor_file_open(&f, path, &err) == OOC_OK)
                assert_true(sites[s] == OOC_FAULT_SYNC || sites[s] == OOC_FAULT_OPEN);
            ooc_tensor_file_close(f);
            assert_true(nth < 999);
        }
}

static void test_read_faults(void **state)
{
    static const ooc_fault_site sites[] = {OOC_FAULT_ALLOC, OOC_FAULT_READ};
    ooc_err err;

    (void)state;
    assert_int_equal(write_file(&err), OOC_OK);
    for (size_t s = 0; s < 2; s++)
        for (uint64_t nth = 1;; nth++) {
            ooc_tensor_file *f;
            ooc_status st;

            ooc_fault_set(sites[s], nth, false);
            st = ooc_tensor_file_open(&f, path, &err);
            ooc_fault_set(sites[s], 0, false);
            ooc_tensor_file_close(f);
            if (st == OOC_OK)
                break;
            assert_true(nth < 1000);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_damaged_headers),
        cmocka_unit_test(test_cut_off), cmocka_unit_test(test_faults),
        cmocka_unit_test(test_read_faults)};
    int failed, fd = mkstemp(path);

    close(fd);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}
