/* AVX-512 kernels for one right-hand column. */
#include "kernels/cpu/spmm_avx512.h"

#include <immintrin.h>
#include <stdbool.h>

#define INLINE static inline __attribute__((always_inline))

/* X at 16 (8) places, those of `m`; others give 0. A gather merges into its old destination: a
 * fresh zero each time keeps gathers independent of each other, and the compiler would leave it out
 * if it knew the mask to be full. */
INLINE __m512 gather16(const void *x, const uint32_t *at, __mmask16 m)
{
    const __m512i i = _mm512_maskz_loadu_epi32(m, at);
    __m512 zero = _mm512_setzero_ps();

    __asm__("" : "+v"(zero), "+Yk"(m));
    return _mm512_mask_i32gather_ps(zero, m, i, x, 1);
}

INLINE __m512d gather8(const void *x, const uint32_t *at, __mmask8 m)
{
    const __m256i i = _mm256_maskz_loadu_epi32(m, at);
    __m512d zero = _mm512_setzero_pd();

    __asm__("" : "+v"(zero), "+Yk"(m));
    return _mm512_mask_i32gather_pd(zero, m, i, x, 1);
}

/* Y[row] += sum over the piece of val[e] * X[col[e]]. */
void ooc_forward_one_f32_avx512(const ooc_batch_view *a, const ooc_dense_view *d)
{
    for (uint32_t i = 0; i < a->n; i++) {
        const ooc_piece p = a->piece[i];
        const uint32_t *at = a->at + p.at;
        const float *val = (const float *)a->val + p.val;
        float *y = (float *)d->out + p.row * d->ld_out;
        __m512 s0 = _mm512_setzero_ps(), s1 = s0;
        uint32_t e = 0;

        for (; e + 32 <= p.len; e += 32) {
            s0 = _mm512_fmadd_ps(_mm512_loadu_ps(val + e), gather16(d->in, at + e, 0xffff), s0);
            s1 = _mm512_fmadd_ps(_mm512_loadu_ps(val + e + 16),
                                 gather16(d->in, at + e + 16, 0xffff), s1);
        }
        if (e + 16 <= p.len) {
            s0 = _mm512_fmadd_ps(_mm512_loadu_ps(val + e), gather16(d->in, at + e, 0xffff), s0);
            e += 16;
        }
        if (e < p.len) {
            const __mmask16 m = (__mmask16)((1u << (p.len - e)) - 1u);

            s1 = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(m, val + e), gather16(d->in, at + e, m), s1);
        }
        *y += _mm512_reduce_add_ps(_mm512_add_ps(s0, s1));
    }
}

void ooc_forward_one_f64_avx512(const ooc_batch_view *a, const ooc_dense_view *d)
{
    for (uint32_t i = 0; i < a->n; i++) {
        const ooc_piece p = a->piece[i];
        const uint32_t *at = a->at + p.at;
        const double *val = (const double *)a->val + p.val;
        double *y = (double *)d->out + p.row * d->ld_out;
        __m512d s = _mm512_setzero_pd();

        for (uint32_t e = 0; e < p.len; e += 8) {
            const __mmask8 m = (__mmask8)(p.len - e < 8 ? (1u << (p.len - e)) - 1u : 0xffu);

            s = _mm512_fmadd_pd(_mm512_maskz_loadu_pd(m, val + e), gather8(d->in, at + e, m), s);
        }
        *y += _mm512_reduce_add_pd(s);
    }
}

/* Eight values from element i on, those of `m`. */
INLINE __m512d values8(const void *val, uint32_t i, __mmask8 m, bool wide)
{
    return wide ? _mm512_cvtps_pd(_mm256_maskz_loadu_ps(m, (const float *)val + i))
                : _mm512_maskz_loadu_pd(m, (const double *)val + i);
}

/* The piece's products with r, and where its runs of adjacent columns begin: bit e % 16 of
 * starts[e / 16]. Returns the number of runs; *odd: some run begins at an odd entry. */
