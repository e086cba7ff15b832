/* The dense backend of one card: cuBLAS for the products, kernels/cuda for the rest, all on one
 * stream.
 *
 * A convolution is lowered in strips of pixels of at most OOC_STRIP_BYTES; a linear layer and a 1 x
 * 1 convolution need no lowering. Row-major (rows x cols) is column-major (cols x rows) to cuBLAS.
 * Memory: a layer's workspace is the caller's: cuBLAS's part, partial sums of biases, one strip. */
#include "src/cuda_check.h"
#include "src/device.h"
#include "src/model/cublas_load.h"
#include "src/model/dense_ops.h"
#include "base/alloc.h"
#include "kernels/cuda/dense_cuda.h"

#include <limits.h>
#include <stdio.h>

#define STRIP_BYTES  (16u << 20)
#define CUBLAS_BYTES (4u << 20)

struct ooc_layer {
    ooc_layer_shape shape;
    uint64_t n_pixels, K; /* K: in * kernel * kernel */
    uint64_t strip;       /* pixels of one */
    bool lowered;
    uint64_t bias_bytes, strip_bytes;
};

namespace
{
struct dense_cuda {
    ooc_dense base; /* first: the table's functions get a pointer to it */
    ooc_cuda_state state;
    cudaStream_t stream;
    ooc_cublas lib;
    cublasHandle_t blas;
    double *sums; /* OOC_SUM_BLOCKS and one, of the device: for sum_squares */
};

dense_cuda *of(ooc_dense *d)
{
    return reinterpret_cast<dense_cuda *>(d);
}

ooc_status launched(ooc_dense *d, ooc_err *err, const char *what, cudaError_t e)
{
    return ooc_cuda_result(&of(d)->state, err, what, e);
}

/* Kernels need the device to be current, and a device that still works. */
#define LAUNCH(d, err, what, call)                                                                 \
    ooc_cuda_scope scope_(of(d)->state.ordinal);                                                   \
    ooc_status st_ = ooc_cuda_usable(&of(d)->state, err);                                          \
    return st_ ? st_ : launched(d, err, "launch of " what, call)

/* ---- layers ---- */

uint64_t round_256(uint64_t n)
{
    return (n + 255) / 256 * 256;
}

ooc_status layer_new(ooc_dense *d, ooc_layer **out, const ooc_layer_shape *shape, ooc_err *err)
{
    ooc_layer *l = static_cast<ooc_layer *>(ooc_calloc(1, sizeof *l));
    uint64_t most;

    *out = NULL;
    if (!l)
        return ooc_fail(err, OOC_E_NOMEM, "%s: no memory for a layer", of(d)->state.name);
    l->shape = *shape;
    l->n_pixels = static_cast<uint64_t>(shape->batch) * shape->h * shape->w;
    l->K = static_cast<uint64_t>(shape->in) * shape->kernel * shape->kernel;
    l->lowered = shape->kernel > 1;
    most = STRIP_BYTES / (l->K * sizeof(float));
    most = most ? most : 1;
    if (!l->lowered)
        most = INT_MAX;
    l->strip = most < l->n_pixels ? most : l->n_pixels;
    l->bias_bytes = shape->backward ? round_256(OOC_BIAS_BLOCKS * sizeof(double) * shape->out) : 0;
    l->strip_bytes = l->lowered ? round_256(l->strip * l->K * sizeof(float)) : 0;
    if (l->K > INT_MAX || shape->out > INT_MAX) {
        ooc_free(l);
        return ooc_fail(err, OOC_E_ARG, "%s: a layer of %llu inputs a pixel is too large",
                        of(d)->state.name, static_cast<unsigned long long>(l->K));
    }
    *out = l;
    return OOC_OK;
}

void layer_free(ooc_dense *d, ooc_layer *l)
{
    (void)d;
    ooc_free(l);
}

/* 256 more: arenas align to pages, callers' parts of them perhaps to less. */
uint64_t layer_workspace(const ooc_layer *l)
{
    return CUBLAS_BYTES + l->bias_bytes + l->strip_bytes + 256;
}

struct work_parts {
    char *blas;
    double *bias;
    float *strip;
};

work_parts parts_of(const ooc_layer *l, void *workspace)
{
    char *base = reinterpret_cast<char *>(round_256(reinterpret_cast<uintptr_t>(workspace)));

    return {base, reinterpret_cast<double *>(base + CUBLAS_BYTES),
            reinterpret_cast<float *>(base + CUBLAS_BYTES + l->bias_bytes)};
}

ooc_status blas_result(dense_cuda *c, ooc_err *err, const char *call, cublasStatus_t s)
{
    if (s == CUBLAS_STATUS_SUCCESS)
        return OOC_OK;
    return ooc_fail(err, s == CUBLAS_STATUS_ALLOC_FAILED ? OOC_E_NOMEM : OOC_E_DEVICE, "%s: %s: %s",
                    c->state.name, call, c->lib.status_name(s));
}

/* C (n x m) = beta * C + op(B) (n x k) * op(A) (k x m), all row-major: cuBLAS's own letters. */
ooc_status gemm(dense_cuda *c, ooc_err *err, cublasOperation_t opA, cublasOperation_t opB,
                uint64_t m, uint64_t n, uint64_t k, const float *A, uint64_t lda, const float *B,
                uint64_t ldb, float beta, float *C)
{
    const float one = 1;
    ooc_status st = ooc_cuda_usable(&c->state, err);

    return st ? st
              : blas_result(c, err, "cublasSgemm",
                            c->lib.sgemm(c->blas, opA, opB, static_cast<int>(m),
                                         static_cast<int>(n), static_cast<int>(k), &one, A,
                                         static_cast<int>(lda), B, static_cast<int>(ldb), &beta, C,
                                         static_cast<int>(m)));
}

ooc_status set_workspace(dense_cuda *c, const work_parts &w, ooc_err *err)
{
    return blas_result(c, err, "cublasSetWorkspace",
                       c->lib.set_workspace(c->blas, w.blas, CUBLAS_BYTES));
}

ooc_strip strip_at(const ooc_layer *l, uint64_t p0)
{
    uint64_t left = l->n_pixels - p0;
    ooc_strip t = {};

    t.s = {l->shape.h, l->shape.w, l->shape.in};
    t.kernel = l->shape.kernel;
    t.n_pixels = l->n_pixels;
    t.p0 = p0;
    t.n = left < l->strip ? left : l->strip;
    return t;
}

/* The strip's columns: lowered into `room`, or x itself. */
ooc_status columns_of(ooc_dense *d, const ooc_layer *l, const ooc_strip &t, const float *x,
                      float *room, const float **out, ooc_err *err)
{
    *out = l->lowered ? room : x + t.p0 * l->K;
    if (!l->lowered)
        return OOC_OK;
    LAUNCH(d, err, "a lowering", ooc_lower_cuda(of(d)->stream, &t, x, room));
}

ooc_status layer_forward(ooc_dense *d, ooc_layer *l, const float *x, const float *w, const float *b,
                         float *y, void *workspace, ooc_err *err)
{
    dense_cuda *c = of(d);
    ooc_cuda_scope scope(c->state.ordinal);
    work_parts p = parts_of(l, workspace);
    uint32_t out = l->shape.out;
    ooc_status st = set_workspace(c, p, err);

    for (uint64_t p0 = 0; p0 < l->n_pixels && !st; p0 += l->strip) {
        ooc_strip t = strip_at(l, p0);
        const float *col;

        st = columns_of(d, l, t, x, p.strip, &col, err);
        if (!st)
            st = gemm(c, err, CUBLAS_OP_T, CUBLAS_OP_N, out, t.n, l->K, w, l->K, col, l->K, 0,
                      y + p0 * out);
    }
    if (st)
        return st;
    LAUNCH(d, err, "a bias", ooc_bias_cuda(c->stream, y, b, l->n_pixels, out, l->shape.relu));
}

ooc_status layer_backward_weights(ooc_dense *d, ooc_layer *l, const float *x, const float *dy,
                                  float *dw, float *db, void *workspace, ooc_err *err)
{
    dense_cuda *c = of(d);
    ooc_cuda_scope scope(c->state.ordinal);
    work_parts p = parts_of(l, workspace);
    uint32_t out = l->shape.out;
    ooc_status st = set_workspace(c, p, err);

    for (uint64_t p0 = 0; p0 < l->n_pixels && !st; p0 += l->strip) {
        ooc_strip t = strip_at(l, p0);
        const float *col;

        st = columns_of(d, l, t, x, p.strip, &col, err);
        if (!st)
            st = gemm(c, err, CUBLAS_OP_N, CUBLAS_OP_T, l->K, out, t.n, col, l->K, dy + p0 * out,
                      out, p0 ? 1.0f : 0.0f, dw);
    }
    if (st)
        return st;
    LAUNCH(d, err, "a bias's gradient",
           ooc_bias_back_cuda(c->stream, dy, l->n_pixels, out, db, p.bias));
}

ooc_status layer_backward_data(ooc_dense *d, ooc_layer *l, const float *w, const float *dy,
                               float *dx, void *workspace, ooc_err *err)
{
    dense_cuda *c = of(d);
    ooc_cuda_scope scope(c->state.ordinal);
    work_parts p = parts_of(l, workspace);
    uint32_t out = l->shape.out;
    ooc_status st = set_workspace(c, p, err);

    if (!st && l->lowered)
        st = OOC_CUDA(&c->state, err, cudaMemsetAsync, dx, 0,
                      l->n_pixels * l->shape.in * sizeof(float), c->stream);
    for (uint64_t p0 = 0; p0 < l->n_pixels && !st; p0 += l->strip) {
        ooc_strip t = strip_at(l, p0);
        float *col = l->lowered ? p.strip : dx + p0 * l->K;

        st = gemm(c, err, CUBLAS_OP_N, CUBLAS_OP_N, l->K, t.n, out, w, l->K, dy + p0 * out, out, 0,
                  col);
        if (!st && l->lowered)
            st = launched(d, err, "launch of a lowering's transpose",
                          ooc_lower_back_cuda(c->stream, &t, col, dx));
    }
    return st;
}

/* ---- images and vectors ---- */

ooc_status relu_backward(ooc_dense *d, const float *y, float *dy, uint64_t n, ooc_err *err)
{
    LAUNCH(d, err, "an activation's gradient", ooc_relu_back_cuda(of(d)->stream, y, dy, n));
}

ooc_status maxpool_forward(ooc_dense *d, const float *x, uint32_t n, ooc_image s, float *y,
                           ooc_err *err)
{
    LAUNCH(d, err, "a pooling", ooc_maxpool_cuda(of(d)->stream, x, n, s, y));
}

ooc_status maxpool_backward(ooc_dense *d, const float *x, uint32_t n, ooc_image s, const float *dy,
                            bool add, float *dx, ooc_err *err)
{
    LAUNCH(d, err, "a pooling's gradient",
           ooc_maxpool_back_cuda(of(d)->stream, x, n, s, dy, add, dx));
}

ooc_status upcat_forward(ooc_dense *d, const float *low, ooc_image l, const float *skip, uint32_t n,
                         ooc_image s, float *out, ooc_err *err)
{
    LAUNCH(d, err, "an upsampling", ooc_upcat_cuda(of(d)->stream, low, l, skip, n, s, out));
}

ooc_status upcat_backward(ooc_dense *d, const float *dout, uint32_t n, ooc_image l, ooc_image s,
                          float *dlow, float *dskip, ooc_err *err)
{
    LAUNCH(d, err, "an upsampling's gradient",
           ooc_upcat_back_cuda(of(d)->stream, dout, n, l, s, dlow, dskip));
}

ooc_status resize_forward(ooc_dense *d, const float *in, uint32_t n, ooc_image s, uint32_t h_out,
                          uint32_t w_out, float *out, ooc_err *err)
{
    LAUNCH(d, err, "a resampling", ooc_resize_cuda(of(d)->stream, in, n, s, h_out, w_out, out));
}

ooc_status resize_backward(ooc_dense *d, const float *dout, uint32_t n, ooc_image s, uint32_t h_out,
                           uint32_t w_out, float *din, ooc_err *err)
{
    LAUNCH(d, err, "a resampling's gradient",
           ooc_resize_back_cuda(of(d)->stream, dout, n, s, h_out, w_out, din));
}

ooc_status transpose(ooc_dense *d, const float *in, uint64_t rows, uint64_t cols, float *out,
                     ooc_err *err)
{
    LAUNCH(d, err, "a transposition", ooc_transpose_cuda(of(d)->stream, in, rows, cols, out));
}

ooc_status adam(ooc_dense *d, const ooc_adam_args *a, float *w, const float *g, float *m, float *v,
                uint64_t n, ooc_err *err)
{
    LAUNCH(d, err, "an update", ooc_adam_cuda(of(d)->stream, a, w, g, m, v, n));
}

ooc_status sgd(ooc_dense *d, const ooc_sgd_args *a, float *w, const float *g, float *velocity,
               uint64_t n, ooc_err *err)
{
    LAUNCH(d, err, "an update", ooc_sgd_cuda(of(d)->stream, a, w, g, velocity, n));
}

ooc_status zero(ooc_dense *d, float *x, uint64_t n, ooc_err *err)
{
    dense_cuda *c = of(d);
    ooc_cuda_scope scope(c->state.ordinal);

    return n ? OOC_CUDA(&c->state, err, cudaMemsetAsync, x, 0, n * sizeof *x, c->stream) : OOC_OK;
}

ooc_status copy(ooc_dense *d, const float *from, float *to, uint64_t n, ooc_err *err)
{
    dense_cuda *c = of(d);
    ooc_cuda_scope scope(c->state.ordinal);

    return n ? OOC_CUDA(&c->state, err, cudaMemcpyAsync, to, from, n * sizeof *to,
                        cudaMemcpyDeviceToDevice, c->stream)
             : OOC_OK;
}

ooc_status sync(ooc_dense *d, ooc_err *err)
{
    dense_cuda *c = of(d);

    return OOC_CUDA(&c->state, err, cudaStreamSynchronize, c->stream);
}

ooc_status upload(ooc_dense *d, void *to, const void *from, uint64_t bytes, ooc_err *err)
{
    dense_cuda *c = of(d);
    ooc_cuda_scope scope(c->state.ordinal);
    ooc_status st = bytes ? OOC_CUDA(&c->state, err, cudaMemcpyAsync, to, from, bytes,
                                     cudaMemcpyHostToDevice, c->stream)
                          : OOC_OK;

    return st ? st : sync(d, err);
}

ooc_status download(ooc_dense *d, void *to, const void *from, uint64_t bytes, ooc_err *err)
{
    dense_cuda *c = of(d);
    ooc_cuda_scope scope(c->state.ordinal);
    ooc_status st = bytes ? OOC_CUDA(&c->state, err, cudaMemcpyAsync, to, from, bytes,
                                     cudaMemcpyDeviceToHost, c->stream)
                          : OOC_OK;

    return st ? st : sync(d, err);
}

ooc_status block_alloc(ooc_dense *d, uint64_t bytes, void **out, ooc_err *err)
{
    dense_cuda *c = of(d);
    ooc_cuda_scope scope(c->state.ordinal);

    *out = NULL;
    return OOC_CUDA(&c->state, err, cudaMalloc, out, bytes);
}

void block_free(ooc_dense *d, void *block)
{
    ooc_cuda_scope scope(of(d)->state.ordinal);

    (void)cudaFree(block);
}

ooc_status sum_squares(ooc_dense *d, const float *x, uint64_t n, double *sum, ooc_err *err)
{
    dense_cuda *c = of(d);
    ooc_cuda_scope scope(c->state.ordinal);
    ooc_status st = ooc_cuda_usable(&c->state, err);

    if (!st)
        st = launched(d, err, "launch of a sum of squares",
                      ooc_sum_squares_cuda(c->stream, x, n, c->sums + OOC_SUM_BLOCKS, c->sums));
    return st ? st : download(d, sum, c->sums + OOC_SUM_BLOCKS, sizeof *sum, err);
}

/* ---- open and close ---- */

void close_dense(ooc_dense *d)
{
    dense_cuda *c = of(d);
    ooc_cuda_scope scope(c->state.ordinal);

    if (c->stream)
        (void)cudaStreamSynchronize(c->stream);
    if (c->blas)
        (void)c->lib.destroy(c->blas);
    if (c->stream)
        (void)cudaStreamDestroy(c->stream);
    (void)cudaFree(c->sums);
    ooc_free(c);
}

ooc_dense_ops make_ops()
{
    ooc_dense_ops o = {};

    o.layer_new = layer_new;
    o.layer_free = layer_free;
    o.layer_workspace = layer_workspace;
    o.layer_forward = layer_forward;
    o.layer_backward_weights = layer_backward_weights;
    o.layer_backward_data = layer_backward_data;
    o.relu_backward = relu_backward;
    o.maxpool_forward = maxpool_forward;
    o.maxpool_backward = maxpool_backward;
    o.upcat_forward = upcat_forward;
    o.upcat_backward = upcat_backward;
    o.resize_forward = resize_forward;
    o.resize_backward = resize_backward;
    o.transpose = transpose;
    o.zero = zero;
    o.copy = copy;
    o.sum_squares = sum_squares;
    o.adam = adam;
    o.sgd = sgd;
    o.upload = upload;
    o.download = download;
    o.sync = sync;
    o.block_alloc = block_alloc;
    o.block_free = block_free;
    o.close = close_dense;
    return o;
}

const ooc_dense_ops cuda_ops = make_ops();

ooc_status open_handles(dense_cuda *c, ooc_err *err)
{
    ooc_cuda_scope scope(c->state.ordinal);
    void *sums = NULL;
    ooc_status st =
        OOC_CUDA(&c->state, err, cudaStreamCreateWithFlags, &c->stream, cudaStreamNonBlocking);

    if (!st)
        st = OOC_CUDA(&c->state, err, cudaMalloc, &sums, (OOC_SUM_BLOCKS + 1) * sizeof(double));
    c->sums = static_cast<double *>(sums);
    if (!st)
        st = ooc_cublas_load(&c->lib, err);
    if (!st)
        st = blas_result(c, err, "cublasCreate", c->lib.create(&c->blas));
    if (!st)
        st = blas_result(c, err, "cublasSetStream", c->lib.set_stream(c->blas, c->stream));
    return st;
}
} // namespace

extern "C" ooc_status ooc_dense_cuda_open(ooc_dense **out, int ordinal, ooc_err *err)
{
    ooc_device *card;
    dense_cuda *c;
    ooc_status st;

    *out = NULL;
    st = ooc_device_cuda_open(&card, ordinal, NULL, err); /* says what is wrong with the card */
    if (st)
        return st;
    ooc_device_close(card);
    c = static_cast<dense_cuda *>(ooc_calloc(1, sizeof *c));
    if (!c)
        return ooc_fail(err, OOC_E_NOMEM, "cuda:%d: no memory for the dense backend", ordinal);
    c->base.ops = &cuda_ops;
    c->base.ordinal = ordinal;
    c->base.host_visible = false;
    c->state.ordinal = ordinal;
    snprintf(c->state.name, sizeof c->state.name, "cuda:%d", ordinal);
    st = open_handles(c, err);
    if (st) {
        close_dense(&c->base);
        return st;
    }
    c->base.stream = c->stream;
    *out = &c->base;
    return OOC_OK;
}
