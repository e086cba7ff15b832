/* HDF5: AnnData (.h5ad), 10x Genomics (.h5), Binsparse, MATLAB v7.3 (.mat), and any group with
 * data, indices, indptr or row, col, data and a shape. */
#include "tiler/reader.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "tiler/h5_seq.h"
#include "tiler/index_sources.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

#define MAX_FOUND 64
#define MAX_PATH  400
#define MAX_JSON  16384

/* How a group holds a matrix. */
typedef enum { NOT_A_MATRIX, COMPRESSED, TRIPLES, MATLAB, BINSPARSE } group_kind;

typedef struct {
    hid_t file;
    const char *path;
    char found[MAX_FOUND][MAX_PATH]; /* groups that hold a matrix */
    uint32_t n_found;                /* may exceed MAX_FOUND */
} h5;

static void close_h5(void *ctx)
{
    h5 *h = ctx;

    if (h->file >= 0)
        H5Fclose(h->file);
    ooc_free(h);
}

static group_kind kind_of(hid_t group)
{
    if (H5Aexists(group, "MATLAB_sparse") > 0)
        return MATLAB;
    if (H5Aexists(group, "binsparse") > 0)
        return BINSPARSE;
    if (ooc_h5_has(group, "data") && ooc_h5_has(group, "indices") && ooc_h5_has(group, "indptr"))
        return COMPRESSED;
    if (ooc_h5_has(group, "data") && ooc_h5_has(group, "row") && ooc_h5_has(group, "col"))
        return TRIPLES;
    return NOT_A_MATRIX;
}

static herr_t look_at(hid_t root, const char *name, const H5O_info_t *info, void *ctx)
{
    h5 *h = ctx;
    hid_t group;

    if (info->type != H5O_TYPE_GROUP || strlen(name) >= MAX_PATH)
        return 0;
    group = H5Gopen2(root, name, H5P_DEFAULT);
    if (group >= 0 && kind_of(group) != NOT_A_MATRIX) {
        if (h->n_found < MAX_FOUND)
            strcpy(h->found[h->n_found], name);
        h->n_found++;
    }
    if (group >= 0)
        H5Gclose(group);
    return 0;
}

/* The group that is meant: the one named, else /X (AnnData), else the only one. */
static ooc_status find_group(h5 *h, const char *key, const char **out, ooc_err *err)
{
    char names[500] = "";
    size_t n = 0;

    while (key && *key == '/')
        key++;
    H5Ovisit(h->file, H5_INDEX_NAME, H5_ITER_INC, look_at, h);
    for (uint32_t i = 0; i < h->n_found && i < MAX_FOUND; i++) {
        if (strcmp(h->found[i], key ? (*key ? key : ".") : "X") == 0) {
            *out = h->found[i];
            return OOC_OK;
        }
        if (n < sizeof names)
            n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", i ? ", " : "", h->found[i]);
    }
    *out = h->found[0];
    if (!key && h->n_found == 1)
        return OOC_OK;
    if (!h->n_found)
        return ooc_fail(err, OOC_E_FORMAT,
                        "%s: no group in this HDF5 file holds a sparse matrix (data, indices, "
                        "indptr; row, col, data; or MATLAB's ir, jc, data)",
                        h->path);
    return ooc_fail(err, OOC_E_ARG, "%s: holds the matrices %s; choose one with --key NAME",
                    h->path, names);
}

typedef struct {
    hid_t group;
    const char *where; /* "file.h5: X" */
    uint64_t max_chunk_bytes;
    ooc_index_parts parts;
} opening;

static ooc_status take(opening *o, ooc_seq **seq, const char *name, ooc_err *err)
{
    return ooc_h5_seq(seq, o->group, name, o->where, o->max_chunk_bytes, &o->parts.container_bytes,
                      err);
}

static ooc_status find_shape(opening *o, ooc_err *err)
{
    uint64_t shape[2];
    uint32_t n = 0;

    if (!ooc_h5_attr_numbers(o->group, "shape", shape, 2, &n) &&
        !ooc_h5_attr_numbers(o->group, "h5sparse_shape", shape, 2, &n) &&
        !ooc_h5_numbers(o->group, "shape", shape, 2, &n))
        n = 0;
    if (n != 2)
        return ooc_fail(err, OOC_E_FORMAT,
                        "%s: there is no shape of two numbers, neither as an "
                        "attribute nor as a dataset",
                        o->where);
    o->parts.n_rows = shape[0];
    o->parts.n_cols = shape[1];
    return OOC_OK;
}

