/* SciPy's .npz, CSR, as scipy.sparse.load_npz reads it. The members are stored plainly; the number
 * of entries is known, so each has its place from the start and all are filled at the same time. */
#include "tiler/export.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "io/sys.h"
#include "tiler/value_convert.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>

enum { FORMAT, SHAPE, INDPTR, INDICES, DATA, N_MEMBERS };

enum {
    NPY_HEAD = 128,        /* of each array: a multiple of 64, as NumPy writes it */
    LOCAL_BYTES = 30 + 20, /* header and zip64 field */
    BUFFER_ITEMS = 16384
};

static const char *const names[N_MEMBERS] = {"format.npy", "shape.npy", "indptr.npy", "indices.npy",
                                             "data.npy"};

typedef struct {
    uint64_t header_off, data_off, bytes, at;
    uint32_t crc;
} member;

typedef struct {
    ooc_export_shape shape;
    ooc_new_file file;
    const char *path;
    member m[N_MEMBERS];
    uint64_t directory_off;
    bool long_index; /* int64 indices, else int32 */
    uint64_t next_row, given;
    void *buffer; /* indices or values on their way, BUFFER_ITEMS of up to 8 bytes */
    uint64_t pointers[BUFFER_ITEMS];
    size_t n_pointers;
} npz_out;

static void close_npz(void *ctx)
{
    npz_out *z = ctx;

    ooc_new_file_discard(&z->file);
    ooc_free(z->buffer);
    ooc_free(z);
}

static uint32_t index_bytes(const npz_out *z)
{
    return z->long_index ? 8 : 4;
}

/* bf16 has no NumPy type: it goes out as f32, which holds it exactly. */
static const char *value_descr(ooc_dtype t, uint32_t *bytes)
{
    *bytes = t == OOC_F64 ? 8 : t == OOC_F16 ? 2 : 4;
    return t == OOC_F64 ? "<f8" : t == OOC_F16 ? "<f2" : "<f4";
}

static ooc_status put(npz_out *z, int k, const void *data, size_t bytes, ooc_err *err)
{
    member *m = &z->m[k];
    ooc_status st = ooc_sys_pwrite(z->file.fd, z->path, data, bytes, m->data_off + m->at, err);

    m->crc = (uint32_t)crc32_z(m->crc, data, bytes);
    m->at += bytes;
    return st;
}

static ooc_status put_head(npz_out *z, int k, const char *descr, uint64_t n, bool scalar,
                           ooc_err *err)
{
    char head[NPY_HEAD + 1];
    int used;

    memset(head, ' ', sizeof head);
    memcpy(head, "\x93NUMPY\x01\x00", 8);
    head[8] = NPY_HEAD - 10;
    head[9] = 0;
    used = snprintf(head + 10, sizeof head - 10,
                    scalar ? "{'descr': '%s', 'fortran_order': False, 'shape': (), }"
                           : "{'descr': '%s', 'fortran_order': False, 'shape': (%" PRIu64 ",), }",
                    descr, n);
    head[10 + used] = ' '; /* where the string ended */
    head[NPY_HEAD - 1] = '\n';
    return put(z, k, head, NPY_HEAD, err);
}

static void lay_out(npz_out *z)
{
    uint64_t off = 0, items[N_MEMBERS] = {3, 16, 0, 0, 0};
    uint32_t value_bytes;

    value_descr(z->shape.vtype, &value_bytes);
    items[INDPTR] = (z->shape.n_rows + 1) * index_bytes(z);
    items[INDICES] = z->shape.n_entries * index_bytes(z);
    items[DATA] = z->shape.n_entries * value_bytes;
    for (int k = 0; k < N_MEMBERS; k++) {
        z->m[k].header_off = off;
        z->m[k].data_off = off + LOCAL_BYTES + strlen(names[k]);
        z->m[k].bytes = NPY_HEAD + items[k];
        off = z->m[k].data_off + z->m[k].bytes;
    }
    z->directory_off = off;
}

