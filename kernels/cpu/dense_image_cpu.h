/* dense_image_cpu.h - pooling, upsampling and resampling of images on the CPU.
 *
 * Images are float, "NHWC": element (image, y, x, channel) of n images of h rows, w columns and c
 * channels stands at ((image * h + y) * w + x) * c + channel. Functions here have no threads: each
 * computes the rows r0 .. r1-1 of what it writes, where row r of n images of h rows is row r % h of
 * image r / h. Rows are disjoint, so callers may split them as they like; the bits don't depend on
 * it. */
#ifndef OOC_KERNELS_DENSE_IMAGE_CPU_H
#define OOC_KERNELS_DENSE_IMAGE_CPU_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    uint32_t h, w, c;
} ooc_image;

/* y[i][j] = max of the 2x2 block of x at (2i, 2j); a last odd row or column of x is left out.
 * x: s, y: (s.h/2, s.w/2, s.c). Rows are y's. */
void ooc_maxpool_forward_cpu(const float *x, ooc_image s, float *y, uint64_t r0, uint64_t r1);

/* dx (+)= dy at the first largest of each block, read in row order; elsewhere 0. Rows are y's; the
 * rows of dx below them, the odd last one too, belong to it. add: dx holds a gradient already. */
void ooc_maxpool_backward_cpu(const float *x, ooc_image s, const float *dy, bool add, float *dx,
                              uint64_t r0, uint64_t r1);

/* out[y][x] = (low[min(y/2, low.h-1)][min(x/2, low.w-1)], skip[y][x]): nearest x 2, the edge
 * repeated up to the skip's size, concatenated along the channels. out: (skip.h, skip.w, low.c +
 * skip.c). Rows are out's. low.h = skip.h/2 and low.w = skip.w/2, rounded down. */
void ooc_upcat_forward_cpu(const float *low, ooc_image l, const float *skip, ooc_image s,
                           float *out, uint64_t r0, uint64_t r1);

/* dlow = the sums of dout over the places that each element went to (overwritten). Rows are
 * low's. */
void ooc_upcat_backward_low_cpu(const float *dout, ooc_image l, ooc_image s, float *dlow,
                                uint64_t r0, uint64_t r1);

/* dskip = its part of dout (overwritten). Rows are skip's. */
void ooc_upcat_backward_skip_cpu(const float *dout, ooc_image l, ooc_image s, float *dskip,
                                 uint64_t r0, uint64_t r1);

/* Bilinear resampling of one-channel images, pixel centres at half integers (PyTorch's
 * align_corners=False). in: s (c = 1), out: h_out x w_out. Rows are out's. */
void ooc_resize_forward_cpu(const float *in, ooc_image s, uint32_t h_out, uint32_t w_out,
                            float *out, uint64_t r0, uint64_t r1);

/* din = the transposed map applied to dout (overwritten). Rows are in's. */
void ooc_resize_backward_cpu(const float *dout, ooc_image s, uint32_t h_out, uint32_t w_out,
                             float *din, uint64_t r0, uint64_t r1);

#ifdef __cplusplus
}
#endif
#endif
