#include "kernels/cpu/row_set.h"

#include <string.h>

void ooc_fill_neg_zero(ooc_dtype type, void *out, uint64_t bytes)
{
    if (type == OOC_F64)
        for (uint64_t i = 0; i < bytes / sizeof(double); i++)
            ((double *)out)[i] = -0.0;
    else
        for (uint64_t i = 0; i < bytes / sizeof(float); i++)
            ((float *)out)[i] = -0.0f;
}

void ooc_row_set_clear(ooc_row_set *s)
{
    memset(s, 0, sizeof *s);
}

void ooc_row_set_fold(ooc_row_set *s, ooc_fold_fn fold, void *G, uint64_t ldg, void *acc,
                      ooc_panel_layout l, uint32_t row0, uint32_t B)
{
    uint16_t list[256 + 64];
    uint32_t n = 0;

    for (uint32_t w = 0; w < 65536 / 64; w++) {
        for (uint64_t bits = s->bits[w]; bits; bits &= bits - 1)
            list[n++] = (uint16_t)(w * 64 + (uint32_t)__builtin_ctzll(bits));
        s->bits[w] = 0;
        if (n >= 256) {
            fold(G, ldg, acc, l, list, n, row0, B);
            n = 0;
        }
    }
    fold(G, ldg, acc, l, list, n, row0, B);
}
