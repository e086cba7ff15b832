/* The adjoint product with atomic additions: more parallel, but its last bits vary. */
#include "kernels/cuda/dispatch_cuda.h"
#include "kernels/cuda/segments_cuda.h"
#include "kernels/cuda/spmm_cuda.h"

namespace
{
const uint32_t block_threads = 256;

template <class T, class VALUE, int BW> struct scatter_warp {
    const ooc_tile_view &t;
    const T *R;
    uint64_t ldr;
    T *G;
    uint64_t ldg;
    uint32_t b, slot;
    bool live;

    /* n entries of one row, from e on. */
    __device__ __forceinline__ void add(uint32_t row, uint32_t e, uint32_t n) const
    {
        if (!live)
            return;
        T r = __ldg(R + row * ldr + b);
        for (uint32_t j = slot; j < n; j += 32 / BW)
            atomicAdd(G + __ldg(t.col + e + j) * ldg + b,
                      VALUE::template get<T>(t.val, e + j, t.constant) * r);
    }
};

/* G[c, b] += sum over the entries (r, c, a) of a * R[r, b]. A block takes one run, its warps 32
 * segments at a time; blockIdx.y is a strip of BW columns of R. */
template <class T, class VALUE, int BW>
__global__ void __launch_bounds__(256, 3)
    spmm_adjoint_atomic(ooc_tile_view t, const uint32_t *table, const T *R, uint64_t ldr, T *G,
                        uint64_t ldg, uint32_t B)
{
    uint32_t i = blockIdx.x, p = i / t.n.n_chunks, lane = threadIdx.x % 32;
    uint32_t b = blockIdx.y * BW + lane % BW;
    uint32_t s0 = t.seg_off[i], s1 = t.seg_off[i + 1];
    T *G0 = G + static_cast<uint64_t>(t.panel_id[p]) * t.n.panel_columns * ldg;
    scatter_warp<T, VALUE, BW> w = {t, R, ldr, G0, ldg, b, lane / BW, b < B};

    if (t.len_base[p] == OOC_PAIR_PANEL) {
        for (uint32_t s = s0 + threadIdx.x / BW; s < s1; s += blockDim.x / BW)
            if (w.live)
                atomicAdd(G0 + __ldg(t.col + t.ent_off[i] + (s - s0)) * ldg + b,
                          VALUE::template get<T>(t.val, t.ent_off[i] + (s - s0), t.constant) *
                              __ldg(R + __ldg(t.seg_row + s) * ldr + b));
        return;
    }
    for (uint32_t s = s0 + threadIdx.x / 32 * 32; s < s1; s += blockDim.x) {
        uint32_t count = min(32u, s1 - s), e = table[seg_table_at(t, p, i) + (s - s0) / 32];
        uint32_t row = lane < count ? __ldg(t.seg_row + s + lane) : 0u;
        uint32_t len = lane < count ? __ldg(t.seg_len + seg_len_index(t, p, s + lane)) : 0u;

        for (uint32_t k = 0; k < count; k++) {
            uint32_t n = __shfl_sync(OOC_FULL_WARP, len, static_cast<int>(k));

            w.add(__shfl_sync(OOC_FULL_WARP, row, static_cast<int>(k)), e, n);
            e += n;
        }
    }
}
} // namespace

cudaError_t ooc_spmm_adjoint_atomic_cuda(cudaStream_t s, const ooc_tile_view *t,
                                         const uint32_t *table, const void *R, uint64_t ldr,
                                         void *G, uint64_t ldg, uint32_t B, ooc_dtype dense)
{
    uint32_t n_runs = t->n.n_panels * t->n.n_chunks;

    if (n_runs == 0)
        return cudaSuccess;
    return ooc_by_dense(dense, [&](auto d) {
        return ooc_by_value(t->n.vtype, [&](auto v) {
            using T = decltype(d);
            using VALUE = decltype(v);
            const T *r = static_cast<const T *>(R);
            T *g = static_cast<T *>(G);

            return B == 1 ? OOC_LAUNCH((spmm_adjoint_atomic<T, VALUE, 1>), n_runs, block_threads, 0,
                                       s, *t, table, r, ldr, g, ldg, B)
                          : OOC_LAUNCH((spmm_adjoint_atomic<T, VALUE, 8>),
                                       dim3(n_runs, ooc_ceil_div(B, 8)), block_threads, 0, s, *t,
                                       table, r, ldr, g, ldg, B);
        });
    });
}
