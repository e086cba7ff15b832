/* The forward product: a warp owns four rows of the tile and walks through all panels. */
#include "kernels/cuda/dispatch_cuda.h"
#include "kernels/cuda/segments_cuda.h"
#include "kernels/cuda/spmm_cuda.h"

namespace
{
const uint32_t warp_rows = 4;
const uint32_t block_threads = 256;

template <class T, int VW> struct lane_vec {
    T v[VW];
};

/* VW consecutive elements; the address is a multiple of their size where VW > 1. */
template <class T, int VW> __device__ __forceinline__ lane_vec<T, VW> load_vec(const T *p)
{
    lane_vec<T, VW> r;

    if constexpr (VW == 4) {
        float4 q = __ldg(reinterpret_cast<const float4 *>(p));

        r.v[0] = q.x, r.v[1] = q.y, r.v[2] = q.z, r.v[3] = q.w;
    } else if constexpr (VW == 2) {
        double2 q = __ldg(reinterpret_cast<const double2 *>(p));

        r.v[0] = q.x, r.v[1] = q.y;
    } else {
        r.v[0] = __ldg(p);
    }
    return r;
}

/* What a lane of a warp works on: BW lanes side by side take BW * VW columns of X, so that 32 / BW
 * entries are in work at a time. */
template <class T, class VALUE, int BW, int VW> struct row_warp {
    const ooc_tile_view &t;
    const T *X;
    uint64_t ldx;
    uint32_t b, r0, r1, slot;
    bool live; /* b lies inside the batch */
    T acc[warp_rows][VW];

    __device__ __forceinline__ void add_entry(T (&sum)[VW], uint64_t col0, uint32_t e) const
    {
        T a = VALUE::template get<T>(t.val, e, t.constant);
        lane_vec<T, VW> x = load_vec<T, VW>(X + (col0 + __ldg(t.col + e)) * ldx + b);

        for (int v = 0; v < VW; v++)
            sum[v] += a * x.v[v];
    }

    __device__ __forceinline__ void add_to_row(uint32_t row, const T (&sum)[VW])
    {
#pragma unroll
        for (uint32_t q = 0; q < warp_rows; q++)
            if (row == r0 + q)
                for (int v = 0; v < VW; v++)
                    acc[q][v] += sum[v];
    }

    __device__ __forceinline__ void pairs(uint32_t p, uint32_t i, uint64_t col0)
    {
        uint32_t s0 = t.seg_off[i], s1 = t.seg_off[i + 1], e0 = t.ent_off[i];
        uint32_t lo = seg_lower_bound(t, s0, s1, r0), hi = seg_lower_bound(t, lo, s1, r1);

        (void)p;
        for (uint32_t s = lo + slot; s < hi; s += 32 / BW) {
            T sum[VW] = {};

            if (live)
                add_entry(sum, col0, e0 + (s - s0));
            add_to_row(__ldg(t.seg_row + s), sum);
        }
    }

    /* n entries of one row. Sums of 256 are summed again: no lane adds more than that in a chain,
     * so that rows of any length stay within the bound (DESIGN section 9). */
    __device__ __forceinline__ void add_segment(uint32_t row, uint32_t e, uint32_t n, uint64_t col0)
    {
        T all[VW] = {};

        for (uint32_t j0 = 0; j0 < n && live; j0 += 256) {
            uint32_t j1 = min(n, j0 + 256);
            T sum[VW] = {};

#pragma unroll 2
            for (uint32_t j = j0 + slot; j < j1; j += 32 / BW)
                add_entry(sum, col0, e + j);
            for (int v = 0; v < VW; v++)
                all[v] += sum[v];
        }
        add_to_row(row, all);
    }

    __device__ __forceinline__ void segments(const uint32_t *table, uint32_t p, uint32_t i,
                                             uint64_t col0)
    {
        uint32_t s1 = t.seg_off[i + 1], lane = threadIdx.x % 32;
        uint32_t s = seg_lower_bound(t, t.seg_off[i], s1, r0);
        uint32_t count = 32;

        if (s == s1 || __ldg(t.seg_row + s) >= r1)
            return;
        uint32_t e = seg_entry(t, table, p, i, s);
        for (; count == 32; s += 32) {
            uint32_t mine = s + lane;
            uint32_t row = mine < s1 ? __ldg(t.seg_row + mine) : ~0u;
            uint32_t len = row < r1 ? __ldg(t.seg_len + seg_len_index(t, p, mine)) : 0u;

            count = static_cast<uint32_t>(__popc(__ballot_sync(OOC_FULL_WARP, row < r1)));
            for (uint32_t k = 0; k < count; k++) {
                uint32_t n = __shfl_sync(OOC_FULL_WARP, len, static_cast<int>(k));
                uint32_t r = __shfl_sync(OOC_FULL_WARP, row, static_cast<int>(k));

                add_segment(r, e, n, col0);
                e += n;
            }
        }
    }
};

/* Y[r, b] = sum over the entries (r, c, a) of a * X[c, b].   A_tile: n_rows x N, X: N x B.
 * Warp: rows r0 .. r0 + 3, a strip of BW * VW columns of X (blockIdx.y). Lanes add in registers
 * over all panels; one exchange at the end. No shared memory, no atomics, every row is written
 * once. Moves each entry once per strip (2 bytes and its value), 4 bytes a segment, Y once, and X
 * through the L2 cache: B * sizeof(T) an entry. */
template <class T, class VALUE, int BW, int VW>
__global__ void __launch_bounds__(256, 3)
    spmm_forward(ooc_tile_view t, const uint32_t *table, const T *X, uint64_t ldx, T *Y,
                 uint64_t ldy, uint32_t B)
{
    uint32_t lane = threadIdx.x % 32;
    uint32_t r0 = (blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32) * warp_rows;
    uint32_t b = blockIdx.y * (BW * VW) + lane % BW * VW;
    row_warp<T, VALUE, BW, VW> w = {t, X, ldx, b, r0, r0 + warp_rows, lane / BW, b < B, {}};

    if (r0 >= t.n.n_rows)
        return;
    /* Four rows can lie in several chunks. */
    uint32_t lo = 0, hi = t.n.n_chunks;
    while (hi - lo > 1) {
        uint32_t mid = lo + (hi - lo) / 2;

        if (t.chunk_row[mid] <= r0)
            lo = mid;
        else
            hi = mid;
    }
    for (uint32_t c = lo; c < t.n.n_chunks && t.chunk_row[c] < w.r1; c++)
        for (uint32_t p = 0; p < t.n.n_panels; p++) {
            uint64_t col0 = static_cast<uint64_t>(t.panel_id[p]) * t.n.panel_columns;
            uint32_t i = p * t.n.n_chunks + c;

            if (t.len_base[p] == OOC_PAIR_PANEL)
                w.pairs(p, i, col0);
            else
                w.segments(table, p, i, col0);
        }
#pragma unroll
    for (uint32_t q = 0; q < warp_rows; q++)
#pragma unroll
        for (int v = 0; v < VW; v++) {
            T sum = w.acc[q][v];

#pragma unroll
            for (int d = BW; d < 32; d *= 2)
                sum += __shfl_xor_sync(OOC_FULL_WARP, sum, d);
            if (w.slot == 0 && w.live && r0 + q < t.n.n_rows)
                Y[(r0 + q) * ldy + b + static_cast<uint32_t>(v)] = sum;
        }
}

struct forward_call {
    cudaStream_t s;
    const ooc_tile_view *t;
    const uint32_t *table;
    const void *X;
    uint64_t ldx;
    void *Y;
    uint64_t ldy;
    uint32_t B;
};

template <class T, class VALUE, int BW, int VW> cudaError_t launch(const forward_call &c)
{
    dim3 grid(ooc_ceil_div(ooc_ceil_div(c.t->n.n_rows, warp_rows), block_threads / 32),
              ooc_ceil_div(c.B, BW * VW));

    return OOC_LAUNCH((spmm_forward<T, VALUE, BW, VW>), grid, block_threads, 0, c.s, *c.t, c.table,
                      static_cast<const T *>(c.X), c.ldx, static_cast<T *>(c.Y), c.ldy, c.B);
}

/* Rows of X that are whole vectors of 16 bytes are read as such. */
template <class T, class VALUE> cudaError_t launch_width(const forward_call &c)
{
    constexpr int VW = 16 / sizeof(T);
    bool whole = c.B % VW == 0 && c.ldx % VW == 0 && reinterpret_cast<uintptr_t>(c.X) % 16 == 0;

    if (whole && c.B > 4 * VW)
        return launch<T, VALUE, 8, VW>(c);
    if (whole && c.B > VW)
        return launch<T, VALUE, 2, VW>(c);
    if (c.B == 1)
        return launch<T, VALUE, 1, 1>(c);
    if (c.B == 2)
        return launch<T, VALUE, 2, 1>(c);
    if (c.B <= 4)
        return launch<T, VALUE, 4, 1>(c);
    if (c.B <= 8)
        return launch<T, VALUE, 8, 1>(c);
    return launch<T, VALUE, 32, 1>(c);
}

/* One warp a run: the entry at which every 32nd segment of the run begins. */
__global__ void __launch_bounds__(256, 3) fill_seg_table(ooc_tile_view t, uint32_t *table)
{
    uint32_t lane = threadIdx.x % 32;
    uint32_t i = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;

    if (i >= t.n.n_panels * t.n.n_chunks || t.len_base[i / t.n.n_chunks] == OOC_PAIR_PANEL)
        return;
    uint32_t p = i / t.n.n_chunks, n = t.seg_off[i + 1] - t.seg_off[i];
    uint32_t first = seg_len_index(t, p, t.seg_off[i]), e = t.ent_off[i];
    uint32_t *out = table + seg_table_at(t, p, i);
    for (uint32_t k = 0; k < n; k += 32) {
        uint32_t len = k + lane < n ? __ldg(t.seg_len + first + k + lane) : 0u;

        if (lane == 0)
            out[k / 32] = e;
        e += __reduce_add_sync(OOC_FULL_WARP, len);
    }
}
} // namespace