static ooc_status put_heads(npz_out *z, ooc_err *err)
{
    uint64_t shape[2] = {z->shape.n_rows, z->shape.n_cols};
    const char *index = z->long_index ? "<i8" : "<i4";
    uint32_t value_bytes;
    ooc_status st = put_head(z, FORMAT, "|S3", 0, true, err);

    if (!st)
        st = put(z, FORMAT, "csr", 3, err);
    if (!st)
        st = put_head(z, SHAPE, "<i8", 2, false, err);
    if (!st)
        st = put(z, SHAPE, shape, sizeof shape, err);
    if (!st)
        st = put_head(z, INDPTR, index, z->shape.n_rows + 1, false, err);
    if (!st)
        st = put_head(z, INDICES, index, z->shape.n_entries, false, err);
    if (!st)
        st = put_head(z, DATA, value_descr(z->shape.vtype, &value_bytes), z->shape.n_entries, false,
                      err);
    return st;
}

static ooc_status open_npz(void **out, const char *path, const ooc_export_shape *shape,
                           ooc_err *err)
{
    npz_out *z = ooc_calloc(1, sizeof *z);
    ooc_status st;

    *out = NULL;
    if (!z)
        return ooc_fail(err, OOC_E_NOMEM, "%s: no memory to write it", path);
    z->shape = *shape;
    z->path = path;
    z->file.fd = -1;
    z->long_index = shape->n_entries > INT32_MAX || shape->n_cols > INT32_MAX;
    lay_out(z);
    z->buffer = ooc_malloc(BUFFER_ITEMS * sizeof(uint64_t));
    st = z->buffer ? ooc_new_file_open(&z->file, path, shape->force, err)
                   : ooc_fail(err, OOC_E_NOMEM, "%s: no memory to write it", path);
    if (!st)
        st = put_heads(z, err);
    if (st) {
        close_npz(z);
        return st;
    }
    *out = z;
    return OOC_OK;
}

static ooc_status flush_pointers(npz_out *z, ooc_err *err)
{
    size_t n = z->n_pointers;

    z->n_pointers = 0;
    if (!z->long_index)
        for (size_t i = 0; i < n; i++) { /* in place: item i is never before where it goes */
            int32_t pointer = (int32_t)z->pointers[i];

            memcpy((char *)z->pointers + i * sizeof pointer, &pointer, sizeof pointer);
        }
    return put(z, INDPTR, z->pointers, n * index_bytes(z), err);
}

/* Pointers of rows next_row .. row: their entries begin at z->given. */
static ooc_status begin_rows(npz_out *z, uint64_t row, ooc_err *err)
{
    ooc_status st = OOC_OK;

    for (; !st && z->next_row <= row; z->next_row++) {
        z->pointers[z->n_pointers++] = z->given;
        if (z->n_pointers == BUFFER_ITEMS)
            st = flush_pointers(z, err);
    }
    return st;
}

static ooc_status put_indices(npz_out *z, const uint64_t *key, size_t n, ooc_err *err)
{
    uint64_t mask = ((uint64_t)1 << z->shape.col_bits) - 1;

    for (size_t i = 0; i < n; i++) {
        uint64_t row = key[i] >> z->shape.col_bits;

        if (row >= z->next_row) {
            ooc_status st = begin_rows(z, row, err);

            if (st)
                return st;
        }
        z->given++;
        if (z->long_index)
            ((int64_t *)z->buffer)[i] = (int64_t)(key[i] & mask);
        else
            ((int32_t *)z->buffer)[i] = (int32_t)(key[i] & mask);
    }
    return put(z, INDICES, z->buffer, n * index_bytes(z), err);
}

static ooc_status put_values(npz_out *z, const ooc_entries *e, size_t n, ooc_err *err)
{
    uint32_t bytes;

    value_descr(z->shape.vtype, &bytes);
    if (bytes != 2)
        return put(z, DATA, e->val, n * bytes, err);
    for (size_t i = 0; i < n; i++)
        ooc_value_store(z->buffer, i, OOC_F16, (double)((const float *)e->val)[i]);
    return put(z, DATA, z->buffer, n * bytes, err);
}

static ooc_status write_npz(void *ctx, const ooc_entries *e, uint64_t n, ooc_err *err)
{
    npz_out *z = ctx;
    ooc_status st = OOC_OK;

    for (uint64_t at = 0; !st && at < n;) {
        size_t take = (size_t)ooc_min_u64(n - at, BUFFER_ITEMS);
        ooc_entries part = ooc_entries_at(*e, at, z->shape.wide);

        st = put_indices(z, part.key, take, err);
        if (!st)
            st = put_values(z, &part, take, err);
        at += take;
    }
    return st;
}

/* --- the zip structures: everything in zip64 form, so that sizes need no cases --- */

