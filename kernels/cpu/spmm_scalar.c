/* The portable kernels: any processor that C runs on. */
#include "kernels/cpu/spmm_inside.h"

#define placer    plain_placer
#define placer_of plain_placer_of
#define place     plain_place

static void halves_to_floats(const uint16_t *in, float *out, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        out[i] = ooc_f32_from_f16(in[i]);
}

static void floats_to_doubles(const float *in, double *out, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        out[i] = (double)in[i];
}

#include "kernels/cpu/spmm_values.inc"

#define T        float
#define ACC      float
#define NAME     f32
#define FN(name) name##_f32
#include "kernels/cpu/spmm_scalar.inc"
#include "kernels/cpu/spmm_scalar_adjoint.inc"
#undef ACC
#undef NAME
#undef FN
#define ACC      double
#define NAME     f64
#define FN(name) name##_wide
#include "kernels/cpu/spmm_scalar_adjoint.inc"
#undef T
#undef FN
#define T        double
#define FN(name) name##_f64
#include "kernels/cpu/spmm_scalar.inc"
#include "kernels/cpu/spmm_scalar_adjoint.inc"
#undef T
#undef ACC
#undef NAME

#define TABLE      ooc_spmm_scalar
#define WIDE_MAX_B 4
#include "kernels/cpu/spmm_table.inc"
