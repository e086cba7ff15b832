/* spmm_cuda.h - products with one tile on a GPU: launches on a stream, nothing else.
 * Letters and layout: kernels/tile_view.h; all addresses are device addresses of the stream's
 * device. Tile in kernel form only; no transposed copy, nothing is expanded.
 *
 * Every call returns the error of its launches. Sums are made in a fixed order that depends on the
 * tile alone: not on the card, not on how work was split, not on time. The atomic adjoint is the
 * one exception. Registers, shared memory and expected rates: docs/cuda-kernels.md. */
#ifndef OOC_KERNELS_CUDA_SPMM_CUDA_H
#define OOC_KERNELS_CUDA_SPMM_CUDA_H

#include "kernels/cuda/launch.h"
#include "kernels/tile_view.h"

/* What launches need to know of the card. */
typedef struct {
    uint32_t n_sm;
    uint32_t shared_bytes; /* of one block at most (with opt-in) */
} ooc_gpu;

/* The table of segment offsets of a tile: what the forward product and the atomic adjoint need to
 * find an entry without adding up all lengths before it. One number for 32 segments. */
static inline uint64_t ooc_seg_table_items(uint32_t n_lens, uint64_t n_runs)
{
    return (uint64_t)n_lens / 32 + n_runs;
}
/* Items at most for any tile of `kernel_bytes` bytes. */
uint64_t ooc_seg_table_bound(uint64_t kernel_bytes, uint64_t n_runs);
cudaError_t ooc_seg_table_cuda(cudaStream_t s, const ooc_tile_view *t, uint32_t *table);

/* Y = A_tile * X. Overwrites Y (n_rows x B). `table`: as filled by ooc_seg_table_cuda. */
cudaError_t ooc_spmm_forward_cuda(cudaStream_t s, const ooc_tile_view *t, const uint32_t *table,
                                  const void *X, uint64_t ldx, void *Y, uint64_t ldy, uint32_t B,
                                  ooc_dtype dense);

/* G += transpose(A_tile) * R, entries of a column in ascending row order. `n_cols`: rows of G. */
cudaError_t ooc_spmm_adjoint_cuda(cudaStream_t s, const ooc_gpu *gpu, const ooc_tile_view *t,
                                  const void *R, uint64_t ldr, void *G, uint64_t ldg,
                                  uint64_t n_cols, uint32_t B, ooc_dtype dense);
/* The same by atomic additions: the order, and so the last bits, change from run to run. */
cudaError_t ooc_spmm_adjoint_atomic_cuda(cudaStream_t s, const ooc_tile_view *t,
                                         const uint32_t *table, const void *R, uint64_t ldr,
                                         void *G, uint64_t ldg, uint32_t B, ooc_dtype dense);

#if defined(OOC_CUDASIM)
/* Kernels take the view by value; the stand-in checks the addresses in it. */
template <> struct sim_arg<ooc_tile_view> {
    static void check(const ooc_tile_view &t, cudaStream_t s)
    {
        sim_check_pointer(t.chunk_row, s);
        sim_check_pointer(t.val, s);
    }
};
#endif
#endif
