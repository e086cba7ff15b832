/* tile_emit.h - the inner loops of decoding and checking: byte planes to items, runs of entries
 * into their panels, order of rows and columns. One table for each instruction set. */
#ifndef OOC_IO_TILE_EMIT_H
#define OOC_IO_TILE_EMIT_H

#include "kernels/tile_view.h"

/* Where the next entries of a panel go. All are indices into the kernel form's arrays. */
typedef struct {
    uint32_t ent, ent_end; /* of this chunk's run */
    uint32_t seg, seg_end;
    uint32_t to_len; /* seg + to_len (mod 2^32) is the place in seg_len */
    uint32_t limit;  /* columns of the panel that the matrix has */
    uint32_t pairs;  /* a pair panel: every segment has one entry and no length */
} ooc_panel_cursor;

typedef struct {
    uint32_t n_rows, n_panels;
    uint32_t row0;               /* first row in the tile */
    const uint32_t *row_segs;    /* [n_rows] */
    const uint16_t *seg_panel;   /* [segments] < n_panels is checked here */
    const uint16_t *seg_len;     /* [segments] entries less one */
    const uint16_t *col;         /* [entries] */
    uint32_t n_descents;         /* of col: items that are not above the one before */
    const uint8_t *val_plane[8]; /* [entries + slack] each */
    ooc_panel_cursor *cursor;    /* [n_panels] */
    uint16_t *seg_row, *seg_len_out, *col_out;
    uint8_t *val_out;
} ooc_emit_job;

/* The sums of row_segs and of (seg_len + 1) have been checked against the arrays' sizes. Writes
 * only inside the cursors' runs. NULL if all is well, else what is wrong, a static text. */
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
