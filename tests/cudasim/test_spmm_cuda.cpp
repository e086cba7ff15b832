/* The kernels of kernels/cuda on the stand-in, against a naive long double oracle: every value
 * type, dense type and batch width; odd shapes; long columns; the bits on cards of different size.
 */
#include "kernels/cuda/loss_cuda.h"
#include "kernels/cuda/spmm_cuda.h"
#include "sim_control.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <vector>

extern "C" {
#include "tests/support/tile_maker.h"
#include <cmocka.h>
}

#define CHECK(call) assert_int_equal(call, cudaSuccess)

static const ooc_gpu small_gpu = {4, 99 * 1024}, large_gpu = {132, 227 * 1024},
                     tiny_gpu = {1, 8 * 1024};

/* A dense array on the device: `rows` rows of B, ld apart; what lies between is 777. */
struct dense {
    ooc_dtype type;
    uint64_t rows, ld;
    uint32_t B;
    void *at;

    dense(ooc_dtype type_, uint64_t rows_, uint32_t B_, uint64_t ld_)
        : type(type_), rows(rows_), ld(ld_), B(B_)
    {
        CHECK(cudaMalloc(&at, bytes() ? bytes() : 1));
    }
    dense(const dense &) = delete;
    ~dense()
    {
        CHECK(cudaFree(at));
    }
    /* Exactly up to the last element: nothing behind it may be touched. */
    uint64_t items() const
    {
        return rows ? (rows - 1) * ld + B : 0;
    }
    uint64_t bytes() const
    {
        return items() * ooc_dtype_bytes(type);
    }
    void write(const std::vector<double> &v)
    {
        std::vector<double> all(items(), 777);
        std::vector<float> narrow(items());

        for (uint64_t i = 0; i < v.size(); i++)
            all[i / B * ld + i % B] = v[i];
        for (uint64_t i = 0; i < items(); i++)
            narrow[i] = static_cast<float>(all[i]);
        cudasim_poke(at, type == OOC_F64 ? static_cast<void *>(all.data()) : narrow.data(),
                     bytes());
    }
    std::vector<double> read() const
    {
        std::vector<double> all(items()), v(rows * B);
        std::vector<float> narrow(items());

        cudasim_peek(type == OOC_F64 ? static_cast<void *>(all.data()) : narrow.data(), at,
                     bytes());
        for (uint64_t i = 0; i < items() && type == OOC_F32; i++)
            all[i] = static_cast<double>(narrow[i]);
        for (uint64_t i = 0; i < items(); i++)
            if (i % ld >= B)
                assert_true(all[i] == 777);
        for (uint64_t i = 0; i < v.size(); i++)
            v[i] = all[i / B * ld + i % B];
        return v;
    }
};

struct device_tile {
    ooc_tile_view view;
    void *block;
    uint32_t *table;

    explicit device_tile(const tm_tile &t)
    {
        uint64_t bytes = ooc_tile_layout_of(&t.view.n).total;
        uint64_t n_runs = static_cast<uint64_t>(t.view.n.n_panels) * t.view.n.n_chunks;
        uint64_t items = ooc_seg_table_items(t.view.n.n_lens, n_runs);

        assert_true(items <= ooc_seg_table_bound(bytes, n_runs));
        CHECK(cudaMalloc(&block, bytes));
        CHECK(cudaMalloc(reinterpret_cast<void **>(&table), items ? 4 * items : 4));
        cudasim_poke(block, t.block, bytes);
        view = ooc_tile_view_of(&t.view.n, t.view.constant, block);
        CHECK(ooc_seg_table_cuda(nullptr, &view, table));
    }
    device_tile(const device_tile &) = delete;
    ~device_tile()
    {
        CHECK(cudaFree(block));
        CHECK(cudaFree(table));
    }
};

