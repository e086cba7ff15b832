#include "src/train/sample_file.h"
#include "io/sys.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void shape_text(const ooc_npy *npy, char *out, size_t bytes)
{
    size_t n = (size_t)snprintf(out, bytes, "(");

    for (uint32_t i = 0; i < npy->n_dims && n < bytes; i++)
        n += (size_t)snprintf(out + n, bytes - n, "%s%" PRIu64, i ? ", " : "", npy->shape[i]);
    if (n < bytes)
        snprintf(out + n, bytes - n, ")");
}

static ooc_status check_type(const ooc_sample_file *f, ooc_err *err)
{
    const ooc_npy *a = &f->npy;
    const bool real = a->kind == 'f' && (a->item_bytes == 4 || a->item_bytes == 8);
    const bool whole = a->kind == 'u' && a->item_bytes <= 2;

    if (!real && !whole)
        return ooc_fail(err, OOC_E_ARG,
                        "%s %s: its type is %c%u; float32, float64, uint8 or uint16 are needed",
                        f->option, f->path, a->kind, a->item_bytes);
    if (a->big_endian && a->item_bytes > 1)
        return ooc_fail(err, OOC_E_ARG, "%s %s: big-endian numbers; save it little-endian",
                        f->option, f->path);
    if (a->fortran_order && a->n_dims > 1 && a->n_items > 1)
        return ooc_fail(err, OOC_E_ARG,
                        "%s %s: in Fortran order; save numpy.ascontiguousarray of it", f->option,
                        f->path);
    return OOC_OK;
}

static ooc_status check_shape(ooc_sample_file *f, ooc_err *err)
{
    const ooc_npy *a = &f->npy;
    char shape[200];

    if (a->n_dims > 0 && a->shape[0] > 0 && a->n_items % a->shape[0] == 0 &&
        a->n_items / a->shape[0] == f->entries) {
        f->n = a->shape[0];
        return OOC_OK;
    }
    if (a->n_items == f->entries && a->n_items > 0) {
        f->n = 1;
        return OOC_OK;
    }
    shape_text(a, shape, sizeof shape);
    return ooc_fail(err, OOC_E_ARG,
                    "%s %s: its shape %s is not (n, ...) with %" PRIu64
                    " entries a sample, one for each row of A%s",
                    f->option, f->path, shape, f->entries,
                    a->n_dims == 2 && a->shape[0] == f->entries ? "; save its transpose" : "");
}

ooc_status ooc_sample_file_open(ooc_sample_file *f, const char *option, const char *path,
                                uint64_t entries, ooc_err *err)
{
    ooc_status st;

    memset(f, 0, sizeof *f);
    f->fd = -1;
    f->path = path;
    f->option = option;
    f->entries = entries;
    st = ooc_npy_open(&f->fd, &f->npy, path, err);
    if (st) {
        f->fd = -1;
        return ooc_fail_wrap(err, st, "%s", option);
    }
    st = check_type(f, err);
    if (!st)
        st = check_shape(f, err);
    if (!st && f->n > UINT32_MAX)
        st = ooc_fail(err, OOC_E_ARG, "%s %s: more than 2^32 - 1 samples", option, path);
    f->sample_bytes = entries * f->npy.item_bytes;
    if (st)
        ooc_sample_file_close(f);
    return st;
}

void ooc_sample_file_close(ooc_sample_file *f)
{
    ooc_sys_close(f->fd);
    f->fd = -1;
}

void ooc_sample_file_image(const ooc_sample_file *f, uint64_t shape[2])
{
    shape[0] = f->npy.n_dims == 3 ? f->npy.shape[1] : 0;
    shape[1] = f->npy.n_dims == 3 ? f->npy.shape[2] : 0;
}

ooc_status ooc_sample_file_read(const ooc_sample_file *f, uint64_t i, void *to, ooc_err *err)
{
    return ooc_sys_pread(f->fd, f->path, to, f->sample_bytes, f->npy.data_off + i * f->sample_bytes,
                         err);
}

float ooc_sample_value(const ooc_npy *npy, const void *raw, uint64_t i)
{
    const uint8_t *at = (const uint8_t *)raw + i * npy->item_bytes;
    float f;
    double d;
    uint16_t u;

    if (npy->kind == 'u' && npy->item_bytes == 1)
        return *at;
    if (npy->kind == 'u') {
        memcpy(&u, at, sizeof u);
        return u;
    }
    if (npy->item_bytes == 4) {
        memcpy(&f, at, sizeof f);
        return f;
    }
    memcpy(&d, at, sizeof d);
    return (float)d;
}
