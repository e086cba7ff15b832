/* builder.h - entries in row order in, tiles out.
 *
 * Adds up values of the same place (in double), converts them to the stored type, and cuts tiles:
 * as many rows as fit tile_bytes of kernel form, and at most OOC_MAX_TILE_ROWS; a longer row is a
 * tile of its own.
 * Memory: the CSR arrays of one tile and one row; grows with the longest row, within memory_bytes
 * (which counts the writer too). */
#ifndef OOC_TILER_BUILDER_H
#define OOC_TILER_BUILDER_H

#include "io/tile_writer.h"
#include "tiler/entry_sort.h"

typedef struct {
    ooc_tile_writer_opts writer; /* shape, value type, panels */
    uint64_t tile_bytes;         /* of kernel form */
    uint64_t memory_bytes;       /* for the builder and the writer */
    uint64_t other_bytes;        /* what the rest of the conversion takes, for messages */
    uint32_t n_threads;
    int col_bits;    /* of the keys */
    bool wide;       /* values are doubles */
    bool transposed; /* messages name rows and columns of the file */
    bool exact;      /* refuse values that the stored type cannot hold exactly */
    bool allow_nonfinite;
    bool drop_zeros;
    bool refuse_duplicates; /* where adding them up would be wrong (--part abs) */
    const char *name;       /* of the input, for messages */
} ooc_builder_opts;

typedef struct ooc_builder ooc_builder;

typedef struct {
    uint64_t n_entries, n_tiles, n_duplicates, n_dropped;
    uint64_t longest_row, longest_row_entries;
} ooc_builder_stats;

ooc_status ooc_builder_open(ooc_builder **out, const ooc_builder_opts *opts,
                            ooc_tile_writer *writer, ooc_err *err);
void ooc_builder_close(ooc_builder *b); /* NULL is allowed; the writer stays the caller's */
/* Entries sorted by key, none below those of the calls before. Fits ooc_entry_sink. */
ooc_status ooc_builder_push(void *builder, const ooc_entries *e, uint64_t n, ooc_err *err);
/* The last tile, and empty rows up to the end of the matrix. */
ooc_status ooc_builder_finish(ooc_builder *b, ooc_err *err);
void ooc_builder_get_stats(const ooc_builder *b, ooc_builder_stats *out);

/* Bytes that a tile of `tile_bytes` takes in the builder and the writer together. */
uint64_t ooc_builder_memory(const ooc_tile_writer_opts *writer, uint64_t tile_bytes,
                            uint32_t n_threads);
#endif
