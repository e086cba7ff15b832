/* tile_store.h - open a tile store, look at it, and turn the stored bytes of a tile into kernel
 * form.
 *
 * This file knows the format (docs/tile-format.md, io/tile_format.h); it does not read tiles: the
 * bytes of a tile come from io/tile_reader.h, or from any pread of info.file_off,
 * info.stored_bytes. Memory:  the header and the index (about 100 bytes a tile), taken at open.
 * Threads: an open store is read-only and may be used by many threads.
 * Every size, offset and count of the file is checked here before it is used; every stored byte,
 * padding too, is covered by a checksum or must be zero. */
#ifndef OOC_IO_TILE_STORE_H
#define OOC_IO_TILE_STORE_H

#include "base/err.h"
#include "kernels/tile_view.h"

#include <stdbool.h>

typedef struct ooc_store ooc_store;

typedef struct {
    uint64_t n_rows, n_cols, n_entries, n_tiles;
    uint64_t file_bytes;
    uint64_t stored_bytes;      /* all tiles on disk, padding included */
    uint64_t kernel_bytes;      /* all tiles in kernel form */
    uint64_t max_stored_bytes;  /* the largest tile on disk, a multiple of 4096 */
    uint64_t max_kernel_bytes;  /* the largest tile in kernel form, a multiple of 64 */
    uint64_t max_scratch_bytes; /* what one thread needs to decode any chunk */
    uint32_t max_tile_rows;
    uint32_t max_tile_chunks;
    uint32_t panel_columns;
    ooc_dtype vtype; /* of the store; single tiles may be OOC_CONST */
    uint16_t version_major, version_minor;
} ooc_store_info;

typedef struct {
    uint64_t file_off;     /* a multiple of 4096 */
    uint64_t stored_bytes; /* a multiple of 4096 */
    uint64_t kernel_bytes; /* ooc_tile_layout_of(&n).total */
    uint64_t first_row;
    ooc_tile_counts n;
    double constant;
    bool raw; /* stands in kernel form on disk and can be used in place */
} ooc_tile_info;

/* Open `path` and read and check its header and index; no tile is read yet. On success the caller
 * owns *out. On failure *out is NULL: OOC_E_IO, OOC_E_FORMAT (damaged, cut, not a store),
 * OOC_E_UNSUPPORTED (a newer major version), OOC_E_NOMEM. */
ooc_status ooc_store_open(ooc_store **out, const char *path, ooc_err *err);
void ooc_store_close(ooc_store *s); /* NULL is allowed */

const ooc_store_info *ooc_store_get_info(const ooc_store *s);
/* k < n_tiles. The tiles' rows follow each other without a gap from 0 to n_rows. */
void ooc_store_get_tile(const ooc_store *s, uint64_t k, ooc_tile_info *out);
const char *ooc_store_path(const ooc_store *s);
int ooc_store_fd(const ooc_store *s); /* opened read-only, buffered; stays the store's */

/* A tile whose stored bytes are in memory, its directory checked. Plain data, no ownership. */
typedef struct {
    const ooc_store *store;
    uint64_t k;
    const uint8_t *stored; /* info.stored_bytes bytes, 64-byte aligned, must stay valid */
    ooc_tile_info info;
    uint32_t n_tasks;  /* independent parts of the decoding, for a parallel_for */
    uint64_t dir_[16]; /* places inside the directory, private to tile_store.c */
} ooc_stored_tile;

/* Check the directory of tile k (its checksum, its sizes, the zero padding behind the tile). */
ooc_status ooc_stored_tile_open(ooc_stored_tile *out, const ooc_store *s, uint64_t k,
                                const void *stored, ooc_err *err);

/* Run decoding task `task` (0..n_tasks-1): verify the checksum of its stored bytes, then write its
 * part of the kernel form to `block` (info.kernel_bytes bytes, 64-byte aligned). Tasks may run in
 * any order and at the same time. What comes out is safe to hand to a kernel: rows, columns and
 * lengths are within bounds. `scratch`: max_scratch_bytes of the calling thread, 64-byte aligned.
 * For raw tiles `block` NULL checks in place (the kernel form then is
 * ooc_stored_tile_kernel_form()). OOC_E_FORMAT names file, tile and chunk. */
ooc_status ooc_stored_tile_decode(const ooc_stored_tile *t, uint32_t task, void *block,
                                  void *scratch, ooc_err *err);

/* The view of a tile that is not raw while it is being decoded to `block`: its tables (chunk_row,
 * panel_id, len_base, seg_off, ent_off) stand in the stored bytes and can be used at once, and what
 * a kernel reads for chunk c is there when task c has run. Both must stay valid. */
ooc_tile_view ooc_stored_tile_early_view(const ooc_stored_tile *t, const void *block);

/* The kernel form of a raw tile inside its stored bytes; NULL for others. */
const void *ooc_stored_tile_kernel_form(const ooc_stored_tile *t);
#endif
