/* tile_emit.h - the inner loops of decoding and checking: byte planes to items, runs of entries
 * into their panels, order of rows and columns. One table for each instruction set. */
#ifndef OOC_IO_TILE_EMIT_H
#define OOC_IO_TILE_EMIT_H

#include "kernels/tile_view.h"

/* Where the next entries of a panel go, and how many more its run in this chunk can take. */
typedef struct {
    uint16_t *seg_row, *seg_len, *col;
    uint8_t *val;
    uint32_t seg_left, ent_left;
    uint32_t limit;   /* columns of the panel that the matrix has */
    uint16_t longest; /* entries of a segment: 1 in a pair panel */
    uint16_t
        len_step; /* 0 in a pair panel, which has no lengths: seg_len is a place to drop them */
} ooc_panel_cursor;

typedef struct {
    uint32_t n_segments;
    const uint16_t *seg_row;     /* [n_segments] row in the tile */
    const uint16_t *seg_panel;   /* [n_segments] all below the number of cursors */
    const uint16_t *seg_len;     /* [n_segments] entries less one */
    const uint16_t *col;         /* [entries] */
    uint32_t n_descents;         /* of col: items that are not above the one before */
    const uint8_t *val_plane[8]; /* [entries] each */
    ooc_panel_cursor *cursor;
} ooc_emit_job;

/* The sum of (seg_len + 1) has been checked against the arrays' sizes. Writes only inside the
 * cursors' runs. NULL if all is well, else what is wrong, a static text. */
typedef const char *(*ooc_emit_fn)(const ooc_emit_job *j);

/* Planes may be read up to OOC_OVERREAD bytes behind their last item; nothing is written there. */
typedef struct {
    /* out[i] = lo[i] | hi[i] << 8 */
    void (*join2)(uint16_t *out, const uint8_t *lo, const uint8_t *hi, uint32_t n);
    /* The same, then each item is added to the one before it (mod 2^16). Returns the number of
     * items that are not above the one before. */
    uint32_t (*join2_prefix)(uint16_t *out, const uint8_t *lo, const uint8_t *hi, uint32_t n);
    /* The number of items i >= 1 with x[i] <= x[i - 1]; with x[i] < x[i - 1]; with (row[i], col[i])
     * not above (row[i - 1], col[i - 1]). */
    uint32_t (*count_not_above)(const uint16_t *x, uint32_t n);
    uint32_t (*count_below)(const uint16_t *x, uint32_t n);
    uint32_t (*count_pairs_not_above)(const uint16_t *row, const uint16_t *col, uint32_t n);
    /* The sum of n lengths, or UINT64_MAX if one is zero. */
    uint64_t (*sum_lengths)(const uint16_t *len, uint32_t n);
    uint16_t (*highest)(const uint16_t *x, uint32_t n);
    ooc_emit_fn emit0, emit2, emit4, emit8; /* by bytes of a value */
} ooc_emit_ops;

extern const ooc_emit_ops ooc_emit_scalar, ooc_emit_avx2, ooc_emit_avx512;
const ooc_emit_ops *ooc_emit_ops_get(void);
#endif
