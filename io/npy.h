/* npy.h - NumPy's .npy files: read a header, write an array. Formats 1.0, 2.0 and 3.0.
 *
 * The data are not read here: the caller preads them from data_off. Everything is checked: the
 * shape against the file's size, the header's length, the type string. */
#ifndef OOC_IO_NPY_H
#define OOC_IO_NPY_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OOC_NPY_MAX_DIMS 8

typedef struct {
    char kind;           /* 'f', 'i', 'u', 'b' (bool), 'c' (complex) */
    uint32_t item_bytes; /* 1, 2, 4, 8, 16 */
    bool big_endian;
    bool fortran_order;
    uint32_t n_dims;
    uint64_t shape[OOC_NPY_MAX_DIMS];
    uint64_t n_items;
    uint64_t data_off; /* from the start of the .npy bytes */
} ooc_npy;

/* Parse the first `bytes` bytes of an .npy stream (also a member of an .npz). `total_bytes` is the
 * size of the whole stream, or UINT64_MAX where it isn't known. `name` is for messages.
 * OOC_E_FORMAT; *need_more is set when the header is longer than `bytes` (then call again with
 * more). */
ooc_status ooc_npy_parse(ooc_npy *out, const void *head, size_t bytes, uint64_t total_bytes,
                         const char *name, bool *need_more, ooc_err *err);

/* Open a file, parse its header, leave *fd open for pread (the caller closes it). */
ooc_status ooc_npy_open(int *fd, ooc_npy *out, const char *path, ooc_err *err);

/* Write an .npy file piece by piece: temporary file, fsync, rename on commit. */
typedef struct ooc_npy_writer ooc_npy_writer;
/* descr: "<f4", "<f8", "|u1", ... */
ooc_status ooc_npy_writer_open(ooc_npy_writer **out, const char *path, const char *descr,
                               uint32_t n_dims, const uint64_t *shape, ooc_err *err);
ooc_status ooc_npy_writer_write(ooc_npy_writer *w, const void *data, size_t bytes, ooc_err *err);
ooc_status ooc_npy_writer_commit(ooc_npy_writer *w,
                                 ooc_err *err); /* refuses if bytes are missing */
void ooc_npy_writer_close(ooc_npy_writer *w);   /* without commit nothing stays; NULL is allowed */
#endif
