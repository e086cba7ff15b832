/* loss_cpu.h - residual and loss of some rows on the CPU: R = scale * w * l'(y, t), sum of w * l.
 * Formulas: kernels/loss_hd.h. Letters: kernels/tile_view.h.
 *
 * No threads of its own. For sums that do not depend on the number of threads the caller cuts the
 * rows in fixed blocks (OOC_LOSS_ROWS, counted from row 0 of A) and adds their results in order. */
#ifndef OOC_KERNELS_LOSS_CPU_H
#define OOC_KERNELS_LOSS_CPU_H

#include "kernels/loss_hd.h"
#include "kernels/tile_view.h"

#include <stdbool.h>

#define OOC_LOSS_ROWS 256u

/* Pointers are to the first entry of the block's first row; ld* in elements. */
typedef struct {
    ooc_loss_kind kind;
    ooc_dtype dense; /* OOC_F32 or OOC_F64, of all arrays here */
    const void *Y;
    uint64_t ldy;
    const void *T;
    uint64_t ldt;
    const void *W; /* NULL: all weights are 1 */
    uint64_t ldw;
    bool w_per_entry; /* W is rows x B; else one weight a row */
    double scale;     /* what multiplies R: 1 / sum of all weights; the sum is not scaled */
    void *R;          /* may be Y */
    uint64_t ldr;
} ooc_loss_job;

/* R[r, b] = scale * w * l'(y, t) for `rows` rows; returns the sum of w * l, rows ascending. Where
 * w is 0, R is 0 and nothing is added, whatever y and t hold (NaN too). */
double ooc_loss_rows_cpu(const ooc_loss_job *job, uint64_t rows, uint32_t B);

/* The sum of `rows` rows of weights: of their first entries (w_per_entry false) or of all B. */
double ooc_weight_sum_cpu(const void *W, uint64_t ldw, bool w_per_entry, uint64_t rows, uint32_t B,
                          ooc_dtype dense);
#endif
