/* Element by element: activation, transposition, sums, the optimizers' updates. */
#include "kernels/cuda/dense_cuda.h"
#include "kernels/cuda/elements_cuda.h"
#include "kernels/dense_hd.h"

namespace
{
const uint32_t side = 32; /* of a square that a block transposes */

__global__ void __launch_bounds__(256, 3) relu_back(const float *y, float *dy, uint64_t n)
{
    OOC_EACH_ELEMENT(k, n)
    {
        dy[k] = y[k] > 0 ? dy[k] : 0.0f;
    }
}

/* out[c, r] = in[r, c]. A block moves squares of 32 x 32 through shared memory, so that both reads
 * and writes are of neighbours; a column more keeps the banks apart. */
__global__ void __launch_bounds__(256, 3)
    transpose(const float *in, uint64_t rows, uint64_t cols, float *out)
{
    OOC_SHARED(float, square, side *(side + 1));
    uint64_t across = (cols + side - 1) / side, n = across * ((rows + side - 1) / side);
    uint32_t x = threadIdx.x % side, y0 = threadIdx.x / side;

    for (uint64_t k = blockIdx.x; k < n; k += gridDim.x) {
        uint64_t r0 = k / across * side, c0 = k % across * side;

        for (uint32_t y = y0; y < side; y += OOC_ELEMENT_THREADS / side)
            if (r0 + y < rows && c0 + x < cols)
                square[y * (side + 1) + x] = in[(r0 + y) * cols + c0 + x];
        __syncthreads();
        for (uint32_t y = y0; y < side; y += OOC_ELEMENT_THREADS / side)
            if (c0 + y < cols && r0 + x < rows)
                out[(c0 + y) * rows + r0 + x] = square[x * (side + 1) + y];
        __syncthreads();
    }
}

__global__ void __launch_bounds__(256, 3)
    square_partials(const float *x, uint64_t n, double *partial)
{
    double sum = 0;

    OOC_EACH_ELEMENT(k, n)
    {
        sum += static_cast<double>(x[k]) * static_cast<double>(x[k]);
    }
    sum = ooc_block_sum(sum);
    if (threadIdx.x == 0)
        partial[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(256, 3)
    partials_sum(const double *partial, uint32_t n, double *sum)
{
    double v = ooc_block_sum(threadIdx.x < n ? partial[threadIdx.x] : 0);

    if (threadIdx.x == 0)
        *sum = v;
}

__global__ void __launch_bounds__(256, 3)
    adam(ooc_adam_factors f, float *w, const float *g, float *m, float *v, uint64_t n)
{
    OOC_EACH_ELEMENT(k, n)
    {
        ooc_adam_entry(&f, w + k, g[k], m + k, v + k);
    }
}

__global__ void __launch_bounds__(256, 3)
    sgd(ooc_sgd_factors f, float *w, const float *g, float *velocity, uint64_t n)
{
    OOC_EACH_ELEMENT(k, n)
    {
        ooc_sgd_entry(&f, w + k, g[k], velocity ? velocity + k : nullptr);
    }
}
} // namespace

cudaError_t ooc_relu_back_cuda(cudaStream_t s, const float *y, float *dy, uint64_t n)
{
    return OOC_LAUNCH_ELEMENTS(relu_back, n, s, y, dy, n);
}

cudaError_t ooc_transpose_cuda(cudaStream_t s, const float *in, uint64_t rows, uint64_t cols,
                               float *out)
{
    uint64_t squares = (rows + side - 1) / side * ((cols + side - 1) / side);

    return OOC_LAUNCH_ELEMENTS(transpose, squares * OOC_ELEMENT_THREADS, s, in, rows, cols, out);
}

cudaError_t ooc_sum_squares_cuda(cudaStream_t s, const float *x, uint64_t n, double *sum,
                                 double *work)
{
    uint32_t blocks = ooc_element_blocks(n ? n : 1);
    cudaError_t e;

    if (blocks > OOC_SUM_BLOCKS)
        blocks = OOC_SUM_BLOCKS;
    e = OOC_LAUNCH(square_partials, blocks, OOC_ELEMENT_THREADS, 0, s, x, n, work);
    return e != cudaSuccess
               ? e
               : OOC_LAUNCH(partials_sum, 1, OOC_ELEMENT_THREADS, 0, s, work, blocks, sum);
}

cudaError_t ooc_adam_cuda(cudaStream_t s, const ooc_adam_args *a, float *w, const float *g,
                          float *m, float *v, uint64_t n)
{
    return OOC_LAUNCH_ELEMENTS(adam, n, s, ooc_adam_factors_of(a), w, g, m, v, n);
}

cudaError_t ooc_sgd_cuda(cudaStream_t s, const ooc_sgd_args *a, float *w, const float *g,
                         float *velocity, uint64_t n)
{
    return OOC_LAUNCH_ELEMENTS(sgd, n, s, ooc_sgd_factors_of(a), w, g, velocity, n);
}
