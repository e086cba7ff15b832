/* spmm_vector.h - inside the x86 kernels: vector types as spmm_simd.inc uses them.
 *
 * A vector type X is a set of functions load_X(), loadm_X() (masked), store_X(), storem_X(),
 * loada_X(), storea_X() (aligned accumulators), zero_X(), set1_X(), add_X(), fma_X() and mask_X(n),
 * the mask of the first n lanes. What differs between AVX2 and AVX-512 stands in their files. */
#ifndef OOC_KERNELS_SPMM_VECTOR_H
#define OOC_KERNELS_SPMM_VECTOR_H

#include "kernels/cpu/spmm_inside.h"

#include <immintrin.h>

/* V is vectors of T; W and S are the intrinsics' prefix and suffix. */
#define DEFINE_ARITHMETIC(X, V, T, W, S)                                                           \
    INLINE V zero_##X(void)                                                                        \
    {                                                                                              \
        return W##_setzero_##S();                                                                  \
    }                                                                                              \
    INLINE V set1_##X(T x)                                                                         \
    {                                                                                              \
        return W##_set1_##S(x);                                                                    \
    }                                                                                              \
    INLINE V add_##X(V a, V b)                                                                     \
    {                                                                                              \
        return W##_add_##S(a, b);                                                                  \
    }                                                                                              \
    INLINE V fma_##X(V a, V b, V c)                                                                \
    {                                                                                              \
        return W##_fmadd_##S(a, b, c);                                                             \
    }                                                                                              \
    INLINE V loada_##X(const T *p)                                                                 \
    {                                                                                              \
        return W##_load_##S(p);                                                                    \
    }                                                                                              \
    INLINE void storea_##X(T *p, V v)                                                              \
    {                                                                                              \
        W##_store_##S(p, v);                                                                       \
    }

/* Two f32 in the low half of a vector; masks mean nothing. */
#define DEFINE_PAIR(X)                                                                             \
    DEFINE_ARITHMETIC(X, __m128, float, _mm, ps)                                                   \
    INLINE int mask_##X(uint32_t n)                                                                \
    {                                                                                              \
        return (int)n;                                                                             \
    }                                                                                              \
    INLINE __m128 load_##X(const float *p)                                                         \
    {                                                                                              \
        return _mm_castsi128_ps(_mm_loadl_epi64((const __m128i *)(const void *)p));                \
    }                                                                                              \
    INLINE __m128 loadm_##X(const float *p, int m)                                                 \
    {                                                                                              \
        (void)m;                                                                                   \
        return load_##X(p);                                                                        \
    }                                                                                              \
    INLINE void store_##X(float *p, __m128 v)                                                      \
    {                                                                                              \
        _mm_storel_epi64((__m128i *)(void *)p, _mm_castps_si128(v));                               \
    }                                                                                              \
    INLINE void storem_##X(float *p, int m, __m128 v)                                              \
    {                                                                                              \
        (void)m;                                                                                   \
        store_##X(p, v);                                                                           \
    }

/* Run body `fn` of vector type X with NV vectors of VLX lanes. */
#define OOC_RUN(fn, X, VLX, NV)                                                                    \
    do {                                                                                           \
        if (d->B == (VLX) * (NV))                                                                  \
            fn##_##X(w, d, NV, true);                                                              \
        else                                                                                       \
            fn##_##X(w, d, NV, false);                                                             \
        return;                                                                                    \
    } while (0)
#endif
