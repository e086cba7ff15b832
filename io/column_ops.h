/* column_ops.h - what decoding does with many columns and values at once: portable C and vector
 * forms, chosen once per process like the kernels (kernels/cpu/spmm_cpu.h). */
#ifndef OOC_IO_COLUMN_OPS_H
#define OOC_IO_COLUMN_OPS_H

#include "kernels/tile_view.h"

#include <stdbool.h>

/* One more than the highest column index inside panel p that the matrix has. */
static inline uint32_t ooc_panel_limit(const ooc_tile_view *v, uint64_t n_cols, uint32_t p)
{
    uint64_t left = n_cols - (uint64_t)v->panel_id[p] * v->n.panel_columns;

    return left < v->n.panel_columns ? (uint32_t)left : v->n.panel_columns;
}

/* col[0] < col[1] < ... < col[n - 1]; n >= 1. */
static inline bool ooc_columns_ascend(const uint16_t *col, uint32_t n)
{
    unsigned bad = 0;

    for (uint32_t i = 1; i < n; i++)
        bad |= col[i] <= col[i - 1];
    return !bad;
}
#endif
