/* MATLAB's .mat files of versions 5 to 7: sparse matrices, packed or not. (v7.3 files are HDF5.) */
#include "tiler/reader.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "io/sys.h"
#include "tiler/index_sources.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

enum {
    HEADER_BYTES = 128,
    MI_INT32 = 5,
    MI_UINT32 = 6,
    MI_MATRIX = 14,
    MI_COMPRESSED = 15,
    CLASS_CELL = 1,
    CLASS_STRUCT = 2,
    CLASS_SPARSE = 5,
    FLAG_COMPLEX = 8,
    MAX_NAME = 128
};

/* One subelement: where its data stand in the variable's (unpacked) bytes. */
typedef struct {
    uint32_t type;
    uint64_t off, bytes;
} element;

typedef struct {
    int fd;
    const char *path;
    uint64_t file_bytes;
    bool swap; /* big-endian */
} mat;

/* A variable of the file. */
typedef struct {
    uint64_t off, bytes; /* of its data in the file */
    bool packed;
    int class, flags;
    uint64_t n_rows, n_cols;
    char name[MAX_NAME];
    element part[4]; /* row numbers, column pointers, real and imaginary values */
} variable;

/* Reads a variable front to back, counting. */
typedef struct {
    const mat *m;
    ooc_stream *s;
    uint64_t at;
} cursor;

static ooc_status damaged(const mat *m, uint64_t off, ooc_err *err)
{
    return ooc_fail_at(err, OOC_E_FORMAT, off, -1,
                       "%s: the variable at byte %llu is not readable; the file is damaged or was "
                       "cut off",
                       m->path, (unsigned long long)off);
}

static uint32_t u32(const mat *m, const uint8_t *p)
{
    return m->swap ? (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3]
                   : (uint32_t)p[3] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[1] << 8 | p[0];
}

static ooc_status open_stream(ooc_stream **out, const mat *m, const variable *v, ooc_err *err)
{
    char name[400];
    ooc_stream_opts opts = {.fd = m->fd,
                            .name = name,
                            .off = v->off,
                            .bytes = v->bytes,
                            .packed = v->packed ? OOC_PACKED_ZLIB : OOC_PACKED_NOT,
                            .unpacked_bytes = UINT64_MAX};

    snprintf(name, sizeof name, "%s%s%s", m->path, *v->name ? ": " : "", v->name);
    return ooc_stream_open(out, &opts, err);
}

static ooc_status take(cursor *c, void *buf, size_t n, ooc_err *err)
{
    c->at += n;
    return ooc_stream_read_all(c->s, buf, n, err);
}

static ooc_status skip(cursor *c, uint64_t n, ooc_err *err)
{
    uint8_t rest[4096];
    ooc_status st = OOC_OK;

    while (!st && n) {
        size_t some = (size_t)ooc_min_u64(n, sizeof rest);

        st = take(c, rest, some, err);
        n -= some;
    }
    return st;
}

/* A tag. Up to four bytes of data may stand inside it: then *small gets them. */
static ooc_status take_tag(cursor *c, element *e, uint8_t small[4], ooc_err *err)
{
    uint8_t tag[8];
    uint32_t word;
    ooc_status st = take(c, tag, sizeof tag, err);

    if (st)
        return st;
    word = u32(c->m, tag);
    if (word >> 16) {
        *e = (element){word & 0xffff, c->at - 4, word >> 16};
        memcpy(small, tag + 4, 4);
        return e->bytes <= 4 ? OOC_OK : damaged(c->m, c->at, err);
    }
    *e = (element){word, c->at, u32(c->m, tag + 4)};
    return OOC_OK;
}

/* Behind the data of an element: padded to eight bytes, small ones not. */
static uint64_t end_of(const element *e)
{
    return e->bytes <= 4 && e->off % 8 == 4 ? e->off + 4 : e->off + ooc_round_up(e->bytes, 8);
}