static std::vector<double> random_values(uint64_t n, uint64_t seed, bool integers, ooc_dtype type)
{
    std::vector<double> v(n);

    for (double &x : v) {
        x = tm_random(&seed) * 2 - 1;
        x = integers          ? nearbyint(x * 8) + 0.0
            : type == OOC_F32 ? static_cast<double>(static_cast<float>(x))
                              : x;
    }
    return v;
}

static double compare(const char *what, const tm_matrix &m, bool transpose, ooc_dtype type,
                      uint32_t B, const std::vector<double> &in, const std::vector<double> &start,
                      const std::vector<double> &got)
{
    const double u = type == OOC_F64 ? 0x1p-53 : 0x1p-24;
    std::vector<double> want(start), scale(got.size() + 1);
    std::vector<uint32_t> len(got.size() / B + 1);
    double worst = 0;

    want.push_back(0);
    tm_product(&m, transpose, in.data(), B, B, want.data(), scale.data(), len.data());
    for (size_t i = 0; i < got.size(); i++) {
        double s = scale[i] + fabs(start[i]);
        double bound = 8 * u * sqrt(len[i / B] + 1.0) * s, err = fabs(got[i] - want[i]);

        if (!(err <= bound))
            fail_msg("%s B=%u transpose=%d vtype row %zu of %zu: got %.17g want %.17g bound %g",
                     what, B, transpose, i / B, got.size() / B, got[i], want[i], bound);
        if (bound > 0)
            worst = fmax(worst, err / bound);
    }
    return worst;
}

struct how {
    const char *name;
    uint32_t panel_columns, chunk_rows;
    tm_panels panels;
    bool integers;
};

/* Both products and the atomic adjoint; G starts from what is there. */
static double check_tile(const how &h, const tm_matrix &matrix, ooc_dtype vtype, ooc_dtype type,
                         uint32_t B, uint64_t pad, const ooc_gpu &gpu, std::vector<double> *bits)
{
    tm_matrix m = tm_rows(&matrix, 0, matrix.n_rows);
    double worst;

    tm_round_values(&m, vtype);
    tm_tile t = tm_tile_new(&m, h.panel_columns, h.chunk_rows, vtype, h.panels);
    device_tile dt(t);
    dense X(type, m.n_cols, B, B + pad), Y(type, m.n_rows, B, B + pad);
    dense R(type, m.n_rows, B, B + pad), G(type, m.n_cols, B, B + pad);
    std::vector<double> x = random_values(m.n_cols * B, 1, h.integers, type);
    std::vector<double> r = random_values(m.n_rows * B, 2, h.integers, type);
    std::vector<double> g = random_values(m.n_cols * B, 3, h.integers, type);

    X.write(x);
    R.write(r);
    G.write(g);
    Y.write(std::vector<double>(m.n_rows * B, NAN));
    CHECK(ooc_spmm_forward_cuda(nullptr, &dt.view, dt.table, X.at, X.ld, Y.at, Y.ld, B, type));
    CHECK(
        ooc_spmm_adjoint_cuda(nullptr, &gpu, &dt.view, R.at, R.ld, G.at, G.ld, m.n_cols, B, type));
    CHECK(cudaDeviceSynchronize());
    std::vector<double> zeros(m.n_rows * B), y = Y.read(), got = G.read();
    worst = compare(h.name, m, false, type, B, x, zeros, y);
    worst = fmax(worst, compare(h.name, m, true, type, B, r, g, got));
    if (bits) {
        bits->insert(bits->end(), y.begin(), y.end());
        bits->insert(bits->end(), got.begin(), got.end());
    }
    G.write(g);
    CHECK(
        ooc_spmm_adjoint_atomic_cuda(nullptr, &dt.view, dt.table, R.at, R.ld, G.at, G.ld, B, type));
    CHECK(cudaDeviceSynchronize());
    worst = fmax(worst, compare("atomic", m, true, type, B, r, g, G.read()));
    if (h.integers)
        assert_true(worst == 0);
    tm_tile_free(&t);
    tm_matrix_free(&m);
    return worst;
}

