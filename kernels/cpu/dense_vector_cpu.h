/* dense_vector_cpu.h - element by element: activations, sums and the optimizers' updates.
 *
 * No threads: each function works on the range it is given. Where a function sums, the caller fixes
 * the ranges and adds their sums in order, so that bits don't depend on the threads. */
#ifndef OOC_KERNELS_DENSE_VECTOR_CPU_H
#define OOC_KERNELS_DENSE_VECTOR_CPU_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* dy[i] = y[i] > 0 ? dy[i] : 0, where y = max(0, .) is the layer's output. */
void ooc_relu_backward_cpu(const float *y, float *dy, uint64_t n);

/* Sum of squares in double. */
double ooc_sum_squares_cpu(const float *x, uint64_t n);

/* PyTorch's torch.optim.Adam (not AdamW: weight decay is added to the gradient), step number t >= 1
 * inside bias1 = 1 - beta1^t and bias2 = 1 - beta2^t. */
typedef struct {
    double lr, beta1, beta2, eps, weight_decay, bias1, bias2;
    float grad_scale; /* multiplies g first: gradient clipping */
} ooc_adam_args;

/* g is read only; m and v are the moments. */
void ooc_adam_cpu(const ooc_adam_args *a, float *w, const float *g, float *m, float *v, uint64_t n);

/* PyTorch's torch.optim.SGD without dampening and Nesterov. `velocity` may be NULL: momentum 0. */
typedef struct {
    double lr, momentum, weight_decay;
    float grad_scale;
} ooc_sgd_args;

void ooc_sgd_cpu(const ooc_sgd_args *a, float *w, const float *g, float *velocity, uint64_t n);

/* Rows r0..r1-1 of out (cols x rows) = transpose of in (rows x cols). */
void ooc_transpose_cpu(const float *in, uint64_t rows, uint64_t cols, float *out, uint64_t c0,
                       uint64_t c1);

#ifdef __cplusplus
}
#endif
#endif