/* The next element, if it is short, with its data. */
static ooc_status take_short(cursor *c, element *e, uint8_t *data, size_t room, ooc_err *err)
{
    uint8_t small[4];
    ooc_status st = take_tag(c, e, small, err);

    if (st)
        return st;
    if (e->bytes > room)
        return damaged(c->m, c->at, err);
    if (c->at > e->off) {
        memcpy(data, small, e->bytes);
        return OOC_OK;
    }
    st = take(c, data, e->bytes, err);
    return st ? st : skip(c, end_of(e) - c->at, err);
}

/* The head of a matrix: class, flags, shape, name. `whole`: also where its parts stand. */
static ooc_status look_at(const mat *m, variable *v, bool whole, ooc_err *err)
{
    cursor c = {.m = m};
    uint8_t data[MAX_NAME], small[4];
    element e;
    ooc_status st = open_stream(&c.s, m, v, err);

    if (!st && v->packed) /* the packed bytes begin with the matrix's own tag */
        st = take_tag(&c, &e, small, err);
    if (!st && v->packed && e.type != MI_MATRIX)
        st = damaged(m, v->off, err);
    if (!st)
        st = take_short(&c, &e, data, 8, err);
    if (!st && (e.type != MI_UINT32 || e.bytes != 8))
        st = damaged(m, v->off, err);
    if (!st) {
        uint32_t flags = u32(m, data);

        v->class = (int)(flags & 0xff);
        v->flags = (int)(flags >> 8 & 0xff);
        st = take_short(&c, &e, data, MAX_NAME, err);
    }
    if (!st && (e.type != MI_INT32 || e.bytes < 8))
        st = damaged(m, v->off, err);
    if (!st) {
        v->n_rows = u32(m, data);
        v->n_cols = u32(m, data + 4);
        st = take_short(&c, &e, data, MAX_NAME - 1, err);
    }
    if (!st) {
        memcpy(v->name, data, e.bytes);
        v->name[e.bytes] = 0;
    }
    for (int i = 0; !st && whole && i < (v->flags & FLAG_COMPLEX ? 4 : 3); i++) {
        st = take_tag(&c, &v->part[i], small, err);
        if (!st && !(i == 3 || (i == 2 && !(v->flags & FLAG_COMPLEX))))
            st = skip(&c, end_of(&v->part[i]) - c.at, err);
    }
    ooc_stream_close(c.s);
    return st;
}

static ooc_status next_variable(const mat *m, uint64_t *at, variable *v, ooc_err *err)
{
    uint8_t tag[8];
    uint32_t type;
    ooc_status st = ooc_sys_pread(m->fd, m->path, tag, sizeof tag, *at, err);

    *v = (variable){0};
    if (st)
        return st;
    type = u32(m, tag);
    v->off = *at + 8;
    v->bytes = u32(m, tag + 4);
    v->packed = type == MI_COMPRESSED;
    if ((type != MI_MATRIX && type != MI_COMPRESSED) ||
        !ooc_range_within(v->off, v->bytes, m->file_bytes))
        return damaged(m, *at, err);
    *at = v->off + v->bytes;
    return look_at(m, v, false, err);
}

/* The variable that is meant: the one named, else the only sparse one. */
static ooc_status find(const mat *m, const char *key, variable *out, ooc_err *err)
{
    char names[400] = "";
    size_t n_text = 0;
    uint32_t n = 0;
    bool nested = false;

    for (uint64_t at = HEADER_BYTES; at < m->file_bytes;) {
        variable v;
        ooc_status st = next_variable(m, &at, &v, err);

        if (st)
            return st;
        nested = nested || v.class == CLASS_CELL || v.class == CLASS_STRUCT;
        if (key ? strcmp(key, v.name) != 0 : v.class != CLASS_SPARSE)
            continue;
        if (v.class != CLASS_SPARSE)
            return ooc_fail(err, OOC_E_UNSUPPORTED, "%s: %s is not a sparse matrix", m->path,
                            v.name);
        *out = v;
        n++;
        if (n_text < sizeof names)
            n_text += (size_t)snprintf(names + n_text, sizeof names - n_text, "%s%s",
                                       n > 1 ? ", " : "", v.name);
    }
    if (n == 1)
        return OOC_OK;
    if (n)
        return ooc_fail(err, OOC_E_ARG,
                        "%s: holds the sparse matrices %s; choose one with --key "
                        "NAME",
                        m->path, names);
    if (key)
        return ooc_fail(err, OOC_E_ARG, "%s: has no variable %s", m->path, key);
    return ooc_fail(err, OOC_E_UNSUPPORTED, "%s: holds no sparse matrix%s", m->path,
                    nested ? " outside of cells and structs; save the matrix as a variable of its "
                             "own"
                           : "");
}

