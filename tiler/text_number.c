#include "tiler/text_number.h"

#include <pthread.h>
#include <stdbool.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Three ways, the first that applies:
 * 1. at most 15 digits and a power of ten up to 22: both are exact doubles, one operation rounds;
 * 2. at most 19 digits: times a 128-bit truncated power of five; the product is known to within two
 *    units of its last place, which decides the rounding unless it lies next to a half;
 * 3. everything else: strtod. */

enum { MIN_POWER = -342, MAX_POWER = 308, N_POWERS = MAX_POWER - MIN_POWER + 1 };

/* 5^q = (hi * 2^64 + lo + less than one) * 2^exp2, with the top bit of hi set. */
typedef struct {
    uint64_t hi, lo;
    int exp2;
} power5;

static power5 powers[N_POWERS];
static pthread_once_t powers_once = PTHREAD_ONCE_INIT;

enum { BIG_WORDS = 36 }; /* 1,152 bits: 5^308 has 716; 2^1100 / 5^342 keeps 305 */

static power5 top_bits(const uint32_t *big, int scale)
{
    unsigned __int128 top = 0;
    int w = BIG_WORDS - 1, lead, bits;
    power5 p;

    while (!big[w])
        w--;
    lead = __builtin_clz(big[w]);
    bits = 32 * (w + 1) - lead; /* the length of the number */
    for (int i = 0; i < 128; i++) {
        int bit = bits - 1 - i;

        top <<= 1;
        if (bit >= 0)
            top |= (big[bit / 32] >> (bit % 32)) & 1u;
    }
    p.hi = (uint64_t)(top >> 64);
    p.lo = (uint64_t)top;
    p.exp2 = bits - 128 - scale;
    return p;
}

static void make_powers(void)
{
    enum { SCALE = 1100 };
    uint32_t big[BIG_WORDS] = {1};

    for (int q = 0; q <= MAX_POWER; q++) {
        uint64_t carry = 0;

        powers[q - MIN_POWER] = top_bits(big, 0);
        for (int w = 0; w < BIG_WORDS; w++) {
            carry += (uint64_t)big[w] * 5;
            big[w] = (uint32_t)carry;
            carry >>= 32;
        }
    }
    memset(big, 0, sizeof big);
    big[SCALE / 32] = 1u << (SCALE % 32);
    for (int q = -1; q >= MIN_POWER; q--) {
        uint64_t rest = 0;

        for (int w = BIG_WORDS - 1; w >= 0; w--) {
            rest = rest << 32 | big[w];
            big[w] = (uint32_t)(rest / 5);
            rest %= 5;
        }
        powers[q - MIN_POWER] = top_bits(big, SCALE);
    }
}

/* w * 10^q rounded to nearest; false where this way cannot tell. w is not 0. */
static bool from_128_bits(uint64_t w, int q, double *out)
{
    const power5 *p = &powers[q - MIN_POWER];
    int lead = __builtin_clzll(w);
    uint64_t wn = w << lead;
    unsigned __int128 product =
        (unsigned __int128)wn * p->hi + (uint64_t)(((unsigned __int128)wn * p->lo) >> 64);
    int shift = (product >> 127) ? 75 : 74;
    unsigned __int128 half = (unsigned __int128)1 << (shift - 1);
    unsigned __int128 rest = product & ((half << 1) - 1);
    uint64_t mantissa = (uint64_t)(product >> shift);
    int exp2 = shift + 64 + p->exp2 - lead + q;
    uint64_t bits;

    if (rest + 3 >= half && rest <= half) /* the true product is in [product, product + 2) */
        return false;
    if (rest > half && ++mantissa >> 53) {
        mantissa >>= 1;
        exp2++;
    }
    exp2 += 1075; /* mantissa * 2^exp2 with the hidden bit, biased */
    if (exp2 < 1 || exp2 > 2046)
        return false;
    bits = (uint64_t)exp2 << 52 | (mantissa & (((uint64_t)1 << 52) - 1));
    memcpy(out, &bits, sizeof *out);
    return true;
}

static const char *slow_double(const char *start, const char *end, double *out)
{
    char text[1200];
    size_t n = (size_t)(end - start);
    char *stop;

    if (n >= sizeof text)
        return NULL;
    memcpy(text, start, n);
    text[n] = 0;
    for (char *c = text; *c; c++)
        if (*c == 'd' || *c == 'D')
            *c = 'e';
    *out = strtod(text, &stop);
    return stop == text + n ? end : NULL;
}

