/* Images: lowering of convolutions, bias, pooling, upsampling, resampling. */
#include "kernels/cuda/dense_cuda.h"
#include "kernels/cuda/elements_cuda.h"
#include "kernels/dense_hd.h"

namespace
{
/* col: n x (in * k * k); element e = (pixel, channel, ky, kx). */
__global__ void __launch_bounds__(256, 3) lower(ooc_strip t, const float *x, float *col)
{
    uint32_t kk = t.kernel * t.kernel, half = t.kernel / 2;

    OOC_EACH_ELEMENT(e, t.n * t.s.c * kk)
    {
        uint32_t tap = static_cast<uint32_t>(e % kk);
        uint32_t c = static_cast<uint32_t>(e / kk % t.s.c);
        uint64_t p = t.p0 + e / kk / t.s.c;
        uint32_t px = static_cast<uint32_t>(p % t.s.w),
                 py = static_cast<uint32_t>(p / t.s.w % t.s.h);
        uint32_t iy = py + tap / t.kernel - half, ix = px + tap % t.kernel - half; /* may wrap */

        col[e] = iy < t.s.h && ix < t.s.w
                     ? x[((p / t.s.w / t.s.h * t.s.h + iy) * t.s.w + ix) * t.s.c + c]
                     : 0.0f;
    }
}

/* dx[q, c] += the sum over the taps of dcol[q's place in each lowered pixel of the strip]. Element
 * e = (pixel q, channel) of the pixels q0 .. q0+n_q-1 that the strip can reach. */
__global__ void __launch_bounds__(256, 3)
    lower_back(ooc_strip t, const float *col, float *dx, uint64_t q0, uint64_t n_q)
{
    uint32_t kk = t.kernel * t.kernel, half = t.kernel / 2;

    OOC_EACH_ELEMENT(e, n_q * t.s.c)
    {
        uint32_t c = static_cast<uint32_t>(e % t.s.c);
        uint64_t q = q0 + e / t.s.c, image = q / t.s.w / t.s.h;
        uint32_t qx = static_cast<uint32_t>(q % t.s.w),
                 qy = static_cast<uint32_t>(q / t.s.w % t.s.h);
        float sum = 0;

        for (uint32_t tap = 0; tap < kk; tap++) {
            uint32_t py = qy + half - tap / t.kernel, px = qx + half - tap % t.kernel;
            uint64_t p = (image * t.s.h + py) * t.s.w + px;

            if (py < t.s.h && px < t.s.w && p >= t.p0 && p - t.p0 < t.n)
                sum += col[((p - t.p0) * t.s.c + c) * kk + tap];
        }
        dx[q * t.s.c + c] += sum;
    }
}

__global__ void __launch_bounds__(256, 3)
    add_bias(float *y, const float *b, uint64_t n_pixels, uint32_t out, bool relu)
{
    OOC_EACH_ELEMENT(e, n_pixels * out)
    {
        float v = y[e] + b[e % out];

        y[e] = relu && v <= 0 ? 0.0f : v; /* a NaN goes on */
    }
}

/* Block: some consecutive pixels, thread: channels threadIdx.x, threadIdx.x + 256, ... */
__global__ void __launch_bounds__(256, 3)
    bias_partials(const float *dy, uint64_t n_pixels, uint32_t out, double *partial)
{
    uint64_t per = (n_pixels + gridDim.x - 1) / gridDim.x, p0 = blockIdx.x * per;
    uint64_t p1 = p0 + per < n_pixels ? p0 + per : n_pixels;

    for (uint32_t c = threadIdx.x; c < out; c += blockDim.x) {
        double sum = 0;

        for (uint64_t p = p0; p < p1; p++)
            sum += static_cast<double>(dy[p * out + c]);
        partial[static_cast<uint64_t>(blockIdx.x) * out + c] = sum;
    }
}

__global__ void __launch_bounds__(256, 3)
    bias_sums(const double *partial, uint32_t n_partials, uint32_t out, float *db)
{
    OOC_EACH_ELEMENT(c, out)
    {
        double sum = 0;

        for (uint32_t i = 0; i < n_partials; i++)
            sum += partial[static_cast<uint64_t>(i) * out + c];
        db[c] = static_cast<float>(sum);
    }
}

__global__ void __launch_bounds__(256, 3) maxpool(const float *x, uint32_t n, ooc_image s, float *y)
{
    uint32_t h = s.h / 2, w = s.w / 2;
    uint64_t row = static_cast<uint64_t>(s.w) * s.c;

    OOC_EACH_ELEMENT(e, static_cast<uint64_t>(n) * h * w * s.c)
    {
        uint64_t r = e / s.c / w;
        const float *a = x + (r / h * s.h + 2 * (r % h)) * row + 2 * (e / s.c % w) * s.c + e % s.c;

        y[e] = ooc_larger(ooc_larger(ooc_larger(a[0], a[s.c]), a[row]), a[row + s.c]);
    }
}

/* One thread an element of dx: which of its block was the largest is found again. */
__global__ void __launch_bounds__(256, 3)
    maxpool_back(const float *x, uint32_t n, ooc_image s, const float *dy, bool add, float *dx)
{
    uint32_t h = s.h / 2, w = s.w / 2;
    uint64_t row = static_cast<uint64_t>(s.w) * s.c;

    OOC_EACH_ELEMENT(e, static_cast<uint64_t>(n) * s.h * row)
    {
        uint64_t image = e / row / s.h;
        uint32_t c = static_cast<uint32_t>(e % s.c), px = static_cast<uint32_t>(e / s.c % s.w),
                 py = static_cast<uint32_t>(e / row % s.h);
        float d = 0;

        if (py / 2 < h && px / 2 < w) {
            const float *a = x + (image * s.h + py / 2 * 2) * row + px / 2 * 2 * s.c + c;
            const uint64_t at[4] = {0, s.c, row, row + s.c};
            uint32_t best = 0;

#pragma unroll
            for (uint32_t i = 1; i < 4; i++)
                if (!(a[at[i]] <= (best == 0 ? a[0] : best == 1 ? a[s.c] : a[row])))
                    best = i;
            if (best == py % 2 * 2 + px % 2)
                d = dy[((image * h + py / 2) * w + px / 2) * s.c + c];
        }
        dx[e] = add ? dx[e] + d : d;
    }
}

__global__ void __launch_bounds__(256, 3)
    upcat(const float *low, ooc_image l, const float *skip, uint32_t n, ooc_image s, float *out)
{
    uint32_t width = l.c + s.c;

    OOC_EACH_ELEMENT(e, static_cast<uint64_t>(n) * s.h * s.w * width)
    {
        uint32_t c = static_cast<uint32_t>(e % width);
        uint64_t p = e / width, image = p / s.w / s.h;
        uint32_t py = static_cast<uint32_t>(p / s.w % s.h), px = static_cast<uint32_t>(p % s.w);

        out[e] = c < l.c
                     ? low[((image * l.h + ooc_low_place(py, l.h)) * l.w + ooc_low_place(px, l.w)) *
                               l.c +
                           c]
                     : skip[p * s.c + c - l.c];
    }
}

__global__ void __launch_bounds__(256, 3)
    upcat_back_low(const float *dout, uint32_t n, ooc_image l, ooc_image s, float *dlow)
{
    uint32_t width = l.c + s.c;

    OOC_EACH_ELEMENT(e, static_cast<uint64_t>(n) * l.h * l.w * l.c)
    {
        uint32_t c = static_cast<uint32_t>(e % l.c), x = static_cast<uint32_t>(e / l.c % l.w),
                 y = static_cast<uint32_t>(e / l.c / l.w % l.h);
        uint64_t image = e / l.c / l.w / l.h;
        uint32_t y1 = y == l.h - 1 ? s.h : 2 * y + 2, x1 = x == l.w - 1 ? s.w : 2 * x + 2;
        float sum = 0;

        for (uint32_t py = 2 * y; py < y1; py++)
            for (uint32_t px = 2 * x; px < x1; px++)
                sum += dout[((image * s.h + py) * s.w + px) * width + c];
        dlow[e] = sum;
    }
}

__global__ void __launch_bounds__(256, 3)
    upcat_back_skip(const float *dout, uint64_t n_pixels, uint32_t low_c, uint32_t skip_c,
                    float *dskip)
{
    OOC_EACH_ELEMENT(e, n_pixels * skip_c)
    {
        dskip[e] = dout[e / skip_c * (low_c + skip_c) + low_c + e % skip_c];
    }
}

__global__ void __launch_bounds__(256, 3)
    resize(const float *in, uint32_t n, ooc_image s, uint32_t h_out, uint32_t w_out, float *out)
{
    OOC_EACH_ELEMENT(e, static_cast<uint64_t>(n) * h_out * w_out)
    {
        uint32_t x0, x1, y0, y1;
        float tx = ooc_axis_place(static_cast<uint32_t>(e % w_out), s.w, w_out, &x0, &x1);
        float ty = ooc_axis_place(static_cast<uint32_t>(e / w_out % h_out), s.h, h_out, &y0, &y1);
        const float *image = in + e / w_out / h_out * s.h * s.w;
        const float *top = image + static_cast<uint64_t>(y0) * s.w,
                    *bottom = image + static_cast<uint64_t>(y1) * s.w;

        out[e] = (1 - ty) * ((1 - tx) * top[x0] + tx * top[x1]) +
                 ty * ((1 - tx) * bottom[x0] + tx * bottom[x1]);
    }
}

/* The weight with which an output that reads at0 and at1 reads input i. */
static __device__ __forceinline__ float share(uint32_t i, uint32_t at0, uint32_t at1, float t)
{
    return (at0 == i ? 1 - t : 0.0f) + (at1 == i ? t : 0.0f);
}

__global__ void __launch_bounds__(256, 3) resize_back(const float *dout, uint32_t n, ooc_image s,
                                                      uint32_t h_out, uint32_t w_out, float *din)
{
    OOC_EACH_ELEMENT(e, static_cast<uint64_t>(n) * s.h * s.w)
    {
        uint32_t ix = static_cast<uint32_t>(e % s.w), iy = static_cast<uint32_t>(e / s.w % s.h);
        const float *image = dout + e / s.w / s.h * h_out * w_out;
        float sum = 0;

        for (uint32_t y = ooc_first_reader(iy, s.h, h_out); y < h_out; y++) {
            uint32_t y0, y1, x0, x1;
            float ty = ooc_axis_place(y, s.h, h_out, &y0, &y1), in_row = 0;

            if (y0 > iy)
                break;
            for (uint32_t x = ooc_first_reader(ix, s.w, w_out); x < w_out; x++) {
                float tx = ooc_axis_place(x, s.w, w_out, &x0, &x1);

                if (x0 > ix)
                    break;
                in_row += share(ix, x0, x1, tx) * image[static_cast<uint64_t>(y) * w_out + x];
            }
            sum += share(iy, y0, y1, ty) * in_row;
        }
        din[e] = sum;
    }
}
} // namespace

