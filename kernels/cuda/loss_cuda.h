/* loss_cuda.h - loss, residual and sums of weights on a GPU. Shapes and rules: OOC_DO_LOSS in
 * src/device.h. Sums are made in double, in an order that depends on the shape alone. */
#ifndef OOC_KERNELS_CUDA_LOSS_CUDA_H
#define OOC_KERNELS_CUDA_LOSS_CUDA_H

#include "kernels/cuda/launch.h"
#include "kernels/loss_hd.h"
#include "kernels/tile_view.h"

#define OOC_LOSS_BLOCKS 256u /* doubles of workspace */

typedef struct {
    ooc_loss_kind kind;
    ooc_dtype dense;
    uint64_t rows;
    uint32_t B;
    const void *Y, *T;
    const void *W; /* rows x 1 or rows x B (w_per_column); NULL: all 1 */
    void *R;       /* may be Y */
    uint64_t ldy, ldt, ldw, ldr;
    int w_per_column;
    double scale;
} ooc_gpu_loss;

/* *loss += sum w*l(y, t); R = scale * w * l'(y, t). work: OOC_LOSS_BLOCKS doubles. */
cudaError_t ooc_loss_cuda(cudaStream_t s, const ooc_gpu_loss *l, double *loss, double *work);
/* *sum += the sum of rows x n_cols weights. */
cudaError_t ooc_weight_sum_cuda(cudaStream_t s, const void *W, uint64_t ldw, uint64_t rows,
                                uint32_t n_cols, ooc_dtype dense, double *sum, double *work);
#endif