static bool elem_of(uint32_t type, ooc_elem *elem)
{
    static const struct {
        uint32_t type;
        ooc_elem elem;
    } types[] = {{1, OOC_ELEM_I8},   {2, OOC_ELEM_U8},  {3, OOC_ELEM_I16}, {4, OOC_ELEM_U16},
                 {5, OOC_ELEM_I32},  {6, OOC_ELEM_U32}, {7, OOC_ELEM_F32}, {9, OOC_ELEM_F64},
                 {12, OOC_ELEM_I64}, {13, OOC_ELEM_U64}};

    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].type == type) {
            *elem = types[i].elem;
            return true;
        }
    return false;
}

static ooc_status part_seq(ooc_seq **out, const mat *m, const variable *v, int i, ooc_err *err)
{
    static const char *const what[] = {"row numbers", "column pointers", "values",
                                       "imaginary values"};
    char name[500];
    ooc_elem elem;
    cursor c = {.m = m};
    ooc_status st;

    *out = NULL;
    snprintf(name, sizeof name, "%s: %s: %s", m->path, v->name, what[i]);
    if (!elem_of(v->part[i].type, &elem))
        return ooc_fail(err, OOC_E_FORMAT, "%s: are of unknown type %u", name, v->part[i].type);
    st = open_stream(&c.s, m, v, err);
    if (!st)
        st = skip(&c, v->part[i].off, err);
    if (st) {
        ooc_stream_close(c.s);
        return st;
    }
    return ooc_seq_from_stream(out, c.s, name, elem, m->swap && ooc_elem_bytes(elem) > 1,
                               v->part[i].bytes / ooc_elem_bytes(elem), err);
}

/* Real and imaginary parts stand apart: joined to complex doubles. */
typedef struct {
    ooc_seq *part[2];
} joined;

static ooc_status read_joined(void *ctx, void *buf, size_t n, ooc_err *err)
{
    joined *j = ctx;
    double part[2][512], *to = buf;
    ooc_status st = OOC_OK;

    while (!st && n) {
        size_t some = (size_t)ooc_min_u64(n, 512);

        for (int i = 0; !st && i < 2; i++)
            st = ooc_seq_read_value(j->part[i], part[i], NULL, some, err);
        for (size_t k = 0; !st && k < some; k++) {
            *to++ = part[0][k];
            *to++ = part[1][k];
        }
        n -= some;
    }
    return st;
}

static void close_joined(void *ctx)
{
    joined *j = ctx;

    ooc_seq_close(j->part[0]);
    ooc_seq_close(j->part[1]);
    ooc_free(j);
}

static ooc_status open_complex(ooc_seq **out, const mat *m, const variable *v, ooc_err *err)
{
    joined *j = ooc_calloc(1, sizeof *j);
    ooc_status st = OOC_E_NOMEM;

    *out = NULL;
    if (!j)
        return ooc_fail(err, st, "%s: no memory to read it", m->path);
    st = part_seq(&j->part[0], m, v, 2, err);
    if (!st)
        st = part_seq(&j->part[1], m, v, 3, err);
    if (!st && j->part[0]->n_items != j->part[1]->n_items)
        st = damaged(m, v->off, err);
    if (!st) {
        *out = ooc_seq_new(j->part[0]->name, OOC_ELEM_C128, j->part[0]->n_items);
        if (!*out)
            st = ooc_fail(err, OOC_E_NOMEM, "%s: no memory to read it", m->path);
    }
    if (st) {
        close_joined(j);
        return st;
    }
    (*out)->ctx = j;
    (*out)->read = read_joined;
    (*out)->close = close_joined;
    return OOC_OK;
}

