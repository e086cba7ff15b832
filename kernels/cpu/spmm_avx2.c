/* The AVX2 kernels (with FMA and F16C). Compiled with its own flags; called only where the
 * processor has them. For every B the smallest vector that holds it, or up to four 256-bit vectors.
 */
#include "kernels/cpu/spmm_vector.h"

static void halves_to_floats(const uint16_t *in, float *out, uint32_t n)
{
    uint32_t i = 0;

    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(in + i))));
    for (; i < n; i++)
        out[i] = ooc_f32_from_f16(in[i]);
}

static void floats_to_doubles(const float *in, double *out, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        out[i] = (double)in[i];
}

#define placer    plain_placer
#define placer_of plain_placer_of
#define place     plain_place
INLINE void place_group(place_buffers *out, const placer *p, const ooc_work *w, uint32_t first)
{
    for (uint32_t k = first; k < w->n && k < first + GROUP; k++)
        for (uint32_t i = 0; i < w->piece[k].len; i++)
            out->at[k - first][i] =
                ooc_panel_at(p->l, (uint32_t)w->col[w->piece[k].ent + i] - p->col0);
}
#include "kernels/cpu/spmm_values.inc"

/* The first n of 8 (4) lanes: windows of 8 ones and 8 zeros. */
static const int32_t mask_window[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};

/* I: the type of masks; LOADI: how one is loaded; E: 32-bit units an element. */
#define DEFINE_MEMORY(X, V, T, I, W, S, LOADI, E)                                                  \
    INLINE I mask_##X(uint32_t n)                                                                  \
    {                                                                                              \
        return LOADI((const I *)(mask_window + 8 - n * (E)));                                      \
    }                                                                                              \
    INLINE V load_##X(const T *p)                                                                  \
    {                                                                                              \
        return W##_loadu_##S(p);                                                                   \
    }                                                                                              \
    INLINE V loadm_##X(const T *p, I m)                                                            \
    {                                                                                              \
        return W##_maskload_##S(p, m);                                                             \
    }                                                                                              \
    INLINE void store_##X(T *p, V v)                                                               \
    {                                                                                              \
        W##_storeu_##S(p, v);                                                                      \
    }                                                                                              \
    INLINE void storem_##X(T *p, I m, V v)                                                         \
    {                                                                                              \
        W##_maskstore_##S(p, m, v);                                                                \
    }

#define DEFINE_VECTOR(X, V, T, I, W, S, LOADI, E)                                                  \
    DEFINE_ARITHMETIC(X, V, T, W, S)                                                               \
    DEFINE_MEMORY(X, V, T, I, W, S, LOADI, E)

DEFINE_VECTOR(f32x4, __m128, float, __m128i, _mm, ps, _mm_loadu_si128, 1)
DEFINE_VECTOR(f32x8, __m256, float, __m256i, _mm256, ps, _mm256_loadu_si256, 1)
DEFINE_VECTOR(f64x2, __m128d, double, __m128i, _mm, pd, _mm_loadu_si128, 2)
DEFINE_VECTOR(f64x4, __m256d, double, __m256i, _mm256, pd, _mm256_loadu_si256, 2)

/* Rows of f32 as vectors of double. */
#define DEFINE_WIDENING(X, V, W)                                                                   \
    DEFINE_ARITHMETIC(X, V, double, W, pd)                                                         \
    INLINE __m128i mask_##X(uint32_t n)                                                            \
    {                                                                                              \
        return mask_f32x4(n);                                                                      \
    }                                                                                              \
    INLINE V loadm_##X(const float *p, __m128i m)                                                  \
    {                                                                                              \
        return W##_cvtps_pd(_mm_maskload_ps(p, m));                                                \
    }                                                                                              \
    INLINE V load_##X(const float *p)                                                              \
    {                                                                                              \
        return loadm_##X(p, mask_f32x4(sizeof(V) / sizeof(double)));                               \
    }

DEFINE_WIDENING(wide2, __m128d, _mm)
DEFINE_WIDENING(wide4, __m256d, _mm256)
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
#define M            __m128i
#define T            float
#define ACC          float
#define VALUES       f32
#define WITH_FORWARD 1
#include "kernels/cpu/spmm_simd.inc"
#define VEC          f32x8
#define V            __m256
#define VL           8
#define M            __m256i
#define T            float
#define ACC          float
#define VALUES       f32
#define WITH_FORWARD 1
#include "kernels/cpu/spmm_simd.inc"
#define VEC          f64x2
#define V            __m128d
#define VL           2
#define M            __m128i
#define T            double
#define ACC          double
#define VALUES       f64
#define WITH_FORWARD 1
#include "kernels/cpu/spmm_simd.inc"
#define VEC          f64x4
#define V            __m256d
#define VL           4
#define M            __m256i
#define T            double
#define ACC          double
#define VALUES       f64
#define WITH_FORWARD 1
#include "kernels/cpu/spmm_simd.inc"
#define VEC          wide2
#define V            __m128d
#define VL           2
#define M            __m128i
#define T            float
#define ACC          double
#define VALUES       f64
#define WITH_FORWARD 0
#include "kernels/cpu/spmm_simd.inc"
#define VEC          wide4
#define V            __m256d
#define VL           4
#define M            __m128i
#define T            float
#define ACC          double
#define VALUES       f64
#define WITH_FORWARD 0
#include "kernels/cpu/spmm_simd.inc"
#undef FN

