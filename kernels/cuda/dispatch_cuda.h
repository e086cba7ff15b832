/* dispatch_cuda.h - from run-time types to template arguments.
 *
 *     return ooc_by_value(t->n.vtype, [&](auto v) { return launch<float, decltype(v)>(...); });
 */
#ifndef OOC_KERNELS_CUDA_DISPATCH_CUDA_H
#define OOC_KERNELS_CUDA_DISPATCH_CUDA_H

#include "kernels/cuda/values_cuda.h"
#include "kernels/tile_view.h"

template <class F> static inline cudaError_t ooc_by_value(ooc_dtype vtype, F f)
{
    switch (vtype) {
    case OOC_F32:
        return f(value_f32());
    case OOC_F64:
        return f(value_f64());
    case OOC_F16:
        return f(value_f16());
    case OOC_BF16:
        return f(value_bf16());
    case OOC_CONST:
        return f(value_const());
    }
    return cudaErrorInvalidValue;
}

/* f(T) with T float or double. */
template <class F> static inline cudaError_t ooc_by_dense(ooc_dtype dense, F f)
{
    return dense == OOC_F32 ? f(0.0f) : dense == OOC_F64 ? f(0.0) : cudaErrorInvalidValue;
}

static inline uint32_t ooc_ceil_div(uint64_t n, uint32_t d)
{
    return static_cast<uint32_t>((n + d - 1) / d);
}

#endif
