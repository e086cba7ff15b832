/* bench_kernels - the CPU products alone, on matrices made in memory: ns an entry, GFLOP/s, GB/s.
 *
 * Everything is interleaved (forward and adjoint of each B, then the next repetition) and the
 * minimum is shown, so that a busy machine disturbs little. GB/s counts kernel-form bytes. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/parallel.h"
#include "base/parse.h"
#include "kernels/cpu/split.h"
#include "kernels/cpu/spmm_cpu.h"
#include "tests/bench/bench_tiles.h"

#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LIST 16

static const char help[] =
    "usage: bench_kernels [options]\n"
    "  --matrix ct|random|banded|power   (ct)\n"
    "  --rows N (ct: 700x384 views and detectors; --rows 76800 is 200 views)\n"
    "  --views-all N --detectors N --size N   (700, 384, 512)   scan and image of the ct matrix\n"
    "  --columns N --per-row N   (1000000, 100)   of the others\n"
    "  --panel N (8192)  --tile SIZE (64M)  --chunk SIZE (1M)  --pairs-below X (1.5)\n"
    "  --batch 1,8,32   --threads 1,2   --isa avx512|avx2|scalar   --repeat N (5)\n";

typedef struct {
    bt_spec spec;
    uint64_t batch[MAX_LIST], threads[MAX_LIST];
    uint32_t n_batch, n_threads, repeat;
    ooc_dtype dense;
} options;

/* One product through all tiles. */
typedef struct {
    const bt_matrix *m;
    const ooc_tile_view *t;
    float *in, *out;
    uint32_t B;
    char *scratch;
    ooc_forward_part fpart[OOC_MAX_PARTS];
    ooc_adjoint_part apart[OOC_MAX_PARTS];
} job;

static void run_forward(void *ctx, uint32_t task, uint32_t thread)
{
    job *j = ctx;

    ooc_spmm_forward_cpu(j->t, j->fpart[task].c0, j->fpart[task].c1, j->m->n_cols, j->in, j->B,
                         j->out, j->B, j->B, OOC_F32,
                         j->scratch + (size_t)thread * OOC_SPMM_SCRATCH_BYTES);
}

static void run_adjoint(void *ctx, uint32_t task, uint32_t thread)
{
    job *j = ctx;
    const ooc_adjoint_part *a = &j->apart[task];

    ooc_spmm_adjoint_cpu(j->t, a->p0, a->p1, a->col0, a->col1, j->m->n_cols, j->in, j->B, j->out,
                         j->B, j->B, OOC_F32, j->scratch + (size_t)thread * OOC_SPMM_SCRATCH_BYTES);
}

