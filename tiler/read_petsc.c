/* PETSc's binary matrices: big-endian; class number, rows, columns, entries, entries of each row,
 * columns, values. The file names neither the width of its indices nor its scalars: the first bytes
 * tell the one, the file's size the other. */
#include "tiler/reader.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "io/sys.h"
#include "tiler/index_sources.h"

#include <fcntl.h>
#include <string.h>

#define MAT_CLASS   1211216u
#define FIRST_CLASS 1211211u /* of all PETSc objects in files */
#define LAST_CLASS  1211230u

typedef struct {
    int fd;
    const char *path;
    uint64_t file_bytes, end; /* of the matrix */
    uint32_t index_bytes;
    uint64_t rows, cols, entries;
    ooc_elem scalar;
} petsc;

static uint64_t big_endian(const uint8_t *p, uint32_t bytes)
{
    uint64_t v = 0;

    while (bytes--)
        v = v << 8 | *p++;
    return v;
}

/* Index width, 0: not a PETSc matrix. */
static uint32_t index_width(const uint8_t *head, size_t n)
{
    if (n >= 16 && big_endian(head, 4) == MAT_CLASS)
        return 4;
    return n >= 32 && big_endian(head, 8) == MAT_CLASS ? 8 : 0;
}

static ooc_status read_header(petsc *m, ooc_err *err)
{
    uint8_t head[32] = {0};
    uint64_t top;
    ooc_status st = ooc_sys_pread(m->fd, m->path, head,
                                  (size_t)ooc_min_u64(sizeof head, m->file_bytes), 0, err);

    if (st)
        return st;
    m->index_bytes = index_width(head, (size_t)ooc_min_u64(sizeof head, m->file_bytes));
    if (!m->index_bytes)
        return ooc_fail(err, OOC_E_FORMAT, "%s: does not begin as a PETSc matrix does", m->path);
    m->rows = big_endian(head + m->index_bytes, m->index_bytes);
    m->cols = big_endian(head + 2 * m->index_bytes, m->index_bytes);
    m->entries = big_endian(head + 3 * m->index_bytes, m->index_bytes);
    top = (uint64_t)1 << (8 * m->index_bytes - 1);
    if (m->entries == (m->index_bytes == 4 ? UINT32_MAX : UINT64_MAX))
        return ooc_fail(err, OOC_E_UNSUPPORTED,
                        "%s: a dense PETSc matrix; save it as aij (MatConvert)", m->path);
    if ((m->rows | m->cols | m->entries) & top)
        return ooc_fail(err, OOC_E_FORMAT, "%s: a negative number of rows, columns or entries",
                        m->path);
    return OOC_OK;
}

/* Where the matrix ends if its scalars have this size; UINT64_MAX: not in this file. */
static uint64_t end_with(const petsc *m, uint32_t scalar_bytes)
{
    uint64_t rows, entries, end;

    if (!ooc_mul_u64(m->rows, m->index_bytes, &rows) ||
        !ooc_mul_u64(m->entries, m->index_bytes + scalar_bytes, &entries) ||
        !ooc_add_u64(rows, entries, &end) || !ooc_add_u64(end, 4 * m->index_bytes, &end) ||
        end > m->file_bytes)
        return UINT64_MAX;
    return end;
}

/* At the end of the file, or followed by another object. */
static bool ends_well(const petsc *m, uint64_t end)
{
    uint8_t next[8];
    uint64_t class_number;

    if (end == m->file_bytes)
        return true;
    if (end > m->file_bytes || m->file_bytes - end < m->index_bytes ||
        ooc_sys_pread(m->fd, m->path, next, m->index_bytes, end, NULL) != OOC_OK)
        return false;
    class_number = big_endian(next, m->index_bytes);
    return class_number >= FIRST_CLASS && class_number <= LAST_CLASS;
}

static const struct {
    const char *key;
    ooc_elem elem;
} scalars[] = {
    {"f32", OOC_ELEM_F32}, {"f64", OOC_ELEM_F64}, {"c64", OOC_ELEM_C64}, {"c128", OOC_ELEM_C128}};

static ooc_status find_scalar(petsc *m, const char *key, ooc_err *err)
{
    uint32_t n = 0;

    for (size_t i = 0; i < sizeof scalars / sizeof *scalars; i++) {
        uint64_t end = end_with(m, ooc_elem_bytes(scalars[i].elem));

        /* Pairs of floats are as long as doubles, and rare: only where asked for. */
        if (key ? strcmp(key, scalars[i].key) != 0 : scalars[i].elem == OOC_ELEM_C64)
            continue;
        if (!ends_well(m, end))
            continue;
        if (!n)
            m->scalar = scalars[i].elem;
        m->end = end;
        n++;
    }
    if (n == 1 || (n && !m->entries))
        return OOC_OK;
    if (n)
        return ooc_fail(err, OOC_E_ARG,
                        "%s: the file's size fits several types of scalars; name "
                        "one with --key f32, f64, c64 or c128",
                        m->path);
    return ooc_fail(err, OOC_E_FORMAT,
                    "%s: a matrix of %llu rows and %llu entries does not fit the file's %llu bytes "
                    "with any type of scalars%s; the file was cut off",
                    m->path, (unsigned long long)m->rows, (unsigned long long)m->entries,
                    (unsigned long long)m->file_bytes, key ? " that --key allows" : "");
}

