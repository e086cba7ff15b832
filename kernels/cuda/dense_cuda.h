/* dense_cuda.h - the dense layers' own kernels: what is not a matrix product. Formulas and shapes:
 * kernels/cpu/dense_image_cpu.h and dense_vector_cpu.h; all pointers are device addresses. One
 * thread an element of what is written, sums in a fixed order: the same bits every time. */
#ifndef OOC_KERNELS_CUDA_DENSE_CUDA_H
#define OOC_KERNELS_CUDA_DENSE_CUDA_H

#include "kernels/cpu/dense_image_cpu.h"
#include "kernels/cpu/dense_vector_cpu.h"
#include "kernels/cuda/launch.h"

#define OOC_SUM_BLOCKS  256u /* partial sums; doubles of workspace (times channels for biases) */
#define OOC_BIAS_BLOCKS 64u

/* A strip of the lowered input of a convolution: pixels p0 .. p0+n-1 of all images. */
typedef struct {
    ooc_image s; /* c: channels in */
    uint32_t kernel;
    uint64_t n_pixels, p0, n;
} ooc_strip;

/* col[pixel][in][ky][kx] = x around the pixel, 0 outside of its image. */
cudaError_t ooc_lower_cuda(cudaStream_t s, const ooc_strip *t, const float *x, float *col);
/* dx += the transposed map of this strip of columns. */
cudaError_t ooc_lower_back_cuda(cudaStream_t s, const ooc_strip *t, const float *col, float *dx);
/* y[pixel][out] = relu?(y + b[out]). */
cudaError_t ooc_bias_cuda(cudaStream_t s, float *y, const float *b, uint64_t n_pixels, uint32_t out,
                          bool relu);
/* db[out] = sums of dy over the pixels. work: OOC_BIAS_BLOCKS * out doubles. */
cudaError_t ooc_bias_back_cuda(cudaStream_t s, const float *dy, uint64_t n_pixels, uint32_t out,
                               float *db, double *work);
cudaError_t ooc_relu_back_cuda(cudaStream_t s, const float *y, float *dy, uint64_t n);

cudaError_t ooc_maxpool_cuda(cudaStream_t s, const float *x, uint32_t n, ooc_image shape, float *y);
cudaError_t ooc_maxpool_back_cuda(cudaStream_t s, const float *x, uint32_t n, ooc_image shape,
                                  const float *dy, bool add, float *dx);
cudaError_t ooc_upcat_cuda(cudaStream_t s, const float *low, ooc_image l, const float *skip,
                           uint32_t n, ooc_image shape, float *out);
cudaError_t ooc_upcat_back_cuda(cudaStream_t s, const float *dout, uint32_t n, ooc_image l,
                                ooc_image shape, float *dlow, float *dskip);
cudaError_t ooc_resize_cuda(cudaStream_t s, const float *in, uint32_t n, ooc_image shape,
                            uint32_t h_out, uint32_t w_out, float *out);
cudaError_t ooc_resize_back_cuda(cudaStream_t s, const float *dout, uint32_t n, ooc_image shape,
                                 uint32_t h_out, uint32_t w_out, float *din);

cudaError_t ooc_transpose_cuda(cudaStream_t s, const float *in, uint64_t rows, uint64_t cols,
                               float *out);
/* *sum = sum of squares. work: OOC_SUM_BLOCKS doubles. */
cudaError_t ooc_sum_squares_cuda(cudaStream_t s, const float *x, uint64_t n, double *sum,
                                 double *work);
cudaError_t ooc_adam_cuda(cudaStream_t s, const ooc_adam_args *a, float *w, const float *g,
                          float *m, float *v, uint64_t n);
cudaError_t ooc_sgd_cuda(cudaStream_t s, const ooc_sgd_args *a, float *w, const float *g,
                         float *velocity, uint64_t n);
#endif
