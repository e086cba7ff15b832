/* tile_maker.h - for tests: a tile in kernel form from plain entries, and naive products with them.
 *
 * Memory comes from malloc; a failure aborts the test. */
#ifndef OOC_TESTS_TILE_MAKER_H
#define OOC_TESTS_TILE_MAKER_H

#include "kernels/tile_view.h"

#include <stdbool.h>

typedef struct {
    uint32_t row;
    uint64_t col;
    double val;
} tm_entry;

typedef struct {
    uint32_t n_rows;
    uint64_t n_cols;
    uint32_t n;
    tm_entry *e; /* by row, then column; no duplicates */
} tm_matrix;

typedef enum { TM_SEGMENTS, TM_PAIRS, TM_MIXED /* pairs in every second panel */ } tm_panels;

typedef struct {
    ooc_tile_view view;
    void *block;
} tm_tile;

/* An empty matrix with room for `room` entries. */
tm_matrix tm_matrix_new(uint32_t n_rows, uint64_t n_cols, uint32_t room);
void tm_matrix_free(tm_matrix *m);
void tm_add(tm_matrix *m, uint32_t row, uint64_t col, double val);
/* Rows first .. first+n-1 of m as a matrix of its own. */
tm_matrix tm_rows(const tm_matrix *m, uint32_t first, uint32_t n);

/* Round all values to what `vtype` can hold (OOC_CONST: to the first one). */
void tm_round_values(tm_matrix *m, ooc_dtype vtype);

/* The kernel form, chunks of chunk_rows rows. Values must be what vtype holds. */
tm_tile tm_tile_new(const tm_matrix *m, uint32_t panel_columns, uint32_t chunk_rows,
                    ooc_dtype vtype, tm_panels panels);
void tm_tile_free(tm_tile *t);

/* out += A*in (transpose: transpose(A)*in) in long double; scale[i, b] = sum |a||x|; len[i] = how
 * many entries. in: rows of ld_in; out and scale: rows of B. */
void tm_product(const tm_matrix *m, bool transpose, const double *in, uint64_t ld_in, uint32_t B,
                double *out, double *scale, uint32_t *len);

/* A repeatable random number in [0, 1). */
double tm_random(uint64_t *state);
#endif
