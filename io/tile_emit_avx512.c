/* AVX-512 (F, BW, DQ, VL): 32 columns or 32 values at a time; masked stores end exactly where a run
 * ends, because the next byte may belong to another thread. */
#include "io/tile_emit.h"

#include <immintrin.h>
#include <stdbool.h>

/* The first n of 32 items, n >= 1. */
static inline __mmask32 first32(uint32_t n)
{
    return n >= 32 ? ~(__mmask32)0 : ((__mmask32)1 << n) - 1;
}

/* 32 items of two planes; reads 32 bytes of each. */
static inline __m512i words32(const uint8_t *lo, const uint8_t *hi)
{
    __m512i l = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const void *)lo));
    __m512i h = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const void *)hi));

    return _mm512_or_si512(l, _mm512_slli_epi16(h, 8));
}

static void join2(uint16_t *out, const uint8_t *lo, const uint8_t *hi, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += 32)
        _mm512_mask_storeu_epi16(out + i, first32(n - i), words32(lo + i, hi + i));
}

/* Sums of words 0..i in each of the four lanes, then across them. */
static inline __m512i prefix32(__m512i x)
{
    const __m512i last = _mm512_set1_epi16(0x0f0e);
    const __m512i zero = _mm512_setzero_si512();
    __m512i t, u;

    x = _mm512_add_epi16(x, _mm512_bslli_epi128(x, 2));
    x = _mm512_add_epi16(x, _mm512_bslli_epi128(x, 4));
    x = _mm512_add_epi16(x, _mm512_bslli_epi128(x, 8));
    t = _mm512_shuffle_epi8(x, last);    /* each lane's total: t0 t1 t2 t3 */
    u = _mm512_alignr_epi64(t, zero, 6); /* 0 t0 t1 t2 */
    t = _mm512_add_epi16(t, u);          /* t0, t0+t1, t1+t2, t2+t3 */
    x = _mm512_add_epi16(x, u);
    return _mm512_add_epi16(x, _mm512_alignr_epi64(t, zero, 4)); /* 0 0 t0 t0+t1 */
}

static uint32_t join2_prefix(uint16_t *out, const uint8_t *lo, const uint8_t *hi, uint32_t n)
{
    const __m512i last = _mm512_set1_epi16(31);
    __m512i carry = _mm512_setzero_si512(); /* the item before, in every word */
    uint32_t descents = 0;

    for (uint32_t i = 0; i < n; i += 32) {
        const __m512i local = prefix32(words32(lo + i, hi + i));
        const __m512i x = _mm512_add_epi16(local, carry);
        /* Each item's predecessor: the words moved up by one, the carry moved in. */
        const __m512i lanes = _mm512_alignr_epi64(x, carry, 6);
        const __m512i before = _mm512_alignr_epi8(x, lanes, 14);
        __mmask32 falls = _mm512_mask_cmple_epu16_mask(first32(n - i), x, before);

        descents += (uint32_t)__builtin_popcount(i ? falls : falls & ~1u);
        _mm512_mask_storeu_epi16(out + i, first32(n - i), x);
        /* Not from the sum just stored: the carry's chain is one addition long. */
        carry = _mm512_add_epi16(carry, _mm512_permutexvar_epi16(last, local));
    }
    return descents;
}

static inline void copy_columns(uint16_t *out, const uint16_t *in, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += 32)
        _mm512_mask_storeu_epi16(out + i, first32(n - i),
                                 _mm512_maskz_loadu_epi16(first32(n - i), in + i));
}

/* Word i of a, then word i of b, for words 0..15 or 16..31. */
static inline __m512i zip_words(__m512i a, __m512i b, int upper)
{
    const __m512i index =
        _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6,
                         37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);

    return _mm512_permutex2var_epi16(
        a, upper ? _mm512_add_epi16(index, _mm512_set1_epi16(16)) : index, b);
}

static inline __m512i zip_dwords(__m512i a, __m512i b, int upper)
{
    const __m512i index = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);

    return _mm512_permutex2var_epi32(
        a, upper ? _mm512_add_epi32(index, _mm512_set1_epi32(8)) : index, b);
}

static inline void store_values8(uint8_t *out, __m512i lo, __m512i hi, __mmask32 m)
{
    _mm512_mask_storeu_epi64(out, (__mmask8)m, zip_dwords(lo, hi, 0));
    _mm512_mask_storeu_epi64(out + 64, (__mmask8)(m >> 8), zip_dwords(lo, hi, 1));
}

static inline __attribute__((always_inline)) void
copy_values(uint8_t *out, const uint8_t *const *plane, uint32_t at, uint32_t n, uint32_t width)
{
    for (uint32_t i = 0; i < n && width; i += 32) {
        const __mmask32 m = first32(n - i);
        const __m512i w0 = words32(plane[0] + at + i, plane[1] + at + i);
        __m512i w1, w2, w3;

        if (width == 2) {
            _mm512_mask_storeu_epi16(out + 2 * (uint64_t)i, m, w0);
            continue;
        }
        w1 = words32(plane[2] + at + i, plane[3] + at + i);
        if (width == 4) {
            _mm512_mask_storeu_epi32(out + 4 * (uint64_t)i, (__mmask16)m, zip_words(w0, w1, 0));
            _mm512_mask_storeu_epi32(out + 4 * (uint64_t)i + 64, (__mmask16)(m >> 16),
                                     zip_words(w0, w1, 1));
            continue;
        }
        w2 = words32(plane[4] + at + i, plane[5] + at + i);
        w3 = words32(plane[6] + at + i, plane[7] + at + i);
        store_values8(out + 8 * (uint64_t)i, zip_words(w0, w1, 0), zip_words(w2, w3, 0), m);
        store_values8(out + 8 * (uint64_t)i + 128, zip_words(w0, w1, 1), zip_words(w2, w3, 1),
                      m >> 16);
    }
}

#include "io/tile_emit_rows.inc"
OOC_EMIT_FUNCTIONS(avx512);
