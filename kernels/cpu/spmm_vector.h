/* spmm_vector.h - inside the x86 kernels: vector types as spmm_simd.inc uses them.
 *
 * A vector type X is a set of functions load_X(), loadm_X() (masked), store_X(), storem_X(),
 * loada_X(), storea_X() (aligned accumulators), zero_X(), set1_X(), add_X(), fma_X() and mask_X(n),
 * the mask of the first n lanes. What differs between AVX2 and AVX-512 stands in their files. */
#ifndef OOC_KERNELS_SPMM_VECTOR_H
#define OOC_KERNELS_SPMM_VECTOR_H

#include <immintrin.h>
#include <stdbool.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline, unused)) /* not all are used of each */

#define JOIN_(a, b) a##_##b
#define JOIN(a, b)  JOIN_(a, b)

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

/* Run body `fn` of vector type X with NV vectors of VLX lanes. */
#define OOC_RUN(fn, X, VLX, NV)                                                                    \
    do {                                                                                           \
        if (d->B == (VLX) * (NV))                                                                  \
            fn##_##X(a, d, NV, true);                                                              \
        else                                                                                       \
            fn##_##X(a, d, NV, false);                                                             \
        return;                                                                                    \
    } while (0)
#endif
