#include "engine_runs.h"
#include "cuda_runtime.h"
#include "sim_control.h"
#include "src/streamtrain.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <string>

extern "C" {
#include "base/parallel.h"
#include "tests/unit/store_cases.h"
}

/* 240 x 200, 1,400 entries, 12 tiles in 2 slots. */
const engine_run engine_runs[] = {
    {"streaming", ON_HOST, false, 100000, false, true, false, false, 2, 2, true},
    {"streaming, page-locked arrays", ON_PINNED_HOST, false, 100000, false, false, false, false, 2,
     2, true},
    {"streaming, two passes, strips", ON_HOST, false, 120000, false, false, true, false, 3, 2,
     false},
    {"resident", ON_PINNED_HOST, false, 400000, true, true, false, false, 2, 2, false},
    {"resident in part, f64", ON_HOST, false, 75000, true, false, false, true, 2, 2, false},
    {"arrays on A's device", ON_MATRIX_DEVICE, false, 100000, false, true, false, false, 3, 3,
     true},
    {"two devices", ON_OTHER_DEVICE, false, 100000, false, false, false, false, 2, 2, true},
    {"two devices without peer access", ON_OTHER_DEVICE, true, 100000, true, true, true, false, 2,
     2, false},
};
const int n_engine_runs = sizeof engine_runs / sizeof engine_runs[0];

static const uint64_t n_rows = 240, n_cols = 200;
static const uint32_t tile_rows = 20;
static case_matrix matrix; /* f32 values */
static std::string folder;

static std::string path_of(const engine_run &r)
{
    return folder + (r.raw ? "/raw.tiles" : "/zstd.tiles");
}

static double value_at(uint64_t i, unsigned which)
{
    uint64_t state = i * 7919 + which * 104729 + 1;

    case_random(&state);
    return static_cast<double>(
        static_cast<float>(static_cast<double>(case_random(&state) >> 40) / (1 << 23) - 1));
}

void engine_runs_find(const char *dir)
{
    folder = dir;
    matrix = case_make(CASE_RANDOM, n_rows, n_cols, 6, OOC_F32, 11);
    for (uint64_t e = 0; e < matrix.off[n_rows] - matrix.off[0]; e++) {
        float a = static_cast<float>(value_at(e, 99));

        memcpy(matrix.val + 4 * e, &a, 4);
    }
}

bool engine_runs_prepare(const char *dir)
{
    ooc_pool *pool = ooc_pool_new(1);
    ooc_err err = {};
    bool good;

    engine_runs_find(dir);
    good = pool && !case_write(&matrix, (folder + "/raw.tiles").c_str(), 128, OOC_CODEC_RAW,
                               tile_rows, pool, &err);
    good = good && !case_write(&matrix, (folder + "/zstd.tiles").c_str(), 128, OOC_CODEC_ZSTD,
                               tile_rows, pool, &err);
    ooc_pool_free(pool);
    if (!good)
        fprintf(stderr, "stores: %s\n", err.text);
    return good;
}

/* ---- the callers' arrays ---- */

/* A chosen fault can hit the caller's own calls too: the run then says so and proves nothing. */
static bool own_call_failed;

static void own_call(cudaError_t e)
{
    own_call_failed = own_call_failed || e != cudaSuccess;
}

/* Of the caller: filled with values (or NaN), on the host or on a device. Contents of device arrays
 * arrive on a stream of the caller's, which may not have run when the engine is called. */
class user_array
{
    std::vector<double> wide;
    std::vector<float> narrow;
    void *device_at = nullptr;
    cudaStream_t stream = nullptr;
    bool f64, pinned;
    int device;

  public:
    ooc_array a = {};

