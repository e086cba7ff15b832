/* tile-apply - multiply a matrix in a tile store, or its transpose, by the columns of an array. */
#include "tools/cli.h"
#include "tools/dense_file.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/parse.h"
#include "io/sys.h"
#include "src/streamtrain.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Columns that one sweep serves: not chosen by the budget, since the last bits depend on it. */
#define DEFAULT_BATCH 32u
#define MAX_BATCH     4096u
#define MAX_REPEAT    1000u

typedef struct {
    bool transpose, samples;
    uint64_t vram_budget, ram_budget, slots, batch, repeat;
    const char *device;
    int io;
    const char *store, *in_path, *out_path;
} request;

/* What is in the tool's memory while it works. */
typedef struct {
    ooc_matrix *matrix;
    dense_file in;
    ooc_npy_writer *out;
    uint64_t in_rows, out_rows;
    uint64_t round; /* columns that are in memory at a time */
    void *x, *y;
    uint64_t x_bytes, y_bytes;
    double seconds[MAX_REPEAT];
    ooc_progress progress;
} work;

static void wake(void *matrix)
{
    ooc_matrix_interrupt(matrix);
}

static void show_progress(void *ctx, uint64_t done, uint64_t total)
{
    work *w = ctx;
    ooc_matrix_stats s = {.size = sizeof s};

    if (!w->matrix)
        return;
    w->progress.total = total;
    ooc_matrix_get_stats(w->matrix, &s);
    ooc_progress_update(&w->progress, done, s.read_bytes, NULL);
}

/* The input's type and width decide how the matrix is opened, and its shape what the input must be:
 * so the input is opened first for a look, and checked afterwards. */
static ooc_status open_matrix(work *w, const request *r, ooc_cli *cli, ooc_err *err)
{
    ooc_matrix_opts o = {.size = sizeof o,
                         .device = r->device,
                         .vram_budget = r->vram_budget,
                         .ram_budget = r->ram_budget,
                         .n_slots = (uint32_t)r->slots,
                         .n_threads = (uint32_t)cli->threads,
                         .io = (ooc_io)r->io,
                         .warn = ooc_cli_warn,
                         .warn_ctx = cli,
                         .progress = show_progress,
                         .progress_ctx = w};
    ooc_npy look;
    uint64_t B = 1;
    int fd;
    ooc_status st = ooc_npy_open(&fd, &look, r->in_path, err);

    if (st)
        return st;
    dense_file_close(&(dense_file){.fd = fd});
    if (look.n_dims >= 1 && (r->samples || look.n_dims == 2))
        B = look.shape[r->samples ? 0 : 1];
    o.max_batch = (uint32_t)ooc_max_u64(1, ooc_min_u64(B, r->batch));
    o.dense = look.kind == 'f' && look.item_bytes == 8 ? OOC_F64 : OOC_F32;
    return ooc_matrix_open(&w->matrix, r->store, &o, err);
}

static ooc_status open_files(work *w, const request *r, ooc_err *err)
{
    ooc_matrix_shape m = {.size = sizeof m};
    char what[300];
    uint64_t shape[2];
    ooc_status st;

    ooc_matrix_get_shape(w->matrix, &m);
    w->in_rows = r->transpose ? m.n_rows : m.n_cols;
    w->out_rows = r->transpose ? m.n_cols : m.n_rows;
    snprintf(what, sizeof what, "%s of %s", r->transpose ? "rows" : "columns", r->store);
    st = dense_file_open(&w->in, r->in_path, w->in_rows, r->samples, what, err);
    if (st)
        return st;
    shape[0] = r->samples ? w->in.B : w->out_rows;
    shape[1] = r->samples ? w->out_rows : w->in.B;
    return ooc_npy_writer_open(&w->out, r->out_path, w->in.dense == OOC_F64 ? "<f8" : "<f4",
                               w->in.one_dim && !r->samples ? 1 : 2, shape, err);
}

/* Samples pass through a few at a time; other arrays are in memory as a whole. */
static ooc_status take_arrays(work *w, const request *r, ooc_err *err)
{
    uint64_t size = ooc_dtype_bytes(w->in.dense);

    w->round = r->samples && w->in.by_column ? ooc_min_u64(w->in.B, r->batch) : w->in.B;
    if (!ooc_mul_u64(w->in_rows * size, w->round, &w->x_bytes) ||
        !ooc_mul_u64(w->out_rows * size, w->round, &w->y_bytes))
        return ooc_fail(err, OOC_E_ARG, "%s: too large", r->in_path);
    w->x = ooc_pages_alloc((size_t)w->x_bytes);
    w->y = ooc_pages_alloc((size_t)w->y_bytes);
    if (!w->x || !w->y)
        return ooc_fail(err, OOC_E_NOMEM,
                        "no memory for the input (%" PRIu64 " bytes) and the output (%" PRIu64 ")",
                        w->x_bytes, w->y_bytes);
    return OOC_OK;
}

