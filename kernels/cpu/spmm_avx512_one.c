/* AVX-512 kernels for one right-hand column. */
#include "kernels/cpu/spmm_avx512.h"

/* X at 16 (8) places, those of `m`; others give 0. A gather merges into its old destination: a
 * fresh zero each time keeps gathers independent of each other, and the compiler would leave it out
 * if it knew the mask to be full. */
INLINE __m512 gather16(const void *x, __m512i at, __mmask16 m)
{
    __m512 zero = _mm512_setzero_ps();

    __asm__("" : "+v"(zero), "+Yk"(m));
    return _mm512_mask_i32gather_ps(zero, m, at, x, 1);
}

INLINE __m512d gather8(const void *x, __m256i at, __mmask8 m)
{
    __m512d zero = _mm512_setzero_pd();

    __asm__("" : "+v"(zero), "+Yk"(m));
    return _mm512_mask_i32gather_pd(zero, m, at, x, 1);
}

INLINE __m512 products16(const placer *pl, const float *val, const uint16_t *col, const void *x,
                         __mmask16 m, __m512 sum)
{
    prefetch(col + PREFETCH_ENTRIES);
    prefetch(val + PREFETCH_ENTRIES);
    return _mm512_fmadd_ps(_mm512_maskz_loadu_ps(m, val), gather16(x, places16(pl, col, m), m),
                           sum);
}

/* The sum over n <= OOC_PIECE entries of val[e] * X[col[e]]. */
INLINE float dot_f32(const placer *pl, const float *val, const uint16_t *col, const void *x,
                     uint32_t n)
{
    __m512 s0 = _mm512_setzero_ps(), s1 = s0;
    uint32_t e = 0;

    for (; e + 32 <= n; e += 32) {
        s0 = products16(pl, val + e, col + e, x, 0xffff, s0);
        s1 = products16(pl, val + e + 16, col + e + 16, x, 0xffff, s1);
    }
    if (e + 16 <= n) {
        s0 = products16(pl, val + e, col + e, x, 0xffff, s0);
        e += 16;
    }
    if (e < n)
        s1 = products16(pl, val + e, col + e, x, first16(n - e), s1);
    return _mm512_reduce_add_ps(_mm512_add_ps(s0, s1));
}

INLINE double dot_f64(const placer *pl, const double *val, const uint16_t *col, const void *x,
                      uint32_t n)
{
    __m512d s0 = _mm512_setzero_pd(), s1 = s0;

    for (uint32_t e = 0; e < n; e += 16) {
        const __m512i at = places16(pl, col + e, first16(n - e));
        const __mmask8 lo = first8(n - e), hi = (__mmask8)(first16(n - e) >> 8);

        prefetch(col + e + PREFETCH_ENTRIES);
        prefetch(val + e + PREFETCH_ENTRIES);
        prefetch(val + e + 8 + PREFETCH_ENTRIES);

        s0 = _mm512_fmadd_pd(_mm512_maskz_loadu_pd(lo, val + e),
                             gather8(x, _mm512_castsi512_si256(at), lo), s0);
        s1 = _mm512_fmadd_pd(_mm512_maskz_loadu_pd(hi, val + e + 8),
                             gather8(x, _mm512_extracti64x4_epi64(at, 1), hi), s1);
    }
    return _mm512_reduce_add_pd(_mm512_add_pd(s0, s1));
}

/* Y[row] += sum over the piece of val * X[col]; of pairs, the entries of one row are a piece. */
#define DEFINE_FORWARD(T, NAME)                                                                    \
    void ooc_forward_one_##NAME##_avx512(const ooc_work *w, const ooc_dense *d)                    \
    {                                                                                              \
        const placer pl = placer_of(w);                                                            \
        value_buffer buf;                                                                          \
                                                                                                   \
        values_begin_##NAME(w, &buf);                                                              \
        for (uint32_t i = 0; w->piece && i < w->n; i++) {                                          \
            const ooc_piece p = w->piece[i];                                                       \
                                                                                                   \
            ((T *)d->out)[p.row * d->ld_out] += dot_##NAME(                                        \
                &pl, values_##NAME(w, p.ent, p.len, &buf), w->col + p.ent, d->in, p.len);          \
        }                                                                                          \
        if (!w->piece)                                                                             \
            forward_pairs_##NAME(w, d, &pl, &buf);                                                 \
    }

