/* spmm_inside.h - what the files of all instruction sets begin with. */
#ifndef OOC_KERNELS_SPMM_INSIDE_H
#define OOC_KERNELS_SPMM_INSIDE_H

#include "kernels/cpu/convert.h"
#include "kernels/cpu/piece_list.h"
#include "kernels/cpu/spmm_ops.h"

#include <stdbool.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline, unused)) /* not all are used of each */

#define JOIN_(a, b) a##_##b
#define JOIN(a, b)  JOIN_(a, b)

/* Where the rows of a piece's columns stand: bytes from the start of the block. Each instruction
 * set has a `placer`, made by placer_of(w), and place(out, placer, col, n), which may write whole
 * vectors. at[-1] may be read. */
typedef struct {
    uint32_t before[16];
    _Alignas(64) uint32_t at[OOC_PIECE + 16];
} place_buffer;

/* In plain C, a placer is the layout itself. */
typedef struct {
    ooc_panel_layout l;
    uint32_t col0;
} plain_placer;

INLINE plain_placer plain_placer_of(const ooc_work *w)
{
    return (plain_placer){w->l, w->col0};
}

INLINE void plain_place(place_buffer *out, const plain_placer *p, const uint16_t *restrict col,
                        uint32_t n)
{
    uint32_t *restrict at = out->at;

    for (uint32_t i = 0; i < n; i++)
        at[i] = ooc_panel_at(p->l, (uint32_t)col[i] - p->col0);
}

/* How far ahead of their use entries are fetched into L1, in entries: what the processor fetches by
 * itself gets no further than L2. Measured on the CT matrix, B = 1: forward 0.67 -> 0.49 ns an
 * entry, adjoint 1.07 -> 0.86; 512 to 2,048 are alike. An address behind the arrays' end does no
 * harm. */
#define PREFETCH_ENTRIES 768u

INLINE void prefetch(const void *p)
{
    __builtin_prefetch(p, 0, 3);
}

#define GROUP 8u /* pieces that are placed before the first of them is used */

typedef struct {
    _Alignas(64) uint32_t at[GROUP][OOC_PIECE + 16];
} place_buffers;
#endif
