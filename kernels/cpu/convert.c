#include "kernels/cpu/convert.h"

#define LOOP(out_t, in_t, expr)                                                                    \
    do {                                                                                           \
        const in_t *src = in;                                                                      \
        out_t *dst = out;                                                                          \
        for (uint32_t i = 0; i < n; i++)                                                           \
            dst[i] = (out_t)(expr);                                                                \
    } while (0)

void ooc_convert_values(ooc_dtype in_type, const void *in, ooc_dtype out_type, void *out,
                        uint32_t n)
{
    const int wide = out_type == OOC_F64;

    switch (in_type) {
    case OOC_F32:
        if (wide)
            LOOP(double, float, src[i]);
        else
            memcpy(out, in, (size_t)n * sizeof(float));
        break;
    case OOC_F64:
        if (wide)
            memcpy(out, in, (size_t)n * sizeof(double));
        else
            LOOP(float, double, src[i]);
        break;
    case OOC_F16:
        if (wide)
            LOOP(double, uint16_t, ooc_f32_from_f16(src[i]));
        else
            LOOP(float, uint16_t, ooc_f32_from_f16(src[i]));
        break;
    case OOC_BF16:
        if (wide)
            LOOP(double, uint16_t, ooc_f32_from_bf16(src[i]));
        else
            LOOP(float, uint16_t, ooc_f32_from_bf16(src[i]));
        break;
    case OOC_CONST:
        break;
    }
}

void ooc_fill_values(ooc_dtype out_type, double value, uint32_t n, void *out)
{
    if (out_type == OOC_F64)
        for (uint32_t i = 0; i < n; i++)
            ((double *)out)[i] = value;
    else
        for (uint32_t i = 0; i < n; i++)
            ((float *)out)[i] = (float)value;
}
