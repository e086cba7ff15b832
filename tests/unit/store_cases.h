/* store_cases.h - matrices, stores and a naive reader for the tests of the tile store. */
#ifndef OOC_TESTS_STORE_CASES_H
#define OOC_TESTS_STORE_CASES_H

#include "io/tile_store.h"
#include "io/tile_writer.h"

typedef struct {
    uint64_t n_rows, n_cols;
    ooc_dtype vtype;
    uint64_t *off; /* [n_rows + 1] */
    uint32_t *col;
    uint8_t *val;
} case_matrix;

typedef enum {
    CASE_RANDOM,  /* uniform columns, random values */
    CASE_BANDED,  /* runs of neighbours, values that repeat */
    CASE_CONST,   /* uniform columns, one value */
    CASE_EMPTY,   /* no entries at all */
    CASE_DENSE,   /* every entry */
    CASE_CLUSTER, /* some rows long, most empty */
    CASE_KINDS
} case_kind;

/* About `per_row` entries a row. The caller ends it with case_free(). */
case_matrix case_make(case_kind kind, uint64_t n_rows, uint64_t n_cols, uint64_t per_row,
                      ooc_dtype vtype, uint64_t seed);
void case_free(case_matrix *m);
uint64_t case_random(uint64_t *state);

/* Write m in tiles of `tile_rows` rows; replaces `path`. */
ooc_status case_write(const case_matrix *m, const char *path, uint32_t panel_columns,
                      ooc_codec codec, uint32_t tile_rows, ooc_pool *pool, ooc_err *err);

/* Read every tile of `path` and compare it with m entry by entry (through the naive reading of the
 * layout that kernels/tile_view.h describes). NULL, or what differs. With NULL `m` only reads. */
const char *case_compare(const case_matrix *m, const char *path, ooc_status *st, ooc_err *err);

/* A tile read and decoded: kernel form in *block (ooc_free), stored bytes in *stored (ooc_free). */
ooc_status case_read_tile(const ooc_store *s, uint64_t k, uint8_t **stored, uint8_t **block,
                          ooc_err *err);
#endif
