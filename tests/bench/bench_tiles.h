/* bench_tiles.h - for benches: matrices made straight in kernel form, tile by tile, in memory.
 *
 * Rows come from a generator one at a time, so no other form of the matrix is ever held. */
#ifndef OOC_TESTS_BENCH_TILES_H
#define OOC_TESTS_BENCH_TILES_H

#include "kernels/tile_view.h"

typedef struct {
    const char *kind;         /* "ct", "random", "banded", "power" */
    uint64_t n_rows;          /* ct: a multiple of `detectors` (whole views) */
    uint64_t n_cols;          /* ct: size * size */
    uint32_t per_row;         /* random, banded, power: mean entries a row */
    uint32_t views_all;       /* ct: angles are those of a scan of so many views */
    uint32_t detectors, size; /* ct */
    uint32_t panel_columns;
    uint64_t tile_bytes, chunk_bytes; /* of kernel form, about */
    double pairs_below; /* panels with fewer entries a segment than this become pair panels */
} bt_spec;

typedef struct {
    uint32_t n_tiles;
    uint64_t n_rows, n_cols, n_entries, kernel_bytes;
    struct {
        ooc_tile_view view;
        uint64_t first_row;
        void *block;
        uint64_t bytes;
    } * tile;
} bt_matrix;

/* Ends the process with a message if there is no memory. */
bt_matrix bt_build(const bt_spec *spec);
void bt_free(bt_matrix *m);
#endif
