/* SciPy's save_npz: csr, csc, coo here, bsr and dia in npz_blocks.c. */
#include "tiler/reader.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "tiler/index_sources.h"
#include "tiler/npy_seq.h"
#include "tiler/npz_blocks.h"

#include <stdio.h>
#include <string.h>

static void close_zip(void *zip)
{
    ooc_zip_close(zip);
}

/* The text in format.npy: b'csr' (|S3) or 'csr' (<U3). */
static ooc_status read_format(const ooc_zip *z, char format[16], ooc_err *err)
{
    const ooc_zip_member *m = ooc_zip_find(z, "format.npy");
    uint8_t bytes[4096];
    ooc_stream *stream;
    size_t got, n = 0, start;
    ooc_status st;

    if (!m)
        return ooc_fail(err, OOC_E_FORMAT,
                        "%s: has no member format.npy, so it was not saved by "
                        "scipy.sparse.save_npz",
                        ooc_zip_path(z));
    st = ooc_zip_stream(&stream, z, m, err);
    if (st)
        return st;
    st = ooc_stream_read(stream, bytes, sizeof bytes, &got, err);
    ooc_stream_close(stream);
    if (st)
        return st;
    start = got > 10 ? 10 + (size_t)(bytes[8] | bytes[9] << 8) : got;
    for (size_t i = start; i < got && n < 15; i++) /* UTF-32 has zeros in between */
        if (bytes[i])
            format[n++] = (char)bytes[i];
    format[n] = 0;
    return OOC_OK;
}

static ooc_status read_shape(const ooc_zip *z, uint64_t shape[2], ooc_err *err)
{
    ooc_seq *s;
    ooc_status st = ooc_npz_seq(&s, z, "shape", NULL, err);

    if (!st)
        st = ooc_seq_read_few(s, shape, 2, err);
    ooc_seq_close(s);
    return st;
}

static ooc_status open_matrix(ooc_source **out, ooc_zip *z, const char *path, ooc_err *err)
{
    char format[16];
    uint64_t shape[2];
    ooc_index_parts p = {.name = path,
                         .container = z,
                         .close_container = close_zip,
                         .container_bytes = ooc_zip_memory(z)};
    bool triples;
    ooc_status st = read_format(z, format, err);

    if (!st)
        st = read_shape(z, shape, err);
    if (!st && strcmp(format, "bsr") == 0)
        return ooc_bsr_source(out, z, shape, err);
    if (!st && strcmp(format, "dia") == 0)
        return ooc_dia_source(out, z, shape, err);
    triples = !st && strcmp(format, "coo") == 0;
    p.by_columns = !st && strcmp(format, "csc") == 0;
    if (!st && !triples && !p.by_columns && strcmp(format, "csr") != 0)
        st = ooc_fail(err, OOC_E_UNSUPPORTED, "%s: a matrix of SciPy's format '%s'; save it as csr",
                      path, format);
    if (!st)
        st = ooc_npz_seq(&p.val, z, "data", NULL, err);
    if (!st)
        st = ooc_npz_seq(&p.col, z, triples ? "col" : "indices", NULL, err);
    if (!st)
        st = triples ? ooc_npz_seq(&p.row, z, "row", NULL, err)
                     : ooc_npz_seq(&p.ptr, z, "indptr", NULL, err);
    if (st) {
        ooc_index_parts_close(&p);
        return st;
    }
    p.n_rows = shape[0];
    p.n_cols = shape[1];
    return triples ? ooc_triple_source(out, &p, err) : ooc_compressed_source(out, &p, err);
}

static ooc_status open_npz(ooc_source **out, const ooc_source_request *request, ooc_err *err)
{
    ooc_zip *z;
    ooc_status st = ooc_zip_open(&z, request->path, err);

    return st ? st : open_matrix(out, z, request->path, err);
}

/* A zip file whose first member is an array. */
static bool fits_content(const ooc_probe *p)
{
    size_t n;

    if (p->n < 30 || memcmp(p->head, "PK\3\4", 4) != 0)
        return false;
    n = p->head[26] | (size_t)p->head[27] << 8;
    return n >= 4 && 30 + n <= p->n && memcmp(p->head + 30 + n - 4, ".npy", 4) == 0;
}

static bool fits_name(const char *path)
{
    return ooc_path_ends(path, ".npz");
}

const ooc_format ooc_format_npz = {.name = "npz",
                                   .what = "SciPy's save_npz, FILE.npz",
                                   .fits_content = fits_content,
                                   .fits_name = fits_name,
                                   .open = open_npz};
