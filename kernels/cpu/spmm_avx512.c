/* The AVX-512 kernels (F, BW, DQ, VL). Compiled with its own flags; called only where the processor
 * has them. For every B the smallest vector that holds it, or two 512-bit vectors. */
#include "kernels/cpu/convert.h"
#include "kernels/cpu/spmm_avx512.h"
#include "kernels/cpu/spmm_vector.h"

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
DEFINE_WIDENING(wide8, __m512d, _mm512, _mm256, 255)

#define FN(name) JOIN(name, VEC)

#define VEC          f32x4
#define V            __m128
#define VL           4
#define M            __mmask8
#define T            float
#define ACC          float
#define WITH_FORWARD 1
#include "kernels/cpu/spmm_simd.inc"
#define VEC          f32x8
#define V            __m256
#define VL           8
#define M            __mmask8
#define T            float
#define ACC          float
#define WITH_FORWARD 1
#include "kernels/cpu/spmm_simd.inc"
#define VEC          f32x16
#define V            __m512
#define VL           16
#define M            __mmask16
#define T            float
#define ACC          float
#define WITH_FORWARD 1
#include "kernels/cpu/spmm_simd.inc"
#define VEC          f64x2
#define V            __m128d
#define VL           2
#define M            __mmask8
#define T            double
#define ACC          double
#define WITH_FORWARD 1
#include "kernels/cpu/spmm_simd.inc"
#define VEC          f64x4
#define V            __m256d
#define VL           4
#define M            __mmask8
#define T            double
#define ACC          double
#define WITH_FORWARD 1
#include "kernels/cpu/spmm_simd.inc"
#define VEC          f64x8
#define V            __m512d
#define VL           8
#define M            __mmask8
#define T            double
#define ACC          double
#define WITH_FORWARD 1
#include "kernels/cpu/spmm_simd.inc"
#define VEC          wide2
#define V            __m128d
#define VL           2
#define M            __mmask8
#define T            float
#define ACC          double
#define WITH_FORWARD 0
#include "kernels/cpu/spmm_simd.inc"
#define VEC          wide4
#define V            __m256d
#define VL           4
#define M            __mmask8
#define T            float
#define ACC          double
#define WITH_FORWARD 0
#include "kernels/cpu/spmm_simd.inc"
#define VEC          wide8
#define V            __m512d
#define VL           8
#define M            __mmask8
#define T            float
#define ACC          double
#define WITH_FORWARD 0
#include "kernels/cpu/spmm_simd.inc"

static void forward_f32(const ooc_batch_view *a, const ooc_dense_view *d)
{
    if (d->B == 1 && a->piece) {
        ooc_forward_one_f32_avx512(a, d);
        return;
    }
    if (d->B <= 4)
        OOC_RUN(forward_any, f32x4, 4, 1);
    if (d->B <= 8)
        OOC_RUN(forward_any, f32x8, 8, 1);
    if (d->B <= 16)
        OOC_RUN(forward_any, f32x16, 16, 1);
    OOC_RUN(forward_any, f32x16, 16, 2);
}

static void forward_f64(const ooc_batch_view *a, const ooc_dense_view *d)
{
    if (d->B == 1 && a->piece) {
        ooc_forward_one_f64_avx512(a, d);
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

static void adjoint_f32(const ooc_batch_view *a, const ooc_dense_view *d)
{
    if (d->B <= 16)
        OOC_RUN(adjoint_any, f32x16, 16, 1);
    OOC_RUN(adjoint_any, f32x16, 16, 2);
}

static void adjoint_wide(const ooc_batch_view *a, const ooc_dense_view *d)
{
    if (d->B == 1) {
        ooc_adjoint_one_wide_avx512(a, d);
        return;
    }
    if (d->B <= 2)
        OOC_RUN(adjoint_any, wide2, 2, 1);
    if (d->B <= 4)
        OOC_RUN(adjoint_any, wide4, 4, 1);
    OOC_RUN(adjoint_any, wide8, 8, 1);
}

static void adjoint_f64(const ooc_batch_view *a, const ooc_dense_view *d)
{
    if (d->B == 1) {
        ooc_adjoint_one_f64_avx512(a, d);
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

/* 16 columns at `col` to their places; with gaps, row_bytes is a power of two. */
INLINE __m512i places16(__m256i col, __m512i col0, ooc_panel_layout l, bool gaps)
{
    const __m512i c = _mm512_sub_epi32(_mm512_cvtepu16_epi32(col), col0);
    const __m128i row_shift = _mm_cvtsi32_si128(__builtin_ctz(l.row_bytes));
    const __m128i gap_shift = _mm_cvtsi32_si128((int)l.gap_shift);

    if (!gaps)
        return _mm512_mullo_epi32(c, _mm512_set1_epi32((int)l.row_bytes));
    return _mm512_add_epi32(_mm512_sll_epi32(c, row_shift),
                            _mm512_slli_epi32(_mm512_srl_epi32(c, gap_shift), 6));
}

INLINE void place_pieces(uint32_t *at, const ooc_piece *piece, uint32_t n, const uint16_t *col,
                         const uint32_t *ent, uint32_t col0, ooc_panel_layout l, bool gaps)
{
    const __m512i base = _mm512_set1_epi32((int)col0);

    for (uint32_t i = 0; i < n; i++) {
        const uint16_t *from = col + ent[i];
        uint32_t *to = at + piece[i].at;
        const uint32_t len = piece[i].len;
        uint32_t k = 0;

        for (; k + 16 <= len; k += 16)
            _mm512_store_si512(
                to + k, places16(_mm256_loadu_si256((const __m256i *)(from + k)), base, l, gaps));
        if (k < len) {
            const __mmask16 m = (__mmask16)((1u << (len - k)) - 1u);

            _mm512_store_si512(to + k,
                               places16(_mm256_maskz_loadu_epi16(m, from + k), base, l, gaps));
        }
    }
}

static void place(uint32_t *at, const ooc_piece *piece, uint32_t n, const uint16_t *col,
                  const uint32_t *ent, uint32_t col0, ooc_panel_layout l)
{
    if (l.gap_shift < 31)
        place_pieces(at, piece, n, col, ent, col0, l, true);
    else
        place_pieces(at, piece, n, col, ent, col0, l, false);
}

static void halves_to_floats(const uint16_t *in, float *out, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += 16) {
        const __mmask16 m = (__mmask16)(n - i < 16 ? (1u << (n - i)) - 1u : 0xffffu);

        _mm512_mask_storeu_ps(out + i, m, _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(m, in + i)));
    }
}

#define TABLE      ooc_spmm_avx512
#define WIDE_MAX_B 8
#include "kernels/cpu/spmm_table.inc"