static void close_mat(void *ctx)
{
    mat *m = ctx;

    ooc_sys_close(m->fd);
    ooc_free(m);
}

static ooc_status open_file(mat *m, ooc_err *err)
{
    uint8_t mark[4];
    ooc_status st = ooc_sys_open(&m->fd, m->path, O_RDONLY, err);

    if (!st)
        st = ooc_sys_size(m->fd, m->path, &m->file_bytes, err);
    if (!st)
        st = ooc_sys_pread(m->fd, m->path, mark, sizeof mark, HEADER_BYTES - 4, err);
    if (st)
        return st;
    m->swap = memcmp(mark + 2, "MI", 2) == 0;
    if (!m->swap && memcmp(mark + 2, "IM", 2) != 0)
        return ooc_fail(err, OOC_E_FORMAT,
                        "%s: is not a MATLAB file of version 5 or later (save -v7 writes one)",
                        m->path);
    return OOC_OK;
}

static ooc_status open_mat(ooc_source **out, const ooc_source_request *request, ooc_err *err)
{
    mat *m = ooc_calloc(1, sizeof *m);
    ooc_index_parts parts = {.name = request->path,
                             .by_columns = true,
                             .container = m,
                             .close_container = close_mat,
                             .container_bytes = 2 * OOC_SEQ_MEMORY};
    variable v = {0};
    ooc_status st;

    *out = NULL;
    if (!m)
        return ooc_fail(err, OOC_E_NOMEM, "%s: no memory to read it", request->path);
    m->path = request->path;
    st = open_file(m, err);
    if (!st)
        st = find(m, request->key, &v, err);
    if (!st)
        st = look_at(m, &v, true, err);
    if (!st)
        st = part_seq(&parts.col, m, &v, 0, err);
    if (!st)
        st = part_seq(&parts.ptr, m, &v, 1, err);
    if (!st)
        st = v.flags & FLAG_COMPLEX ? open_complex(&parts.val, m, &v, err)
                                    : part_seq(&parts.val, m, &v, 2, err);
    if (st) {
        ooc_index_parts_close(&parts);
        return st;
    }
    parts.n_rows = v.n_rows;
    parts.n_cols = v.n_cols;
    /* Room for more entries than there are: the shorter of the two arrays counts. */
    if (parts.col->n_items > parts.val->n_items)
        parts.col->n_items = parts.val->n_items;
    else
        parts.val->n_items = parts.col->n_items;
    return ooc_compressed_source(out, &parts, err);
}

static ooc_status names_of_mat(const ooc_source_request *request, ooc_name_sink sink, void *ctx,
                               ooc_err *err)
{
    mat m = {.path = request->path};
    ooc_status st = open_file(&m, err);

    for (uint64_t at = HEADER_BYTES; !st && at < m.file_bytes;) {
        variable v;

        st = next_variable(&m, &at, &v, err);
        if (!st && v.class == CLASS_SPARSE)
            st = sink(ctx, v.name, err);
    }
    ooc_sys_close(m.fd);
    return st;
}

static bool fits_content(const ooc_probe *p)
{
    return p->n >= HEADER_BYTES && memcmp(p->head, "MATLAB 5.0", 10) == 0;
}

static bool fits_name(const char *path)
{
    return ooc_path_ends(path, ".mat");
}

const ooc_format ooc_format_mat = {.name = "mat",
                                   .what = "MATLAB v5 to v7, FILE.mat (a sparse variable, --key "
                                           "NAME)",
                                   .fits_content = fits_content,
                                   .fits_name = fits_name,
                                   .open = open_mat,
                                   .names = names_of_mat};