INLINE void multiply_f32(const placer *pl, const float *val, const uint16_t *col, const void *x,
                         uint32_t n, float *prod)
{
    for (uint32_t e = 0; e < n; e += 16)
        _mm512_store_ps(prod + e,
                        products16(pl, val + e, col + e, x, first16(n - e), _mm512_setzero_ps()));
}

INLINE void multiply_f64(const placer *pl, const double *val, const uint16_t *col, const void *x,
                         uint32_t n, double *prod)
{
    for (uint32_t e = 0; e < n; e += 8) {
        const __mmask8 m = first8(n - e);
        const __m256i at = _mm512_castsi512_si256(places16(pl, col + e, m));

        _mm512_store_pd(prod + e,
                        _mm512_mul_pd(_mm512_maskz_loadu_pd(m, val + e), gather8(x, at, m)));
    }
}

/* Products of a block by vectors, then row by row. */
#define DEFINE_FORWARD_PAIRS(T, NAME)                                                              \
    static void forward_pairs_##NAME(const ooc_work *w, const ooc_dense *d, const placer *pl,      \
                                     value_buffer *buf)                                            \
    {                                                                                              \
        _Alignas(64) T prod[OOC_PIECE];                                                            \
                                                                                                   \
        for (uint32_t first = 0, n; first < w->n; first += n) {                                    \
            const uint16_t *row = w->row + first;                                                  \
            const uint32_t ent = w->ent + first;                                                   \
                                                                                                   \
            n = ooc_whole_rows(row, w->n - first, OOC_PIECE);                                      \
            multiply_##NAME(pl, values_##NAME(w, ent, n, buf), w->col + ent, d->in, n, prod);      \
            for (uint32_t i = 0; i < n;) {                                                         \
                T *y = (T *)d->out + row[i] * d->ld_out, sum = prod[i];                            \
                                                                                                   \
                for (i++; i < n && row[i] == row[i - 1]; i++)                                      \
                    sum += prod[i];                                                                \
                *y += sum;                                                                         \
            }                                                                                      \
        }                                                                                          \
    }

DEFINE_FORWARD_PAIRS(float, f32)
DEFINE_FORWARD_PAIRS(double, f64)
DEFINE_FORWARD(float, f32)
DEFINE_FORWARD(double, f64)

/* A piece of the adjoint on its way: products, places, and where runs of adjacent columns begin. */
typedef struct {
    _Alignas(64) double prod[OOC_PIECE + 8];
    _Alignas(64) uint32_t at[OOC_PIECE];
    uint16_t starts[OOC_PIECE / 16]; /* bit e % 16 of starts[e / 16]: entry e begins a run */
    uint32_t n_runs;
    bool odd; /* some run begins at an odd entry */
} product_buffer;

/* Which of the 16 entries at `col` (those of m) stand next to the one before; `first`: there is
 * none before. A gap of the layout parts neighbours too. */
INLINE uint32_t run_starts(const uint16_t *col, __mmask16 m, bool first, __m256i col0,
                           __m256i gap_mask)
{
    const __m256i here = _mm256_maskz_loadu_epi16(m, col);
    const __m256i before = _mm256_maskz_loadu_epi16((__mmask16)(first ? m & 0xfffe : m), col - 1);
    const __m256i step = _mm256_sub_epi16(here, before);
    const uint32_t apart = _mm256_mask_cmpneq_epi16_mask(m, step, _mm256_set1_epi16(1));

    return apart | _mm256_mask_testn_epi16_mask(m, _mm256_sub_epi16(here, col0), gap_mask) | first;
}

/* prod = val * r for the piece's entries; val is f32 or double. */
INLINE void multiply_piece(product_buffer *b, const placer *pl, __m256i col0, __m256i gap_mask,
                           const uint16_t *col, const void *val, bool val_f32, uint32_t n, double r)
{
    const __m512d rr = _mm512_set1_pd(r);
    uint32_t odd_starts = 0, n_runs = 0;

    for (uint32_t e = 0; e < n; e += 16) {
        const __mmask16 m = first16(n - e);
        const uint32_t starts = run_starts(col + e, m, e == 0, col0, gap_mask);
        __m512d lo, hi;

        prefetch(col + e + PREFETCH_ENTRIES);
        prefetch((const char *)val + (e + PREFETCH_ENTRIES) * (val_f32 ? 4 : 8));

        if (val_f32) {
            const __m512 v = _mm512_maskz_loadu_ps(m, (const float *)val + e);

            lo = _mm512_cvtps_pd(_mm512_castps512_ps256(v));
            hi = _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1));
        } else {
            lo = _mm512_maskz_loadu_pd((__mmask8)m, (const double *)val + e);
            hi = _mm512_maskz_loadu_pd((__mmask8)(m >> 8), (const double *)val + e + 8);
        }
        _mm512_store_pd(b->prod + e, _mm512_mul_pd(rr, lo));
        _mm512_store_pd(b->prod + e + 8, _mm512_mul_pd(rr, hi));
        _mm512_store_si512(b->at + e, places16(pl, col + e, m));
        b->starts[e / 16] = (uint16_t)starts;
        n_runs += (uint32_t)__builtin_popcount(starts);
        odd_starts |= starts & 0xaaaa;
    }
    b->n_runs = n_runs;
    b->odd = odd_starts != 0;
}