static uint8_t *le(uint8_t *p, uint64_t v, int bytes)
{
    while (bytes--) {
        *p++ = (uint8_t)v;
        v >>= 8;
    }
    return p;
}

/* What local and central headers share, from the version on. */
static uint8_t *put_common(uint8_t *p, const member *m, const char *name, int extra_bytes)
{
    p = le(p, 45, 2);         /* version needed: zip64 */
    p = le(p, 0, 2);          /* flags */
    p = le(p, 0, 2);          /* stored */
    p = le(p, 0x00210000, 4); /* 1980-01-01: the same input gives the same file */
    p = le(p, m->crc, 4);
    p = le(p, 0xffffffff, 4);
    p = le(p, 0xffffffff, 4);
    p = le(p, strlen(name), 2);
    return le(p, (uint64_t)extra_bytes, 2);
}

static ooc_status put_local(npz_out *z, int k, ooc_err *err)
{
    uint8_t head[128], *p = le(head, 0x04034b50, 4);
    const member *m = &z->m[k];

    p = put_common(p, m, names[k], 20);
    memcpy(p, names[k], strlen(names[k]));
    p = le(p + strlen(names[k]), 1, 2);
    p = le(p, 16, 2);
    p = le(p, m->bytes, 8);
    p = le(p, m->bytes, 8);
    return ooc_sys_pwrite(z->file.fd, z->path, head, (size_t)(p - head), m->header_off, err);
}

static uint8_t *put_central(uint8_t *p, const member *m, const char *name)
{
    p = le(p, 0x02014b50, 4);
    p = le(p, 45, 2); /* version made by */
    p = put_common(p, m, name, 28);
    p = le(p, 0, 2); /* comment */
    p = le(p, 0, 2); /* disk */
    p = le(p, 0, 2);
    p = le(p, 0, 4);
    p = le(p, 0xffffffff, 4);
    memcpy(p, name, strlen(name));
    p = le(p + strlen(name), 1, 2);
    p = le(p, 24, 2);
    p = le(p, m->bytes, 8);
    p = le(p, m->bytes, 8);
    return le(p, m->header_off, 8);
}

static ooc_status put_directory(npz_out *z, uint64_t *file_bytes, ooc_err *err)
{
    uint8_t all[1024], *p = all;
    uint64_t bytes;

    for (int k = 0; k < N_MEMBERS; k++)
        p = put_central(p, &z->m[k], names[k]);
    bytes = (uint64_t)(p - all);
    p = le(p, 0x06064b50, 4);
    p = le(p, 44, 8); /* what follows of this record */
    p = le(p, 45, 2);
    p = le(p, 45, 2);
    p = le(p, 0, 8); /* disks */
    p = le(p, N_MEMBERS, 8);
    p = le(p, N_MEMBERS, 8);
    p = le(p, bytes, 8);
    p = le(p, z->directory_off, 8);
    p = le(p, 0x07064b50, 4);
    p = le(p, 0, 4);
    p = le(p, z->directory_off + bytes, 8);
    p = le(p, 1, 4);
    p = le(p, 0x06054b50, 4);
    p = le(p, 0, 4);
    p = le(p, N_MEMBERS, 2);
    p = le(p, N_MEMBERS, 2);
    p = le(p, 0xffffffff, 4);
    p = le(p, 0xffffffff, 4);
    p = le(p, 0, 2);
    *file_bytes = z->directory_off + (uint64_t)(p - all);
    return ooc_sys_pwrite(z->file.fd, z->path, all, (size_t)(p - all), z->directory_off, err);
}

static ooc_status commit_npz(void *ctx, uint64_t *file_bytes, ooc_err *err)
{
    npz_out *z = ctx;
    ooc_status st = begin_rows(z, z->shape.n_rows, err);

    if (!st)
        st = flush_pointers(z, err);
    for (int k = 0; !st && k < N_MEMBERS; k++)
        st = z->m[k].at == z->m[k].bytes
                 ? put_local(z, k, err)
                 : ooc_fail(err, OOC_E_FORMAT, "%s: %s got %" PRIu64 " bytes of %" PRIu64, z->path,
                            names[k], z->m[k].at, z->m[k].bytes);
    if (!st)
        st = put_directory(z, file_bytes, err);
    return st ? st : ooc_new_file_commit(&z->file, err);
}

const ooc_export_form ooc_export_npz = {open_npz, write_npz, commit_npz, close_npz};
