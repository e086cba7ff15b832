/* segments_cuda.h - finding segments and entries of a tile, for kernels. */
#ifndef OOC_KERNELS_CUDA_SEGMENTS_CUDA_H
#define OOC_KERNELS_CUDA_SEGMENTS_CUDA_H

#include "kernels/cuda/launch.h"
#include "kernels/tile_view.h"

#define OOC_FULL_WARP 0xffffffffu

/* Where the offsets of run i (= p * n_chunks + c) begin in the table: runs never overlap, because a
 * run of n lengths takes at most n / 32 + 1 items. */
static __device__ __forceinline__ uint32_t seg_table_at(const ooc_tile_view &t, uint32_t p,
                                                        uint32_t i)
{
    return (t.len_base[p] + t.seg_off[i] - t.seg_off[p * t.n.n_chunks]) / 32 + i;
}

/* The first segment of [lo, hi) whose row is at least `row`. */
static __device__ __forceinline__ uint32_t seg_lower_bound(const ooc_tile_view &t, uint32_t lo,
                                                           uint32_t hi, uint32_t row)
{
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;

        if (__ldg(t.seg_row + mid) < row)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Index of the length of segment s of panel p. */
static __device__ __forceinline__ uint32_t seg_len_index(const ooc_tile_view &t, uint32_t p,
                                                         uint32_t s)
{
    return t.len_base[p] + s - t.seg_off[p * t.n.n_chunks];
}

/* First entry of segment s, which belongs to run i of segment panel p. A whole warp calls it. */
static __device__ __forceinline__ uint32_t seg_entry(const ooc_tile_view &t, const uint32_t *table,
                                                     uint32_t p, uint32_t i, uint32_t s)
{
    uint32_t lane = threadIdx.x % 32, k = s - t.seg_off[i];
    uint32_t in_group = k % 32;
    uint32_t first = seg_len_index(t, p, s - in_group);
    uint32_t len = lane < in_group ? __ldg(t.seg_len + first + lane) : 0u;

    return table[seg_table_at(t, p, i) + k / 32] + __reduce_add_sync(OOC_FULL_WARP, len);
}

#endif
