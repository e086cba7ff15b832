/* value_convert.h - a double as the stored value type, rounded to nearest, ties to even. */
#ifndef OOC_TILER_VALUE_CONVERT_H
#define OOC_TILER_VALUE_CONVERT_H

#include "kernels/tile_view.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

/* To a 16-bit format with `mantissa_bits` stored bits and a largest exponent of `max_exp`
 * (2^max_exp is finite). One rounding, also for subnormals: going through float would round twice.
 */
static inline uint16_t ooc_small_from_double(double v, int mantissa_bits, int max_exp)
{
    uint64_t bits;
    uint16_t sign, inf = (uint16_t)((2 * max_exp + 1) << mantissa_bits);
    double magnitude = fabs(v);
    int e;

    memcpy(&bits, &v, sizeof bits);
    sign = (uint16_t)(bits >> 63 << 15);
    if (isnan(v))
        return sign | inf | (uint16_t)(1 << (mantissa_bits - 1));
    if (magnitude == 0)
        return sign;
    if (isinf(v) || ilogb(magnitude) > max_exp)
        return sign | inf;
    e = ilogb(magnitude);
    if (e < 1 - max_exp) /* subnormal: the spacing stops shrinking */
        e = 1 - max_exp;
    /* rint of an exact scaling: the one rounding. A carry moves into the exponent by itself. */
    magnitude = rint(ldexp(magnitude, mantissa_bits - e));
    return sign | (uint16_t)((uint32_t)magnitude + ((uint32_t)(e + max_exp - 1) << mantissa_bits));
}

static inline double ooc_small_to_double(uint16_t bits, int mantissa_bits, int max_exp)
{
    int exponent = (bits & 0x7fff) >> mantissa_bits;
    double mantissa = bits & ((1 << mantissa_bits) - 1);
    double v;

    if (exponent == 2 * max_exp + 1)
        v = mantissa == 0 ? INFINITY : NAN;
    else if (!exponent)
        v = ldexp(mantissa, 1 - max_exp - mantissa_bits);
    else
        v = ldexp(mantissa + (1 << mantissa_bits), exponent - max_exp - mantissa_bits);
    return bits >> 15 ? -v : v;
}

/* Store v as element i of `to`; returns the value that was stored. */
static inline double ooc_value_store(void *to, uint64_t i, ooc_dtype type, double v)
{
    uint16_t small;

    switch (type) {
    case OOC_F64:
        ((double *)to)[i] = v;
        return v;
    case OOC_F16:
        small = ooc_small_from_double(v, 10, 15);
        ((uint16_t *)to)[i] = small;
        return ooc_small_to_double(small, 10, 15);
    case OOC_BF16:
        small = ooc_small_from_double(v, 7, 127);
        ((uint16_t *)to)[i] = small;
        return ooc_small_to_double(small, 7, 127);
    case OOC_F32:
    case OOC_CONST:
        break;
    }
    ((float *)to)[i] = (float)v;
    return (double)((float *)to)[i];
}

static inline const char *ooc_value_type_name(ooc_dtype type)
{
    static const char *const names[] = {"f32", "f64", "f16", "bf16", "const"};

    return names[type];
}
#endif
