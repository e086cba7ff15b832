/* values_cuda.h - one policy a value type: VALUE::get<T>(val, e, constant) is value e of a tile as
 * T (float or double), the type in which products are made. For kernels only. */
#ifndef OOC_KERNELS_CUDA_VALUES_CUDA_H
#define OOC_KERNELS_CUDA_VALUES_CUDA_H

#include "kernels/cuda/launch.h"

#include <stdint.h>
#if !defined(OOC_CUDASIM)
#include <cuda_fp16.h>
#endif

struct value_f32 {
    template <class T> static __device__ __forceinline__ T get(const void *val, uint32_t e, double)
    {
        return static_cast<T>(__ldg(static_cast<const float *>(val) + e));
    }
};

struct value_f64 {
    template <class T> static __device__ __forceinline__ T get(const void *val, uint32_t e, double)
    {
        return static_cast<T>(__ldg(static_cast<const double *>(val) + e));
    }
};

struct value_f16 {
    template <class T> static __device__ __forceinline__ T get(const void *val, uint32_t e, double)
    {
        uint16_t bits = __ldg(static_cast<const uint16_t *>(val) + e);
#if defined(OOC_CUDASIM)
        uint32_t exponent = (bits >> 10) & 31u, fraction = bits & 1023u;
        float size = exponent == 0    ? ldexpf(static_cast<float>(fraction), -24)
                     : exponent == 31 ? (fraction ? NAN : INFINITY)
                                      : ldexpf(static_cast<float>(fraction + 1024u),
                                               static_cast<int>(exponent) - 25);

        return static_cast<T>(bits & 0x8000u ? -size : size);
#else
        return static_cast<T>(__half2float(__ushort_as_half(bits)));
#endif
    }
};

struct value_bf16 {
    template <class T> static __device__ __forceinline__ T get(const void *val, uint32_t e, double)
    {
        return static_cast<T>(__uint_as_float(
            static_cast<uint32_t>(__ldg(static_cast<const uint16_t *>(val) + e)) << 16));
    }
};

struct value_const {
    template <class T>
    static __device__ __forceinline__ T get(const void *, uint32_t, double constant)
    {
        return static_cast<T>(constant);
    }
};

#endif