/* Rows or columns? The file says so, or the number of pointers does. */
static ooc_status find_direction(opening *o, ooc_err *err)
{
    char text[32] = "";
    uint64_t majors = o->parts.ptr->n_items - 1;

    if (ooc_h5_attr_text(o->group, "encoding-type", text, sizeof text) ||
        ooc_h5_attr_text(o->group, "h5sparse_format", text, sizeof text)) {
        o->parts.by_columns = strncmp(text, "csc", 3) == 0;
        if (o->parts.by_columns || strncmp(text, "csr", 3) == 0)
            return OOC_OK;
    }
    /* 10x Genomics: columns are the barcodes. */
    o->parts.by_columns = ooc_h5_has(o->group, "barcodes") || majors != o->parts.n_rows;
    if (ooc_h5_has(o->group, "barcodes") || o->parts.n_rows != o->parts.n_cols)
        return OOC_OK;
    return ooc_fail(err, OOC_E_UNSUPPORTED,
                    "%s: nothing says whether the matrix is stored by rows or by columns; add the "
                    "attribute encoding-type = csr_matrix or csc_matrix to the group",
                    o->where);
}

static ooc_status open_compressed(opening *o, ooc_err *err)
{
    ooc_status st = find_shape(o, err);

    if (!st)
        st = take(o, &o->parts.ptr, "indptr", err);
    if (!st)
        st = take(o, &o->parts.col, "indices", err);
    if (!st)
        st = take(o, &o->parts.val, "data", err);
    return st ? st : find_direction(o, err);
}

static ooc_status open_triples(opening *o, ooc_err *err)
{
    ooc_status st = find_shape(o, err);

    if (!st)
        st = take(o, &o->parts.row, "row", err);
    if (!st)
        st = take(o, &o->parts.col, "col", err);
    return st ? st : take(o, &o->parts.val, "data", err);
}

/* jc: column pointers; ir and data are missing where all is zero. */
static ooc_status open_matlab(opening *o, ooc_err *err)
{
    uint32_t n = 0;
    ooc_status st;

    if (!ooc_h5_attr_numbers(o->group, "MATLAB_sparse", &o->parts.n_rows, 1, &n) || n != 1)
        return ooc_fail(err, OOC_E_FORMAT, "%s: the attribute MATLAB_sparse holds no number",
                        o->where);
    o->parts.by_columns = true;
    st = take(o, &o->parts.ptr, "jc", err);
    if (st)
        return st;
    if (!o->parts.ptr->n_items)
        return ooc_fail(err, OOC_E_FORMAT, "%s/jc: is empty", o->where);
    o->parts.n_cols = o->parts.ptr->n_items - 1;
    if (!ooc_h5_has(o->group, "ir") && !ooc_h5_has(o->group, "data")) {
        o->parts.col = ooc_seq_new(o->where, OOC_ELEM_U64, 0);
        return o->parts.col ? OOC_OK : ooc_fail(err, OOC_E_NOMEM, "%s: no memory", o->where);
    }
    st = take(o, &o->parts.col, "ir", err);
    return st ? st : take(o, &o->parts.val, "data", err);
}

static const char *text_of(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);

    return cJSON_IsString(item) ? item->valuestring : "";
}

static bool shape_of(const cJSON *object, uint64_t shape[2])
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(object, "shape");

    if (!cJSON_IsArray(list) || cJSON_GetArraySize(list) != 2)
        return false;
    for (int i = 0; i < 2; i++) {
        double v = cJSON_GetArrayItem(list, i)->valuedouble;

        if (!(v >= 0 && v <= 9007199254740992.0) || v - (double)(uint64_t)v != 0)
            return false;
        shape[i] = (uint64_t)v;
    }
    return true;
}

static ooc_status open_binsparse_parts(opening *o, const cJSON *j, group_kind *kind, ooc_err *err)
{
    const char *format = text_of(j, "format"), *structure = text_of(j, "structure");
    const cJSON *types = cJSON_GetObjectItemCaseSensitive(j, "data_types");
    uint64_t shape[2];
    bool coo = strncmp(format, "COO", 3) == 0;
    ooc_status st;

    if (!shape_of(j, shape))
        return ooc_fail(err, OOC_E_FORMAT, "%s: its description has no shape of two numbers",
                        o->where);
    o->parts.n_rows = shape[0];
    o->parts.n_cols = shape[1];
    o->parts.by_columns = strcmp(format, "CSC") == 0;
    if (!coo && !o->parts.by_columns && strcmp(format, "CSR") != 0)
        return ooc_fail(err, OOC_E_UNSUPPORTED,
                        "%s: Binsparse format '%s'; CSR, CSC and COO are "
                        "read",
                        o->where, format);
    if (*structure && strcmp(structure, "general") != 0)
        return ooc_fail(err, OOC_E_UNSUPPORTED,
                        "%s: Binsparse structure '%s' is not read; save "
                        "the whole matrix",
                        o->where, structure);
    if (strncmp(text_of(types, "values"), "iso", 3) == 0 ||
        strncmp(text_of(types, "values"), "complex", 7) == 0)
        return ooc_fail(err, OOC_E_UNSUPPORTED, "%s: Binsparse values of type '%s' are not read",
                        o->where, text_of(types, "values"));
    *kind = coo ? TRIPLES : COMPRESSED;
    st = take(o, coo ? &o->parts.row : &o->parts.ptr, coo ? "indices_0" : "pointers_to_1", err);
    if (!st)
        st = take(o, &o->parts.col, "indices_1", err);
    return st ? st : take(o, &o->parts.val, "values", err);
}

