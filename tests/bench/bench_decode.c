/* bench_decode - what the codecs of the tile store make of a CT matrix: bytes an entry, and
 * kernel-form bytes decoded a second by one core.
 *
 *     bench_decode [VIEWSxDETECTORS:IMAGE [MIB_OF_KERNEL_FORM [PANEL_COLUMNS [ROUNDS]]]]
 *     bench_decode FILE.tiles...
 *
 * Without files: a subset of the rows of that scan (Joseph's interpolation, docs in DESIGN of
 * `radon:`), spread over all angles in whole tiles. Stored bytes and decoded block are in memory;
 * the codecs take turns; the best of 7 rounds counts. */
#include "base/alloc.h"
#include "base/clock.h"
#include "io/sys.h"
#include "io/tile_store.h"
#include "io/tile_writer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TILE_BYTES (16u << 20)
#define ROUNDS     7

struct scan {
    uint32_t views, detectors, image, panel_columns;
    uint64_t kernel_bytes;
};

struct entry {
    uint32_t col;
    float val;
};

static int by_column(const void *a, const void *b)
{
    uint32_t x = ((const struct entry *)a)->col, y = ((const struct entry *)b)->col;

    return x < y ? -1 : x > y;
}

static uint32_t put(struct entry *out, int64_t size, int64_t row, int64_t col, double weight)
{
    if (row < 0 || col < 0 || row >= size || col >= size || (float)weight == 0)
        return 0;
    *out = (struct entry){(uint32_t)(row * size + col), (float)weight};
    return 1;
}

/* Row `r` of the scan into out[2 * image], by column. */
static uint32_t ray(const struct scan *s, uint64_t r, struct entry *out)
{
    double angle = M_PI * (double)(r / s->detectors) / s->views;
    double offset =
        ((double)(r % s->detectors) - (s->detectors - 1) / 2.0) * s->image / (double)s->detectors;
    double c = cos(angle), t = sin(angle), half = (s->image - 1) / 2.0;
    int along_rows = fabs(c) >= fabs(t);
    double step = 1 / fabs(along_rows ? c : t);
    uint32_t n = 0;

    for (uint32_t i = 0; i < s->image; i++) {
        double at = along_rows ? (offset - (i - half) * t) / c + half
                               : (offset - (i - half) * c) / t + half;
        double below = floor(at), f = at - below;

        for (int k = 0; k < 2; k++) {
            int64_t j = (int64_t)below + k;

            n += along_rows ? put(out + n, s->image, i, j, (k ? f : 1 - f) * step)
                            : put(out + n, s->image, j, i, (k ? f : 1 - f) * step);
        }
    }
    qsort(out, n, sizeof *out, by_column);
    return n;
}

struct tiles {
    uint32_t n_tiles, rows; /* of each tile */
    uint64_t *off;
    uint32_t *col;
    float *val;
};

static void *need(void *p)
{
    if (!p) {
        fprintf(stderr, "bench_decode: no memory\n");
        exit(1);
    }
    return p;
}

static struct tiles make_tiles(const struct scan *s)
{
    uint64_t all = (uint64_t)s->views * s->detectors, at = 0;
    uint64_t row_bytes = (uint64_t)s->image * 2 * 6;
    struct entry *e = need(malloc(sizeof *e * 2 * s->image));
    struct tiles t = {.rows = (uint32_t)(TILE_BYTES / row_bytes)};
    uint64_t room;

    if (t.rows > all)
        t.rows = (uint32_t)all;
    t.n_tiles = (uint32_t)(s->kernel_bytes / TILE_BYTES) + 1;
    room = (uint64_t)t.n_tiles * t.rows * 2 * s->image;
    t.off = need(malloc(((uint64_t)t.n_tiles * t.rows + 1) * sizeof *t.off));
    t.col = need(malloc(room * sizeof *t.col));
    t.val = need(malloc(room * sizeof *t.val));
    for (uint32_t k = 0; k < t.n_tiles; k++)
        for (uint32_t i = 0; i < t.rows; i++) {
            uint64_t first = t.n_tiles > 1 ? (all - t.rows) * k / (t.n_tiles - 1) : 0;
            uint32_t n = ray(s, first + i, e);

            t.off[(uint64_t)k * t.rows + i] = at;
            for (uint32_t j = 0; j < n; j++, at++) {
                t.col[at] = e[j].col;
                t.val[at] = e[j].val;
            }
        }
    t.off[(uint64_t)t.n_tiles * t.rows] = at;
    free(e);
    return t;
}

static void check(ooc_status st, const ooc_err *err)
{
    if (st) {
        fprintf(stderr, "bench_decode: %s\n", err->text);
        exit(1);
    }
}

struct measured {
    const char *name;
    ooc_codec codec;
    int level;
    char path[64];
    ooc_store *store;
    double encode_s, best_s;
};

