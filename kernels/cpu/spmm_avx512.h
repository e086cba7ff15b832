/* spmm_avx512.h - inside the AVX-512 kernels: what spmm_avx512.c (several columns) and
 * spmm_avx512_one.c (B = 1) share. */
#ifndef OOC_KERNELS_SPMM_AVX512_H
#define OOC_KERNELS_SPMM_AVX512_H

#include "kernels/cpu/spmm_vector.h"

void ooc_forward_one_f32_avx512(const ooc_work *w, const ooc_dense *d);
void ooc_forward_one_f64_avx512(const ooc_work *w, const ooc_dense *d);
void ooc_adjoint_one_wide_avx512(const ooc_work *w, const ooc_dense *d);
void ooc_adjoint_one_f64_avx512(const ooc_work *w, const ooc_dense *d);

/* The first n of 16 lanes; all for n >= 16. */
INLINE __mmask16 first16(uint32_t n)
{
    return (__mmask16)_bzhi_u32(0xffffu, n);
}

INLINE __mmask8 first8(uint32_t n)
{
    return (__mmask8)_bzhi_u32(0xffu, n);
}

/* A layout, ready for places16(). */
typedef struct {
    __m512i col0, row_bytes;
    __m128i row_shift, gap_shift;
    bool gaps; /* then row_bytes is a power of two */
    uint32_t value_bytes;
} placer;

INLINE placer placer_of(const ooc_work *w)
{
    return (placer){.col0 = _mm512_set1_epi32((int)w->col0),
                    .row_bytes = _mm512_set1_epi32((int)w->l.row_bytes),
                    .row_shift = _mm_cvtsi32_si128(__builtin_ctz(w->l.row_bytes)),
                    .gap_shift = _mm_cvtsi32_si128((int)w->l.gap_shift),
                    .gaps = w->l.gap_shift < 31,
                    .value_bytes = ooc_dtype_bytes(w->vtype)};
}

/* Where the rows of 16 columns stand (of those in m; the others' places mean nothing). */
INLINE __m512i places16(const placer *p, const uint16_t *col, __mmask16 m)
{
    const __m512i c =
        _mm512_sub_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m, col)), p->col0);

    if (!p->gaps)
        return _mm512_mullo_epi32(c, p->row_bytes);
    return _mm512_add_epi32(_mm512_sll_epi32(c, p->row_shift),
                            _mm512_slli_epi32(_mm512_srl_epi32(c, p->gap_shift), 6));
}

INLINE void place(place_buffer *out, const placer *p, const uint16_t *col, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += 16)
        _mm512_store_si512(out->at + i, places16(p, col + i, first16(n - i)));
}

INLINE void place_group(place_buffers *out, const placer *p, const ooc_work *w, uint32_t first)
{
    const uint32_t end = w->n - first < GROUP ? w->n : first + GROUP;

    for (uint32_t k = first; k < end; k++) {
        const ooc_piece piece = w->piece[k];
        const uint32_t ahead =
            w->sorted ? w->piece[k + OOC_AHEAD].ent : piece.ent + PREFETCH_ENTRIES;

        for (uint32_t i = 0; i < piece.len; i += 16) {
            prefetch(w->col + ahead + i);
            prefetch((const char *)w->val + (uint64_t)(ahead + i) * p->value_bytes);
            _mm512_store_si512(out->at[k - first] + i,
                               places16(p, w->col + piece.ent + i, first16(piece.len - i)));
        }
    }
}

INLINE void halves_to_floats(const uint16_t *in, float *out, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += 16) {
        const __mmask16 m = first16(n - i);

        _mm512_mask_storeu_ps(out + i, m, _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(m, in + i)));
    }
}

INLINE void floats_to_doubles(const float *in, double *out, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += 8) {
        const __mmask8 m = first8(n - i);

        _mm512_mask_storeu_pd(out + i, m, _mm512_cvtps_pd(_mm256_maskz_loadu_ps(m, in + i)));
    }
}

#include "kernels/cpu/spmm_values.inc"
#endif