static ooc_status multiply(work *w, const request *r, uint64_t b, ooc_err *err)
{
    ooc_array x = {.data = w->x, .dtype = w->in.dense, .device = OOC_HOST};
    ooc_array y = {.data = w->y, .dtype = w->in.dense, .device = OOC_HOST};
    ooc_status st = OOC_OK;

    for (uint64_t i = 0; i < r->repeat && !st; i++) {
        uint64_t began = ooc_now_ns();

        st = r->transpose ? ooc_matrix_adjoint(w->matrix, (uint32_t)b, &x, &y, err)
                          : ooc_matrix_forward(w->matrix, (uint32_t)b, &x, &y, err);
        w->seconds[i] += 1e-9 * (double)(ooc_now_ns() - began);
    }
    return st;
}

static ooc_status apply(work *w, const request *r, ooc_err *err)
{
    uint64_t size = ooc_dtype_bytes(w->in.dense);
    ooc_status st = OOC_OK;

    for (uint64_t b0 = 0, b; b0 < w->in.B && !st; b0 += b) {
        b = ooc_min_u64(w->round, w->in.B - b0);
        st = dense_file_read(&w->in, b0, b, w->x, err);
        if (!st)
            st = multiply(w, r, b, err);
        if (!st && r->samples)
            st = dense_write_columns(w->out, w->y, w->out_rows, b, w->in.dense, err);
        else if (!st)
            st = ooc_npy_writer_write(w->out, w->y, (size_t)(w->out_rows * b * size), err);
        if (!st && ooc_cli_interrupted())
            st = ooc_fail(err, OOC_E_INTERRUPTED, "interrupted");
    }
    return st ? st : ooc_npy_writer_commit(w->out, err);
}

/* The output replaces what has its name. */
static ooc_status check_names(const request *r, ooc_err *err)
{
    if (ooc_sys_same_file(r->out_path, r->in_path) || ooc_sys_same_file(r->out_path, r->store))
        return ooc_fail(err, OOC_E_ARG, "%s: is an input too; give the output another name",
                        r->out_path);
    return OOC_OK;
}

static ooc_status run(work *w, const request *r, ooc_cli *cli, ooc_err *err)
{
    ooc_status st = check_names(r, err);

    if (!st)
        st = open_matrix(w, r, cli, err);
    if (st)
        return st;
    ooc_cli_catch_signals(wake, w->matrix);
    st = open_files(w, r, err);
    if (!st && w->in.B > UINT32_MAX)
        st = ooc_fail(err, OOC_E_ARG, "%s: too many columns", r->in_path);
    if (!st)
        st = take_arrays(w, r, err);
    ooc_progress_begin(&w->progress, cli, "tile-apply", 0);
    if (!st)
        st = apply(w, r, err);
    ooc_progress_end(&w->progress);
    if (st == OOC_E_INTERRUPTED)
        st = ooc_fail(err, st, "interrupted; %s was not written", r->out_path);
    return st;
}

static void print_json(const work *w, const request *r, const ooc_matrix_stats *s)
{
    ooc_matrix_shape m = {.size = sizeof m};

    ooc_matrix_get_shape(w->matrix, &m);
    printf("{\"rows\": %" PRIu64 ", \"columns\": %" PRIu64 ", \"entries\": %" PRIu64
           ", \"batch\": %" PRIu64 ", \"dtype\": \"%s\", \"transpose\": %s, \"seconds\": [",
           m.n_rows, m.n_cols, m.n_entries, w->in.B, w->in.dense == OOC_F64 ? "f64" : "f32",
           r->transpose ? "true" : "false");
    for (uint64_t i = 0; i < r->repeat; i++)
        printf("%s%.6f", i ? ", " : "", w->seconds[i]);
    printf("], \"passes\": %" PRIu64 ", \"tiles\": %" PRIu64 ", \"tiles_read\": %" PRIu64
           ", \"read_bytes\": %" PRIu64 ", \"decoded_bytes\": %" PRIu64
           ", \"tiles_resident_device\": %" PRIu64 ", \"tiles_resident_ram\": %" PRIu64
           ", \"read_seconds\": %.6f, \"decode_seconds\": %.6f, \"forward_seconds\": %.6f"
           ", \"adjoint_seconds\": %.6f, \"device\": \"%s\", \"isa\": \"%s\", \"io\": \"%s\""
           ", \"threads\": %" PRIu32 ", \"slots\": %" PRIu32 ", \"vram_budget\": %" PRIu64
           ", \"device_peak_bytes\": %" PRIu64 ", \"ram_budget\": %" PRIu64
           ", \"host_peak_bytes\": %" PRIu64 ", \"array_bytes\": %" PRIu64 "}\n",
           s->passes, m.n_tiles, s->tiles_read, s->read_bytes, s->decoded_bytes,
           s->tiles_resident_device, s->tiles_resident_ram, 1e-9 * (double)s->read_wait_ns,
           1e-9 * (double)s->decode_ns, 1e-9 * (double)s->forward_ns, 1e-9 * (double)s->adjoint_ns,
           s->device, s->isa, s->io == OOC_IO_URING ? "uring" : "pread", s->n_threads, s->n_slots,
           s->device_budget, s->device_peak_bytes, s->host_budget, s->host_peak_bytes,
           w->x_bytes + w->y_bytes);
}

