/* panel_layout.h - where the rows of a panel's columns stand in scratch memory.
 *
 * The rows of X (or of sums for G) of one block of columns, row_bytes apart, with a gap of one
 * cache line after every 16 KiB. Without the gaps the columns of an image whose width is a power of
 * two, or of any such stride, would fall into the same few sets of the L1 cache: measured on the CT
 * matrix of a 512 x 512 image, 3 times slower. */
#ifndef OOC_KERNELS_PANEL_LAYOUT_H
#define OOC_KERNELS_PANEL_LAYOUT_H

#include <stdint.h>

#define OOC_LINE_BYTES  64u
#define OOC_BLOCK_BYTES (16u << 10)

/* Column c (from the block's first one) stands at c * row_bytes + (c >> gap_shift) * 64. */
typedef struct {
    uint32_t row_bytes;
    uint32_t gap_shift; /* 31: no gaps */
} ooc_panel_layout;

/* Rows of n elements of `elem` bytes, padded to a power of two of them. */
static inline ooc_panel_layout ooc_panel_layout_of(uint32_t n, uint32_t elem)
{
    ooc_panel_layout l = {elem, 0};

    while (l.row_bytes < n * elem)
        l.row_bytes *= 2;
    while (l.row_bytes << l.gap_shift < OOC_BLOCK_BYTES)
        l.gap_shift++;
    return l;
}

static inline uint32_t ooc_panel_at(ooc_panel_layout l, uint32_t c)
{
    return c * l.row_bytes + (c >> l.gap_shift) * OOC_LINE_BYTES;
}

/* Scratch that a block of `bytes` of rows takes with its gaps. */
#define OOC_BYTES_WITH_GAPS(bytes) ((bytes) + (bytes) / OOC_BLOCK_BYTES * OOC_LINE_BYTES)
#endif
