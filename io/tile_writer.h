/* tile_writer.h - write a tile store: either a complete one appears under its name, or nothing.
 *
 * The writer works in a temporary file beside `path` (unnamed where the file system can: nothing is
 * left even by kill -9), fsyncs it, renames it, fsyncs the folder. Memory:  one tile in kernel
 * form, its encoded bytes, scratch a thread; ooc_tile_writer_memory() tells. Index: about 100 bytes
 * a tile. Threads: encodes the chunks of a tile on `pool`; the writer itself belongs to one thread.
 */
#ifndef OOC_IO_TILE_WRITER_H
#define OOC_IO_TILE_WRITER_H

#include "base/err.h"
#include "base/parallel.h"
#include "kernels/tile_view.h"

#include <stdbool.h>

typedef enum {
    OOC_CODEC_AUTO = 0, /* per array, what makes a cold step fastest without being large */
    OOC_CODEC_RAW,      /* kernel form, used in place */
    OOC_CODEC_ZSTD      /* filters and zstd everywhere: the smallest file */
} ooc_codec;

typedef struct {
    uint64_t n_rows, n_cols; /* of the whole matrix; n_cols <= 2^32 - 1 */
    ooc_dtype vtype;         /* OOC_F32, OOC_F64, OOC_F16 or OOC_BF16 */
    uint32_t panel_columns;  /* 1..65536 */
    ooc_codec codec;
    int level;  /* zstd level, 0: the default (3) */
    bool force; /* replace an existing file; else OOC_E_ARG if `path` exists */
} ooc_tile_writer_opts;

typedef struct ooc_tile_writer ooc_tile_writer;

/* Consecutive rows in CSR: row i has entries row_off[i] .. row_off[i+1]. Columns strictly ascend
 * within a row and are < n_cols. `val` holds elements of opts.vtype. Everything stays the caller's.
 */
typedef struct {
    uint32_t n_rows;
    const uint64_t *row_off; /* [n_rows + 1], starts at any value; entry e is col[e - row_off[0]] */
    const uint32_t *col;
    const void *val;
} ooc_csr_rows;

ooc_status ooc_tile_writer_open(ooc_tile_writer **out, const char *path,
                                const ooc_tile_writer_opts *opts, ooc_pool *pool, ooc_err *err);
/* Append one tile (1..65,536 rows, < 2^31 entries) behind the rows written so far. */
ooc_status ooc_tile_writer_append(ooc_tile_writer *w, const ooc_csr_rows *rows, ooc_err *err);
/* All n_rows rows must have been appended. fsync, rename. After failure the store does not exist.
 */
ooc_status ooc_tile_writer_commit(ooc_tile_writer *w, ooc_err *err);
/* Ends the writer; without a commit before, nothing stays behind. NULL is allowed. */
void ooc_tile_writer_close(ooc_tile_writer *w);

uint64_t ooc_tile_writer_bytes(const ooc_tile_writer *w); /* written so far */
/* Bytes that a writer takes at most for tiles of `tile_rows` rows and `tile_entries` entries. */
uint64_t ooc_tile_writer_memory(const ooc_tile_writer_opts *opts, uint32_t tile_rows,
                                uint64_t tile_entries, uint32_t n_threads);
/* Kernel-form bytes of these rows as one tile: for planners that fill tiles to a size. An upper
 * bound that counts a new segment for every entry unless `n_segments` is given. */
uint64_t ooc_tile_kernel_bytes(const ooc_tile_writer_opts *opts, uint32_t n_rows,
                               uint64_t n_entries, uint64_t n_segments);
#endif