uint64_t ooc_seg_table_bound(uint64_t kernel_bytes, uint64_t n_runs)
{
    /* A segment takes at least 6 bytes, a run 8. */
    return kernel_bytes / (6 * 32) + (n_runs < kernel_bytes / 8 ? n_runs : kernel_bytes / 8) + 1;
}

cudaError_t ooc_seg_table_cuda(cudaStream_t s, const ooc_tile_view *t, uint32_t *table)
{
    uint64_t n_runs = static_cast<uint64_t>(t->n.n_panels) * t->n.n_chunks;

    if (t->n.n_lens == 0)
        return cudaSuccess;
    return OOC_LAUNCH(fill_seg_table, ooc_ceil_div(n_runs, block_threads / 32), block_threads, 0, s,
                      *t, table);
}

cudaError_t ooc_spmm_forward_cuda(cudaStream_t s, const ooc_tile_view *t, const uint32_t *table,
                                  const void *X, uint64_t ldx, void *Y, uint64_t ldy, uint32_t B,
                                  ooc_dtype dense)
{
    forward_call c = {s, t, table, X, ldx, Y, ldy, B};

    return ooc_by_dense(dense, [&](auto d) {
        return ooc_by_value(t->n.vtype,
                            [&](auto v) { return launch_width<decltype(d), decltype(v)>(c); });
    });
}
