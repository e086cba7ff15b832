/* Stores written by earlier versions go on being read: each file of tests/golden is compared with
 * the formula that made it. With --write FOLDER the files of the present version are made. */
#include "io/tile_usage.h"
#include "store_cases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ROWS = 300, COLS = 5000, PANEL = 1024, TILE_ROWS = 170 };

static const struct {
    const char *name;
    ooc_dtype vtype;
    ooc_codec codec;
} files[] = {
    {"rows-f64", OOC_F64, OOC_CODEC_AUTO},    {"rows-f32", OOC_F32, OOC_CODEC_ZSTD},
    {"rows-f16", OOC_F16, OOC_CODEC_AUTO},    {"kernel-f32", OOC_F32, OOC_CODEC_RAW},
    {"kernel-bf16", OOC_BF16, OOC_CODEC_RAW},
};
#define N_FILES (sizeof files / sizeof *files)

/* Value bits of entry `e`: noise, a few values, a long pattern, the same for all: a plane for each
 * codec. */
static uint64_t value_bits(uint64_t e, uint64_t *seed)
{
    uint64_t noise = case_random(seed);

    return (noise & 0xff) | (noise >> 8 & 0xf) << 8 | (e % 97) << 16 | (e % 31 % 7) << 24 |
           (e % 500 / 9) << 32 | 0x3ffull << 52;
}

/* Rows of neighbours, of scattered entries, and empty ones; the last tile is one constant. */
static case_matrix make_matrix(ooc_dtype vtype)
{
    case_matrix m = {.n_rows = ROWS, .n_cols = COLS, .vtype = vtype};
    uint64_t at = 0, seed = 5, width = ooc_dtype_bytes(vtype);

    m.off = malloc((ROWS + 1) * sizeof *m.off);
    m.col = malloc((uint64_t)ROWS * 200 * sizeof *m.col);
    m.val = malloc((uint64_t)ROWS * 200 * width);
    for (uint32_t r = 0; r < ROWS; r++) {
        uint32_t n = r % 10 == 9 ? 0 : r % 10 == 8 ? 7 : 150;
        uint32_t step = n == 7 ? 611 : 1;

        m.off[r] = at;
        for (uint32_t i = 0; i < n; i++, at++) {
            uint64_t bits = r < TILE_ROWS ? value_bits(at, &seed) : 0x3ff03f803f803c00u;

            m.col[at] = (r * 13) % 1200 + i * step;
            memcpy(m.val + at * width, &bits, width);
        }
    }
    m.off[ROWS] = at;
    return m;
}

static void read_versions(void **state)
{
    static const char *const versions[] = {"1.0"};

    (void)state;
    for (size_t v = 0; v < sizeof versions / sizeof *versions; v++) {
        uint64_t by_codec[OOC_N_PIECE_CODECS] = {0}, kernel_tiles = 0;

        for (size_t i = 0; i < N_FILES; i++) {
            case_matrix m = make_matrix(files[i].vtype);
            ooc_store_usage u = {0};
            char path[512];
            const char *what;
            ooc_store *s;
            ooc_status st;
            ooc_err err = {.text = ""};

            snprintf(path, sizeof path, OOC_GOLDEN "/%s-%s.tiles", versions[v], files[i].name);
            what = case_compare(&m, path, &st, &err);
            if (what)
                fail_msg("%s: %s (%s)", path, what, err.text);
            assert_int_equal(ooc_store_open(&s, path, &err), OOC_OK);
            for (uint64_t k = 0; k < ooc_store_get_info(s)->n_tiles; k++)
                assert_int_equal(ooc_store_add_usage(s, k, &u, &err), OOC_OK);
            for (int c = 0; c < OOC_N_PIECE_CODECS; c++)
                by_codec[c] += u.stored[OOC_USE_VALUES][c];
            kernel_tiles += u.kernel_tiles;
            ooc_store_close(s);
            case_free(&m);
        }
        /* The files must hold one of everything, or they prove little. */
        for (int c = 0; c < OOC_N_PIECE_CODECS; c++)
            assert_true(by_codec[c] > 0);
        assert_true(kernel_tiles > 0);
    }
}

static int write_files(const char *folder)
{
    ooc_pool *pool = ooc_pool_new(1);

    for (size_t i = 0; pool && i < N_FILES; i++) {
        case_matrix m = make_matrix(files[i].vtype);
        char path[512];
        ooc_err err;

        snprintf(path, sizeof path, "%s/%u.%u-%s.tiles", folder, OOC_FORMAT_MAJOR, OOC_FORMAT_MINOR,
                 files[i].name);
        if (case_write(&m, path, PANEL, files[i].codec, TILE_ROWS, pool, &err)) {
            fprintf(stderr, "%s\n", err.text);
            return 1;
        }
        case_free(&m);
    }
    ooc_pool_free(pool);
    return pool ? 0 : 1;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(read_versions)};

    if (argc == 3 && strcmp(argv[1], "--write") == 0)
        return write_files(argv[2]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
