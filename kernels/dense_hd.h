/* dense_hd.h - arithmetic of the dense layers and optimizers that the CPU's and the GPU's loops
 * share: compiles as C and as CUDA. */
#ifndef OOC_KERNELS_DENSE_HD_H
#define OOC_KERNELS_DENSE_HD_H

#include "kernels/cpu/dense_vector_cpu.h"
#include "kernels/loss_hd.h" /* OOC_HD */

#include <math.h>
#include <stdint.h>

/* Maximum of a pool: a NaN wins and stays, as in PyTorch. */
OOC_HD static inline float ooc_larger(float best, float value)
{
    return value <= best || best != best ? best : value;
}

/* Where pixel i of an upsampled axis comes from. */
OOC_HD static inline uint32_t ooc_low_place(uint32_t i, uint32_t n_low)
{
    return i / 2 < n_low ? i / 2 : n_low - 1;
}

/* Where output index i of n_out reads an axis of n_in: elements *at and *next, weights 1-t and t.
 * In double: float would be off by 4e-5 at index 600. */
OOC_HD static inline float ooc_axis_place(uint32_t i, uint32_t n_in, uint32_t n_out, uint32_t *at,
                                          uint32_t *next)
{
    double x = ((double)i + 0.5) * ((double)n_in / (double)n_out) - 0.5;

    if (x < 0)
        x = 0;
    *at = (uint32_t)x;
    if (*at > n_in - 1)
        *at = n_in - 1;
    *next = *at + 1 < n_in ? *at + 1 : *at;
    return (float)(x - (double)*at);
}

/* The first output index that may read input index i or a later one. */
OOC_HD static inline uint32_t ooc_first_reader(uint32_t i, uint32_t n_in, uint32_t n_out)
{
    double x = ((double)i - 0.5) * ((double)n_out / (double)n_in) - 1.5;

    return x < 0 ? 0 : (uint32_t)x;
}

typedef struct {
    float decay, scale, b1, b2, c2, root, step, eps;
} ooc_adam_factors;

static inline ooc_adam_factors ooc_adam_factors_of(const ooc_adam_args *a)
{
    const ooc_adam_factors f = {(float)a->weight_decay,    a->grad_scale,
                                (float)(1 - a->beta1),     (float)a->beta2,
                                (float)(1 - a->beta2),     (float)(1 / sqrt(a->bias2)),
                                (float)(a->lr / a->bias1), (float)a->eps};

    return f;
}

OOC_HD static inline void ooc_adam_entry(const ooc_adam_factors *f, float *w, float g, float *m,
                                         float *v)
{
    const float d = f->scale * g + f->decay * *w;

    *m += f->b1 * (d - *m);
    *v = f->b2 * *v + f->c2 * d * d;
    *w -= f->step * *m / (sqrtf(*v) * f->root + f->eps);
}

typedef struct {
    float decay, scale, momentum, lr;
} ooc_sgd_factors;

static inline ooc_sgd_factors ooc_sgd_factors_of(const ooc_sgd_args *a)
{
    const ooc_sgd_factors f = {(float)a->weight_decay, a->grad_scale, (float)a->momentum,
                               (float)a->lr};

    return f;
}

/* velocity may be NULL. */
OOC_HD static inline void ooc_sgd_entry(const ooc_sgd_factors *f, float *w, float g,
                                        float *velocity)
{
    float d = f->scale * g + f->decay * *w;

    if (velocity)
        d = *velocity = f->momentum * *velocity + d;
    *w -= f->lr * d;
}
#endif
