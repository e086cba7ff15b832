/* export.h - the other way: a tile store as SciPy's .npz (CSR) or as Matrix Market text.
 *
 * Memory: ram_budget, as convert.h. The output appears complete or not at all. */
#ifndef OOC_TILER_EXPORT_H
#define OOC_TILER_EXPORT_H

#include "tiler/convert.h"

/* Is this output a format that is exported to (by its name)? */
bool ooc_export_fits(const char *output);

/* opts: input (a tile store), output, tmp_dir, transpose, force, ram_budget, n_threads, progress
 * and interrupted are used; OOC_E_ARG where others are set or the input is no tile store. */
ooc_status ooc_export(const ooc_convert_opts *opts, ooc_convert_result *result, ooc_err *err);

/* What a form of output does; entries come in row order, each place once. */
typedef struct {
    uint64_t n_rows, n_cols, n_entries;
    ooc_dtype vtype; /* of the store; never OOC_CONST */
    int col_bits;    /* of the keys */
    bool wide;       /* of the entries' values */
    bool force;
    ooc_pool *pool;
} ooc_export_shape;

typedef struct {
    ooc_status (*open)(void **out, const char *path, const ooc_export_shape *shape, ooc_err *err);
    ooc_status (*write)(void *ctx, const ooc_entries *e, uint64_t n, ooc_err *err);
    ooc_status (*commit)(void *ctx, uint64_t *file_bytes, ooc_err *err);
    void (*close)(void *ctx); /* without commit nothing stays */
} ooc_export_form;

extern const ooc_export_form ooc_export_npz, ooc_export_mtx;
#endif