static ooc_status open_binsparse(opening *o, group_kind *kind, ooc_err *err)
{
    char *text = ooc_malloc(MAX_JSON);
    cJSON *root = NULL;
    const cJSON *inner;
    ooc_status st;

    if (!text)
        return ooc_fail(err, OOC_E_NOMEM, "%s: no memory", o->where);
    if (ooc_h5_attr_text(o->group, "binsparse", text, MAX_JSON))
        root = cJSON_Parse(text);
    inner = cJSON_GetObjectItemCaseSensitive(root, "binsparse");
    if (root)
        st = open_binsparse_parts(o, inner ? inner : root, kind, err);
    else
        st = ooc_fail(err, OOC_E_FORMAT, "%s: its attribute binsparse is not JSON", o->where);
    cJSON_Delete(root);
    ooc_free(text);
    return st;
}

static ooc_status open_group(ooc_source **out, h5 *h, const char *name, uint64_t memory_bytes,
                             ooc_err *err)
{
    char where[MAX_PATH + 300];
    opening o = {.group = H5Gopen2(h->file, name, H5P_DEFAULT),
                 .where = where,
                 .max_chunk_bytes = memory_bytes / 6, /* packed and unpacked, three datasets */
                 .parts = {.name = h->path,
                           .container = h,
                           .close_container = close_h5,
                           .container_bytes = sizeof *h}};
    group_kind kind = o.group >= 0 ? kind_of(o.group) : NOT_A_MATRIX;
    ooc_status st = OOC_E_FORMAT;

    snprintf(where, sizeof where, "%s: %s", h->path, name);
    if (kind == COMPRESSED)
        st = open_compressed(&o, err);
    else if (kind == TRIPLES)
        st = open_triples(&o, err);
    else if (kind == MATLAB)
        st = open_matlab(&o, err);
    else if (kind == BINSPARSE)
        st = open_binsparse(&o, &kind, err);
    else
        ooc_fail(err, st, "%s: cannot be opened", where);
    if (o.group >= 0)
        H5Gclose(o.group);
    if (st) {
        ooc_index_parts_close(&o.parts);
        return st;
    }
    return kind == TRIPLES ? ooc_triple_source(out, &o.parts, err)
                           : ooc_compressed_source(out, &o.parts, err);
}

static ooc_status open_file(h5 *h, const char *path, ooc_err *err)
{
    h->path = path;
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL); /* messages are ours to print */
    h->file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    return h->file >= 0 ? OOC_OK
                        : ooc_fail(err, OOC_E_FORMAT,
                                   "%s: cannot be opened as an HDF5 file; it is damaged or was cut "
                                   "off",
                                   path);
}

static ooc_status names_of_h5(const ooc_source_request *request, ooc_name_sink sink, void *ctx,
                              ooc_err *err)
{
    h5 *h = ooc_calloc(1, sizeof *h);
    ooc_status st;

    if (!h)
        return ooc_fail(err, OOC_E_NOMEM, "%s: no memory to read it", request->path);
    st = open_file(h, request->path, err);
    if (!st)
        H5Ovisit(h->file, H5_INDEX_NAME, H5_ITER_INC, look_at, h);
    for (uint32_t i = 0; !st && i < h->n_found && i < MAX_FOUND; i++)
        st = sink(ctx, strcmp(h->found[i], ".") == 0 ? "/" : h->found[i], err);
    close_h5(h);
    return st;
}

static ooc_status open_h5(ooc_source **out, const ooc_source_request *request, ooc_err *err)
{
    h5 *h = ooc_calloc(1, sizeof *h);
    const char *name;
    ooc_status st;

    *out = NULL;
    if (!h)
        return ooc_fail(err, OOC_E_NOMEM, "%s: no memory to read it", request->path);
    st = open_file(h, request->path, err);
    if (!st)
        st = find_group(h, request->key, &name, err);
    if (st) {
        close_h5(h);
        return st;
    }
    return open_group(out, h, name, request->memory_bytes, err);
}

/* The signature, at the start or behind a user block. */
static bool fits_content(const ooc_probe *p)
{
    for (size_t at = 0; at + 8 <= p->n; at = at ? 2 * at : 512)
        if (memcmp(p->head + at, "\x89HDF\r\n\x1a\n", 8) == 0)
            return true;
    return false;
}

static bool fits_name(const char *path)
{
    return ooc_path_ends(path, ".h5") || ooc_path_ends(path, ".h5ad") ||
           ooc_path_ends(path, ".hdf5");
}

const ooc_format ooc_format_h5 = {.name = "h5",
                                  .what = "HDF5: AnnData .h5ad, 10x .h5, Binsparse, MATLAB v7.3, "
                                          "any group with\n          data, indices, indptr or row, "
                                          "col, data, shape (--key GROUP)",
                                  .fits_content = fits_content,
                                  .fits_name = fits_name,
                                  .open = open_h5,
                                  .names = names_of_h5};
