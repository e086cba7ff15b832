/* Damaged, cut, newer and hostile tile stores: each is an error, none is an accident. */
#include "base/alloc.h"
#include "base/fault.h"
#include "io/sys.h"
#include "io/tile_format.h"
#include "store_cases.h"
#include "tests/support/store_repair.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char path[64];
static ooc_pool *pool;

/* Two tiles of each codec: small, but with two chunks' worth of everything a file can hold. */
static case_matrix small_matrix(void)
{
    return case_make(CASE_BANDED, 40, 300, 20, OOC_F32, 3);
}

static void write_small(ooc_codec codec)
{
    case_matrix m = small_matrix();
    ooc_err err;

    assert_int_equal(case_write(&m, path, 128, codec, 25, pool, &err), OOC_OK);
    case_free(&m);
}

static store_image read_image(void)
{
    store_image m;
    ooc_err err;
    int fd;

    assert_int_equal(ooc_sys_open(&fd, path, O_RDONLY, &err), OOC_OK);
    assert_int_equal(ooc_sys_size(fd, path, &m.bytes, &err), OOC_OK);
    m.p = malloc(m.bytes);
    assert_int_equal(ooc_sys_pread(fd, path, m.p, m.bytes, 0, &err), OOC_OK);
    ooc_sys_close(fd);
    return m;
}

static void write_image(const store_image *m)
{
    ooc_err err;
    int fd;

    assert_int_equal(ooc_sys_open(&fd, path, O_RDWR | O_TRUNC, &err), OOC_OK);
    assert_int_equal(ooc_sys_pwrite(fd, path, m->p, m->bytes, 0, &err), OOC_OK);
    ooc_sys_close(fd);
}

/* Open and decode everything; `err` holds a line if that fails. */
static ooc_status read_all(ooc_err *err)
{
    ooc_status st;

    err->text[0] = 0;
    (void)case_compare(NULL, path, &st, err);
    return st;
}

static void every_flipped_byte(void **state)
{
    (void)state;
    for (int codec = OOC_CODEC_AUTO; codec <= OOC_CODEC_ZSTD; codec++) {
        store_image m;
        ooc_err err;
        int fd;

        write_small((ooc_codec)codec);
        assert_int_equal(read_all(&err), OOC_OK);
        m = read_image();
        assert_int_equal(ooc_sys_open(&fd, path, O_RDWR, &err), OOC_OK);
        for (uint64_t i = 0; i < m.bytes; i++) {
            uint8_t flipped = (uint8_t)(m.p[i] ^ (1u << (i % 8)));
            ooc_status st;

            assert_int_equal(ooc_sys_pwrite(fd, path, &flipped, 1, i, &err), OOC_OK);
            st = read_all(&err);
            if (st != OOC_E_FORMAT || !strstr(err.text, path) || strchr(err.text, '\n'))
                fail_msg("codec %d, byte %llu: status %d '%s'", codec, (unsigned long long)i, st,
                         err.text);
            assert_int_equal(ooc_sys_pwrite(fd, path, m.p + i, 1, i, &err), OOC_OK);
        }
        assert_int_equal(read_all(&err), OOC_OK);
        ooc_sys_close(fd);
        free(m.p);
    }
}

static void every_length(void **state)
{
    (void)state;
    for (int codec = OOC_CODEC_AUTO; codec <= OOC_CODEC_ZSTD; codec++) {
        store_image m;
        ooc_err err;

        write_small((ooc_codec)codec);
        m = read_image();
        assert_int_equal(truncate(path, (off_t)m.bytes + 1), 0);
        assert_int_equal(read_all(&err), OOC_E_FORMAT);
        for (uint64_t n = m.bytes; n-- > 0;) {
            assert_int_equal(truncate(path, (off_t)n), 0);
            if (read_all(&err) != OOC_E_FORMAT)
                fail_msg("codec %d, cut at %llu: '%s'", codec, (unsigned long long)n, err.text);
        }
        free(m.p);
    }
}

/* Change one field of `bytes` bytes, make the checksums right, read, put it back. */
static ooc_status with_field(const store_image *m, uint64_t at, uint64_t value, uint32_t bytes,
                             ooc_err *err)
{
    store_image changed = {.p = malloc(m->bytes), .bytes = m->bytes};
    ooc_status st;

    memcpy(changed.p, m->p, m->bytes);
    memcpy(changed.p + at, &value, bytes);
    store_repair(&changed);
    write_image(&changed);
    st = read_all(err);
    free(changed.p);
    return st;
}