/* For B = 1: the portable bodies, compiled with this file's flags. */
#define T        float
#define ACC      double
#define NAME     f64
#define FN(name) name##_one_wide
#include "kernels/cpu/spmm_scalar_adjoint.inc"
#undef T
#undef FN
#define T        double
#define FN(name) name##_one_f64
#include "kernels/cpu/spmm_scalar.inc"
#include "kernels/cpu/spmm_scalar_adjoint.inc"
#undef T
#undef ACC
#undef NAME
#undef FN
#define T        float
#define NAME     f32
#define FN(name) name##_one_f32
#include "kernels/cpu/spmm_scalar.inc"
#undef T
#undef NAME

#define RUN_UP_TO_4(fn, X, VLX)                                                                    \
    do {                                                                                           \
        if (d->B <= (VLX))                                                                         \
            OOC_RUN(fn, X, VLX, 1);                                                                \
        if (d->B <= 2 * (VLX))                                                                     \
            OOC_RUN(fn, X, VLX, 2);                                                                \
        if (d->B <= 3 * (VLX))                                                                     \
            OOC_RUN(fn, X, VLX, 3);                                                                \
        OOC_RUN(fn, X, VLX, 4);                                                                    \
    } while (0)

static void forward_gather(const ooc_work *w, const ooc_dense *d)
{
    const placer pl = placer_of(w);
    place_buffer at;
    value_buffer buf;

    values_begin_f32(w, &buf);
    for (uint32_t i = 0; i < w->n; i++) {
        const ooc_piece p = w->piece[i];
        const float *val = values_f32(w, p.ent, p.len, &buf), *x = d->in;
        __m256 s = _mm256_setzero_ps();
        __m128 half;
        float sum;
        uint32_t e = 0;

        place(&at, &pl, w->col + p.ent, p.len);
        for (; e + 8 <= p.len; e += 8)
            s = _mm256_fmadd_ps(
                _mm256_loadu_ps(val + e),
                _mm256_i32gather_ps(x, _mm256_load_si256((const __m256i *)(at.at + e)), 1), s);
        half = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
        half = _mm_add_ps(half, _mm_movehl_ps(half, half));
        sum = _mm_cvtss_f32(half) + _mm_cvtss_f32(_mm_shuffle_ps(half, half, 1));
        for (; e < p.len; e++)
            sum += val[e] * *(const float *)((const char *)x + at.at[e]);
        ((float *)d->out)[p.row * d->ld_out] += sum;
    }
}

static void forward_f32(const ooc_work *w, const ooc_dense *d)
{
    if (d->B == 1) {
        (w->piece ? forward_gather : forward_one_f32)(w, d);
        return;
    }
    if (d->B == 2)
        OOC_RUN(forward_any, f32x2, 2, 1);
    if (d->B <= 4)
        OOC_RUN(forward_any, f32x4, 4, 1);
    RUN_UP_TO_4(forward_any, f32x8, 8);
}

static void forward_f64(const ooc_work *w, const ooc_dense *d)
{
    if (d->B == 1) {
        forward_one_f64(w, d);
        return;
    }
    if (d->B <= 2)
        OOC_RUN(forward_any, f64x2, 2, 1);
    RUN_UP_TO_4(forward_any, f64x4, 4);
}

static void adjoint_f32(const ooc_work *w, const ooc_dense *d)
{
    RUN_UP_TO_4(adjoint_any, f32x8, 8);
}

static void adjoint_wide(const ooc_work *w, const ooc_dense *d)
{
    if (d->B == 1) {
        adjoint_one_wide(w, d);
        return;
    }
    if (d->B <= 2)
        OOC_RUN(adjoint_any, wide2, 2, 1);
    OOC_RUN(adjoint_any, wide4, 4, 1);
}

static void adjoint_f64(const ooc_work *w, const ooc_dense *d)
{
    if (d->B == 1) {
        adjoint_one_f64(w, d);
        return;
    }
    if (d->B <= 2)
        OOC_RUN(adjoint_any, f64x2, 2, 1);
    RUN_UP_TO_4(adjoint_any, f64x4, 4);
}

#define TABLE      ooc_spmm_avx2
#define WIDE_MAX_B 4
#include "kernels/cpu/spmm_table.inc"