static void start(uint64_t seed)
{
    cudasim_config c = {};

    c.device_bytes = 64u << 20;
    c.seed = seed;
    cudasim_reset(&c);
}

static tm_matrix random_matrix(uint32_t n_rows, uint64_t n_cols, double density, bool integers,
                               uint64_t seed)
{
    tm_matrix m = tm_matrix_new(n_rows, n_cols, static_cast<uint32_t>(n_rows * n_cols));

    for (uint32_t r = 0; r < n_rows; r++) {
        double here = r % 5 == 3 ? 0 : r % 11 == 1 ? 1 : density * 2 * tm_random(&seed);

        for (uint64_t c = 0; c < n_cols; c++) {
            double v = tm_random(&seed) * 2 - 1;

            if (tm_random(&seed) < here)
                tm_add(&m, r, c, integers ? nearbyint(v * 8) + 0.0 : v);
        }
    }
    return m;
}

static const ooc_dtype vtypes[] = {OOC_F32, OOC_F64, OOC_F16, OOC_BF16, OOC_CONST};
static const uint32_t batches[] = {1, 2, 3, 4, 5, 8, 11, 16, 32, 40};

static void all_types_and_batches(void **)
{
    static const how hows[] = {
        {"one panel", 65536, 100, TM_SEGMENTS, false},
        {"segments", 64, 7, TM_SEGMENTS, false},
        {"pairs", 64, 7, TM_PAIRS, false},
        {"mixed", 50, 64, TM_MIXED, false},
        {"integers", 33, 10, TM_MIXED, true},
    };
    double worst = 0;
    uint64_t i = 0;

    for (const how &h : hows)
        for (ooc_dtype vtype : vtypes)
            for (uint32_t B : batches)
                for (ooc_dtype type : {OOC_F32, OOC_F64}) {
                    tm_matrix m = random_matrix(23, 150, 0.15, h.integers, ++i);

                    start(i);
                    worst = fmax(
                        worst, check_tile(h, m, vtype, type, B, i % 3 ? 0 : 3, small_gpu, nullptr));
                    tm_matrix_free(&m);
                    assert_int_equal(cudasim_n_live(), 0);
                }
    print_message("%llu cases, largest error %.3f of the bound\n",
                  static_cast<unsigned long long>(i), worst);
}

static void odd_shapes(void **)
{
    const how one = {"one", 16, 1, TM_SEGMENTS, false},
              tall = {"tall", 65536, 999, TM_SEGMENTS, false},
              wide = {"many panels", 16, 3, TM_MIXED, false};
    tm_matrix empty = tm_matrix_new(5, 9, 0), single = tm_matrix_new(1, 1, 1);
    tm_matrix row = random_matrix(1, 3000, 0.3, false, 3);
    tm_matrix columns = random_matrix(1500, 3, 0.7, false, 4);

    tm_add(&single, 0, 0, 0.5);
    for (uint32_t B : {1u, 4u, 7u, 32u}) {
        start(B);
        check_tile(one, empty, OOC_F32, OOC_F32, B, 0, small_gpu, nullptr);
        check_tile(one, single, OOC_F32, OOC_F32, B, 0, small_gpu, nullptr);
        check_tile(tall, columns, OOC_F32, OOC_F32, B, 0, small_gpu, nullptr);
        check_tile(tall, columns, OOC_F64, OOC_F64, B, 0, small_gpu, nullptr);
        check_tile(wide, row, OOC_F32, OOC_F32, B, 0, small_gpu, nullptr);
        check_tile(wide, row, OOC_CONST, OOC_F64, B, 0, small_gpu, nullptr);
    }
    for (tm_matrix *m : {&empty, &single, &row, &columns})
        tm_matrix_free(m);
}

