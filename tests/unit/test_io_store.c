/* Tile stores: what was written comes back, for many shapes, types, codecs and panels. */
#include "store_cases.h"
#include "io/sys.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char path[64];
static ooc_pool *pool;

static const char *const codec_names[] = {"auto", "raw", "zstd"};

static void round_trip(const case_matrix *m, uint32_t panel_columns, uint32_t tile_rows,
                       const char *name)
{
    for (int codec = OOC_CODEC_AUTO; codec <= OOC_CODEC_ZSTD; codec++) {
        const char *what;
        ooc_status st;
        ooc_err err = {.text = ""};

        st = case_write(m, path, panel_columns, (ooc_codec)codec, tile_rows, pool, &err);
        if (st)
            fail_msg("%s, %s, panels of %u, tiles of %u rows: %s", name, codec_names[codec],
                     panel_columns, tile_rows, err.text);
        what = case_compare(m, path, &st, &err);
        if (what)
            fail_msg("%s, %s, panels of %u, tiles of %u rows: %s (%s)", name, codec_names[codec],
                     panel_columns, tile_rows, what, err.text);
    }
}

static void many_shapes(void **state)
{
    static const struct {
        uint64_t n_rows, n_cols, per_row;
    } shapes[] = {{1, 1, 1},     {1, 1000, 300},  {1000, 1, 1},    {37, 5000, 40},
                  {300, 90, 20}, {64, 200000, 9}, {500, 70000, 3}, {13, 65536, 1000}};
    static const uint32_t panels[] = {1, 7, 256, 8192, 65536};

    (void)state;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int kind = 0; kind < CASE_KINDS; kind++)
            for (int vtype = OOC_F32; vtype <= OOC_BF16; vtype++) {
                case_matrix m;
                uint32_t pc = panels[(s + (size_t)kind + (size_t)vtype) % 5];
                char name[64];

                if (kind == CASE_DENSE && shapes[s].n_rows * shapes[s].n_cols > 1000000)
                    continue;
                if (shapes[s].n_cols > 65536 && pc == 1)
                    pc = 64;
                m = case_make((case_kind)kind, shapes[s].n_rows, shapes[s].n_cols,
                              shapes[s].per_row, (ooc_dtype)vtype, s * 100 + (uint64_t)vtype);
                snprintf(name, sizeof name, "shape %zu, kind %d, values %d", s, kind, vtype);
                round_trip(&m, pc, 65536, name);
                round_trip(&m, pc, 17, name);
                case_free(&m);
            }
}

/* Limits: 65,536 rows in a tile, a row with 65,536 entries in one panel, the last column. */
static void limits(void **state)
{
    case_matrix m;

    (void)state;
    m = case_make(CASE_RANDOM, 65536, 300, 3, OOC_F32, 1);
    round_trip(&m, 128, 65536, "65536 rows");
    case_free(&m);
    m = case_make(CASE_DENSE, 2, 65536, 0, OOC_F16, 2);
    round_trip(&m, 65536, 2, "a full panel");
    case_free(&m);
    m = case_make(CASE_DENSE, 3, 200000, 0, OOC_F32, 3);
    round_trip(&m, 65536, 3, "3 x 200000 dense");
    case_free(&m);
    m = case_make(CASE_DENSE, 1, 400000, 0, OOC_F32, 4);
    round_trip(&m, 65536, 1, "a row longer than an encoder takes");
    case_free(&m);
    m = case_make(CASE_RANDOM, 100, UINT32_MAX, 50, OOC_F32, 5);
    m.col[m.off[1] - m.off[0] - 1] = UINT32_MAX - 1;
    round_trip(&m, 65536, 100, "2^32 - 1 columns");
    round_trip(&m, 1024, 30, "2^32 - 1 columns");
    case_free(&m);
}

static void no_rows_or_columns(void **state)
{
    case_matrix m = case_make(CASE_EMPTY, 0, 5, 0, OOC_F32, 1);
    ooc_store *s;
    ooc_err err;

    (void)state;
    round_trip(&m, 8, 1, "no rows");
    assert_int_equal(ooc_store_open(&s, path, &err), OOC_OK);
    assert_int_equal(ooc_store_get_info(s)->n_tiles, 0);
    ooc_store_close(s);
    case_free(&m);
    m = case_make(CASE_EMPTY, 5, 0, 0, OOC_F32, 1);
    round_trip(&m, 8, 2, "no columns");
    case_free(&m);
}