    user_array(uint64_t rows, uint32_t B, const engine_run &r, unsigned which, bool input)
        : f64(r.f64), pinned(r.where != ON_HOST), device(device_of(r))
    {
        for (uint64_t i = 0; i < rows * B; i++)
            wide.push_back(input ? value_at(i, which) : NAN);
        narrow.assign(wide.begin(), wide.end());
        a.dtype = f64 ? OOC_F64 : OOC_F32;
        a.device = device;
        a.data = host();
        if (pinned)
            own_call(cudaHostRegister(host(), bytes(), cudaHostRegisterDefault));
        if (device == OOC_HOST)
            return;
        own_call(cudaSetDevice(device));
        own_call(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        own_call(cudaMalloc(&device_at, bytes()));
        own_call(cudaMemcpyAsync(device_at, host(), bytes(), cudaMemcpyHostToDevice, stream));
        own_call(cudaSetDevice(0));
        a.data = device_at;
        a.stream = stream;
    }
    user_array(const user_array &) = delete;
    ~user_array()
    {
        if (stream)
            (void)cudaStreamDestroy(stream);
        (void)cudaFree(device_at);
        if (pinned)
            (void)cudaHostUnregister(host());
    }
    static int device_of(const engine_run &r)
    {
        switch (r.where) {
        case ON_MATRIX_DEVICE:
        case ON_OTHER_DEVICE:
            return 0; /* A is on 0 or on 1 */
        default:
            return OOC_HOST;
        }
    }
    static int A_device(const engine_run &r)
    {
        return r.where == ON_OTHER_DEVICE ? 1 : 0;
    }
    void *host()
    {
        return f64 ? static_cast<void *>(wide.data()) : narrow.data();
    }
    uint64_t bytes() const
    {
        return wide.size() * (f64 ? 8 : 4);
    }
    /* As they are when the engine's call has returned. */
    void collect(std::vector<double> *out)
    {
        if (device_at)
            cudasim_peek(host(), device_at, bytes());
        for (uint64_t i = 0; i < wide.size(); i++)
            out->push_back(f64 ? wide[i] : static_cast<double>(narrow[i]));
    }
};

/* ---- the work ---- */

/* Stops the first call behind its fifth tile. */
struct stopper {
    ooc_matrix *m;
    bool armed;
};

static void maybe_stop(void *ctx, uint64_t done, uint64_t)
{
    stopper *s = static_cast<stopper *>(ctx);

    if (s->armed && done == 5)
        ooc_matrix_interrupt(s->m);
}

static ooc_status stopped_step(ooc_matrix *m, const engine_run &r, ooc_err *err)
{
    user_array X(n_cols, r.B, r, 31, true), T(n_rows, r.B, r, 32, true);
    user_array Y(n_rows, r.B, r, 0, false), G(n_cols, r.B, r, 0, false);
    double loss;
    ooc_status st = ooc_matrix_step(m, r.B, &X.a, &T.a, nullptr, &Y.a, &G.a, &loss, err);

    return st == OOC_E_INTERRUPTED ? OOC_OK : st ? st : OOC_E_ARG;
}

static ooc_status work(ooc_matrix *m, const engine_run &r, engine_result *out)
{
    ooc_status st = OOC_OK;

    for (unsigned step = 0; step < 2 && !st; step++) {
        user_array X(n_cols, r.B, r, 1 + step, true), T(n_rows, r.B, r, 5 + step, true);
        user_array Y(n_rows, r.B, r, 0, false), G(n_cols, r.B, r, 0, false);
        ooc_loss_opts l = {sizeof l, step ? OOC_LOSS_HUBER : OOC_LOSS_MSE, nullptr, false};
        double loss = NAN;

        st = ooc_matrix_step(m, r.B, &X.a, &T.a, &l, step ? nullptr : &Y.a, &G.a, &loss, &out->err);
        out->values.push_back(loss);
        G.collect(&out->values);
        if (!step)
            Y.collect(&out->values);
    }
    if (!st) {
        user_array X(n_cols, r.B, r, 20, true), Y(n_rows, r.B, r, 0, false);

        st = ooc_matrix_forward(m, r.B, &X.a, &Y.a, &out->err);
        Y.collect(&out->values);
    }
    if (!st) {
        user_array R(n_rows, r.B, r, 21, true), G(n_cols, r.B, r, 0, false);

        st = ooc_matrix_adjoint(m, r.B, &R.a, &G.a, &out->err);
        G.collect(&out->values);
    }
    return st;
}

engine_result engine_run_once(const engine_run &r)
{
    engine_result out = {};
    ooc_matrix_opts o = {};
    ooc_matrix_stats stats = {};
    ooc_matrix_shape shape = {};
    ooc_matrix *m;
    stopper stop = {nullptr, false};
    int device = user_array::A_device(r);

    o.progress = maybe_stop;
    o.progress_ctx = &stop;
    o.size = sizeof o;
    stats.size = sizeof stats;
    shape.size = sizeof shape;
    o.device = device ? "cuda:1" : "cuda:0";
    o.vram_budget = r.vram;
    o.ram_budget = r.resident ? 122880 : 400000; /* less than all tiles, and so some stream */
    o.max_batch = r.max_batch;
    o.n_slots = 2;
    o.no_resident = !r.resident;
    o.n_threads = 1;
    o.dense = r.f64 ? OOC_F64 : OOC_F32;
    o.pass = r.two ? OOC_PASS_TWO : OOC_PASS_FUSED;
    o.io = OOC_IO_PREAD;
    o.arrays_on_device = r.where == ON_MATRIX_DEVICE;
    out.st = ooc_matrix_open(&m, path_of(r).c_str(), &o, &out.err);
    if (!out.st) {
        uint64_t theirs = cudasim_used_bytes(device);

        stop.m = m;
        stop.armed = r.interrupt;
        if (r.interrupt)
            out.st = stopped_step(m, r, &out.err);
        stop.armed = false;
        if (!out.st)
            out.st = work(m, r, &out);
        ooc_matrix_get_stats(m, &stats);
        ooc_matrix_get_shape(m, &shape);
        out.budget = theirs;
    }
    ooc_matrix_close(m);
    if (own_call_failed)
        out.st = ooc_fail(&out.err, OOC_E_DEVICE, "cuda: a call of the test's own arrays failed");
    out.peak = cudasim_peak_bytes(device);
    out.n_live = cudasim_n_live();
    out.tiles_read = stats.tiles_read;
    out.n_tiles = shape.n_tiles;
    return out;
}

/* ---- the oracle ---- */

struct oracle {
    std::vector<double> want, scale, len;
};

static oracle product(bool transpose, const std::vector<double> &in, uint32_t B)
{
    uint64_t n_out = transpose ? n_cols : n_rows;
    oracle o = {std::vector<double>(n_out * B), std::vector<double>(n_out * B),
                std::vector<double>(n_out * B)};

    for (uint64_t row = 0; row < n_rows; row++)
        for (uint64_t e = matrix.off[row] - matrix.off[0]; e < matrix.off[row + 1] - matrix.off[0];
             e++) {
            uint64_t to = transpose ? matrix.col[e] : row, from = transpose ? row : matrix.col[e];
            float a;

            memcpy(&a, matrix.val + 4 * e, 4);
            for (uint32_t b = 0; b < B; b++) {
                double p = static_cast<double>(a) * in[from * B + b];

                o.want[to * B + b] += p;
                o.scale[to * B + b] += fabs(p);
                o.len[to * B + b] += 1;
            }
        }
    return o;
}

static std::vector<double> inputs(uint64_t rows, uint32_t B, unsigned which)
{
    std::vector<double> v(rows * B);

    for (uint64_t i = 0; i < v.size(); i++)
        v[i] = value_at(i, which);
    return v;
}

static double worst_share(const oracle &o, const double *got, double u, double extra)
{
    double worst = 0;

    for (size_t i = 0; i < o.want.size(); i++) {
        double bound = 8 * u * sqrt(o.len[i]) * o.scale[i] * extra, err = fabs(got[i] - o.want[i]);

        if (!(err <= bound * 1e9)) /* also NaN */
            return INFINITY;
        if (err > 0)
            worst = fmax(worst, err / bound);
    }
    return worst;
}

double engine_run_error(const engine_run &r, const std::vector<double> &values)
{
    const double u = r.f64 ? 0x1p-53 : 0x1p-24;
    const double *at = values.data();
    double worst = 0;

    for (unsigned step = 0; step < 2; step++) {
        std::vector<double> x = inputs(n_cols, r.B, 1 + step), t = inputs(n_rows, r.B, 5 + step);
        oracle y = product(false, x, r.B);
        std::vector<double> R(y.want.size());
        double sum = 0, scale = 1.0 / static_cast<double>(R.size());

        for (size_t i = 0; i < R.size(); i++) {
            double slope;

            sum += ooc_loss_entry(step ? OOC_LOSS_HUBER : OOC_LOSS_MSE, y.want[i], t[i], &slope);
            R[i] = slope * scale;
        }
        worst = fmax(worst, fabs(*at++ - sum * scale) / (1e-5 * sum * scale));
        /* R itself carries the rounding of Y: 1e-3 of the scale is generous for f32 and tells any
         * wrong entry. */
        worst = fmax(worst, worst_share(product(true, R, r.B), at, u, 50));
        at += n_cols * r.B;
        if (!step) {
            worst = fmax(worst, worst_share(y, at, u, 1));
            at += n_rows * r.B;
        }
    }
    worst = fmax(worst, worst_share(product(false, inputs(n_cols, r.B, 20), r.B), at, u, 1));
    at += n_rows * r.B;
    return fmax(worst, worst_share(product(true, inputs(n_rows, r.B, 21), r.B), at, u, 1));
}
