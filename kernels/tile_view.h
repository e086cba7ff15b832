/* tile_view.h - a tile in kernel form: what every kernel, on the CPU and on the GPU, reads.
 *
 * Letters used in all of kernels/:  A is M x N, X is N x B, Y and R are M x B, G is N x B; the B
 * entries of a row are contiguous and rows are `ld` elements apart (ld >= B).
 *
 * A tile holds consecutive rows. Its columns are cut into panels of `panel_columns` (at most
 * 65,536), so that a column index inside a panel fits 16 bits; only panels that hold entries are
 * listed. Its rows are cut into chunks (the unit of decoding). The entries of one row inside one
 * panel are a segment. Everything is ordered by panel, then row, then column, so that the entries
 * of one (panel, chunk) pair are one contiguous run:
 *
 *     run i = p * n_chunks + c      entries  ent_off[i] .. ent_off[i+1]
 *                                   segments seg_off[i] .. seg_off[i+1]
 *
 * Two kinds of panel:
 *   segment panel  len_base[p] != OOC_PAIR_PANEL: seg_row holds the row of each segment, and
 *                  seg_len[len_base[p] + (s - seg_off[p * n_chunks])] the number of its entries (>=
 * 1) pair panel     len_base[p] == OOC_PAIR_PANEL: one "segment" an entry, so seg_row holds the row
 * of each entry and there are no lengths (hypersparse tiles: 4 bytes an entry, not 6)
 *
 * All arrays stand in one block, each at a multiple of 64 bytes from its start, in the order of the
 * fields below; ooc_tile_layout() computes the offsets. The block is what is copied to a device,
 * and what a raw tile has on disk (docs/tile-format.md). */
#ifndef OOC_KERNELS_TILE_VIEW_H
#define OOC_KERNELS_TILE_VIEW_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define OOC_PAIR_PANEL        UINT32_MAX
#define OOC_MAX_PANEL_COLUMNS 65536u
#define OOC_MAX_TILE_ROWS     65536u
#define OOC_MAX_SEGMENT       65535u

/* Element types of values. Dense operands are F32 or F64. CONST: all values of the tile are equal,
 * none is stored. */
typedef enum { OOC_F32 = 0, OOC_F64 = 1, OOC_F16 = 2, OOC_BF16 = 3, OOC_CONST = 4 } ooc_dtype;

/* Bytes of one element: 4, 8, 2, 2, 0. */
static inline uint32_t ooc_dtype_bytes(ooc_dtype t)
{
    return t == OOC_F32 ? 4u : t == OOC_F64 ? 8u : t == OOC_CONST ? 0u : 2u;
}

/* The counts that fix the layout of a kernel-form block. */
typedef struct {
    uint32_t n_rows;   /* 1..OOC_MAX_TILE_ROWS */
    uint32_t n_chunks; /* 1..n_rows */
    uint32_t n_panels; /* panels with entries; may be 0 */
    uint32_t panel_columns;
    uint32_t n_entries;  /* < 2^31 */
    uint32_t n_segments; /* items of seg_row */
    uint32_t n_lens;     /* items of seg_len: segments of segment panels only */
    ooc_dtype vtype;
} ooc_tile_counts;

typedef struct {
    ooc_tile_counts n;
    double constant;           /* the value of every entry where n.vtype is OOC_CONST */
    const uint32_t *chunk_row; /* [n_chunks + 1] first row of each chunk; [n_chunks] = n_rows */
    const uint32_t *panel_id;  /* [n_panels] ascending; first column = panel_id * panel_columns */
    const uint32_t *len_base;  /* [n_panels] */
    const uint32_t *seg_off;   /* [n_panels * n_chunks + 1] */
    const uint32_t *ent_off;   /* [n_panels * n_chunks + 1] */
    const uint16_t *seg_row;   /* [n_segments] row inside the tile */
    const uint16_t *seg_len;   /* [n_lens] */
    const uint16_t *col;       /* [n_entries] column inside the panel */
    const void *val;           /* [n_entries] of vtype */
} ooc_tile_view;

/* Byte offsets of the arrays inside a kernel-form block. */
typedef struct {
    uint64_t chunk_row, panel_id, len_base, seg_off, ent_off, seg_row, seg_len, col, val;
    uint64_t total; /* a multiple of 64 */
} ooc_tile_layout;

static inline uint64_t ooc_layout_next_(uint64_t off, uint64_t count, uint64_t size)
{
    return (off + count * size + 63u) & ~(uint64_t)63u;
}

/* Cannot overflow: n_entries < 2^31 and n_panels * n_chunks <= 2^32 (checked by whoever made n). */
static inline ooc_tile_layout ooc_tile_layout_of(const ooc_tile_counts *n)
{
    uint64_t runs = (uint64_t)n->n_panels * n->n_chunks + 1;
    ooc_tile_layout l;

    l.chunk_row = 0;
    l.panel_id = ooc_layout_next_(l.chunk_row, (uint64_t)n->n_chunks + 1, 4);
    l.len_base = ooc_layout_next_(l.panel_id, n->n_panels, 4);
    l.seg_off = ooc_layout_next_(l.len_base, n->n_panels, 4);
    l.ent_off = ooc_layout_next_(l.seg_off, runs, 4);
    l.seg_row = ooc_layout_next_(l.ent_off, runs, 4);
    l.seg_len = ooc_layout_next_(l.seg_row, n->n_segments, 2);
    l.col = ooc_layout_next_(l.seg_len, n->n_lens, 2);
    l.val = ooc_layout_next_(l.col, n->n_entries, 2);
    l.total = ooc_layout_next_(l.val, n->n_entries, ooc_dtype_bytes(n->vtype));
    return l;
}

/* The view of a kernel-form block at `block` (64-byte aligned; host or device address). */
static inline ooc_tile_view ooc_tile_view_of(const ooc_tile_counts *n, double constant,
                                             const void *block)
{
    const ooc_tile_layout l = ooc_tile_layout_of(n);
    const char *b = (const char *)block;
    ooc_tile_view v;

    v.n = *n;
    v.constant = constant;
    v.chunk_row = (const uint32_t *)(b + l.chunk_row);
    v.panel_id = (const uint32_t *)(b + l.panel_id);
    v.len_base = (const uint32_t *)(b + l.len_base);
    v.seg_off = (const uint32_t *)(b + l.seg_off);
    v.ent_off = (const uint32_t *)(b + l.ent_off);
    v.seg_row = (const uint16_t *)(b + l.seg_row);
    v.seg_len = (const uint16_t *)(b + l.seg_len);
    v.col = (const uint16_t *)(b + l.col);
    v.val = b + l.val;
    return v;
}

#ifdef __cplusplus
}
#endif
#endif
