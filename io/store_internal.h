/* store_internal.h - what the files of the tile store share; not for callers.
 *
 * tile_store.c (header, index) - tile_dir.c (one tile's directory) - tile_check.c (kernel-form
 * arrays) - tile_decode.c, tile_emit*.c (ROWS chunks into panels) - piece_codec.c (byte planes);
 * tile_writer.c, tile_plan.c, tile_encode.c, tile_scatter.c write. */
#ifndef OOC_IO_STORE_INTERNAL_H
#define OOC_IO_STORE_INTERNAL_H

#include "io/tile_format.h"
#include "io/tile_store.h"

/* One index record, read and checked. */
typedef struct {
    ooc_tile_info info;
    uint64_t dir_hash, dir_bytes;
    uint32_t max_chunk_entries, max_chunk_segments, max_chunk_rows;
} ooc_tile_record;

struct ooc_store {
    char *path;
    int fd;
    ooc_store_info info;
    ooc_tile_record *tiles;
};

/* ooc_stored_tile.dir_: */
enum {
    OOC_DIR_CHUNKS, /* offset in the tile of the chunk records (ROWS) or the block hashes (KERNEL)
                     */
    OOC_DIR_HEAD,   /* offset of the head: the kernel form's arrays before seg_row */
};

/* Bytes of a kernel-form block before seg_row: what the directory holds for both layouts. */
static inline uint64_t ooc_head_bytes(const ooc_tile_counts *n)
{
    return ooc_tile_layout_of(n).seg_row;
}

/* Checksums in a KERNEL tile: one a block of what follows the head. */
static inline uint64_t ooc_kernel_blocks(const ooc_tile_counts *n)
{
    const ooc_tile_layout l = ooc_tile_layout_of(n);

    return (l.total - l.seg_row + OOC_KERNEL_BLOCK - 1) / OOC_KERNEL_BLOCK;
}

/* Bytes in front of the head: chunk records or block checksums, padded with zeros to 64. */
static inline uint64_t ooc_dir_front_bytes(const ooc_tile_counts *n, bool raw)
{
    uint64_t bytes = raw ? ooc_kernel_blocks(n) * 8 : (uint64_t)n->n_chunks * OOC_CHK_SIZE;

    return (bytes + 63) & ~(uint64_t)63;
}

/* Scratch of one decoding thread: offsets of its parts. */
typedef struct {
    uint64_t dctx, dctx_bytes;
    uint64_t piece[OOC_MAX_PIECES]; /* decoded planes */
    uint64_t seg_row, seg_panel, seg_len, col, dropped, cursors;
    uint64_t total;
} ooc_scratch_layout;

ooc_scratch_layout ooc_scratch_layout_of(const ooc_tile_record *r);

/* One more than the highest column index inside panel p that the matrix has. */
static inline uint32_t ooc_panel_limit(const ooc_tile_view *v, uint64_t n_cols, uint32_t p)
{
    uint64_t left = n_cols - (uint64_t)v->panel_id[p] * v->n.panel_columns;

    return left < v->n.panel_columns ? (uint32_t)left : v->n.panel_columns;
}

/* How far vectors may read behind (never write) a decoded plane or column array. */
#define OOC_OVERREAD 64u

/* Check the arrays before seg_row, and runs r0 .. r1-1 of those behind it: rows inside their chunk
 * and ascending, lengths that sum up, columns ascending and inside panel and matrix. NULL if all
 * is well, else what is wrong, a static text. */
const char *ooc_check_head(const ooc_tile_view *v, uint64_t n_cols);
const char *ooc_check_runs(const ooc_tile_view *v, uint64_t n_cols, uint64_t r0, uint64_t r1);

/* Decode a ROWS chunk (tile_decode.c) or check a block of a KERNEL tile (tile_check.c). */
ooc_status ooc_decode_rows_chunk(const ooc_stored_tile *t, uint32_t chunk, void *block,
                                 void *scratch, ooc_err *err);
ooc_status ooc_decode_kernel_block(const ooc_stored_tile *t, uint32_t task, void *block,
                                   ooc_err *err);

/* OOC_E_FORMAT with "FILE: tile K: what". `off`: in the tile. */
ooc_status ooc_tile_fail(const ooc_stored_tile *t, ooc_err *err, uint64_t off, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
#endif