cudaError_t ooc_lower_cuda(cudaStream_t s, const ooc_strip *t, const float *x, float *col)
{
    return OOC_LAUNCH_ELEMENTS(lower, t->n * t->s.c * t->kernel * t->kernel, s, *t, x, col);
}

cudaError_t ooc_lower_back_cuda(cudaStream_t s, const ooc_strip *t, const float *col, float *dx)
{
    uint64_t reach = static_cast<uint64_t>(t->kernel / 2) * (t->s.w + 1);
    uint64_t q0 = t->p0 > reach ? t->p0 - reach : 0, q1 = t->p0 + t->n + reach;

    if (q1 > t->n_pixels)
        q1 = t->n_pixels;
    return OOC_LAUNCH_ELEMENTS(lower_back, (q1 - q0) * t->s.c, s, *t, col, dx, q0, q1 - q0);
}

cudaError_t ooc_bias_cuda(cudaStream_t s, float *y, const float *b, uint64_t n_pixels, uint32_t out,
                          bool relu)
{
    return OOC_LAUNCH_ELEMENTS(add_bias, n_pixels * out, s, y, b, n_pixels, out, relu);
}

cudaError_t ooc_bias_back_cuda(cudaStream_t s, const float *dy, uint64_t n_pixels, uint32_t out,
                               float *db, double *work)
{
    cudaError_t e = OOC_LAUNCH(bias_partials, OOC_BIAS_BLOCKS, OOC_ELEMENT_THREADS, 0, s, dy,
                               n_pixels, out, work);

    return e != cudaSuccess
               ? e
               : OOC_LAUNCH_ELEMENTS(bias_sums, out, s, work, OOC_BIAS_BLOCKS, out, db);
}

