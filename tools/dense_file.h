/* dense_file.h - dense arrays in .npy files, as tile-apply takes and makes them.
 *
 * Two meanings: an array of `rows` x B, whose entries of one row are contiguous (or one column:
 * (rows,)), or with `samples` B samples one after the other, (B, ...) with `rows` entries each.
 * Either may stand in the file as it is or in Fortran order, in either byte order, as f32, f64 or
 * integers; in memory it always becomes rows x B, row-major, f32 or f64. */
#ifndef OOC_TOOLS_DENSE_FILE_H
#define OOC_TOOLS_DENSE_FILE_H

#include "io/npy.h"
#include "kernels/tile_view.h"

typedef struct {
    const char *path;
    int fd; /* -1: not open */
    ooc_npy npy;
    ooc_dtype dense; /* OOC_F64 for f64 files, else OOC_F32 */
    uint64_t rows, B;
    bool one_dim;
    bool by_column; /* the file has one column after the other */
} dense_file;

/* Open and check: `what` says what has `rows` entries ("columns of ct.tiles"). OOC_E_ARG where the
 * shape or the type doesn't suit. Close also after a failure. */
ooc_status dense_file_open(dense_file *f, const char *path, uint64_t rows, bool samples,
                           const char *what, ooc_err *err);
void dense_file_close(dense_file *f);

/* Read columns b0 .. b0+b-1 to `out`, rows x b. Unless by_column they must be all. */
ooc_status dense_file_read(const dense_file *f, uint64_t b0, uint64_t b, void *out, ooc_err *err);

/* Write columns of `in`, rows x b, one after the other. */
ooc_status dense_write_columns(ooc_npy_writer *w, const void *in, uint64_t rows, uint64_t b,
                               ooc_dtype dense, ooc_err *err);
#endif
