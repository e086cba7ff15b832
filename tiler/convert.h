/* convert.h - a foreign matrix as a tile store, within a memory budget.
 *
 * Memory: ram_budget for buffers, the sort and the tiles (plus the program itself); temporary space
 * in tmp_dir where the entries do not fit. On failure nothing is left: no store, no temporary file.
 * Threads: its own pool of n_threads; one conversion at a time a thread. */
#ifndef OOC_TILER_CONVERT_H
#define OOC_TILER_CONVERT_H

#include "io/tile_writer.h"
#include "tiler/order.h"

typedef struct {
    const char *input, *output;
    const char *from;    /* name of the format, or NULL: found */
    const char *key;     /* object inside the file, or NULL */
    const char *tmp_dir; /* NULL: the folder of the output */
    ooc_dtype vtype;
    ooc_part part;
    bool transpose, force, allow_nonfinite, drop_zeros;
    uint64_t tile_bytes;    /* 0: chosen */
    uint32_t panel_columns; /* 0: chosen */
    ooc_codec codec;
    int level;           /* 0: default */
    uint64_t ram_budget; /* bytes */
    uint32_t n_threads;  /* 0: all processors */
    /* May be NULL. `what` is the phase, done 0..1, entries and bytes written so far. */
    void (*progress)(void *ctx, const char *what, double done, uint64_t entries, uint64_t bytes);
    bool (*interrupted)(void *ctx);
    void *ctx;
} ooc_convert_opts;

typedef struct {
    uint64_t n_rows, n_cols, n_entries, n_tiles, file_bytes;
    uint64_t n_duplicates, n_dropped, spilled_bytes;
    uint64_t tile_bytes, longest_row, longest_row_entries;
    uint32_t panel_columns;
} ooc_convert_result;

ooc_status ooc_convert(const ooc_convert_opts *opts, ooc_convert_result *result, ooc_err *err);
#endif