/* A tile decoded from rows is, byte for byte, the raw one: nothing in the block is left over. */
static void decoded_is_raw(void **state)
{
    case_matrix m = case_make(CASE_BANDED, 3000, 40000, 200, OOC_F32, 7);
    uint8_t *raw_stored, *raw, *stored, *block;
    ooc_tile_info i, j;
    ooc_store *s;
    ooc_err err;

    (void)state;
    assert_int_equal(case_write(&m, path, 8192, OOC_CODEC_RAW, 3000, pool, &err), OOC_OK);
    assert_int_equal(ooc_store_open(&s, path, &err), OOC_OK);
    ooc_store_get_tile(s, 0, &i);
    assert_true(i.raw && i.n.n_chunks > 2);
    assert_int_equal(case_read_tile(s, 0, &raw_stored, &raw, &err), OOC_OK);
    ooc_store_close(s);
    assert_int_equal(case_write(&m, path, 8192, OOC_CODEC_ZSTD, 3000, pool, &err), OOC_OK);
    assert_int_equal(ooc_store_open(&s, path, &err), OOC_OK);
    ooc_store_get_tile(s, 0, &j);
    assert_false(j.raw);
    assert_int_equal(j.kernel_bytes, i.kernel_bytes);
    assert_true(j.stored_bytes < i.stored_bytes / 10);
    assert_int_equal(case_read_tile(s, 0, &stored, &block, &err), OOC_OK);
    assert_memory_equal(raw, block, i.kernel_bytes);
    ooc_store_close(s);
    free(raw_stored);
    free(raw);
    free(stored);
    free(block);
    case_free(&m);
}

static void kernel_bytes_are_bounded(void **state)
{
    (void)state;
    for (int kind = 0; kind < CASE_KINDS; kind++)
        for (uint32_t pc = 16; pc <= 65536; pc *= 8) {
            case_matrix m = case_make((case_kind)kind, 700, 3000, 60, OOC_F32, pc);
            ooc_tile_writer_opts o = {
                .n_rows = 700, .n_cols = 3000, .vtype = OOC_F32, .panel_columns = pc};
            uint64_t bound = ooc_tile_kernel_bytes(&o, 700, m.off[700] - m.off[0], 0);
            ooc_store *s;
            ooc_err err;

            assert_int_equal(case_write(&m, path, pc, OOC_CODEC_RAW, 700, pool, &err), OOC_OK);
            assert_int_equal(ooc_store_open(&s, path, &err), OOC_OK);
            if (ooc_store_get_info(s)->max_kernel_bytes > bound)
                fail_msg("kind %d, panels of %u: %llu bytes, bound %llu", kind, pc,
                         (unsigned long long)ooc_store_get_info(s)->max_kernel_bytes,
                         (unsigned long long)bound);
            ooc_store_close(s);
            case_free(&m);
        }
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(__clang__)
#define MEMORY_IS_MEASURABLE 0 /* sanitizers take memory of their own */
#else
#define MEMORY_IS_MEASURABLE 1
#endif

/* The most memory that this process has had, or has now. */
static uint64_t status_bytes(const char *field)
{
    FILE *f = fopen("/proc/self/status", "r");
    unsigned long long kib = 0;
    char line[256];

    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, field, strlen(field)) == 0)
            sscanf(line + strlen(field), ": %llu", &kib);
    if (f)
        fclose(f);
    return kib << 10;
}

/* In a child, so that the peak is its own. 0: within the bound. */
static int write_and_measure(const case_matrix *m, ooc_codec codec, uint32_t panel_columns)
{
    const ooc_tile_writer_opts o = {.n_rows = m->n_rows,
                                    .n_cols = m->n_cols,
                                    .vtype = m->vtype,
                                    .panel_columns = panel_columns,
                                    .codec = codec};
    uint64_t bound = ooc_tile_writer_memory(&o, (uint32_t)m->n_rows, m->off[m->n_rows], 1);
    uint64_t before = status_bytes("VmRSS"), peak;
    ooc_pool *one = ooc_pool_new(1);
    ooc_err err;

    if (!one || case_write(m, path, panel_columns, codec, (uint32_t)m->n_rows, one, &err))
        return 2;
    peak = status_bytes("VmHWM");
    if (peak <= before + bound + (1 << 20))
        return 0;
    fprintf(stderr, "codec %d: %llu bytes, bound %llu\n", codec,
            (unsigned long long)(peak - before), (unsigned long long)bound);
    return 1;
}

