#include "kernels/dense_hd.h"

#include <stddef.h>

void ooc_relu_backward_cpu(const float *y, float *dy, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        dy[i] = y[i] > 0 ? dy[i] : 0;
}

double ooc_sum_squares_cpu(const float *x, uint64_t n)
{
    double sum[8] = {0};
    uint64_t i = 0;

    for (; i + 8 <= n; i += 8)
        for (uint32_t k = 0; k < 8; k++)
            sum[k] += (double)x[i + k] * (double)x[i + k];
    for (; i < n; i++)
        sum[0] += (double)x[i] * (double)x[i];
    return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

void ooc_adam_cpu(const ooc_adam_args *a, float *w, const float *g, float *m, float *v, uint64_t n)
{
    const ooc_adam_factors f = ooc_adam_factors_of(a);

    for (uint64_t i = 0; i < n; i++)
        ooc_adam_entry(&f, w + i, g[i], m + i, v + i);
}

void ooc_sgd_cpu(const ooc_sgd_args *a, float *w, const float *g, float *velocity, uint64_t n)
{
    const ooc_sgd_factors f = ooc_sgd_factors_of(a);

    for (uint64_t i = 0; i < n; i++)
        ooc_sgd_entry(&f, w + i, g[i], velocity ? velocity + i : NULL);
}

void ooc_transpose_cpu(const float *in, uint64_t rows, uint64_t cols, float *out, uint64_t c0,
                       uint64_t c1)
{
    for (uint64_t c = c0; c < c1; c++)
        for (uint64_t r = 0; r < rows; r++)
            out[c * rows + r] = in[r * cols + c];
}
