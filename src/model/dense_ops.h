/* dense_ops.h - the dense arithmetic of models and optimizers: one table per backend.
 *
 * Everything a model does is one of these calls, so a backend that fills the table runs every
 * model. All pointers are addresses of the backend's device and come from its arena; float unless
 * said otherwise; images are NHWC (kernels/cpu/dense_image_cpu.h gives the formulas). Work is
 * queued in order; sync() waits for it and reports what failed on the way. Memory:  layers take
 * none but small handles at layer_new; what they need at run time is the caller's workspace, whose
 * size is known before anything is taken. Threads: one instance belongs to one thread. Nothing is
 * created or allocated after layer_new. The same call on the same input gives the same bits (for
 * the same number of threads). */
#ifndef OOC_SRC_MODEL_DENSE_OPS_H
#define OOC_SRC_MODEL_DENSE_OPS_H

#include "base/err.h"
#include "base/parallel.h"
#include "kernels/cpu/dense_image_cpu.h"
#include "kernels/cpu/dense_vector_cpu.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ooc_dense ooc_dense; /* an opened backend; each backend's own struct */
typedef struct ooc_layer ooc_layer; /* a convolution or linear layer of one shape */

/* y = relu?(W * x + b). Convolution: kernel k x k (odd), stride 1, zero padding k/2; W is (out, in,
 * k, k), x is (batch, h, w, in), y is (batch, h, w, out). Linear: h = w = kernel = 1; W is (out,
 * in). b is (out). */
typedef struct {
    uint32_t batch, h, w, in, out, kernel;
    bool linear, relu;
    bool backward; /* the two backward calls will be used */
} ooc_layer_shape;

typedef struct ooc_dense_ops {
    ooc_status (*layer_new)(ooc_dense *d, ooc_layer **out, const ooc_layer_shape *shape,
                            ooc_err *err);
    void (*layer_free)(ooc_dense *d, ooc_layer *l); /* NULL is allowed */
    /* Bytes of the workspace that each of the layer's calls uses, one at a time; 64-aligned. */
    uint64_t (*layer_workspace)(const ooc_layer *l);
    ooc_status (*layer_forward)(ooc_dense *d, ooc_layer *l, const float *x, const float *w,
                                const float *b, float *y, void *workspace, ooc_err *err);
    /* dw and db from x and dy; dx from dy. All are overwritten. dy is the gradient before the
     * activation: the caller has masked it by relu_backward. */
    ooc_status (*layer_backward_weights)(ooc_dense *d, ooc_layer *l, const float *x,
                                         const float *dy, float *dw, float *db, void *workspace,
                                         ooc_err *err);
    ooc_status (*layer_backward_data)(ooc_dense *d, ooc_layer *l, const float *w, const float *dy,
                                      float *dx, void *workspace, ooc_err *err);
    ooc_status (*relu_backward)(ooc_dense *d, const float *y, float *dy, uint64_t n, ooc_err *err);

    /* n images each; s is the shape of the larger image (x, skip) or of `in`. */
    ooc_status (*maxpool_forward)(ooc_dense *d, const float *x, uint32_t n, ooc_image s, float *y,
                                  ooc_err *err);
    ooc_status (*maxpool_backward)(ooc_dense *d, const float *x, uint32_t n, ooc_image s,
                                   const float *dy, bool add, float *dx, ooc_err *err);
    ooc_status (*upcat_forward)(ooc_dense *d, const float *low, ooc_image l, const float *skip,
                                uint32_t n, ooc_image s, float *out, ooc_err *err);
    ooc_status (*upcat_backward)(ooc_dense *d, const float *dout, uint32_t n, ooc_image l,
                                 ooc_image s, float *dlow, float *dskip, ooc_err *err);
    ooc_status (*resize_forward)(ooc_dense *d, const float *in, uint32_t n, ooc_image s,
                                 uint32_t h_out, uint32_t w_out, float *out, ooc_err *err);
    ooc_status (*resize_backward)(ooc_dense *d, const float *dout, uint32_t n, ooc_image s,
                                  uint32_t h_out, uint32_t w_out, float *din, ooc_err *err);

    /* out (cols x rows) = transpose of in (rows x cols). */
    ooc_status (*transpose)(ooc_dense *d, const float *in, uint64_t rows, uint64_t cols, float *out,
                            ooc_err *err);
    ooc_status (*zero)(ooc_dense *d, float *x, uint64_t n, ooc_err *err);
    ooc_status (*copy)(ooc_dense *d, const float *from, float *to, uint64_t n, ooc_err *err);

    /* *sum = sum of squares, on the host when the call returns. */
    ooc_status (*sum_squares)(ooc_dense *d, const float *x, uint64_t n, double *sum, ooc_err *err);
    ooc_status (*adam)(ooc_dense *d, const ooc_adam_args *a, float *w, const float *g, float *m,
                       float *v, uint64_t n, ooc_err *err);
    ooc_status (*sgd)(ooc_dense *d, const ooc_sgd_args *a, float *w, const float *g,
                      float *velocity, uint64_t n, ooc_err *err);

    /* Between host memory and the device; the data are there when the call returns. */
    ooc_status (*upload)(ooc_dense *d, void *to, const void *from, uint64_t bytes, ooc_err *err);
    ooc_status (*download)(ooc_dense *d, void *to, const void *from, uint64_t bytes, ooc_err *err);
    ooc_status (*sync)(ooc_dense *d, ooc_err *err);
    /* Memory of the device for the model's arena. NULL: it is the host's. */
    ooc_status (*block_alloc)(ooc_dense *d, uint64_t bytes, void **out, ooc_err *err);
    void (*block_free)(ooc_dense *d, void *block); /* NULL is allowed */
    void (*close)(ooc_dense *d);
} ooc_dense_ops;

/* What every backend's struct begins with. */
struct ooc_dense {
    const ooc_dense_ops *ops;
    int ordinal;       /* OOC_HOST, or the CUDA ordinal: for ooc_array.device */
    void *stream;      /* the CUDA stream that work is queued on: for ooc_array.stream */
    bool host_visible; /* device addresses can be read and written by the host */
};

/* oneDNN and C loops on the compute pool. oneDNN's threads are libgomp's; their number is set to
 * the pool's for the calling thread, which then must be the one that uses the instance. */
ooc_status ooc_dense_cpu_open(ooc_dense **out, ooc_pool *pool, ooc_err *err);
/* By a device's name: "cpu", "auto" (or NULL). OOC_E_ARG, OOC_E_UNSUPPORTED: the text says why. */
ooc_status ooc_dense_open(ooc_dense **out, const char *device, ooc_pool *pool, ooc_err *err);
/* cuBLAS and the kernels of kernels/cuda, on card `ordinal`. Fails as ooc_device_cuda_open does. */
ooc_status ooc_dense_cuda_open(ooc_dense **out, int ordinal, ooc_err *err);
void ooc_dense_close(ooc_dense *d); /* NULL is allowed; layers are freed before */

#ifdef __cplusplus
}
#endif
#endif
