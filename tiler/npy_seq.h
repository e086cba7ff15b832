/* npy_seq.h - .npy arrays as number sequences: files and members of .npz archives. */
#ifndef OOC_TILER_NPY_SEQ_H
#define OOC_TILER_NPY_SEQ_H

#include "io/npy.h"
#include "tiler/number_seq.h"
#include "tiler/zip_dir.h"

/* The header at the start of `stream`, which stands behind it afterwards. `total_bytes`: of the
 * whole array with its header, or UINT64_MAX. */
ooc_status ooc_npy_read_header(ooc_npy *out, ooc_stream *stream, uint64_t total_bytes,
                               const char *name, ooc_err *err);

/* Member NAME.npy of an archive, of any shape; `npy` (may be NULL) gets the header.
 * OOC_E_FORMAT: not there. */
ooc_status ooc_npz_seq(ooc_seq **out, const ooc_zip *z, const char *name, ooc_npy *npy,
                       ooc_err *err);

/* A file; *fd is left open for the sequence and is the caller's to close after it. */
ooc_status ooc_npy_file_seq(ooc_seq **out, int *fd, const char *path, ooc_err *err);

/* All of a short sequence of whole numbers (shape.npy), exactly n of them. */
ooc_status ooc_seq_read_few(ooc_seq *s, uint64_t *out, size_t n, ooc_err *err);
#endif