static void other_versions(void **state)
{
    store_image m;
    uint64_t index;
    ooc_err err;

    (void)state;
    write_small(OOC_CODEC_ZSTD);
    m = read_image();
    index = ooc_get_u64(m.p + OOC_HDR_INDEX_OFF);
    assert_int_equal(with_field(&m, OOC_HDR_MAJOR, 1, 2, &err), OOC_OK); /* repairing works */
    assert_int_equal(with_field(&m, OOC_HDR_MAJOR, 2, 2, &err), OOC_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "2.0"));
    assert_int_equal(with_field(&m, OOC_HDR_MUST_FLAGS, 4, 4, &err), OOC_E_UNSUPPORTED);
    assert_int_equal(with_field(&m, OOC_HDR_MAY_FLAGS, 4, 4, &err), OOC_E_FORMAT);
    assert_int_equal(with_field(&m, OOC_HDR_RESERVED + 100, 4, 4, &err), OOC_E_FORMAT);
    assert_int_equal(with_field(&m, index + OOC_REC_RESERVED, 1, 1, &err), OOC_E_FORMAT);
    assert_int_equal(with_field(&m, index + OOC_REC_LAYOUT, 9, 1, &err), OOC_E_UNSUPPORTED);
    assert_int_equal(with_field(&m, OOC_STORE_PAGE + OOC_CHK_PIECE_CODEC, 9, 1, &err),
                     OOC_E_UNSUPPORTED);
    assert_int_equal(with_field(&m, OOC_STORE_PAGE + OOC_CHK_RESERVED_END, 1, 1, &err),
                     OOC_E_FORMAT);
    /* A later minor version: what was reserved may be used, unless a reader must understand it. */
    m.p[OOC_HDR_MINOR] = 7;
    assert_int_equal(with_field(&m, OOC_HDR_MAY_FLAGS, 4, 4, &err), OOC_OK);
    assert_int_equal(with_field(&m, OOC_HDR_RESERVED + 100, 4, 4, &err), OOC_OK);
    assert_int_equal(with_field(&m, index + OOC_REC_RESERVED, 1, 1, &err), OOC_OK);
    assert_int_equal(with_field(&m, OOC_HDR_MUST_FLAGS, 4, 4, &err), OOC_E_UNSUPPORTED);
    free(m.p);
}

/* What kernels rely on, looked at entry by entry. */
static const char *unsafe(const ooc_tile_view *v, uint64_t n_cols)
{
    for (uint32_t p = 0; p < v->n.n_panels; p++)
        for (uint32_t c = 0; c < v->n.n_chunks; c++) {
            uint64_t run = (uint64_t)p * v->n.n_chunks + c;
            uint64_t e = v->ent_off[run], end = v->ent_off[run + 1], last = 0;

            for (uint64_t s = v->seg_off[run]; s < v->seg_off[run + 1]; s++) {
                uint64_t len = 1, row = v->seg_row[s];

                if (v->len_base[p] != OOC_PAIR_PANEL)
                    len = v->seg_len[v->len_base[p] + s - v->seg_off[(uint64_t)p * v->n.n_chunks]];
                if (row < v->chunk_row[c] || row >= v->chunk_row[c + 1])
                    return "a row outside its chunk";
                if (!len || len > end - e)
                    return "a length";
                for (uint64_t i = 0; i < len; i++, e++) {
                    uint64_t place = row << 32 | v->col[e];

                    if (v->col[e] >= v->n.panel_columns ||
                        (uint64_t)v->panel_id[p] * v->n.panel_columns + v->col[e] >= n_cols)
                        return "a column outside";
                    if (e > v->ent_off[run] && place <= last)
                        return "entries that do not ascend";
                    last = place;
                }
            }
            if (e != end)
                return "lengths that do not sum up";
        }
    return NULL;
}

static void read_hostile(const store_image *m, uint32_t *n_sound)
{
    ooc_store *s;
    ooc_err err;

    write_image(m);
    if (ooc_store_open(&s, path, &err))
        return;
    for (uint64_t k = 0; k < ooc_store_get_info(s)->n_tiles; k++) {
        uint8_t *stored, *block;
        ooc_tile_info i;

        ooc_store_get_tile(s, k, &i);
        if (i.kernel_bytes > 1 << 24 || case_read_tile(s, k, &stored, &block, &err))
            continue;
        {
            const ooc_tile_view v = ooc_tile_view_of(&i.n, i.constant, block);
            const char *what = unsafe(&v, ooc_store_get_info(s)->n_cols);

            if (what)
                fail_msg("a tile with %s was called sound", what);
            ++*n_sound;
        }
        free(stored);
        free(block);
    }
    ooc_store_close(s);
}

