/* launch.h - the few things that are not C++: launching a kernel, shared memory. Every kernel is
 * launched through OOC_LAUNCH and takes shared memory through OOC_SHARED and OOC_DYNAMIC_SHARED, so
 * that the same .cu files compile for a card and for the stand-in in tests/cudasim.
 *
 *     cudaError_t e = OOC_LAUNCH((scale<float>), grid, block, shared_bytes, stream, x, n, 2.0f);
 *     OOC_SHARED(float, acc, 64);             float *acc, 64 of them, for the block
 *     OOC_DYNAMIC_SHARED(float, part);        float *part, shared_bytes in all
 *
 * Blocks have 256 threads and say __launch_bounds__(256, 3): with a free hand ptxas spills
 * registers to get more blocks on a multiprocessor; three are plenty and need none.
 *
 * A launch gives the error of the launch itself; what happens while it runs shows up later. */
#ifndef OOC_KERNELS_CUDA_LAUNCH_H
#define OOC_KERNELS_CUDA_LAUNCH_H

#include <cuda_runtime.h>

#if defined(OOC_CUDASIM)

#define OOC_LAUNCH(kernel, grid, block, shared, stream, ...)                                       \
    sim_launch_kernel(kernel, #kernel, grid, block, shared, stream, __VA_ARGS__)
#define OOC_SHARED(type, name, count)                                                              \
    static const char name##_tag_ = 0;                                                             \
    type *const name = static_cast<type *>(sim_static_shared(&name##_tag_, sizeof(type) * (count)))
#define OOC_DYNAMIC_SHARED(type, name) type *const name = static_cast<type *>(sim_dynamic_shared())

#else

template <class... P, class... A>
static inline cudaError_t ooc_launch_(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared,
                                      cudaStream_t s, A... args)
{
    kernel<<<grid, block, shared, s>>>(static_cast<P>(args)...);
    return cudaGetLastError();
}

#define OOC_LAUNCH(kernel, grid, block, shared, stream, ...)                                       \
    ooc_launch_(kernel, grid, block, shared, stream, __VA_ARGS__)
#define OOC_SHARED(type, name, count)                                                              \
    __shared__ type name##_[count];                                                                \
    type *const name = name##_
#define OOC_DYNAMIC_SHARED(type, name)                                                             \
    extern __shared__ __align__(16) unsigned char ooc_dynamic_shared_[];                           \
    type *const name = reinterpret_cast<type *>(ooc_dynamic_shared_)

#endif
#endif
