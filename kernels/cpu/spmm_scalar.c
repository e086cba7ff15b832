/* The portable kernels: any processor that C runs on. */
#include "kernels/cpu/convert.h"
#include "kernels/cpu/spmm_ops.h"

#include <string.h>

static void place(uint32_t *at, const ooc_piece *piece, uint32_t n, const uint16_t *col,
                  const uint32_t *ent, uint32_t col0, ooc_panel_layout l)
{
    for (uint32_t i = 0; i < n; i++) {
        const uint16_t *restrict from = col + ent[i];
        uint32_t *restrict to = at + piece[i].at;

        for (uint32_t k = 0; k < piece[i].len; k++)
            to[k] = ooc_panel_at(l, (uint32_t)from[k] - col0);
    }
}

static void halves_to_floats(const uint16_t *in, float *out, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        out[i] = ooc_f32_from_f16(in[i]);
}

#define HALVES_TO_FLOATS halves_to_floats
#include "kernels/cpu/spmm_convert.inc"

#define T        float
#define ACC      float
#define FN(name) name##_f32
#include "kernels/cpu/spmm_copy.inc"
#include "kernels/cpu/spmm_panel.inc"
#include "kernels/cpu/spmm_scalar.inc"
#include "kernels/cpu/spmm_scalar_adjoint.inc"
#undef ACC
#undef FN

#define ACC      double
#define FN(name) name##_wide
#include "kernels/cpu/spmm_panel.inc"
#include "kernels/cpu/spmm_scalar_adjoint.inc"
#undef T
#undef FN

#define T        double
#define FN(name) name##_f64
#include "kernels/cpu/spmm_copy.inc"
#include "kernels/cpu/spmm_panel.inc"
#include "kernels/cpu/spmm_scalar.inc"
#include "kernels/cpu/spmm_scalar_adjoint.inc"

const ooc_spmm_ops ooc_spmm_scalar = {
    .f32 = {.forward = forward_f32,
            .adjoint = adjoint_f32,
            .adjoint_wide = adjoint_wide,
            .copy_in = copy_in_f32,
            .fold = fold_f32,
            .fold_wide = fold_wide,
            .wide_max_b = 4},
    .f64 = {.forward = forward_f64,
            .adjoint = adjoint_f64,
            .copy_in = copy_in_f64,
            .fold = fold_f64},
    .place = place,
    .convert = convert,
};
