/* AVX-512 kernels for one right-hand column. */
#include "kernels/cpu/row_set.h"
#include "kernels/cpu/spmm_avx512.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

/* 16 columns from `col`, those of `m` only, times the distance of X's entries. */
INLINE __m512i load_index(const uint16_t *col, __mmask16 m, __m512i ld, int unit)
{
    const __m512i i = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m, col));

    return unit ? i : _mm512_mullo_epi32(i, ld);
}

INLINE __m512 gather16(const float *x, const uint16_t *col, __mmask16 m, __m512i ld, int unit)
{
    return _mm512_mask_i32gather_ps(_mm512_setzero_ps(), m, load_index(col, m, ld, unit), x, 4);
}

/* Y[row] += sum over the piece of val[e] * X[col[e]]. */
INLINE void forward_one(const ooc_batch_view *a, const ooc_dense_view *d, int unit)
{
    const float *x = d->in;
    const __m512i ld = _mm512_set1_epi32((int)d->ld_in);

    for (uint32_t i = 0; i < a->n; i++) {
        const ooc_piece p = a->piece[i];
        const uint16_t *col = a->col + p.off;
        const float *val = (const float *)a->val + p.off;
        float *y = (float *)d->out + p.row * d->ld_out;
        __m512 s0 = _mm512_setzero_ps(), s1 = s0;
        uint32_t e = 0;

        for (; e + 32 <= p.len; e += 32) {
            s0 = _mm512_fmadd_ps(_mm512_loadu_ps(val + e), gather16(x, col + e, 0xffff, ld, unit),
                                 s0);
            s1 = _mm512_fmadd_ps(_mm512_loadu_ps(val + e + 16),
                                 gather16(x, col + e + 16, 0xffff, ld, unit), s1);
        }
        if (e + 16 <= p.len) {
            s0 = _mm512_fmadd_ps(_mm512_loadu_ps(val + e), gather16(x, col + e, 0xffff, ld, unit),
                                 s0);
            e += 16;
        }
        if (e < p.len) {
            const __mmask16 m = (__mmask16)((1u << (p.len - e)) - 1u);

            s1 = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(m, val + e),
                                 gather16(x, col + e, m, ld, unit), s1);
        }
        *y += _mm512_reduce_add_ps(_mm512_add_ps(s0, s1));
    }
}

void ooc_forward_one_f32_avx512(const ooc_batch_view *a, const ooc_dense_view *d)
{
    if (d->ld_in == 1)
        forward_one(a, d, 1);
    else
        forward_one(a, d, 0);
}

void ooc_forward_one_f64_avx512(const ooc_batch_view *a, const ooc_dense_view *d)
{
    const double *x = d->in;
    const __m256i ld = _mm256_set1_epi32((int)d->ld_in);

    for (uint32_t i = 0; i < a->n; i++) {
        const ooc_piece p = a->piece[i];
        const uint16_t *col = a->col + p.off;
        const double *val = (const double *)a->val + p.off;
        double *y = (double *)d->out + p.row * d->ld_out;
        __m512d s = _mm512_setzero_pd();

        for (uint32_t e = 0; e < p.len; e += 8) {
            const uint32_t n = p.len - e < 8 ? p.len - e : 8;
            const __mmask8 m = (__mmask8)((1u << n) - 1u);
            const __m256i c =
                _mm256_mullo_epi32(_mm256_cvtepu16_epi32(_mm_maskz_loadu_epi16(m, col + e)), ld);

            s = _mm512_fmadd_pd(_mm512_maskz_loadu_pd(m, val + e),
                                _mm512_mask_i32gather_pd(_mm512_setzero_pd(), m, c, x, 8), s);
        }
        *y += _mm512_reduce_add_pd(s);
    }
}

/* acc[col[e]] += val[e] * R[row]. */
void ooc_adjoint_one_wide_avx512(const ooc_batch_view *a, const ooc_dense_view *d)
{
    double *restrict acc = ooc_shift(d->out, -(int64_t)(d->col0 * sizeof(double)));

    for (uint32_t i = 0; i < a->n; i++) {
        const uint32_t off = a->piece ? a->piece[i].off : i;
        const uint32_t len = a->piece ? a->piece[i].len : 1;
        const uint32_t row = a->piece ? a->piece[i].row : a->row[i];
        const uint16_t *restrict col = a->col + off;
        const float *restrict val = (const float *)a->val + off;
        const double r = (double)((const float *)d->in)[row * d->ld_in];

        for (uint32_t e = 0; e < len; e++)
            acc[col[e]] += (double)val[e] * r;
    }
}

void ooc_adjoint_one_f64_avx512(const ooc_batch_view *a, const ooc_dense_view *d)
{
    double *restrict acc = ooc_shift(d->out, -(int64_t)(d->col0 * sizeof(double)));

    for (uint32_t i = 0; i < a->n; i++) {
        const uint32_t off = a->piece ? a->piece[i].off : i;
        const uint32_t len = a->piece ? a->piece[i].len : 1;
        const uint32_t row = a->piece ? a->piece[i].row : a->row[i];
        const uint16_t *restrict col = a->col + off;
        const double *restrict val = (const double *)a->val + off;
        const double r = ((const double *)d->in)[row * d->ld_in];

        for (uint32_t e = 0; e < len; e++)
            acc[col[e]] += val[e] * r;
    }
}
