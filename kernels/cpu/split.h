/* split.h - cut the products with one tile into parts for threads, by counted entries.
 *
 * The bits of the results do not depend on the cut (kernels/cpu/spmm_cpu.h), so any number of parts
 * is right; these functions only balance them. No allocation, no threads. */
#ifndef OOC_KERNELS_SPLIT_H
#define OOC_KERNELS_SPLIT_H

#include "kernels/tile_view.h"

#define OOC_MAX_PARTS 1024u

/* Chunks a .. b-1 for one call of ooc_spmm_forward_cpu(). */
typedef struct {
    uint32_t c0, c1;
} ooc_forward_part;

/* Panels and column range for one call of ooc_spmm_adjoint_cpu(). */
typedef struct {
    uint32_t p0, p1, col0, col1;
} ooc_adjoint_part;

/* Cut chunks into at most `want` (1..OOC_MAX_PARTS) parts of about equal entry counts. Writes to
 * `parts` and returns how many (>= 1). Few parts are faster than many: X goes through the cache
 * once a part, so `want` should be a small multiple of the threads. */
uint32_t ooc_split_forward(const ooc_tile_view *t, uint32_t want, ooc_forward_part *parts);

/* Cut panels into at most `want` parts; a panel with more than its share of the entries is cut into
 * column ranges (DESIGN section 4, "few panels"). `n_cols`: columns of A, which bound the last
 * panel. Writes to `parts` (room for `want`) and returns how many; 0 for a tile without entries. */
uint32_t ooc_split_adjoint(const ooc_tile_view *t, uint64_t n_cols, uint32_t want,
                           ooc_adjoint_part *parts);
#endif