static void memory_is_bounded(void **state)
{
    (void)state;
    if (!MEMORY_IS_MEASURABLE)
        skip();
    for (int kind = CASE_RANDOM; kind <= CASE_BANDED; kind++) {
        case_matrix m = case_make((case_kind)kind, 20000, 2000000, 100, OOC_F32, 1);

        for (int codec = OOC_CODEC_AUTO; codec <= OOC_CODEC_ZSTD; codec++) {
            pid_t child = fork();
            int status;

            if (child == 0)
                _exit(write_and_measure(&m, (ooc_codec)codec, 4096));
            assert_int_equal(waitpid(child, &status, 0), child);
            assert_int_equal(status, 0);
        }
        case_free(&m);
    }
}

static void expect_refusal(const ooc_tile_writer_opts *o, const ooc_csr_rows *rows)
{
    ooc_tile_writer *w;
    ooc_err err;

    unlink(path);
    assert_int_equal(ooc_tile_writer_open(&w, path, o, pool, &err), OOC_OK);
    assert_int_equal(ooc_tile_writer_append(w, rows, &err), OOC_E_ARG);
    assert_int_equal(ooc_tile_writer_append(w, rows, &err), OOC_E_ARG);
    assert_int_equal(ooc_tile_writer_commit(w, &err), OOC_E_ARG);
    ooc_tile_writer_close(w);
    assert_int_not_equal(access(path, F_OK), 0);
}

static void wrong_requests(void **state)
{
    static const uint64_t off[] = {0, 2, 3}, back[] = {2, 0, 3};
    static const uint32_t col[] = {1, 4, 2}, twice[] = {4, 4, 2}, outside[] = {1, 5, 2};
    static const float val[] = {1, 2, 3};
    const ooc_tile_writer_opts good = {.n_rows = 2, .n_cols = 5, .panel_columns = 4};
    ooc_tile_writer_opts o = good;
    ooc_csr_rows rows = {.n_rows = 2, .row_off = off, .col = col, .val = val};
    ooc_tile_writer *w;
    ooc_err err;

    (void)state;
    unlink(path);
    rows.col = twice;
    expect_refusal(&good, &rows);
    rows.col = outside;
    expect_refusal(&good, &rows);
    rows.col = col;
    rows.row_off = back;
    expect_refusal(&good, &rows);
    rows.row_off = off;
    o.n_rows = 1; /* more rows than were announced */
    expect_refusal(&o, &rows);
    o = good;
    o.panel_columns = 65537;
    assert_int_equal(ooc_tile_writer_open(&w, path, &o, pool, &err), OOC_E_ARG);
    o.panel_columns = 1;
    o.n_cols = UINT32_MAX;
    assert_int_equal(ooc_tile_writer_open(&w, path, &o, pool, &err), OOC_E_ARG);
    o.panel_columns = 65536;
    o.n_cols = 1ull << 32;
    assert_int_equal(ooc_tile_writer_open(&w, path, &o, pool, &err), OOC_E_ARG);
    assert_null(w);
    o = good;
    o.n_rows = 3; /* fewer */
    assert_int_equal(ooc_tile_writer_open(&w, path, &o, pool, &err), OOC_OK);
    assert_int_equal(ooc_tile_writer_append(w, &rows, &err), OOC_OK);
    assert_int_equal(ooc_tile_writer_commit(w, &err), OOC_E_ARG);
    ooc_tile_writer_close(w);
    assert_int_not_equal(access(path, F_OK), 0);
    ooc_tile_writer_close(NULL);
}

static int open_pool(void **state)
{
    int fd;

    (void)state;
    /* In memory where that is possible: thousands of small files would keep a disk busy. */
    strcpy(path, access("/dev/shm", W_OK) == 0 ? "/dev/shm/test_io_store.XXXXXX"
                                               : "/tmp/test_io_store.XXXXXX");
    fd = mkstemp(path);
    ooc_sys_close(fd);
    pool = ooc_pool_new(3);
    return fd >= 0 && pool ? 0 : -1;
}

static int close_pool(void **state)
{
    (void)state;
    ooc_pool_free(pool);
    unlink(path);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_shapes),
        cmocka_unit_test(limits),
        cmocka_unit_test(no_rows_or_columns),
        cmocka_unit_test(decoded_is_raw),
        cmocka_unit_test(kernel_bytes_are_bounded),
        cmocka_unit_test(memory_is_bounded),
        cmocka_unit_test(wrong_requests),
    };

    return cmocka_run_group_tests(tests, open_pool, close_pool);
}