static void print_summary(const work *w, const request *r, const ooc_matrix_stats *s)
{
    char read[32], device[32], host[32], arrays[32];
    double seconds = 0;

    for (uint64_t i = 0; i < r->repeat; i++)
        seconds += w->seconds[i];
    printf("%s: %" PRIu64 " x %" PRIu64 " in %.3f s on %s (%s), %s read\n", r->out_path,
           w->out_rows, w->in.B, seconds, s->device, s->isa, ooc_format_size(s->read_bytes, read));
    printf("memory: device %s, RAM tier and I/O %s; the arrays, outside the budgets, %s\n",
           ooc_format_size(s->device_peak_bytes, device), ooc_format_size(s->host_peak_bytes, host),
           ooc_format_size(w->x_bytes + w->y_bytes, arrays));
}

static void print_result(const work *w, const request *r, const ooc_cli *cli)
{
    ooc_matrix_stats s = {.size = sizeof s};

    ooc_matrix_get_stats(w->matrix, &s);
    if (cli->json)
        print_json(w, r, &s);
    else if (!cli->quiet)
        print_summary(w, r, &s);
}

static void finish(work *w)
{
    ooc_cli_catch_signals(NULL, NULL); /* the matrix is going */
    ooc_npy_writer_close(w->out);
    dense_file_close(&w->in);
    ooc_matrix_close(w->matrix);
    ooc_pages_free(w->x, (size_t)w->x_bytes);
    ooc_pages_free(w->y, (size_t)w->y_bytes);
}

int main(int argc, char **argv)
{
    static const char *const ios[] = {"auto", "uring", "pread", NULL};
    request r = {.batch = DEFAULT_BATCH, .repeat = 1};
    const ooc_opt opts[] = {
        {.name = "transpose",
         .kind = OOC_OPT_FLAG,
         .out = &r.transpose,
         .help = "compute transpose(A)*R: IN.npy then has one row for each row of A"},
        {.name = "samples",
         .kind = OOC_OPT_FLAG,
         .out = &r.samples,
         .help = "IN.npy is (n, ...), n samples; OUT.npy becomes (n, entries). They\n"
                 "pass through memory a few at a time"},
        {.name = "vram-budget",
         .kind = OOC_OPT_SIZE,
         .out = &r.vram_budget,
         .value = "SIZE",
         .min = 1,
         .help = "bytes that the device may hold (default: 80 % of a GPU's free memory,\n"
                 "2G on the CPU)"},
        {.name = "ram-budget",
         .kind = OOC_OPT_SIZE,
         .out = &r.ram_budget,
         .value = "SIZE",
         .min = 1,
         .help = "bytes for resident tiles in RAM and the I/O slots (default 1G)"},
        {.name = "matrix-device",
         .kind = OOC_OPT_STRING,
         .out = &r.device,
         .value = "DEVICE",
         .help = "auto, cpu, cuda:0, ... (default auto)"},
        {.name = "io",
         .kind = OOC_OPT_CHOICE,
         .out = &r.io,
         .choices = ios,
         .help = "how tiles are read (default auto: io_uring where it is allowed)"},
        {.name = "slots",
         .kind = OOC_OPT_U64,
         .out = &r.slots,
         .min = 1,
         .max = 64,
         .value = "N",
         .help = "tile slots in each stage (default: as many as pay)"},
        {.name = "batch",
         .kind = OOC_OPT_U64,
         .out = &r.batch,
         .min = 1,
         .max = MAX_BATCH,
         .value = "N",
         .help = "columns that one sweep over A serves (default 32)"},
        {.name = "repeat",
         .kind = OOC_OPT_U64,
         .out = &r.repeat,
         .min = 1,
         .max = MAX_REPEAT,
         .value = "N",
         .help = "compute N times, for measuring (default 1); --json lists the times"},
        {0}};
    ooc_cli cli = {.prog = "tile-apply",
                   .usage = "[options] FILE.tiles IN.npy OUT.npy",
                   .about =
                       "Write Y = A*X, or G = transpose(A)*R, for a matrix A that streams from a\n"
                       "tile store. IN.npy is (N,) or (N, B), transposed (M,) or (M, B); OUT.npy\n"
                       "gets the type of IN.npy: f32 or f64; integers are taken as f32.\n"
                       "NaN and infinity are computed with as they are.\n",
                   .examples = "  tile-apply ct.tiles image.npy measured.npy\n"
                               "  tile-apply ct.tiles --transpose measured.npy image.npy\n"
                               "  tile-apply ct.tiles --samples images.npy measured.npy\n",
                   .opts = opts,
                   .min_args = 3,
                   .max_args = 3};
    static work w;
    ooc_err err = {0};
    ooc_status st;
    int code;

    if (!ooc_cli_parse(&cli, argc, argv, &code))
        return code;
    r.store = cli.args[0];
    r.in_path = cli.args[1];
    r.out_path = cli.args[2];
    w.in.fd = -1;
    st = run(&w, &r, &cli, &err);
    if (!st)
        print_result(&w, &r, &cli);
    finish(&w);
    return st ? ooc_cli_fail(&cli, &err) : ooc_cli_finish(&cli, 0);
}
