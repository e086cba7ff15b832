#include "kernels/cpu/dense_image_cpu.h"
#include "kernels/dense_hd.h"

#include <string.h>

void ooc_maxpool_forward_cpu(const float *x, ooc_image s, float *y, uint64_t r0, uint64_t r1)
{
    const uint32_t h = s.h / 2, w = s.w / 2, c = s.c;
    const uint64_t row = (uint64_t)s.w * c;

    for (uint64_t r = r0; r < r1; r++) {
        const float *top = x + ((r / h) * s.h + 2 * (r % h)) * row;
        float *out = y + r * w * c;

        for (uint32_t j = 0; j < w; j++, out += c) {
            const float *a = top + (uint64_t)2 * j * c, *b = a + c;

            for (uint32_t k = 0; k < c; k++)
                out[k] = ooc_larger(ooc_larger(ooc_larger(a[k], b[k]), a[k + row]), b[k + row]);
        }
    }
}

static void scatter_block(const float *a, const float *dy, uint64_t row, uint32_t c, bool add,
                          float *d)
{
    for (uint32_t k = 0; k < c; k++) {
        const uint64_t at[4] = {k, k + c, k + row, k + row + c};
        uint32_t best = 0;

        for (uint32_t i = 1; i < 4; i++)
            if (!(a[at[i]] <= a[at[best]]))
                best = i;
        for (uint32_t i = 0; i < 4; i++)
            d[at[i]] = (add ? d[at[i]] : 0) + (i == best ? dy[k] : 0);
    }
}

void ooc_maxpool_backward_cpu(const float *x, ooc_image s, const float *dy, bool add, float *dx,
                              uint64_t r0, uint64_t r1)
{
    const uint32_t h = s.h / 2, w = s.w / 2, c = s.c;
    const uint64_t row = (uint64_t)s.w * c;

    for (uint64_t r = r0; r < r1; r++) {
        const uint64_t at = ((r / h) * s.h + 2 * (r % h)) * row;

        for (uint32_t j = 0; j < w; j++)
            scatter_block(x + at + (uint64_t)2 * j * c, dy + (r * w + j) * c, row, c, add,
                          dx + at + (uint64_t)2 * j * c);
        if (add)
            continue;
        if (s.w % 2) {
            memset(dx + at + row - c, 0, c * sizeof *dx);
            memset(dx + at + 2 * row - c, 0, c * sizeof *dx);
        }
        if (s.h % 2 && r % h == h - 1)
            memset(dx + at + 2 * row, 0, row * sizeof *dx);
    }
}

void ooc_upcat_forward_cpu(const float *low, ooc_image l, const float *skip, ooc_image s,
                           float *out, uint64_t r0, uint64_t r1)
{
    for (uint64_t r = r0; r < r1; r++) {
        const uint64_t image = r / s.h;
        const float *from =
            low + (image * l.h + ooc_low_place((uint32_t)(r % s.h), l.h)) * l.w * l.c;
        const float *side = skip + r * s.w * s.c;
        float *to = out + r * s.w * (l.c + s.c);

        for (uint32_t x = 0; x < s.w; x++, to += l.c + s.c, side += s.c) {
            memcpy(to, from + (uint64_t)ooc_low_place(x, l.w) * l.c, l.c * sizeof *to);
            memcpy(to + l.c, side, s.c * sizeof *to);
        }
    }
}

void ooc_upcat_backward_low_cpu(const float *dout, ooc_image l, ooc_image s, float *dlow,
                                uint64_t r0, uint64_t r1)
{
    const uint64_t width = (uint64_t)l.c + s.c;

    for (uint64_t r = r0; r < r1; r++) {
        const uint32_t i = (uint32_t)(r % l.h);
        const uint32_t y1 = i == l.h - 1 ? s.h : 2 * i + 2;
        float *to = dlow + r * l.w * l.c;

        memset(to, 0, (uint64_t)l.w * l.c * sizeof *to);
        for (uint32_t y = 2 * i; y < y1; y++) {
            const float *from = dout + (r / l.h * s.h + y) * s.w * width;

            for (uint32_t x = 0; x < s.w; x++) {
                float *d = to + (uint64_t)ooc_low_place(x, l.w) * l.c;

                for (uint32_t k = 0; k < l.c; k++)
                    d[k] += from[x * width + k];
            }
        }
    }
}

void ooc_upcat_backward_skip_cpu(const float *dout, ooc_image l, ooc_image s, float *dskip,
                                 uint64_t r0, uint64_t r1)
{
    const uint64_t width = (uint64_t)l.c + s.c;

    for (uint64_t p = r0 * s.w; p < r1 * s.w; p++)
        memcpy(dskip + p * s.c, dout + p * width + l.c, s.c * sizeof *dskip);
}

void ooc_resize_forward_cpu(const float *in, ooc_image s, uint32_t h_out, uint32_t w_out,
                            float *out, uint64_t r0, uint64_t r1)
{
    for (uint64_t r = r0; r < r1; r++) {
        uint32_t y0, y1, x0, x1;
        const float ty = ooc_axis_place((uint32_t)(r % h_out), s.h, h_out, &y0, &y1);
        const float *image = in + r / h_out * s.h * s.w;
        const float *top = image + (uint64_t)y0 * s.w, *bottom = image + (uint64_t)y1 * s.w;

        for (uint32_t x = 0; x < w_out; x++) {
            const float tx = ooc_axis_place(x, s.w, w_out, &x0, &x1);
            const float a = (1 - tx) * top[x0] + tx * top[x1];
            const float b = (1 - tx) * bottom[x0] + tx * bottom[x1];

            out[r * w_out + x] = (1 - ty) * a + ty * b;
        }
    }
}

static void spread_row(const float *dout, uint32_t w_in, uint32_t w_out, float t, float *din)
{
    for (uint32_t x = 0; x < w_out; x++) {
        uint32_t x0, x1;
        const float tx = ooc_axis_place(x, w_in, w_out, &x0, &x1);
        const float d = t * dout[x];

        din[x0] += (1 - tx) * d;
        din[x1] += tx * d;
    }
}

void ooc_resize_backward_cpu(const float *dout, ooc_image s, uint32_t h_out, uint32_t w_out,
                             float *din, uint64_t r0, uint64_t r1)
{
    for (uint64_t r = r0; r < r1; r++) {
        const uint32_t i = (uint32_t)(r % s.h);
        const float *from = dout + r / s.h * h_out * w_out;
        float *to = din + r * s.w;

        memset(to, 0, s.w * sizeof *to);
        for (uint32_t y = ooc_first_reader(i, s.h, h_out); y < h_out; y++) {
            uint32_t y0, y1;
            const float ty = ooc_axis_place(y, s.h, h_out, &y0, &y1);

            if (y0 > i)
                break;
            if (y0 == i)
                spread_row(from + (uint64_t)y * w_out, s.w, w_out, 1 - ty, to);
            if (y1 == i)
                spread_row(from + (uint64_t)y * w_out, s.w, w_out, ty, to);
        }
    }
}
