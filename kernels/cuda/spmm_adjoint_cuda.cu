/* The adjoint product without atomics: a block owns a range of columns of one panel. */
#include "kernels/cuda/dispatch_cuda.h"
#include "kernels/cuda/segments_cuda.h"
#include "kernels/cuda/spmm_cuda.h"

namespace
{
const uint32_t n_warps = 8;
const uint32_t no_column = ~0u;
/* Plain sums of more terms than this could miss the error bound of a column (DESIGN section 9). */
const uint32_t flush_segments = 512;

/* A strip of BW columns of R and G; `own` columns of the panel from column `first` on belong to
 * this warp alone, as sums in shared memory: acc[column * BW + b]. Tiles of short segments or pairs
 * (EXACT) keep what each addition loses in a second array behind `lost`; others add their sums to G
 * every flush_segments segments. Both keep columns of any length within the bound. */
template <class T, class VALUE, int BW, bool EXACT> struct column_warp {
    const ooc_tile_view &t;
    const T *R;
    uint64_t ldr;
    T *acc, *G; /* of column `first` */
    uint64_t ldg;
    uint32_t first, own, end, lane, slot, b, lost;
    bool live;

    __device__ __forceinline__ void put(uint32_t column, T v)
    {
        T *at = acc + column * BW + b % BW;

        if constexpr (EXACT) {
            T old = *at, sum = old + v, took = sum - old;

            at[lost] += (old - (sum - took)) + (v - took);
            *at = sum;
        } else {
            *at += v;
        }
    }

    /* `end` of the columns are inside panel and matrix. */
    __device__ __forceinline__ void clear()
    {
        for (uint32_t c = slot; c < own; c += 32 / BW) {
            acc[c * BW + b % BW] = T(0);
            if constexpr (EXACT)
                acc[c * BW + b % BW + lost] = T(0);
        }
        __syncwarp();
    }

    __device__ __forceinline__ void add_to_G()
    {
        __syncwarp();
        for (uint32_t c = slot; c < end; c += 32 / BW) {
            T sum = acc[c * BW + b % BW];

            if constexpr (EXACT)
                sum += acc[c * BW + b % BW + lost];
            if (live)
                G[c * ldg + b] += sum;
        }
    }

    __device__ __forceinline__ uint32_t my_column(uint32_t e, uint32_t n) const
    {
        return lane < n ? __ldg(t.col + e + lane) - first : no_column;
    }

    __device__ __forceinline__ T weight(uint32_t row) const
    {
        return live ? __ldg(R + row * ldr + b) : T(0);
    }

    /* At most 32 entries of one segment from e on: their columns differ and ascend, so those of
     * this warp are neighbours and no two lanes meet in one sum. `r`: R of the row at this lane's
     * b. */
    __device__ __forceinline__ void add_entries(uint32_t e, uint32_t column, T r)
    {
        bool mine = column < own;

        if constexpr (BW == 1) {
            if (mine)
                put(column, VALUE::template get<T>(t.val, e + lane, t.constant) * r);
        } else {
            uint32_t hits = __ballot_sync(OOC_FULL_WARP, mine);
            uint32_t n = static_cast<uint32_t>(__popc(hits));
            uint32_t at = static_cast<uint32_t>(__ffs(static_cast<int>(hits)) - 1) + slot;
            T a = mine ? VALUE::template get<T>(t.val, e + lane, t.constant) : T(0);

            for (uint32_t k = 0; k < n; k += 32 / BW) {
                int src = static_cast<int>((at + k) % 32);
                uint32_t c = __shfl_sync(OOC_FULL_WARP, column, src);
                T v = __shfl_sync(OOC_FULL_WARP, a, src);

                if (k + slot < n && live)
                    put(c, v * r);
            }
        }
    }

    /* All segments of panel p in order. The next segment's columns and R are asked for before this
     * one's are used. */
    __device__ __forceinline__ void segments(uint32_t p, uint32_t s, uint32_t s1, uint32_t e)
    {
        uint32_t since_flush = 0;

        for (; s < s1; s += 32, since_flush += 32) {
            if (!EXACT && since_flush >= flush_segments) {
                add_to_G();
                clear();
                since_flush = 0;
            }
            uint32_t count = min(32u, s1 - s);
            uint32_t row = lane < count ? __ldg(t.seg_row + s + lane) : 0u;
            uint32_t len = lane < count ? __ldg(t.seg_len + seg_len_index(t, p, s + lane)) : 0u;
            uint32_t n = __shfl_sync(OOC_FULL_WARP, len, 0);
            T r = weight(__shfl_sync(OOC_FULL_WARP, row, 0));
            uint32_t column = my_column(e, n);

            for (uint32_t k = 0; k < count; k++) {
                uint32_t next = k + 1 < count ? k + 1 : k;
                uint32_t n_next = __shfl_sync(OOC_FULL_WARP, len, static_cast<int>(next));
                T r_next = weight(__shfl_sync(OOC_FULL_WARP, row, static_cast<int>(next)));
                uint32_t column_next = k + 1 < count ? my_column(e + n, n_next) : no_column;

                add_entries(e, column, r);
                for (uint32_t j = 32; j < n; j += 32)
                    add_entries(e + j, my_column(e + j, n - j), r);
                /* The next segment may hold the same columns, in other lanes. */
                __syncwarp();
                e += n;
                n = n_next;
                r = r_next;
                column = column_next;
            }
        }
    }

    /* One value a lane; lanes of one column take turns, the lower one first. */
    __device__ __forceinline__ void add_pairs(uint32_t column, bool mine, T v)
    {
        uint32_t key = mine ? column : 0x80000000u | lane; /* columns fit 16 bits */
        uint32_t before = __match_any_sync(OOC_FULL_WARP, key) & ((1u << lane) - 1u);
        int turn = __popc(before);

        for (int k = 0; __any_sync(OOC_FULL_WARP, mine && turn >= k); k++) {
            if (mine && turn == k)
                put(column, v);
            __syncwarp();
        }
    }

    /* Pairs ascend by row; within 32 of them a column can come more than once. */
    __device__ __forceinline__ void pairs(uint32_t s, uint32_t s1, uint32_t e)
    {
        for (; s < s1; s += 32, e += 32) {
            uint32_t n = min(32u, s1 - s), column = my_column(e, n);
            uint32_t row = lane < n ? __ldg(t.seg_row + s + lane) : 0u;
            bool mine = column < own;
            T a = mine ? VALUE::template get<T>(t.val, e + lane, t.constant) : T(0);

            if constexpr (BW == 1) {
                add_pairs(column, mine, mine ? a * weight(row) : T(0));
                continue;
            }
            uint32_t hits = __ballot_sync(OOC_FULL_WARP, mine);
            for (; hits; hits &= hits - 1) {
                int src = __ffs(static_cast<int>(hits)) - 1;
                uint32_t c = __shfl_sync(OOC_FULL_WARP, column, src);
                uint32_t r = __shfl_sync(OOC_FULL_WARP, row, src);
                T v = __shfl_sync(OOC_FULL_WARP, a, src);

                if (slot == 0 && live)
                    put(c, v * weight(r));
            }
        }
    }
};

/* G[c, b] += sum over the entries (r, c, a) of a * R[r, b].   A_tile: n_rows x N, R: n_rows x B.
 * Block: `slice` columns of one panel (blockIdx.x = panel * n_slices + slice number) for a strip of
 * BW columns of R (blockIdx.y); its sums live in shared memory, slice * BW of them. Warp: an eighth
 * of the slice. Each warp reads the columns of all entries of the panel and takes those it owns, so
 * no two warps write one sum and the entries of a column are added in ascending row order, whatever
 * the slices. A panel's entries come from memory once and from the caches 8 * n_slices times; G is
 * read and written once for every flush_segments segments. */
template <class T, class VALUE, int BW, bool EXACT>
__global__ void __launch_bounds__(256, 3)
    spmm_adjoint(ooc_tile_view t, uint32_t n_slices, uint32_t slice, const T *R, uint64_t ldr, T *G,
                 uint64_t ldg, uint64_t n_cols, uint32_t B)
{
    OOC_DYNAMIC_SHARED(T, sums);
    uint32_t p = blockIdx.x / n_slices, own = slice / n_warps;
    uint32_t in_slice = threadIdx.x / 32 * own;
    uint32_t first = blockIdx.x % n_slices * slice + in_slice;
    uint32_t lane = threadIdx.x % 32, b = blockIdx.y * BW + lane % BW;
    uint64_t c0 = static_cast<uint64_t>(t.panel_id[p]) * t.n.panel_columns + first;
    uint32_t i0 = p * t.n.n_chunks, i1 = i0 + t.n.n_chunks;

    /* The last slice may reach behind its panel, the last panel behind the matrix. */
    uint32_t end = first < t.n.panel_columns ? min(own, t.n.panel_columns - first) : 0u;
    if (end && c0 + end > n_cols)
        end = c0 < n_cols ? static_cast<uint32_t>(n_cols - c0) : 0u;
    column_warp<T, VALUE, BW, EXACT> w = {
        t,    R,         ldr, sums + in_slice * BW, G + c0 * ldg, ldg, first, own, end,
        lane, lane / BW, b,   slice * BW,           b < B};

    w.clear();
    if (EXACT && t.len_base[p] == OOC_PAIR_PANEL)
        w.pairs(t.seg_off[i0], t.seg_off[i1], t.ent_off[i0]);
    else
        w.segments(p, t.seg_off[i0], t.seg_off[i1], t.ent_off[i0]);
    w.add_to_G();
}

struct adjoint_call {
    cudaStream_t s;
    const ooc_gpu *gpu;
    const ooc_tile_view *t;
    const void *R;
    uint64_t ldr;
    void *G;
    uint64_t ldg, n_cols;
    uint32_t B;
};

/* As few slices as shared memory allows, but enough blocks for the card; every result is the same.
 */
template <class T, class VALUE, int BW, bool EXACT> cudaError_t launch(const adjoint_call &c)
{
    const uint32_t column_bytes = static_cast<uint32_t>(sizeof(T)) * BW * (EXACT ? 2 : 1);
    uint32_t columns =
        c.n_cols < c.t->n.panel_columns ? static_cast<uint32_t>(c.n_cols) : c.t->n.panel_columns;
    uint32_t strips = ooc_ceil_div(c.B, BW);
    uint32_t fit = c.gpu->shared_bytes / column_bytes / n_warps * n_warps;
    uint32_t n_slices = ooc_ceil_div(columns, fit);
    uint64_t units = static_cast<uint64_t>(c.t->n.n_panels) * strips;

    while (units * n_slices < c.gpu->n_sm && columns / (2 * n_slices) >= 64 * n_warps)
        n_slices *= 2;
    uint32_t slice = ooc_ceil_div(ooc_ceil_div(columns, n_slices), n_warps) * n_warps;
    n_slices = ooc_ceil_div(columns, slice);
    size_t shared = static_cast<size_t>(column_bytes) * slice;
    if (shared > 48 * 1024) {
        cudaError_t e = cudaFuncSetAttribute(spmm_adjoint<T, VALUE, BW, EXACT>,
                                             cudaFuncAttributeMaxDynamicSharedMemorySize,
                                             static_cast<int>(c.gpu->shared_bytes));

        if (e != cudaSuccess)
            return e;
    }
    return OOC_LAUNCH((spmm_adjoint<T, VALUE, BW, EXACT>), dim3(c.t->n.n_panels * n_slices, strips),
                      n_warps * 32, shared, c.s, *c.t, n_slices, slice, static_cast<const T *>(c.R),
                      c.ldr, static_cast<T *>(c.G), c.ldg, c.n_cols, c.B);
}

/* Short segments: a flush would cost more than the segments between two of them. Decided by the
 * tile alone, so that the bits don't depend on the card. */
template <class T, class VALUE, int BW> cudaError_t launch(const adjoint_call &c)
{
    const ooc_tile_counts &n = c.t->n;

    if (n.n_lens < n.n_segments || n.n_entries / 16 < n.n_segments)
        return launch<T, VALUE, BW, true>(c);
    return launch<T, VALUE, BW, false>(c);
}

template <class T, class VALUE> cudaError_t launch_width(const adjoint_call &c)
{
    if (c.B == 1)
        return launch<T, VALUE, 1>(c);
    if (c.B == 2)
        return launch<T, VALUE, 2>(c);
    if (c.B <= 4)
        return launch<T, VALUE, 4>(c);
    return launch<T, VALUE, 8>(c);
}
} // namespace

cudaError_t ooc_spmm_adjoint_cuda(cudaStream_t s, const ooc_gpu *gpu, const ooc_tile_view *t,
                                  const void *R, uint64_t ldr, void *G, uint64_t ldg,
                                  uint64_t n_cols, uint32_t B, ooc_dtype dense)
{
    adjoint_call c = {s, gpu, t, R, ldr, G, ldg, n_cols, B};

    if (t->n.n_panels == 0)
        return cudaSuccess;
    return ooc_by_dense(dense, [&](auto d) {
        return ooc_by_value(t->n.vtype,
                            [&](auto v) { return launch_width<decltype(d), decltype(v)>(c); });
    });
}
