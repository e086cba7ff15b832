/* AVX2: 16 columns or 16 values at a time. There are no masked stores of words: the end of a run is
 * stored by a vector that overlaps the one before, or piece by piece, because the byte behind a run
 * may belong to another thread. */
#include "io/tile_emit.h"

#include <immintrin.h>
#include <stdbool.h>
#include <string.h>

/* 16 items of two planes; reads 16 bytes of each. */
static inline __m256i words16(const uint8_t *lo, const uint8_t *hi)
{
    __m256i l = _mm256_cvtepu8_epi16(_mm_loadu_si128((const void *)lo));
    __m256i h = _mm256_cvtepu8_epi16(_mm_loadu_si128((const void *)hi));

    return _mm256_or_si256(l, _mm256_slli_epi16(h, 8));
}

/* The first n of 16 words, n < 16: stored in parts of 8, 4, 2, 1. */
static inline void store_some(uint16_t *out, __m256i x, uint32_t n)
{
    __m128i part = _mm256_castsi256_si128(x);

    if (n & 8) {
        _mm_storeu_si128((void *)out, part);
        part = _mm256_extracti128_si256(x, 1);
        out += 8;
    }
    if (n & 4) {
        _mm_storel_epi64((void *)out, part);
        part = _mm_bsrli_si128(part, 8);
        out += 4;
    }
    if (n & 2) {
        int two = _mm_cvtsi128_si32(part);

        memcpy(out, &two, 4);
        part = _mm_bsrli_si128(part, 4);
        out += 2;
    }
    if (n & 1)
        *out = (uint16_t)_mm_cvtsi128_si32(part);
}

static void join2(uint16_t *out, const uint8_t *lo, const uint8_t *hi, uint32_t n)
{
    uint32_t i = 0;

    for (; i + 16 <= n; i += 16)
        _mm256_storeu_si256((void *)(out + i), words16(lo + i, hi + i));
    if (i < n)
        store_some(out + i, words16(lo + i, hi + i), n - i);
}

/* Sums of words 0..i in each of the two lanes, then across. */
static inline __m256i prefix16(__m256i x)
{
    const __m256i last = _mm256_set1_epi16(0x0f0e);
    __m256i t;

    x = _mm256_add_epi16(x, _mm256_bslli_epi128(x, 2));
    x = _mm256_add_epi16(x, _mm256_bslli_epi128(x, 4));
    x = _mm256_add_epi16(x, _mm256_bslli_epi128(x, 8));
    t = _mm256_shuffle_epi8(x, last);
    return _mm256_add_epi16(x, _mm256_permute2x128_si256(t, t, 0x08)); /* 0 t0 */
}

/* Bytes of the mask are set where x <= before, unsigned. */
static inline uint32_t not_above(__m256i x, __m256i before)
{
    return (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi16(_mm256_max_epu16(x, before), before));
}

/* The bytes of the first n of 16 words, n >= 1. */
static inline uint32_t first_words(uint32_t n)
{
    return n >= 16 ? ~0u : (1u << (2 * n)) - 1;
}

static uint32_t join2_prefix(uint16_t *out, const uint8_t *lo, const uint8_t *hi, uint32_t n)
{
    const __m256i last = _mm256_set1_epi16(0x0f0e);
    __m256i carry = _mm256_setzero_si256(); /* the item before, in every word */
    uint32_t descents = 0;

    for (uint32_t i = 0; i < n; i += 16) {
        const __m256i local = prefix16(words16(lo + i, hi + i));
        const __m256i total =
            _mm256_shuffle_epi8(_mm256_permute2x128_si256(local, local, 0x11), last);
        const __m256i x = _mm256_add_epi16(local, carry);
        /* Each item's predecessor: the words moved up by one, the carry moved in. */
        const __m256i lanes = _mm256_permute2x128_si256(carry, x, 0x21);
        const __m256i before = _mm256_alignr_epi8(x, lanes, 14);
        uint32_t falls = not_above(x, before) & first_words(n - i);

        descents += (uint32_t)__builtin_popcount(i ? falls : falls & ~3u) / 2;
        if (n - i >= 16)
            _mm256_storeu_si256((void *)(out + i), x);
        else
            store_some(out + i, x, n - i);
        carry = _mm256_add_epi16(carry, total);
    }
    return descents;
}

static inline void copy_columns(uint16_t *out, const uint16_t *in, uint32_t n)
{
    uint32_t i = 0;

    for (; i + 16 <= n; i += 16)
        _mm256_storeu_si256((void *)(out + i), _mm256_loadu_si256((const void *)(in + i)));
    if (i < n)
        store_some(out + i, _mm256_loadu_si256((const void *)(in + i)), n - i);
}

/* 16 values of `width` bytes into out; reads 16 bytes of each plane. */
static inline __attribute__((always_inline)) void
join_values(uint8_t *out, const uint8_t *const *plane, uint64_t at, uint32_t width)
{
    __m128i w[8], d[8]; /* by pairs of planes: words 0..7, 8..15; then dwords */

    for (uint32_t b = 0; b < width; b += 2) {
        __m128i lo = _mm_loadu_si128((const void *)(plane[b] + at));
        __m128i hi = _mm_loadu_si128((const void *)(plane[b + 1] + at));

        w[b] = _mm_unpacklo_epi8(lo, hi);
        w[b + 1] = _mm_unpackhi_epi8(lo, hi);
    }
    if (width == 2) {
        _mm_storeu_si128((void *)out, w[0]);
        _mm_storeu_si128((void *)(out + 16), w[1]);
        return;
    }
    for (uint32_t b = 0; b < width; b += 4) {
        d[b] = _mm_unpacklo_epi16(w[b], w[b + 2]);
        d[b + 1] = _mm_unpackhi_epi16(w[b], w[b + 2]);
        d[b + 2] = _mm_unpacklo_epi16(w[b + 1], w[b + 3]);
        d[b + 3] = _mm_unpackhi_epi16(w[b + 1], w[b + 3]);
    }
    for (uint32_t q = 0; q < 4; q++) {
        if (width == 4) {
            _mm_storeu_si128((void *)(out + 16 * q), d[q]);
            continue;
        }
        _mm_storeu_si128((void *)(out + 32 * q), _mm_unpacklo_epi32(d[q], d[q + 4]));
        _mm_storeu_si128((void *)(out + 32 * q + 16), _mm_unpackhi_epi32(d[q], d[q + 4]));
    }
}

static inline __attribute__((always_inline)) void
copy_values(uint8_t *out, const uint8_t *const *plane, uint32_t at, uint32_t n, uint32_t width)
{
    uint8_t some[16 * 8];
    uint32_t i = 0;

    if (!width)
        return;
    for (; i + 16 <= n; i += 16)
        join_values(out + (uint64_t)i * width, plane, (uint64_t)at + i, width);
    if (i == n)
        return;
    if (n >= 16) { /* once more, ending with the run */
        join_values(out + (uint64_t)(n - 16) * width, plane, (uint64_t)at + n - 16, width);
        return;
    }
    join_values(some, plane, at, width);
    memcpy(out, some, (uint64_t)n * width);
}

#include "io/tile_emit_rows.inc"
OOC_EMIT_FUNCTIONS(avx2);