/* Two full rows of 65,536 columns in one panel: segments of 65,535 and of 1. */
static void longest_segments(void **)
{
    const how h = {"longest segments", 65536, 2, TM_SEGMENTS, false};
    tm_matrix m = tm_matrix_new(2, 65536, 2 * 65536);

    for (uint32_t e = 0; e < 2 * 65536; e++)
        tm_add(&m, e / 65536, e % 65536, 1.0 / (1 + e % 97) - 0.2);
    start(1);
    check_tile(h, m, OOC_F32, OOC_F32, 1, 0, small_gpu, nullptr);
    check_tile(h, m, OOC_F32, OOC_F32, 5, 0, small_gpu, nullptr);
    tm_matrix_free(&m);
}

/* Columns and rows of 20,000 equal and more numbers, which plain f32 sums miss by far. */
static void long_sums(void **)
{
    const uint32_t n = 20000;
    tm_matrix column = tm_matrix_new(n, 2, 2 * n), row = tm_matrix_new(1, 65000, 65000);

    for (uint32_t k = 0; k < n; k++) {
        tm_add(&column, k, 0, static_cast<double>(0.1f));
        if (k % 3)
            tm_add(&column, k, 1, static_cast<double>(0.7f));
    }
    for (uint32_t k = 0; k < 65000; k++)
        tm_add(&row, 0, k, static_cast<double>(0.1f));
    for (tm_panels panels : {TM_SEGMENTS, TM_PAIRS})
        for (uint32_t B : {1u, 8u}) {
            const how h = {"long sums", 65536, 5000, panels, false};
            tm_tile tiles[2] = {tm_tile_new(&column, h.panel_columns, 5000, OOC_F32, panels),
                                tm_tile_new(&row, h.panel_columns, 1, OOC_F32, TM_SEGMENTS)};

            start(0);
            for (int transpose = 0; transpose < 2; transpose++) {
                const tm_matrix &m = transpose ? column : row;
                device_tile dt(tiles[!transpose]);
                uint64_t n_in = transpose ? m.n_rows : m.n_cols;
                uint64_t n_out = transpose ? m.n_cols : m.n_rows;
                dense in(OOC_F32, n_in, B, B), out(OOC_F32, n_out, B, B);
                std::vector<double> ones(n_in * B, 1), zeros(n_out * B);

                in.write(ones);
                out.write(zeros);
                if (transpose)
                    CHECK(ooc_spmm_adjoint_cuda(nullptr, &small_gpu, &dt.view, in.at, B, out.at, B,
                                                m.n_cols, B, OOC_F32));
                else
                    CHECK(ooc_spmm_forward_cuda(nullptr, &dt.view, dt.table, in.at, B, out.at, B, B,
                                                OOC_F32));
                CHECK(cudaDeviceSynchronize());
                compare(h.name, m, transpose, OOC_F32, B, ones, zeros, out.read());
            }
            for (tm_tile &t : tiles)
                tm_tile_free(&t);
        }
    tm_matrix_free(&column);
    tm_matrix_free(&row);
}

/* Dense rows over several flushes, on cards of different size: the same bits. */
static void same_bits_on_every_card(void **)
{
    for (uint32_t B : {1u, 3u, 8u, 20u}) {
        const how h = {"bits", 2048, 50, TM_MIXED, false},
                  d = {"dense", 2048, 300, TM_SEGMENTS, false};
        tm_matrix m = random_matrix(80, 3000, 0.02, false, B),
                  tall = random_matrix(1200, 60, 0.6, false, B);
        std::vector<double> bits[3];
        int k = 0;

        for (const ooc_gpu *gpu : {&small_gpu, &large_gpu, &tiny_gpu}) {
            start(static_cast<uint64_t>(k));
            check_tile(h, m, OOC_F32, OOC_F32, B, 0,
                       gpu->shared_bytes > 99 * 1024 ? small_gpu : *gpu, &bits[k]);
            check_tile(d, tall, OOC_F32, OOC_F32, B, 0,
                       gpu->shared_bytes > 99 * 1024 ? ooc_gpu{132, 99 * 1024} : *gpu, &bits[k]);
            k++;
        }
        assert_true(bits[0] == bits[1]);
        assert_true(bits[0] == bits[2]);
        tm_matrix_free(&m);
        tm_matrix_free(&tall);
    }
}