static void write_store(struct measured *m, const struct scan *s, const struct tiles *t,
                        ooc_pool *pool)
{
    ooc_tile_writer_opts o = {.n_rows = (uint64_t)t->n_tiles * t->rows,
                              .n_cols = (uint64_t)s->image * s->image,
                              .panel_columns = s->panel_columns,
                              .codec = m->codec,
                              .level = m->level,
                              .force = true};
    ooc_tile_writer *w;
    uint64_t begin = ooc_now_ns();
    ooc_err err;

    snprintf(m->path, sizeof m->path, "/tmp/bench_decode.%ld.%s", (long)getpid(), m->name);
    check(ooc_tile_writer_open(&w, m->path, &o, pool, &err), &err);
    for (uint32_t k = 0; k < t->n_tiles; k++) {
        uint64_t r = (uint64_t)k * t->rows;
        ooc_csr_rows rows = {.n_rows = t->rows,
                             .row_off = t->off + r,
                             .col = t->col + t->off[r],
                             .val = t->val + t->off[r]};

        check(ooc_tile_writer_append(w, &rows, &err), &err);
    }
    m->encode_s = (double)(ooc_now_ns() - begin) / 1e9;
    check(ooc_tile_writer_commit(w, &err), &err);
    ooc_tile_writer_close(w);
    check(ooc_store_open(&m->store, m->path, &err), &err);
    unlink(m->path);
}

/* Time of this thread on a processor: what other processes take does not count. */
static uint64_t thread_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* All tiles, one thread; only the decoding is timed. */
static void decode_store(struct measured *m)
{
    const ooc_store_info *i = ooc_store_get_info(m->store);
    uint8_t *stored = need(ooc_pages_alloc(i->max_stored_bytes));
    uint8_t *block = need(ooc_pages_alloc(i->max_kernel_bytes));
    uint8_t *scratch = need(ooc_pages_alloc(i->max_scratch_bytes));
    uint64_t ns = 0, begin;
    ooc_err err;

    memset(block, 0, i->max_kernel_bytes);
    for (uint64_t k = 0; k < i->n_tiles; k++) {
        ooc_stored_tile t;
        ooc_tile_info info;

        ooc_store_get_tile(m->store, k, &info);
        check(ooc_sys_pread(ooc_store_fd(m->store), m->name, stored, info.stored_bytes,
                            info.file_off, &err),
              &err);
        begin = thread_ns();
        check(ooc_stored_tile_open(&t, m->store, k, stored, &err), &err);
        for (uint32_t task = 0; task < t.n_tasks; task++)
            check(ooc_stored_tile_decode(&t, task, info.raw ? NULL : block, scratch, &err), &err);
        ns += thread_ns() - begin;
    }
    if (m->best_s <= 0 || (double)ns / 1e9 < m->best_s)
        m->best_s = (double)ns / 1e9;
    ooc_pages_free(stored, i->max_stored_bytes);
    ooc_pages_free(block, i->max_kernel_bytes);
    ooc_pages_free(scratch, i->max_scratch_bytes);
}

static void print_store(const struct measured *m)
{
    const ooc_store_info *info = ooc_store_get_info(m->store);
    double n = (double)info->n_entries, kernel = (double)info->kernel_bytes;

    printf("%s: %.3f bytes an entry on disk, %.3f in kernel form; decoding %.2f GB/s a core "
           "(%.3f ns an entry)",
           m->name, (double)info->stored_bytes / n, kernel / n, kernel / m->best_s / 1e9,
           m->best_s * 1e9 / n);
    if (m->encode_s > 0)
        printf("; encoding %.2f GB/s", kernel / m->encode_s / 1e9);
    printf("\n");
}

static void measure(struct measured *m, size_t n, int rounds)
{
    for (int round = 0; round < rounds; round++)
        for (size_t i = 0; i < n; i++)
            decode_store(&m[i]);
    for (size_t i = 0; i < n; i++) {
        print_store(&m[i]);
        ooc_store_close(m[i].store);
    }
}

static int bench_files(int n, char **paths)
{
    struct measured m[16] = {0};
    ooc_err err;

    if (n > 16)
        return 2;
    for (int i = 0; i < n; i++) {
        m[i].name = paths[i];
        check(ooc_store_open(&m[i].store, paths[i], &err), &err);
    }
    measure(m, (size_t)n, ROUNDS);
    return 0;
}

int main(int argc, char **argv)
{
    struct scan s = {700, 384, 512, 8192, 128u << 20};
    struct measured m[] = {
        {.name = "raw", .codec = OOC_CODEC_RAW},
        {.name = "auto", .codec = OOC_CODEC_AUTO},
        {.name = "zstd", .codec = OOC_CODEC_ZSTD},
    };
    size_t n = sizeof m / sizeof *m;
    ooc_pool *pool;
    struct tiles t;

    if (argc > 1 && sscanf(argv[1], "%ux%u:%u", &s.views, &s.detectors, &s.image) != 3)
        return bench_files(argc - 1, argv + 1);
    if (argc > 2)
        s.kernel_bytes = strtoull(argv[2], NULL, 10) << 20;
    if (argc > 3)
        s.panel_columns = (uint32_t)strtoul(argv[3], NULL, 10);
    t = make_tiles(&s);
    pool = need(ooc_pool_new(0));
    for (size_t i = 0; i < n; i++)
        write_store(&m[i], &s, &t, pool);
    measure(m, n, argc > 4 ? atoi(argv[4]) : ROUNDS);
    free(t.off);
    free(t.col);
    free(t.val);
    ooc_pool_free(pool);
    return 0;
}