INLINE double *acc_at(char *acc, uint32_t at)
{
    return (double *)(acc + at);
}

/* acc[col[e]] += prod[e], two neighbours at a time: no run begins at an odd entry. */
INLINE void add_pairs(char *acc, const uint32_t *at, const double *prod, uint32_t len)
{
    uint32_t e = 0;

#pragma GCC unroll 4
    for (; e + 2 <= len; e += 2) {
        double *g = acc_at(acc, at[e]);

        _mm_storeu_pd(g, _mm_add_pd(_mm_loadu_pd(g), _mm_load_pd(prod + e)));
    }
    if (e < len)
        *acc_at(acc, at[e]) += prod[e];
}

INLINE void add_singles(char *acc, const uint32_t *at, const double *prod, uint32_t len)
{
#pragma GCC unroll 8
    for (uint32_t e = 0; e < len; e++)
        *acc_at(acc, at[e]) += prod[e];
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
                double *g = acc_at(acc, at[first]);
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

INLINE void adjoint_pieces(const ooc_work *work, const ooc_dense *dense, value_buffer *buf,
                           bool val_f32, bool wide)
{
    const ooc_work copy = *work, *w = &copy; /* which stores cannot change */
    const ooc_dense d = *dense;
    const placer pl = placer_of(w);
    const __m256i col0 = _mm256_set1_epi16((short)w->col0);
    const __m256i gap_mask = _mm256_set1_epi16((short)((1u << w->l.gap_shift) - 1u));
    product_buffer b;

    for (uint32_t i = 0; i < w->n; i++) {
        const ooc_piece p = w->piece[i];
        const void *val = val_f32 ? (const void *)((const float *)w->val + p.ent)
                                  : values_f64(w, p.ent, p.len, buf);

        multiply_piece(&b, &pl, col0, gap_mask, w->col + p.ent, val, val_f32, p.len,
                       element(d.in, p.row * d.ld_in, wide));
        if (b.n_runs * RUN_WORTH <= p.len)
            add_runs(d.out, b.at, b.prod, b.starts, p.len);
        else if (!b.odd)
            add_pairs(d.out, b.at, b.prod, p.len);
        else
            add_singles(d.out, b.at, b.prod, p.len);
    }
}

INLINE void adjoint_pairs(const ooc_work *w, const ooc_dense *d, value_buffer *buf, bool wide)
{
    const placer pl = placer_of(w);
    place_buffer at;

    for (uint32_t first = 0; first < w->n; first += OOC_PIECE) {
        const uint32_t n = w->n - first < OOC_PIECE ? w->n - first : OOC_PIECE;
        const double *val = values_f64(w, w->ent + first, n, buf);

        place(&at, &pl, w->col + w->ent + first, n);
        for (uint32_t i = 0; i < n; i++)
            *acc_at(d->out, at.at[i]) +=
                val[i] * element(d->in, w->row[first + i] * d->ld_in, wide);
    }
}

/* acc[col] += val * R[row]. */
INLINE void adjoint_one(const ooc_work *w, const ooc_dense *d, bool wide)
{
    value_buffer buf;

    values_begin_f64(w, &buf);
    if (w->piece && w->vtype == OOC_F32)
        adjoint_pieces(w, d, &buf, true, wide);
    else if (w->piece)
        adjoint_pieces(w, d, &buf, false, wide);
    else
        adjoint_pairs(w, d, &buf, wide);
}

void ooc_adjoint_one_wide_avx512(const ooc_work *w, const ooc_dense *d)
{
    adjoint_one(w, d, true);
}

void ooc_adjoint_one_f64_avx512(const ooc_work *w, const ooc_dense *d)
{
    adjoint_one(w, d, false);
}
