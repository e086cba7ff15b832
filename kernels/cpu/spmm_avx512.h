/* spmm_avx512.h - inside the AVX-512 kernels: what spmm_avx512_one.c gives spmm_avx512.c. */
#ifndef OOC_KERNELS_SPMM_AVX512_H
#define OOC_KERNELS_SPMM_AVX512_H

#include "kernels/cpu/spmm_ops.h"

/* B = 1, pieces only. */
void ooc_forward_one_f32_avx512(const ooc_batch_view *a, const ooc_dense_view *d);
void ooc_forward_one_f64_avx512(const ooc_batch_view *a, const ooc_dense_view *d);

/* B = 1, pieces and pairs. */
void ooc_adjoint_one_wide_avx512(const ooc_batch_view *a, const ooc_dense_view *d);
void ooc_adjoint_one_f64_avx512(const ooc_batch_view *a, const ooc_dense_view *d);
#endif
