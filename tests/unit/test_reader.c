/* The reader engines: every byte arrives, in order, whatever falls back, comes up short or is
 * interrupted; a failed read gives one error with the place, and the reader stays usable. */
#include "io/tile_reader.h"
#include "io/sys.h"
#include "base/alloc.h"
#include "base/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define PAGE    4096u
#define N_TILES 23u
#define N_SLOTS 3u
#define SLOT    (64u * PAGE)

static char path[] = "test_reader.XXXXXX";
static uint64_t tile_off[N_TILES + 1];
static int n_warnings;
static char last_warning[600];

static void on_warning(void *ctx, const char *line)
{
    (void)ctx;
    n_warnings++;
    snprintf(last_warning, sizeof last_warning, "%s", line);
}

/* What the file holds at word w of the file. */
static uint64_t word_at(uint64_t w)
{
    return w * 0x9e3779b97f4a7c15u + 1;
}

static int make_file(void **state)
{
    uint64_t *page = malloc(PAGE);
    int fd = mkstemp(path);

    (void)state;
    if (!page || fd < 0)
        return -1;
    for (uint32_t k = 0; k < N_TILES; k++) /* 1..64 pages, unequal */
        tile_off[k + 1] = tile_off[k] + PAGE * (1 + (k * 37) % 64);
    for (uint64_t off = 0; off < tile_off[N_TILES]; off += PAGE) {
        for (uint64_t i = 0; i < PAGE / 8; i++)
            page[i] = word_at(off / 8 + i);
        if (pwrite(fd, page, PAGE, (off_t)off) != PAGE)
            return -1;
    }
    free(page);
    return close(fd);
}

static int remove_file(void **state)
{
    (void)state;
    return unlink(path);
}

struct rig {
    ooc_reader *r;
    int fd;
    char *slots;
};

static void rig_open(struct rig *g, ooc_reader_opts opts)
{
    ooc_err e;

    g->slots = ooc_pages_alloc((size_t)N_SLOTS * SLOT);
    assert_non_null(g->slots);
    assert_int_equal(ooc_sys_open(&g->fd, path, O_RDONLY, &e), OOC_OK);
    opts.max_in_flight = N_SLOTS;
    opts.max_bytes = SLOT;
    if (!opts.request_bytes)
        opts.request_bytes = 4 * PAGE;
    opts.slots = g->slots;
    opts.slot_bytes = SLOT;
    opts.n_slots = N_SLOTS;
    opts.warn = on_warning;
    n_warnings = 0;
    if (ooc_reader_open(&g->r, path, g->fd, &opts, &e))
        fail_msg("%s", e.text);
}

static void rig_close(struct rig *g)
{
    ooc_reader_close(g->r);
    ooc_sys_close(g->fd);
    ooc_pages_free(g->slots, (size_t)N_SLOTS * SLOT);
}

static void submit(struct rig *g, uint32_t k)
{
    ooc_tile_read read = {k, tile_off[k], tile_off[k + 1] - tile_off[k],
                          g->slots + (size_t)(k % N_SLOTS) * SLOT};

    memset(read.dst, 0, SLOT);
    ooc_reader_submit(g->r, &read);
}

static void check_tile(const struct rig *g, uint32_t k)
{
    const uint64_t *w = (const uint64_t *)(g->slots + (size_t)(k % N_SLOTS) * SLOT);

    for (uint64_t i = 0; i < (tile_off[k + 1] - tile_off[k]) / 8; i++)
        if (w[i] != word_at(tile_off[k] / 8 + i))
            fail_msg("tile %u: word %llu is wrong", k, (unsigned long long)i);
}

/* All tiles through the slots; the first failure ends it, what is in flight is drained. */
static ooc_status sweep(struct rig *g, ooc_err *e)
{
    uint32_t next = 0;
    ooc_status st = OOC_OK;

    for (uint32_t k = 0; k < N_TILES && !st; k++) {
        while (next < N_TILES && next < k + N_SLOTS)
            submit(g, next++);
        st = ooc_reader_wait(g->r, e);
        if (!st)
            check_tile(g, k);
    }
    ooc_reader_drain(g->r);
    assert_int_equal(ooc_reader_in_flight(g->r), 0);
    return st;
}

static const ooc_reader_opts kinds[] = {
    {.kind = OOC_READER_AUTO},
    {.kind = OOC_READER_PREAD},
    {.kind = OOC_READER_AUTO, .no_direct = true},
    {.kind = OOC_READER_PREAD, .no_direct = true, .n_threads = 1},
    {.kind = OOC_READER_PREAD, .request_bytes = 1, .n_threads = 7},
};
#define N_KINDS (sizeof kinds / sizeof *kinds)

static void reads_everything(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_KINDS; i++) {
        struct rig g;
        ooc_err e;
        uint64_t before;

        rig_open(&g, kinds[i]);
        before = ooc_alloc_count();
        for (int round = 0; round < 3; round++)
            assert_int_equal(sweep(&g, &e), OOC_OK);
        assert_true(ooc_alloc_count() == before);
        rig_close(&g);
    }
}