/* The entries of each row, summed up: rows + 1 pointers. */
typedef struct {
    ooc_seq *lengths;
    uint64_t sum, given;
    uint64_t buffer[512];
} pointers;

static ooc_status read_pointers(void *ctx, void *buf, size_t n, ooc_err *err)
{
    pointers *p = ctx;
    uint64_t *to = buf;
    ooc_status st = OOC_OK;

    if (n && !p->given) {
        *to++ = 0;
        n--;
        p->given = 1;
    }
    while (!st && n) {
        size_t take = (size_t)ooc_min_u64(n, sizeof p->buffer / sizeof *p->buffer);

        st = ooc_seq_read_index(p->lengths, p->buffer, take, err);
        for (size_t i = 0; !st && i < take; i++) {
            if (!ooc_add_u64(p->sum, p->buffer[i], &p->sum) || p->sum >> 63)
                return ooc_fail(err, OOC_E_FORMAT, "%s: more entries than can be",
                                p->lengths->name);
            *to++ = p->sum;
        }
        n -= take;
    }
    return st;
}

static void close_pointers(void *ctx)
{
    ooc_seq_close(((pointers *)ctx)->lengths);
    ooc_free(ctx);
}

static ooc_status range_seq(ooc_seq **out, const petsc *m, uint64_t off, ooc_elem elem, uint64_t n,
                            ooc_err *err)
{
    ooc_stream_opts opts = {.fd = m->fd,
                            .name = m->path,
                            .off = off,
                            .bytes = n * ooc_elem_bytes(elem),
                            .unpacked_bytes = UINT64_MAX};
    ooc_stream *stream;
    ooc_status st = ooc_stream_open(&stream, &opts, err);

    *out = NULL;
    return st ? st
              : ooc_seq_from_stream(out, stream, m->path, elem,
                                    __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, n, err);
}

static ooc_status open_pointers(ooc_seq **out, const petsc *m, ooc_elem index, ooc_err *err)
{
    pointers *p = ooc_calloc(1, sizeof *p);
    ooc_seq *s = ooc_seq_new(m->path, OOC_ELEM_U64, m->rows + 1);
    ooc_status st = OOC_E_NOMEM;

    if (p && s)
        st = range_seq(&p->lengths, m, 4 * m->index_bytes, index, m->rows, err);
    else
        ooc_fail(err, st, "%s: no memory to read it", m->path);
    if (st) {
        ooc_seq_close(s);
        ooc_free(p);
        return st;
    }
    s->ctx = p;
    s->read = read_pointers;
    s->close = close_pointers;
    *out = s;
    return OOC_OK;
}

static void close_file(void *ctx)
{
    petsc *m = ctx;

    ooc_sys_close(m->fd);
    ooc_free(m);
}

static ooc_status open_petsc(ooc_source **out, const ooc_source_request *request, ooc_err *err)
{
    petsc *m = ooc_calloc(1, sizeof *m);
    ooc_index_parts parts = {.name = request->path, .container = m, .close_container = close_file};
    ooc_elem index;
    uint64_t off;
    ooc_status st;

    *out = NULL;
    if (!m)
        return ooc_fail(err, OOC_E_NOMEM, "%s: no memory to read it", request->path);
    m->path = request->path;
    st = ooc_sys_open(&m->fd, m->path, O_RDONLY, err);
    if (!st)
        st = ooc_sys_size(m->fd, m->path, &m->file_bytes, err);
    if (!st)
        st = read_header(m, err);
    if (!st)
        st = find_scalar(m, request->key, err);
    parts.n_rows = m->rows;
    parts.n_cols = m->cols;
    parts.container_bytes = sizeof *m + OOC_SEQ_MEMORY;
    index = m->index_bytes == 4 ? OOC_ELEM_I32 : OOC_ELEM_I64;
    off = (4 + m->rows) * m->index_bytes; /* within the file: find_scalar has checked */
    if (!st)
        st = open_pointers(&parts.ptr, m, index, err);
    if (!st)
        st = range_seq(&parts.col, m, off, index, m->entries, err);
    off += m->entries * m->index_bytes;
    if (!st)
        st = range_seq(&parts.val, m, off, m->scalar, m->entries, err);
    if (st) {
        ooc_index_parts_close(&parts);
        return st;
    }
    parts.exact_length = true;
    return ooc_compressed_source(out, &parts, err);
}

static bool fits_content(const ooc_probe *p)
{
    return index_width(p->head, p->n) != 0;
}

const ooc_format ooc_format_petsc = {.name = "petsc",
                                     .what = "PETSc binary (aij); --key f32|f64|c64|c128 names its "
                                             "scalars",
                                     .fits_content = fits_content,
                                     .open = open_petsc};