/* Right checksums over wrong contents: whatever is accepted must be safe for a kernel. */
static void hostile_contents(void **state)
{
    uint64_t seed = 42;

    (void)state;
    for (int codec = OOC_CODEC_AUTO; codec <= OOC_CODEC_ZSTD; codec++) {
        uint32_t n_sound = 0;
        store_image m, changed;

        write_small((ooc_codec)codec);
        m = read_image();
        changed = (store_image){.p = malloc(m.bytes), .bytes = m.bytes};
        for (int round = 0; round < 4000; round++) {
            memcpy(changed.p, m.p, m.bytes);
            for (uint64_t n = 1 + case_random(&seed) % 3; n > 0; n--) {
                uint64_t at = OOC_HDR_PANEL_COLUMNS + case_random(&seed) % (m.bytes - 20);

                if (m.p[at - at % 64] || case_random(&seed) % 8 == 0) /* rarely in padding */
                    changed.p[at] = (uint8_t)(round % 2 ? case_random(&seed) : m.p[at] + 1u);
            }
            store_repair(&changed);
            read_hostile(&changed, &n_sound);
        }
        assert_true(n_sound > 100); /* the repaired ones do get through */
        free(changed.p);
        free(m.p);
    }
}

#if OOC_ENABLE_FAULTS
/* Make the n-th visit of `site` fail while writing, n = 1, 2, ... until there is none. */
static void fault_writing(ooc_fault_site site, ooc_codec codec, bool existing)
{
    case_matrix m = small_matrix();
    ooc_pool *one = ooc_pool_new(1); /* so that visits come in one order */
    ooc_status st;
    uint64_t n;
    ooc_err err;

    for (n = 1; n < 400; n++) {
        unlink(path);
        if (existing)
            write_small(OOC_CODEC_RAW);
        ooc_fault_set(site, n, false);
        st = case_write(&m, path, 128, codec, 25, one, &err);
        if (ooc_fault_visits(site) < n)
            break;
        ooc_fault_set(site, 0, false);
        if (st) {
            assert_int_equal(st, site == OOC_FAULT_ALLOC ? OOC_E_NOMEM : OOC_E_IO);
            if (!existing)
                assert_int_not_equal(access(path, F_OK), 0);
        }
        if (st == OOC_OK || existing)
            assert_int_equal(read_all(&err), OOC_OK);
    }
    ooc_fault_set(site, 0, false);
    assert_in_range(n, 2, 399);
    ooc_pool_free(one);
    case_free(&m);
}
#endif

static void faults_while_writing(void **state)
{
    (void)state;
#if OOC_ENABLE_FAULTS
    static const ooc_fault_site sites[] = {OOC_FAULT_ALLOC,       OOC_FAULT_OPEN,
                                           OOC_FAULT_WRITE,       OOC_FAULT_SYNC,
                                           OOC_FAULT_SHORT_WRITE, OOC_FAULT_RENAME};

    for (size_t i = 0; i < sizeof sites / sizeof *sites; i++)
        for (int codec = OOC_CODEC_AUTO; codec <= OOC_CODEC_ZSTD; codec++) {
            fault_writing(sites[i], (ooc_codec)codec, false);
            fault_writing(sites[i], (ooc_codec)codec, true);
        }
#else
    skip();
#endif
}

static void faults_while_reading(void **state)
{
    (void)state;
#if OOC_ENABLE_FAULTS
    static const ooc_fault_site sites[] = {OOC_FAULT_ALLOC, OOC_FAULT_OPEN, OOC_FAULT_READ,
                                           OOC_FAULT_SHORT_READ, OOC_FAULT_READ_EINTR};
    ooc_err err;

    write_small(OOC_CODEC_ZSTD);
    for (size_t i = 0; i < sizeof sites / sizeof *sites; i++) {
        bool harmless = sites[i] == OOC_FAULT_SHORT_READ || sites[i] == OOC_FAULT_READ_EINTR;
        uint64_t n;

        for (n = 1; n < 100; n++) {
            ooc_status st;

            ooc_fault_set(sites[i], n, false);
            st = read_all(&err);
            if (ooc_fault_visits(sites[i]) < n)
                break;
            assert_int_equal(st, harmless                      ? OOC_OK
                                 : sites[i] == OOC_FAULT_ALLOC ? OOC_E_NOMEM
                                                               : OOC_E_IO);
        }
        ooc_fault_set(sites[i], 0, false);
        assert_in_range(n, 2, 99);
    }
#else
    skip();
#endif
}

static int open_pool(void **state)
{
    int fd;

    (void)state;
    /* In memory where that is possible: thousands of small files would keep a disk busy. */
    strcpy(path, access("/dev/shm", W_OK) == 0 ? "/dev/shm/test_io_damage.XXXXXX"
                                               : "/tmp/test_io_damage.XXXXXX");
    fd = mkstemp(path);
    ooc_sys_close(fd);
    pool = ooc_pool_new(2);
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
        cmocka_unit_test(every_flipped_byte),   cmocka_unit_test(every_length),
        cmocka_unit_test(other_versions),       cmocka_unit_test(hostile_contents),
        cmocka_unit_test(faults_while_writing), cmocka_unit_test(faults_while_reading),
    };

    return cmocka_run_group_tests(tests, open_pool, close_pool);
}
