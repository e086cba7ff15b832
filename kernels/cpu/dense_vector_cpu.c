#include "kernels/cpu/dense_vector_cpu.h"

#include <math.h>

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
    const float decay = (float)a->weight_decay, scale = a->grad_scale;
    const float b1 = (float)(1 - a->beta1), b2 = (float)a->beta2, c2 = (float)(1 - a->beta2);
    const float root = (float)(1 / sqrt(a->bias2)), step = (float)(a->lr / a->bias1);
    const float eps = (float)a->eps;

    for (uint64_t i = 0; i < n; i++) {
        const float d = scale * g[i] + decay * w[i];

        m[i] += b1 * (d - m[i]);
        v[i] = b2 * v[i] + c2 * d * d;
        w[i] -= step * m[i] / (sqrtf(v[i]) * root + eps);
    }
}

void ooc_sgd_cpu(const ooc_sgd_args *a, float *w, const float *g, float *velocity, uint64_t n)
{
    const float decay = (float)a->weight_decay, scale = a->grad_scale;
    const float momentum = (float)a->momentum, lr = (float)a->lr;

    for (uint64_t i = 0; i < n; i++) {
        float d = scale * g[i] + decay * w[i];

        if (velocity)
            d = velocity[i] = momentum * velocity[i] + d;
        w[i] -= lr * d;
    }
}

void ooc_transpose_cpu(const float *in, uint64_t rows, uint64_t cols, float *out, uint64_t c0,
                       uint64_t c1)
{
    for (uint64_t c = c0; c < c1; c++)
        for (uint64_t r = 0; r < rows; r++)
            out[c * rows + r] = in[r * cols + c];
}
