#include "io/tile_emit.h"

#include <stdbool.h>
#include <string.h>

static void join2(uint16_t *out, const uint8_t *lo, const uint8_t *hi, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        out[i] = (uint16_t)(lo[i] | hi[i] << 8);
}

static uint32_t join2_prefix(uint16_t *out, const uint8_t *lo, const uint8_t *hi, uint32_t n)
{
    uint16_t sum = 0;
    uint32_t descents = 0;

    for (uint32_t i = 0; i < n; i++) {
        uint16_t next = (uint16_t)(sum + (lo[i] | hi[i] << 8));

        descents += i > 0 && next <= sum;
        out[i] = sum = next;
    }
    return descents;
}

static inline void copy_columns(uint16_t *out, const uint16_t *in, uint32_t n)
{
    memcpy(out, in, 2 * (uint64_t)n);
}

static inline void copy_values(uint8_t *out, const uint8_t *const *plane, uint32_t at, uint32_t n,
                               uint32_t width)
{
    if (width == 0)
        return;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t v = 0;

        for (uint32_t b = 0; b < width; b++)
            v |= (uint64_t)plane[b][at + i] << (8 * b);
        memcpy(out + (uint64_t)i * width, &v, width);
    }
}

#include "io/tile_emit_rows.inc"
OOC_EMIT_FUNCTIONS(scalar);
