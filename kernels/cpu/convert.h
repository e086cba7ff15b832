/* convert.h - one f16 or bf16 as f32, exactly. */
#ifndef OOC_KERNELS_CONVERT_H
#define OOC_KERNELS_CONVERT_H

#include "kernels/tile_view.h"

#include <string.h>

static inline float ooc_f32_from_bits(uint32_t bits)
{
    float f;

    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline float ooc_f32_from_bf16(uint16_t h)
{
    return ooc_f32_from_bits((uint32_t)h << 16);
}

/* IEEE half, subnormals, infinities and NaN included. */
static inline float ooc_f32_from_f16(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16, magnitude = h & 0x7fffu;

    if (magnitude >= 0x7c00u) /* infinity, NaN */
        return ooc_f32_from_bits(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
    if (magnitude >= 0x0400u) /* exponent bias 15 -> 127 */
        return ooc_f32_from_bits(sign | ((magnitude << 13) + ((127u - 15u) << 23)));
    return ooc_f32_from_bits(sign | 0x3f800000u) * (float)magnitude * 0x1p-24f;
}
#endif