cudaError_t ooc_maxpool_cuda(cudaStream_t s, const float *x, uint32_t n, ooc_image shape, float *y)
{
    uint64_t items = static_cast<uint64_t>(n) * (shape.h / 2) * (shape.w / 2) * shape.c;

    return OOC_LAUNCH_ELEMENTS(maxpool, items, s, x, n, shape, y);
}

cudaError_t ooc_maxpool_back_cuda(cudaStream_t s, const float *x, uint32_t n, ooc_image shape,
                                  const float *dy, bool add, float *dx)
{
    uint64_t items = static_cast<uint64_t>(n) * shape.h * shape.w * shape.c;

    return OOC_LAUNCH_ELEMENTS(maxpool_back, items, s, x, n, shape, dy, add, dx);
}

cudaError_t ooc_upcat_cuda(cudaStream_t s, const float *low, ooc_image l, const float *skip,
                           uint32_t n, ooc_image shape, float *out)
{
    uint64_t items = static_cast<uint64_t>(n) * shape.h * shape.w * (l.c + shape.c);

    return OOC_LAUNCH_ELEMENTS(upcat, items, s, low, l, skip, n, shape, out);
}

cudaError_t ooc_upcat_back_cuda(cudaStream_t s, const float *dout, uint32_t n, ooc_image l,
                                ooc_image shape, float *dlow, float *dskip)
{
    uint64_t items = static_cast<uint64_t>(n) * l.h * l.w * l.c;
    uint64_t pixels = static_cast<uint64_t>(n) * shape.h * shape.w;
    cudaError_t e = OOC_LAUNCH_ELEMENTS(upcat_back_low, items, s, dout, n, l, shape, dlow);

    return e != cudaSuccess ? e
                            : OOC_LAUNCH_ELEMENTS(upcat_back_skip, pixels * shape.c, s, dout,
                                                  pixels, l.c, shape.c, dskip);
}

cudaError_t ooc_resize_cuda(cudaStream_t s, const float *in, uint32_t n, ooc_image shape,
                            uint32_t h_out, uint32_t w_out, float *out)
{
    uint64_t items = static_cast<uint64_t>(n) * h_out * w_out;

    return OOC_LAUNCH_ELEMENTS(resize, items, s, in, n, shape, h_out, w_out, out);
}

cudaError_t ooc_resize_back_cuda(cudaStream_t s, const float *dout, uint32_t n, ooc_image shape,
                                 uint32_t h_out, uint32_t w_out, float *din)
{
    uint64_t items = static_cast<uint64_t>(n) * shape.h * shape.w;

    return OOC_LAUNCH_ELEMENTS(resize_back, items, s, dout, n, shape, h_out, w_out, din);
}
