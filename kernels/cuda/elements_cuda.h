/* elements_cuda.h - kernels of one thread an element, and sums over a block. */
#ifndef OOC_KERNELS_CUDA_ELEMENTS_CUDA_H
#define OOC_KERNELS_CUDA_ELEMENTS_CUDA_H

#include "kernels/cuda/launch.h"

#include <stdint.h>

#define OOC_ELEMENT_THREADS 256u
#define OOC_ELEMENT_BLOCKS  65536u /* more elements are taken in steps of the grid */

/* for (each element k of n that is this thread's) */
#define OOC_EACH_ELEMENT(k, n)                                                                     \
    for (uint64_t k = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x; k < (n);       \
         k += static_cast<uint64_t>(gridDim.x) * blockDim.x)

static inline uint32_t ooc_element_blocks(uint64_t n)
{
    uint64_t blocks = (n + OOC_ELEMENT_THREADS - 1) / OOC_ELEMENT_THREADS;

    return static_cast<uint32_t>(blocks < OOC_ELEMENT_BLOCKS ? blocks : OOC_ELEMENT_BLOCKS);
}

#define OOC_LAUNCH_ELEMENTS(kernel, n, s, ...)                                                     \
    ((n) == 0 ? cudaSuccess                                                                        \
              : OOC_LAUNCH(kernel, ooc_element_blocks(n), OOC_ELEMENT_THREADS, 0, s, __VA_ARGS__))

/* The sum of what 256 threads bring, in thread 0: lanes in pairs, then warps in order. */
static __device__ __forceinline__ double ooc_block_sum(double v)
{
    OOC_SHARED(double, part, 8);

    for (int d = 16; d; d /= 2)
        v += __shfl_xor_sync(0xffffffffu, v, d);
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = v;
    __syncthreads();
    v = 0;
    for (int w = 0; w < 8 && threadIdx.x == 0; w++)
        v += part[w];
    return v;
}
#endif
