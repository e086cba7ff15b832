/* engine_rig.h - a matrix with its store and float64 products, and one engine call after another,
 * for the tests of the engine. */
#ifndef OOC_TESTS_ENGINE_RIG_H
#define OOC_TESTS_ENGINE_RIG_H

#include "src/streamtrain.h"
#include "tests/unit/store_cases.h"

typedef struct {
    case_matrix m;
    char path[64];
    uint64_t n_tiles;
} engine_rig;

/* Make a matrix and its store in the current folder; fails the test where it cannot. */
void rig_make(engine_rig *g, case_kind kind, uint64_t n_rows, uint64_t n_cols, uint64_t per_row,
              ooc_dtype vtype, ooc_codec codec, uint32_t tile_rows, uint32_t panel_columns);
void rig_free(engine_rig *g);

/* A dense array of the test's: rows x B, ld >= B, the gap filled with a mark that must stay. */
typedef struct {
    ooc_array a;
    uint64_t rows;
    uint32_t B;
} rig_array;
/* Filled with numbers of about 1 (seed > 0) or with NaN (seed 0: an output). */
rig_array rig_array_make(uint64_t rows, uint32_t B, uint64_t ld, ooc_dtype dtype, uint64_t seed);
void rig_array_free(rig_array *x);
double rig_at(const rig_array *x, uint64_t row, uint32_t b);
void rig_put(rig_array *x, uint64_t row, uint32_t b, double v);
/* Fails the test if the gap between the rows was touched. */
void rig_check_gap(const rig_array *x);
/* The same bits in all entries. */
bool rig_same(const rig_array *x, const rig_array *y);

/* Every element of Y = A*X (or G = transpose(A)*R) lies within the bound of DESIGN section 9. */
void rig_check_product(const engine_rig *g, bool transpose, const rig_array *in,
                       const rig_array *out);
/* y = A*x in float64. */
void rig_forward(const engine_rig *g, const rig_array *x, double *y);

/* The smallest budgets for these options (found from the refusals). */
void rig_smallest(const engine_rig *g, ooc_matrix_opts o, uint64_t *vram, uint64_t *ram);
#endif
