/* The portable kernels: any processor that C runs on. */
#include "kernels/cpu/row_set.h"
#include "kernels/cpu/spmm_ops.h"

#define T        float
#define FN(name) name##_f32
#include "kernels/cpu/spmm_scalar.inc"
#define ACC float
#include "kernels/cpu/spmm_scalar_adjoint.inc"
#include "kernels/cpu/spmm_fold.inc"
#undef ACC
#undef FN
#define FN(name) name##_wide
#define ACC      double
#include "kernels/cpu/spmm_scalar_adjoint.inc"
#include "kernels/cpu/spmm_fold.inc"
#undef ACC
#undef FN
#undef T

#define T        double
#define FN(name) name##_f64
#include "kernels/cpu/spmm_scalar.inc"
#define ACC double
#include "kernels/cpu/spmm_scalar_adjoint.inc"
#include "kernels/cpu/spmm_fold.inc"

const ooc_spmm_ops ooc_spmm_scalar = {
    .f32 = {.forward = forward_f32,
            .adjoint = adjoint_f32,
            .adjoint_wide = adjoint_wide,
            .fold = fold_f32,
            .fold_wide = fold_wide,
            .wide_max_b = 4},
    .f64 = {.forward = forward_f64, .adjoint = adjoint_f64, .fold = fold_f64},
};
