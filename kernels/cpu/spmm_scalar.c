/* The portable kernels: any processor that C runs on. */
#include "kernels/cpu/convert.h"
#include "kernels/cpu/spmm_ops.h"

#include <string.h>

#include "kernels/cpu/spmm_place.inc"

static void halves_to_floats(const uint16_t *in, float *out, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        out[i] = ooc_f32_from_f16(in[i]);
}

#define T        float
#define ACC      float
#define FN(name) name##_f32
#include "kernels/cpu/spmm_scalar.inc"
#include "kernels/cpu/spmm_scalar_adjoint.inc"
#undef ACC
#undef FN
#define ACC      double
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

#define TABLE      ooc_spmm_scalar
#define WIDE_MAX_B 4
#include "kernels/cpu/spmm_table.inc"
