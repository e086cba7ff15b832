#include "tools/dense_file.h"
#include "base/alloc.h"
#include "base/checked.h"
#include "io/sys.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define BUFFER_BYTES (1u << 20)

static ooc_status check_type(dense_file *f, ooc_err *err)
{
    const ooc_npy *n = &f->npy;
    bool known = n->kind == 'f' ? n->item_bytes == 4 || n->item_bytes == 8
                                : n->kind == 'i' || n->kind == 'u' || n->kind == 'b';

    if (!known)
        return ooc_fail(err, OOC_E_ARG,
                        "%s: its type is '%c%" PRIu32 "'; expected float32, float64 or integers",
                        f->path, n->kind, n->item_bytes);
    f->dense = n->kind == 'f' && n->item_bytes == 8 ? OOC_F64 : OOC_F32;
    return OOC_OK;
}

/* "(3, 4)" */
static const char *shape_text(const ooc_npy *n, char out[200])
{
    int at = snprintf(out, 200, "(");

    for (uint32_t i = 0; i < n->n_dims; i++)
        at += snprintf(out + at, 200 - (size_t)at, "%s%" PRIu64, i ? ", " : "", n->shape[i]);
    snprintf(out + at, 200 - (size_t)at, n->n_dims == 1 ? ",)" : ")");
    return out;
}

static ooc_status check_shape(dense_file *f, bool samples, const char *what, ooc_err *err)
{
    const ooc_npy *n = &f->npy;
    uint64_t each = 1; /* entries of a sample: cannot overflow, their product was checked */
    char shape[200];

    for (uint32_t i = 1; i < n->n_dims; i++)
        each *= n->shape[i];
    f->one_dim = n->n_dims == 1;
    if (samples) {
        if (!n->n_dims || each != f->rows)
            return ooc_fail(
                err, OOC_E_ARG,
                "%s: shape %s, but with --samples each of its samples must have %" PRIu64
                " entries (%s)",
                f->path, shape_text(n, shape), f->rows, what);
        if (n->fortran_order && n->n_dims > 2)
            return ooc_fail(err, OOC_E_ARG,
                            "%s: Fortran order with %" PRIu32
                            " dimensions; save it with numpy.ascontiguousarray",
                            f->path, n->n_dims);
        f->B = n->shape[0];
        f->by_column = !n->fortran_order || n->n_dims == 1;
        return OOC_OK;
    }
    if (n->n_dims < 1 || n->n_dims > 2 || n->shape[0] != f->rows)
        return ooc_fail(err, OOC_E_ARG,
                        "%s: shape %s, expected (%" PRIu64 ",) or (%" PRIu64
                        ", B): one row for each of the %s%s",
                        f->path, shape_text(n, shape), f->rows, f->rows, what,
                        n->n_dims >= 2 && each == f->rows ? "; for samples give --samples" : "");
    f->B = f->one_dim ? 1 : n->shape[1];
    f->by_column = f->one_dim || n->fortran_order;
    return OOC_OK;
}

ooc_status dense_file_open(dense_file *f, const char *path, uint64_t rows, bool samples,
                           const char *what, ooc_err *err)
{
    ooc_status st;

    memset(f, 0, sizeof *f);
    f->path = path;
    f->rows = rows;
    f->fd = -1;
    st = ooc_npy_open(&f->fd, &f->npy, path, err);
    if (st) {
        f->fd = -1;
        return st;
    }
    st = check_type(f, err);
    return st ? st : check_shape(f, samples, what, err);
}

void dense_file_close(dense_file *f)
{
    ooc_sys_close(f->fd);
    f->fd = -1;
}

static uint64_t swapped(uint64_t bits, uint32_t bytes)
{
    return __builtin_bswap64(bits) >> (64 - 8 * bytes);
}

/* One item of the file as a number. */
static double item(const ooc_npy *n, const uint8_t *p)
{
    uint64_t bits = 0;
    uint32_t unused = 64 - 8 * n->item_bytes;
    float f;
    double d;

    memcpy(&bits, p, n->item_bytes);
    if (n->big_endian)
        bits = swapped(bits, n->item_bytes);
    if (n->kind == 'f' && n->item_bytes == 4) {
        memcpy(&f, &bits, sizeof f);
        return (double)f;
    }
    if (n->kind == 'f') {
        memcpy(&d, &bits, sizeof d);
        return d;
    }
    if (n->kind == 'i')
        return (double)((int64_t)(bits << unused) >> unused);
    return (double)bits;
}

/* `count` items, `stride` elements apart in `out`. */
static void convert(const dense_file *f, const uint8_t *in, uint64_t count, void *out,
                    uint64_t stride)
{
    for (uint64_t i = 0; i < count; i++, in += f->npy.item_bytes) {
        if (f->dense == OOC_F64)
            ((double *)out)[i * stride] = item(&f->npy, in);
        else
            ((float *)out)[i * stride] = (float)item(&f->npy, in);
    }
}

/* Items first .. first+count-1 of the file. */
static ooc_status read_run(const dense_file *f, uint64_t first, uint64_t count, void *out,
                           uint64_t stride, uint8_t *buffer, ooc_err *err)
{
    uint64_t size = f->npy.item_bytes, at_once = BUFFER_BYTES / size;
    ooc_status st = OOC_OK;

    for (uint64_t i = 0; i < count && !st; i += at_once) {
        uint64_t n = ooc_min_u64(at_once, count - i);

        st = ooc_sys_pread(f->fd, f->path, buffer, (size_t)(n * size),
                           f->npy.data_off + (first + i) * size, err);
        if (!st)
            convert(f, buffer, n, (char *)out + i * stride * ooc_dtype_bytes(f->dense), stride);
    }
    return st;
}

ooc_status dense_file_read(const dense_file *f, uint64_t b0, uint64_t b, void *out, ooc_err *err)
{
    uint8_t *buffer = ooc_malloc(BUFFER_BYTES);
    ooc_status st = OOC_OK;

    if (!buffer)
        return ooc_fail(err, OOC_E_NOMEM, "%s: no memory to read it", f->path);
    if (!f->by_column)
        st = read_run(f, 0, f->rows * b, out, 1, buffer, err);
    for (uint64_t j = 0; f->by_column && j < b && !st; j++)
        st = read_run(f, (b0 + j) * f->rows, f->rows, (char *)out + j * ooc_dtype_bytes(f->dense),
                      b, buffer, err);
    ooc_free(buffer);
    return st;
}

ooc_status dense_write_columns(ooc_npy_writer *w, const void *in, uint64_t rows, uint64_t b,
                               ooc_dtype dense, ooc_err *err)
{
    uint64_t size = dense == OOC_F64 ? 8 : 4, at_once = BUFFER_BYTES / size;
    char *buffer = ooc_malloc(BUFFER_BYTES);
    ooc_status st = OOC_OK;

    if (!buffer)
        return ooc_fail(err, OOC_E_NOMEM, "no memory to write the result");
    for (uint64_t j = 0; j < b && !st; j++)
        for (uint64_t r = 0; r < rows && !st; r += at_once) {
            uint64_t n = ooc_min_u64(at_once, rows - r);

            for (uint64_t i = 0; i < n; i++)
                memcpy(buffer + i * size, (const char *)in + ((r + i) * b + j) * size,
                       (size_t)size);
            st = ooc_npy_writer_write(w, buffer, (size_t)(n * size), err);
        }
    ooc_free(buffer);
    return st;
}
