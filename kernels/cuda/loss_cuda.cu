#include "kernels/cuda/dispatch_cuda.h"
#include "kernels/cuda/elements_cuda.h"
#include "kernels/cuda/loss_cuda.h"

namespace
{
const uint32_t block_threads = 256;

/* One thread an entry of the rows x B block, in steps of the whole grid. Y, T, R: rows x B. */
template <class T>
__global__ void __launch_bounds__(256, 3) loss_residual(ooc_gpu_loss l, double *partial)
{
    uint64_t n = l.rows * l.B, step = static_cast<uint64_t>(gridDim.x) * blockDim.x;
    double sum = 0;

    for (uint64_t k = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x; k < n;
         k += step) {
        uint64_t r = k / l.B, b = k % l.B;
        const T *W = static_cast<const T *>(l.W);
        double w = !W ? 1.0 : static_cast<double>(W[r * l.ldw + (l.w_per_column ? b : 0)]);
        double slope = 0;

        if (w != 0)
            sum += w * ooc_loss_entry(
                           l.kind, static_cast<double>(static_cast<const T *>(l.Y)[r * l.ldy + b]),
                           static_cast<double>(static_cast<const T *>(l.T)[r * l.ldt + b]), &slope);
        static_cast<T *>(l.R)[r * l.ldr + b] = static_cast<T>(l.scale * w * slope);
    }
    sum = ooc_block_sum(sum);
    if (threadIdx.x == 0)
        partial[blockIdx.x] = sum;
}

template <class T>
__global__ void __launch_bounds__(256, 3)
    weight_sum(const T *W, uint64_t ldw, uint64_t rows, uint32_t n_cols, double *partial)
{
    uint64_t n = rows * n_cols, step = static_cast<uint64_t>(gridDim.x) * blockDim.x;
    double sum = 0;

    for (uint64_t k = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x; k < n;
         k += step)
        sum += static_cast<double>(W[k / n_cols * ldw + k % n_cols]);
    sum = ooc_block_sum(sum);
    if (threadIdx.x == 0)
        partial[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(256, 3)
    add_partials(const double *partial, uint32_t n, double *sum)
{
    double v = ooc_block_sum(threadIdx.x < n ? partial[threadIdx.x] : 0);

    if (threadIdx.x == 0)
        *sum += v;
}

uint32_t blocks_for(uint64_t n)
{
    return n >= OOC_LOSS_BLOCKS * block_threads ? OOC_LOSS_BLOCKS : ooc_ceil_div(n, block_threads);
}
} // namespace

#if defined(OOC_CUDASIM)
template <> struct sim_arg<ooc_gpu_loss> {
    static void check(const ooc_gpu_loss &l, cudaStream_t s)
    {
        for (const void *p : {l.Y, l.T, l.W, static_cast<const void *>(l.R)})
            sim_check_pointer(p, s);
    }
};
#endif

cudaError_t ooc_loss_cuda(cudaStream_t s, const ooc_gpu_loss *l, double *loss, double *work)
{
    uint32_t blocks = blocks_for(l->rows * l->B);
    cudaError_t e = ooc_by_dense(l->dense, [&](auto d) {
        return OOC_LAUNCH((loss_residual<decltype(d)>), blocks, block_threads, 0, s, *l, work);
    });

    return e != cudaSuccess ? e
                            : OOC_LAUNCH(add_partials, 1, block_threads, 0, s, work, blocks, loss);
}

cudaError_t ooc_weight_sum_cuda(cudaStream_t s, const void *W, uint64_t ldw, uint64_t rows,
                                uint32_t n_cols, ooc_dtype dense, double *sum, double *work)
{
    uint32_t blocks = blocks_for(rows * n_cols);
    cudaError_t e = ooc_by_dense(dense, [&](auto d) {
        using T = decltype(d);

        return OOC_LAUNCH((weight_sum<T>), blocks, block_threads, 0, s, static_cast<const T *>(W),
                          ldw, rows, n_cols, work);
    });

    return e != cudaSuccess ? e
                            : OOC_LAUNCH(add_partials, 1, block_threads, 0, s, work, blocks, sum);
}