INLINE uint32_t multiply(const uint32_t *at, const void *val, uint32_t first, uint32_t len,
                         double r, bool wide, double *prod, uint16_t *starts, bool *odd)
{
    const __m512d rr = _mm512_set1_pd(r);
    const __m512i next = _mm512_set1_epi32(sizeof(double));
    uint32_t n_runs = 0, odd_starts = 0;

    for (uint32_t e = 0; e < len; e += 16) {
        const uint32_t rest = len - e;
        const __mmask16 m = (__mmask16)(rest < 16 ? (1u << rest) - 1u : 0xffffu);
        const __m512i here = _mm512_load_epi32(at + e);
        const __m512i before = _mm512_loadu_epi32(at + e - 1);
        uint32_t s = _mm512_mask_cmpneq_epi32_mask(m, here, _mm512_add_epi32(before, next));

        if (e == 0)
            s |= 1;
        starts[e / 16] = (uint16_t)s;
        n_runs += (uint32_t)__builtin_popcount(s);
        odd_starts |= s & 0xaaaa;
        _mm512_store_pd(prod + e, _mm512_mul_pd(rr, values8(val, first + e, (__mmask8)m, wide)));
        _mm512_store_pd(prod + e + 8,
                        _mm512_mul_pd(rr, values8(val, first + e + 8, (__mmask8)(m >> 8), wide)));
    }
    *odd = odd_starts != 0;
    return n_runs;
}

INLINE double *place(char *acc, uint32_t at)
{
    return (double *)(acc + at);
}

/* acc[col[e]] += prod[e], two neighbours at a time: no run begins at an odd entry. */
INLINE void add_pairs(char *acc, const uint32_t *at, const double *prod, uint32_t len)
{
    uint32_t e = 0;

#pragma GCC unroll 4
    for (; e + 2 <= len; e += 2) {
        double *g = place(acc, at[e]);

        _mm_storeu_pd(g, _mm_add_pd(_mm_loadu_pd(g), _mm_load_pd(prod + e)));
    }
    if (e < len)
        *place(acc, at[e]) += prod[e];
}

INLINE void add_singles(char *acc, const uint32_t *at, const double *prod, uint32_t len)
{
#pragma GCC unroll 8
    for (uint32_t e = 0; e < len; e++)
        *place(acc, at[e]) += prod[e];
}

/* Run by run, eight columns at a time. */
INLINE void add_runs(char *acc, const uint32_t *at, const double *prod, const uint16_t *starts,
                     uint32_t len)
{
    uint32_t first = 0;

    for (uint32_t w = 0; w <= len / 16; w++) {
        uint32_t s = w < (len + 15) / 16 ? starts[w] : 0;

        if (w == 0)
            s &= s - 1; /* the run at 0 is open */
        if (w == len / 16)
            s |= 1u << (len % 16); /* ends the last one */
        for (; s; s &= s - 1) {
            const uint32_t end = w * 16 + (uint32_t)__builtin_ctz(s);

            for (; first < end; first += 8) {
                double *g = place(acc, at[first]);
                const uint32_t n = end - first;
                const __mmask8 m = (__mmask8)(n < 8 ? (1u << n) - 1u : 0xffu);

                _mm512_mask_storeu_pd(
                    g, m,
                    _mm512_add_pd(_mm512_maskz_loadu_pd(m, g), _mm512_loadu_pd(prod + first)));
            }
            first = end;
        }
    }
}

#define RUN_WORTH 5u /* mean length from which runs are faster than single entries */

INLINE double element(const void *p, uint64_t i, bool wide)
{
    return wide ? (double)((const float *)p)[i] : ((const double *)p)[i];
}

INLINE void adjoint_piece(const ooc_batch_view *a, const ooc_dense_view *d, ooc_piece p, bool wide)
{
    _Alignas(64) double prod[OOC_PIECE + 8];
    uint16_t starts[OOC_PIECE / 16];
    const uint32_t *at = a->at + p.at;
    bool odd;
    const uint32_t n_runs = multiply(
        at, a->val, p.val, p.len, element(d->in, p.row * d->ld_in, wide), wide, prod, starts, &odd);

    if (n_runs * RUN_WORTH <= p.len)
        add_runs(d->out, at, prod, starts, p.len);
    else if (!odd)
        add_pairs(d->out, at, prod, p.len);
    else
        add_singles(d->out, at, prod, p.len);
}

/* acc[col[e]] += val[e] * R[row]. */
INLINE void adjoint_one(const ooc_batch_view *a, const ooc_dense_view *d, bool wide)
{
    if (a->piece)
        for (uint32_t i = 0; i < a->n; i++)
            adjoint_piece(a, d, a->piece[i], wide);
    else
        for (uint32_t i = 0; i < a->n; i++)
            *place(d->out, a->at[i]) +=
                element(a->val, i, wide) * element(d->in, a->row[i] * d->ld_in, wide);
}

void ooc_adjoint_one_wide_avx512(const ooc_batch_view *a, const ooc_dense_view *d)
{
    adjoint_one(a, d, true);
}

void ooc_adjoint_one_f64_avx512(const ooc_batch_view *a, const ooc_dense_view *d)
{
    adjoint_one(a, d, false);
}