static void falls_back_when_refused(void **state)
{
    struct rig g;
    ooc_reader_info info;
    ooc_reader_opts uring = {.kind = OOC_READER_URING, .max_in_flight = 1};
    ooc_reader *r;
    ooc_err e;

    (void)state;
    ooc_fault_set(OOC_FAULT_URING, 1, true);
    rig_open(&g, kinds[0]);
    ooc_reader_get_info(g.r, &info);
    assert_int_equal(info.kind, OOC_READER_PREAD);
    assert_int_equal(n_warnings, 1);
    assert_non_null(strstr(last_warning, "io_uring is refused"));
    assert_int_equal(sweep(&g, &e), OOC_OK);
    assert_int_equal(ooc_reader_open(&r, path, g.fd, &uring, &e), OOC_E_UNSUPPORTED);
    assert_null(r);
    rig_close(&g);
    ooc_fault_set(OOC_FAULT_URING, 0, false);
}

static void continues_short_and_interrupted(void **state)
{
    static const ooc_fault_site sites[] = {OOC_FAULT_SHORT_READ, OOC_FAULT_READ_EINTR};

    (void)state;
    for (size_t i = 0; i < N_KINDS; i++)
        for (size_t s = 0; s < 2; s++)
            for (uint64_t n = 1; n < 60; n += 7) {
                struct rig g;
                ooc_err e;

                rig_open(&g, kinds[i]);
                ooc_fault_set(sites[s], n, false);
                if (sweep(&g, &e))
                    fail_msg("kind %zu, site %zu, n %llu: %s", i, s, (unsigned long long)n, e.text);
                assert_true(ooc_fault_visits(sites[s]) >= n);
                ooc_fault_set(sites[s], 0, false);
                rig_close(&g);
            }
}

/* EIO at the n-th request for n = 1, 2, ... until a sweep succeeds. */
static void a_failed_read_is_one_error(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_KINDS; i++) {
        struct rig g;
        ooc_err e;
        ooc_status st = OOC_E_IO;
        uint64_t n;

        rig_open(&g, kinds[i]);
        for (n = 1; st; n++) {
            ooc_fault_set(OOC_FAULT_READ, n, false);
            st = sweep(&g, &e);
            if (!st)
                break;
            assert_int_equal(st, OOC_E_IO);
            assert_int_equal(e.sys, EIO);
            assert_in_range(e.tile, 0, N_TILES - 1);
            assert_in_range(e.offset, tile_off[e.tile], tile_off[e.tile + 1] - 1);
            assert_non_null(strstr(e.text, path));
        }
        assert_in_range(n, N_TILES, 100000);
        ooc_fault_set(OOC_FAULT_READ, 0, false);
        assert_int_equal(sweep(&g, &e), OOC_OK); /* still usable */
        rig_close(&g);
    }
}

static void a_cut_file_is_said(void **state)
{
    uint64_t cut = tile_off[N_TILES - 2] + PAGE;

    (void)state;
    for (size_t i = 0; i < N_KINDS; i++) {
        struct rig g;
        ooc_err e;

        rig_open(&g, kinds[i]);
        assert_int_equal(truncate(path, (off_t)cut), 0);
        assert_int_equal(sweep(&g, &e), OOC_E_FORMAT);
        assert_int_equal(e.tile, N_TILES - 2);
        assert_non_null(strstr(e.text, "cut off"));
        rig_close(&g);
        assert_int_equal(unlink(path), 0);
        memcpy(path + strlen(path) - 6, "XXXXXX", 6);
        assert_int_equal(make_file(NULL), 0);
    }
}

static void another_file_under_the_name_is_refused(void **state)
{
    ooc_reader_opts opts = {.max_in_flight = 1, .max_bytes = SLOT};
    ooc_reader *r;
    ooc_err e;
    int fd;

    (void)state;
    assert_int_equal(ooc_sys_open(&fd, "/proc/self/exe", O_RDONLY, &e), OOC_OK);
    assert_int_equal(ooc_reader_open(&r, path, fd, &opts, &e), OOC_E_IO);
    assert_non_null(strstr(e.text, "replaced"));
    assert_null(r);
    ooc_sys_close(fd);
}

static void every_failing_allocation_is_reported(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        ooc_reader_opts opts = kinds[i];
        ooc_reader *r = NULL;
        ooc_err e;
        uint64_t n;
        int fd;

        opts.max_in_flight = 1;
        assert_int_equal(ooc_sys_open(&fd, path, O_RDONLY, &e), OOC_OK);
        for (n = 1; !r && n < 100; n++) {
            ooc_fault_set(OOC_FAULT_ALLOC, n, false);
            if (ooc_reader_open(&r, path, fd, &opts, &e)) {
                assert_null(r);
                assert_int_equal(e.code, OOC_E_NOMEM);
            }
        }
        ooc_fault_set(OOC_FAULT_ALLOC, 0, false);
        assert_non_null(r);
        assert_in_range(n, 3, 99);
        ooc_reader_close(r);
        ooc_sys_close(fd);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_everything),
        cmocka_unit_test(falls_back_when_refused),
        cmocka_unit_test(continues_short_and_interrupted),
        cmocka_unit_test(a_failed_read_is_one_error),
        cmocka_unit_test(a_cut_file_is_said),
        cmocka_unit_test(another_file_under_the_name_is_refused),
        cmocka_unit_test(every_failing_allocation_is_reported),
    };

    return cmocka_run_group_tests(tests, make_file, remove_file);
}