static void check_loss(ooc_loss_kind kind, ooc_dtype type, uint64_t rows, uint32_t B, int weights)
{
    std::vector<double> y = random_values(rows * B, 5, false, type),
                        t = random_values(rows * B, 6, false, type),
                        w(weights == 2 ? rows * B : rows);
    dense Y(type, rows, B, B + 1), T(type, rows, B, B),
        W(type, rows, weights == 2 ? B : 1, weights == 2 ? B : 1);
    double want = 5, got[2] = {5, 3}, scale = 0.25, total = 3, *sums, *work;

    for (uint64_t i = 0; i < y.size(); i++) {
        y[i] = kind == OOC_LOSS_POISSON ? static_cast<double>(static_cast<float>(fabs(y[i]) + 0.25))
                                        : y[i] * 4;
        if (i % 7 == 0 && kind != OOC_LOSS_POISSON)
            t[i] = y[i];
    }
    for (uint64_t i = 0; i < w.size(); i++)
        w[i] = i % 4 ? 0.5 * static_cast<double>(i % 4) : 0;
    for (uint64_t i = 0; i < t.size(); i++) /* dead entries may hold anything */
        if (weights && w[weights == 2 ? i : i / B] == 0)
            t[i] = NAN;
    CHECK(cudaMalloc(reinterpret_cast<void **>(&sums), sizeof got));
    CHECK(cudaMalloc(reinterpret_cast<void **>(&work), OOC_LOSS_BLOCKS * sizeof(double)));
    cudasim_poke(sums, got, sizeof got);
    Y.write(y);
    T.write(t);
    W.write(w);
    ooc_gpu_loss l = {kind, type, rows, B,    Y.at, T.at,         weights ? W.at : nullptr,
                      Y.at, Y.ld, T.ld, W.ld, Y.ld, weights == 2, scale};
    CHECK(ooc_loss_cuda(nullptr, &l, sums, work));
    CHECK(ooc_weight_sum_cuda(nullptr, W.at, W.ld, rows, W.B, type, sums + 1, work));
    CHECK(cudaDeviceSynchronize());
    cudasim_peek(got, sums, sizeof got);
    std::vector<double> r = Y.read();
    for (uint64_t i = 0; i < y.size(); i++) {
        double weight = weights ? w[weights == 2 ? i : i / B] : 1, slope = 0;
        double loss = weight != 0 ? ooc_loss_entry(kind, y[i], t[i], &slope) : 0;

        want += weight * loss;
        assert_true(fabs(r[i] - scale * weight * slope) <= 2e-7 * fabs(scale * weight * slope));
    }
    for (double x : w)
        total += x;
    assert_true(fabs(got[0] - want) <= 1e-12 * fabs(want) * sqrt(static_cast<double>(rows * B)));
    assert_true(fabs(got[1] - total) <= 1e-12 * total);
    CHECK(cudaFree(sums));
    CHECK(cudaFree(work));
}

static void losses(void **)
{
    for (ooc_loss_kind kind : {OOC_LOSS_MSE, OOC_LOSS_L1, OOC_LOSS_HUBER, OOC_LOSS_POISSON})
        for (int weights = 0; weights < 3; weights++) {
            start(static_cast<uint64_t>(weights));
            check_loss(kind, OOC_F32, 333, 3, weights);
            check_loss(kind, OOC_F64, 1, 1, weights);
        }
    start(1);
    check_loss(OOC_LOSS_MSE, OOC_F32, 70000, 1, 1);
}

int main()
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_types_and_batches),   cmocka_unit_test(odd_shapes),
        cmocka_unit_test(longest_segments),        cmocka_unit_test(long_sums),
        cmocka_unit_test(same_bits_on_every_card), cmocka_unit_test(losses),
    };

    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