/* One thread: its processor time, which a busy machine disturbs less. */
static uint64_t now_ns(const ooc_pool *pool)
{
    struct timespec t;

    if (ooc_pool_threads(pool) > 1)
        return ooc_now_ns();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static double forward_pass(job *j, ooc_pool *pool, float *X, float *Y)
{
    const uint64_t t0 = now_ns(pool);

    for (uint32_t k = 0; k < j->m->n_tiles; k++) {
        const uint32_t threads = ooc_pool_threads(pool);
        uint32_t n;

        j->t = &j->m->tile[k].view;
        j->in = X;
        j->out = Y + j->m->tile[k].first_row * j->B;
        n = ooc_split_forward(j->t, threads == 1 ? 1 : threads * 2, j->fpart);
        ooc_parallel_for(pool, n, run_forward, j);
    }
    return (double)(now_ns(pool) - t0);
}

static double adjoint_pass(job *j, ooc_pool *pool, float *R, float *G)
{
    const uint64_t t0 = now_ns(pool);

    for (uint32_t k = 0; k < j->m->n_tiles; k++) {
        uint32_t n;

        j->t = &j->m->tile[k].view;
        j->in = R + j->m->tile[k].first_row * j->B;
        j->out = G;
        n = ooc_split_adjoint(j->t, j->m->n_cols, 8 * ooc_pool_threads(pool), j->apart);
        ooc_parallel_for(pool, n, run_adjoint, j);
    }
    return (double)(now_ns(pool) - t0);
}

static void show(const bt_matrix *m, const char *what, uint32_t B, uint32_t threads, double ns)
{
    const double nnz = (double)m->n_entries;

    printf("%-8s B=%-3u threads=%u  %7.3f ns/entry/core  %7.1f GFLOP/s  %6.1f GB/s  %.4f s\n", what,
           B, threads, ns * threads / nnz, 2 * nnz * B / ns, (double)m->kernel_bytes / ns,
           ns * 1e-9);
}

static void bench(const options *o, const bt_matrix *m, ooc_pool *pool)
{
    double best[MAX_LIST][2];
    uint64_t max_b = 1;
    job j = {.m = m};
    float *X, *Y;
    size_t x_bytes, y_bytes;

    for (uint32_t i = 0; i < o->n_batch; i++) {
        max_b = o->batch[i] > max_b ? o->batch[i] : max_b;
        best[i][0] = best[i][1] = 1e30;
    }
    x_bytes = m->n_cols * max_b * sizeof(float);
    y_bytes = m->n_rows * max_b * sizeof(float);
    X = ooc_pages_alloc(x_bytes);
    Y = ooc_pages_alloc(y_bytes);
    j.scratch = ooc_pages_alloc((size_t)ooc_pool_threads(pool) * OOC_SPMM_SCRATCH_BYTES);
    if (!X || !Y || !j.scratch) {
        fprintf(stderr, "bench_kernels: no memory\n");
        exit(1);
    }
    for (uint32_t k = 0; k < o->repeat; k++)
        for (uint32_t i = 0; i < o->n_batch; i++) {
            j.B = (uint32_t)o->batch[i];
            for (size_t e = 0; e < x_bytes / sizeof(float); e++)
                X[e] = (float)(e % 17) * 0.125f - 1;
            memset(Y, 0, y_bytes);
            best[i][0] = fmin(best[i][0], forward_pass(&j, pool, X, Y));
            best[i][1] = fmin(best[i][1], adjoint_pass(&j, pool, Y, X));
        }
    for (uint32_t i = 0; i < o->n_batch; i++) {
        show(m, "forward", (uint32_t)o->batch[i], ooc_pool_threads(pool), best[i][0]);
        show(m, "adjoint", (uint32_t)o->batch[i], ooc_pool_threads(pool), best[i][1]);
    }
    ooc_pages_free(X, x_bytes);
    ooc_pages_free(Y, y_bytes);
    ooc_pages_free(j.scratch, (size_t)ooc_pool_threads(pool) * OOC_SPMM_SCRATCH_BYTES);
}

static void wrong(const char *option)
{
    fprintf(stderr, "bench_kernels: wrong value for --%s\n%s", option, help);
    exit(2);
}

static void parse(options *o, int argc, char **argv)
{
    static const struct option longs[] = {
        {"matrix", 1, 0, 0}, {"rows", 1, 0, 0},    {"views-all", 1, 0, 0},   {"detectors", 1, 0, 0},
        {"size", 1, 0, 0},   {"columns", 1, 0, 0}, {"per-row", 1, 0, 0},     {"panel", 1, 0, 0},
        {"tile", 1, 0, 0},   {"chunk", 1, 0, 0},   {"batch", 1, 0, 0},       {"threads", 1, 0, 0},
        {"isa", 1, 0, 0},    {"repeat", 1, 0, 0},  {"pairs-below", 1, 0, 0}, {0, 0, 0, 0}};
    uint64_t v[9] = {38400, 700, 384, 512, 1000000, 100, 8192, 64u << 20, 1u << 20};
    int i, c;

    o->spec.kind = "ct";
    o->spec.pairs_below = 1.5;
    while ((c = getopt_long(argc, argv, "", longs, &i)) != -1) {
        bool good = true;

        if (c == '?') {
            fputs(help, stderr);
            exit(2);
        }
        if (i == 0)
            o->spec.kind = optarg;
        else if (i < 10)
            good = ooc_parse_size(optarg, &v[i - 1]);
        else if (i == 10)
            good = ooc_parse_u64_list(optarg, o->batch, MAX_LIST, &o->n_batch);
        else if (i == 11)
            good = ooc_parse_u64_list(optarg, o->threads, MAX_LIST, &o->n_threads);
        else if (i == 12)
            good = setenv("OOC_CPU_ISA", optarg, 1) == 0;
        else if (i == 13)
            good = (o->repeat = (uint32_t)atoi(optarg)) > 0;
        else
            good = ooc_parse_double(optarg, &o->spec.pairs_below);
        if (!good)
            wrong(longs[i].name);
    }
    o->spec.n_rows = v[0];
    o->spec.views_all = (uint32_t)v[1];
    o->spec.detectors = (uint32_t)v[2];
    o->spec.size = (uint32_t)v[3];
    o->spec.n_cols = strcmp(o->spec.kind, "ct") ? v[4] : v[3] * v[3];
    o->spec.per_row = (uint32_t)v[5];
    o->spec.panel_columns = (uint32_t)v[6];
    o->spec.tile_bytes = v[7];
    o->spec.chunk_bytes = v[8];
}

int main(int argc, char **argv)
{
    options o = {
        .batch = {1, 2, 4, 8, 16, 32}, .n_batch = 6, .threads = {1}, .n_threads = 1, .repeat = 5};
    const char *why = NULL;
    bt_matrix m;
    int isa;

    parse(&o, argc, argv);
    isa = ooc_cpu_isa(&why);
    if (isa < 0) {
        fprintf(stderr, "bench_kernels: %s\n", why);
        return 2;
    }
    m = bt_build(&o.spec);
    printf("%s: %llu x %llu, %llu entries, %u tiles, %.2f bytes an entry, panels of %u, %s\n",
           o.spec.kind, (unsigned long long)m.n_rows, (unsigned long long)m.n_cols,
           (unsigned long long)m.n_entries, m.n_tiles, (double)m.kernel_bytes / (double)m.n_entries,
           o.spec.panel_columns, ooc_isa_name((ooc_isa)isa));
    for (uint32_t i = 0; i < o.n_threads; i++) {
        ooc_pool *pool = ooc_pool_new((uint32_t)o.threads[i]);

        if (!pool)
            return 1;
        bench(&o, &m, pool);
        ooc_pool_free(pool);
    }
    bt_free(&m);
    return 0;
}