/* "inf", "infinity", "nan" at p, behind the sign. */
static const char *word(const char *p, bool negative, double *out)
{
    if (strncasecmp(p, "nan", 3) == 0) {
        *out = NAN;
        return p + 3;
    }
    if (strncasecmp(p, "inf", 3) != 0)
        return NULL;
    *out = negative ? -INFINITY : INFINITY;
    return strncasecmp(p, "infinity", 8) == 0 ? p + 8 : p + 3;
}

static inline bool is_digit(char c)
{
    return (unsigned)(c - '0') < 10;
}

/* Eight digits at once: true and their value if all eight bytes are digits. */
static inline bool eight_digits(const char *p, uint64_t *value)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    uint64_t v;

    memcpy(&v, p, 8);
    if (((v & 0xf0f0f0f0f0f0f0f0u) | (((v + 0x0606060606060606u) & 0xf0f0f0f0f0f0f0f0u) >> 4)) !=
        0x3333333333333333u)
        return false;
    v -= 0x3030303030303030u;
    v = v * 10 + (v >> 8);
    v = ((v & 0x000000ff000000ffu) * 0x000f424000000064u +
         ((v >> 16) & 0x000000ff000000ffu) * 0x0000271000000001u) >>
        32;
    *value = v & 0xffffffffu;
    return true;
#else
    (void)p;
    (void)value;
    return false;
#endif
}

static inline const char *digits(const char *p, uint64_t *w)
{
    uint64_t v;

    while (eight_digits(p, &v)) {
        *w = *w * 100000000u + v;
        p += 8;
    }
    for (; is_digit(*p); p++)
        *w = *w * 10 + (uint64_t)(*p - '0');
    return p;
}

const char *ooc_text_u64(const char *p, uint64_t *out)
{
    const char *start = p;
    uint64_t v = 0;

    for (; is_digit(*p); p++) {
        if (p - start >= 19 && (v > UINT64_MAX / 10 || v * 10 > UINT64_MAX - (uint64_t)(*p - '0')))
            return NULL;
        v = v * 10 + (uint64_t)(*p - '0');
    }
    *out = v;
    return p == start ? NULL : p;
}

/* The digits before an exponent: their value (wrapped where there are more than 19), their number
 * without leading zeros, and how many stand behind the point. */
typedef struct {
    uint64_t w;
    int n, n_fraction;
} decimal;

static inline const char *read_decimal(const char *p, decimal *d)
{
    const char *start = p;
    const char *end;

    d->w = 0;
    p = digits(p, &d->w);
    d->n = (int)(p - start);
    d->n_fraction = 0;
    if (*p == '.') {
        const char *fraction = p + 1;

        p = digits(fraction, &d->w);
        d->n_fraction = (int)(p - fraction);
        d->n += d->n_fraction;
    }
    if (!d->n)
        return NULL;
    end = p;
    if (d->n > 19) /* leading zeros do not count */
        for (p = start; *p == '0' || *p == '.'; p++)
            d->n -= *p == '0';
    return end;
}

/* A mark and its digits at p, if there is one; NULL where the digits are missing. */
static inline const char *read_exponent(const char *p, int *exponent)
{
    char mark = (char)(*p | 0x20);
    bool negative = false;
    int e = 0;

    if (mark != 'e' && mark != 'd')
        return p;
    p++;
    if (*p == '-' || *p == '+')
        negative = *p++ == '-';
    if (!is_digit(*p))
        return NULL;
    for (; is_digit(*p); p++)
        if (e < 100000)
            e = e * 10 + (*p - '0');
    *exponent += negative ? -e : e;
    return p;
}

static inline bool fast_double(const decimal *d, int q, double *out)
{
    static const double tens[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                  1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                  1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

    if (d->n > 19)
        return false;
    if (d->w <= (uint64_t)1 << 53 && q >= -22 && q <= 22) {
        *out = q < 0 ? (double)d->w / tens[-q] : (double)d->w * tens[q];
        return true;
    }
    if (!d->w) {
        *out = 0;
        return true;
    }
    return q >= MIN_POWER && q <= MAX_POWER && from_128_bits(d->w, q, out);
}

const char *ooc_text_double(const char *p, double *out)
{
    const char *start = p, *end;
    bool negative = false;
    decimal d;
    int q;

    pthread_once(&powers_once, make_powers);
    if (*p == '-' || *p == '+')
        negative = *p++ == '-';
    end = read_decimal(p, &d);
    if (!end)
        return word(p, negative, out);
    q = -d.n_fraction;
    end = read_exponent(end, &q);
    if (!end)
        return NULL;
    if (!fast_double(&d, q, out))
        return slow_double(start, end, out);
    if (negative)
        *out = -*out;
    return end;
}
