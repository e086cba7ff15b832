/* The AVX-512 kernels (F, BW, DQ, VL). Compiled with its own flags; called only where the processor
 * has them. For every B the smallest vector that holds it, or two 512-bit vectors. */
#include "kernels/cpu/spmm_avx512.h"

#define DEFINE_MEMORY(X, V, T, M, W, S)                                                            \
    INLINE M mask_##X(uint32_t n)                                                                  \
    {                                                                                              \
        return (M)((1u << n) - 1u);                                                                \
    }                                                                                              \
    INLINE V load_##X(const T *p)                                                                  \
    {                                                                                              \
        return W##_loadu_##S(p);                                                                   \
    }                                                                                              \
    INLINE V loadm_##X(const T *p, M m)                                                            \
    {                                                                                              \
        return W##_maskz_loadu_##S(m, p);                                                          \
    }                                                                                              \
    INLINE void store_##X(T *p, V v)                                                               \
    {                                                                                              \
        W##_storeu_##S(p, v);                                                                      \
    }                                                                                              \
    INLINE void storem_##X(T *p, M m, V v)                                                         \
    {                                                                                              \
        W##_mask_storeu_##S(p, m, v);                                                              \
    }

#define DEFINE_VECTOR(X, V, T, M, W, S)                                                            \
    DEFINE_ARITHMETIC(X, V, T, W, S)                                                               \
    DEFINE_MEMORY(X, V, T, M, W, S)

/* Rows of f32 as vectors of double. H: the prefix for vectors of half the size; all: their mask. */
#define DEFINE_WIDENING(X, V, W, H, all)                                                           \
    DEFINE_ARITHMETIC(X, V, double, W, pd)                                                         \
    INLINE __mmask8 mask_##X(uint32_t n)                                                           \
    {                                                                                              \
        return (__mmask8)((1u << n) - 1u);                                                         \
    }                                                                                              \
    INLINE V loadm_##X(const float *p, __mmask8 m)                                                 \
    {                                                                                              \
        return W##_cvtps_pd(H##_maskz_loadu_ps(m, p));                                             \
    }                                                                                              \
    INLINE V load_##X(const float *p)                                                              \
    {                                                                                              \
        return loadm_##X(p, all);                                                                  \
    }

DEFINE_VECTOR(f32x4, __m128, float, __mmask8, _mm, ps)
DEFINE_VECTOR(f32x8, __m256, float, __mmask8, _mm256, ps)
DEFINE_VECTOR(f32x16, __m512, float, __mmask16, _mm512, ps)
DEFINE_VECTOR(f64x2, __m128d, double, __mmask8, _mm, pd)
DEFINE_VECTOR(f64x4, __m256d, double, __mmask8, _mm256, pd)
DEFINE_VECTOR(f64x8, __m512d, double, __mmask8, _mm512, pd)
DEFINE_WIDENING(wide2, __m128d, _mm, _mm, 3)
DEFINE_WIDENING(wide4, __m256d, _mm256, _mm, 15)
DEFINE_PAIR(f32x2)

#define FN(name) JOIN(name, VEC)

#define VEC          f32x2
#define V            __m128
#define VL           2
#define M            int
#define T            float
#define ACC          float
#define VALUES       f32
#define WITH_FORWARD 1
#include "kernels/cpu/spmm_simd.inc"
#define VEC          f32x4
#define V            __m128
#define VL           4
#define M            __mmask8
#define T            float
#define ACC          float
#define VALUES       f32
#define WITH_FORWARD 1
#include "kernels/cpu/spmm_simd.inc"
#define VEC          f32x8
#define V            __m256
#define VL           8
#define M            __mmask8
#define T            float
#define ACC          float
#define VALUES       f32
#define WITH_FORWARD 1
#include "kernels/cpu/spmm_simd.inc"
#define VEC          f32x16
#define V            __m512
#define VL           16
#define M            __mmask16
#define T            float
#define ACC          float
#define VALUES       f32
#define WITH_FORWARD 1
#include "kernels/cpu/spmm_simd.inc"
#define VEC          f64x2
#define V            __m128d
#define VL           2
#define M            __mmask8
#define T            double
#define ACC          double
#define VALUES       f64
#define WITH_FORWARD 1
#include "kernels/cpu/spmm_simd.inc"
#define VEC          f64x4
#define V            __m256d
#define VL           4
#define M            __mmask8
#define T            double
#define ACC          double
#define VALUES       f64
#define WITH_FORWARD 1
#include "kernels/cpu/spmm_simd.inc"
#define VEC          f64x8
#define V            __m512d
#define VL           8
#define M            __mmask8
#define T            double
#define ACC          double
#define VALUES       f64
#define WITH_FORWARD 1
#include "kernels/cpu/spmm_simd.inc"
#define VEC          wide2
#define V            __m128d
#define VL           2
#define M            __mmask8
#define T            float
#define ACC          double
#define VALUES       f64
#define WITH_FORWARD 0
#include "kernels/cpu/spmm_simd.inc"
#define VEC          wide4
#define V            __m256d
#define VL           4
#define M            __mmask8
#define T            float
#define ACC          double
#define VALUES       f64
#define WITH_FORWARD 0
#include "kernels/cpu/spmm_simd.inc"
#undef FN

static void forward_f32(const ooc_work *w, const ooc_dense *d)
{
    if (d->B == 1) {
        ooc_forward_one_f32_avx512(w, d);
        return;
    }
    if (d->B == 2)
        OOC_RUN(forward_any, f32x2, 2, 1);
    if (d->B <= 4)
        OOC_RUN(forward_any, f32x4, 4, 1);
    if (d->B <= 8)
        OOC_RUN(forward_any, f32x8, 8, 1);
    if (d->B <= 16)
        OOC_RUN(forward_any, f32x16, 16, 1);
    OOC_RUN(forward_any, f32x16, 16, 2);
}

static void forward_f64(const ooc_work *w, const ooc_dense *d)
{
    if (d->B == 1) {
        ooc_forward_one_f64_avx512(w, d);
        return;
    }
    if (d->B <= 2)
        OOC_RUN(forward_any, f64x2, 2, 1);
    if (d->B <= 4)
        OOC_RUN(forward_any, f64x4, 4, 1);
    if (d->B <= 8)
        OOC_RUN(forward_any, f64x8, 8, 1);
    OOC_RUN(forward_any, f64x8, 8, 2);
}

static void adjoint_f32(const ooc_work *w, const ooc_dense *d)
{
    if (d->B <= 8)
        OOC_RUN(adjoint_any, f32x8, 8, 1);
    if (d->B <= 16)
        OOC_RUN(adjoint_any, f32x16, 16, 1);
    OOC_RUN(adjoint_any, f32x16, 16, 2);
}

static void adjoint_wide(const ooc_work *w, const ooc_dense *d)
{
    if (d->B == 1) {
        ooc_adjoint_one_wide_avx512(w, d);
        return;
    }
    if (d->B <= 2)
        OOC_RUN(adjoint_any, wide2, 2, 1);
    if (d->B <= 4)
        OOC_RUN(adjoint_any, wide4, 4, 1);
}

static void adjoint_f64(const ooc_work *w, const ooc_dense *d)
{
    if (d->B == 1) {
        ooc_adjoint_one_f64_avx512(w, d);
        return;
    }
    if (d->B <= 2)
        OOC_RUN(adjoint_any, f64x2, 2, 1);
    if (d->B <= 4)
        OOC_RUN(adjoint_any, f64x4, 4, 1);
    if (d->B <= 8)
        OOC_RUN(adjoint_any, f64x8, 8, 1);
    OOC_RUN(adjoint_any, f64x8, 8, 2);
}

#define TABLE      ooc_spmm_avx512
#define WIDE_MAX_B 4
#include "kernels/cpu/spmm_table.inc"
