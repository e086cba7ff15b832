/* PyTorch's torch.save: a sparse COO, CSR or CSC tensor or a dense one, or a dict that holds one.
 * A zip file of stored members: data.pkl says what there is, data/N are the storages. */
#include "tiler/reader.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "io/sys.h"
#include "tiler/index_sources.h"
#include "tiler/pickle.h"
#include "tiler/zip_dir.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#define MAX_PICKLE ((uint64_t)16 << 20)
#define MAX_PREFIX 200

typedef struct {
    ooc_zip *zip;
    ooc_pickle pickle;
    const char *path;
    char prefix[MAX_PREFIX]; /* "archive/" */
    bool swap;               /* the file's byte order is the other one */
} archive;

/* A tensor: a view of a storage. */
typedef struct {
    const ooc_zip_member *storage;
    ooc_elem elem;
    uint64_t offset; /* items */
    uint32_t n_dims;
    uint64_t size[4], stride[4];
} tensor;

static const struct {
    const char *name;
    ooc_elem elem;
} storages[] = {
    {"torch FloatStorage", OOC_ELEM_F32},
    {"torch DoubleStorage", OOC_ELEM_F64},
    {"torch HalfStorage", OOC_ELEM_F16},
    {"torch BFloat16Storage", OOC_ELEM_BF16},
    {"torch LongStorage", OOC_ELEM_I64},
    {"torch IntStorage", OOC_ELEM_I32},
    {"torch ShortStorage", OOC_ELEM_I16},
    {"torch CharStorage", OOC_ELEM_I8},
    {"torch ByteStorage", OOC_ELEM_U8},
    {"torch BoolStorage", OOC_ELEM_BOOL},
    {"torch ComplexFloatStorage", OOC_ELEM_C64},
    {"torch ComplexDoubleStorage", OOC_ELEM_C128},
    {"torch uint16", OOC_ELEM_U16},
    {"torch uint32", OOC_ELEM_U32},
    {"torch uint64", OOC_ELEM_U64},
};

static bool elem_of(const ooc_pkl_node *global, ooc_elem *elem)
{
    for (size_t i = 0;
         global && global->kind == OOC_PKL_GLOBAL && i < sizeof storages / sizeof *storages; i++)
        if (strcmp(storages[i].name, global->text) == 0) {
            *elem = storages[i].elem;
            return true;
        }
    return false;
}

static ooc_status damaged(const archive *a, const char *what, ooc_err *err)
{
    return ooc_fail(err, OOC_E_FORMAT, "%s: %s; the file is damaged", a->path, what);
}

/* --- sequences over strided views: item k stands at offset + k / inner * outer_stride + k % inner
 * * stride, in items. The members are read in place, so their checksums are verified at the end.
 * --- */

typedef struct {
    const ooc_zip *zip;
    const ooc_zip_member *storage;
    bool verify;
    int fd;
    uint64_t base; /* of item 0 in the file */
    uint32_t item_bytes;
    uint64_t inner, outer_stride, stride, at;
    char *name;
    uint8_t span[16384];
} view;

/* n items of one inner run, `stride` apart, from item `first` of the storage. */
static ooc_status read_run(view *v, uint8_t *to, uint64_t first, uint64_t n, ooc_err *err)
{
    uint32_t bytes = v->item_bytes;

    if (v->stride == 1)
        return ooc_sys_pread(v->fd, v->name, to, n * bytes, v->base + first * bytes, err);
    while (n) {
        /* As many items as lie within one span. */
        uint64_t fit = v->stride ? (sizeof v->span / bytes - 1) / v->stride + 1 : n;
        uint64_t take = ooc_min_u64(fit, n);
        ooc_status st = ooc_sys_pread(v->fd, v->name, v->span, ((take - 1) * v->stride + 1) * bytes,
                                      v->base + first * bytes, err);

        if (st)
            return st;
        for (uint64_t i = 0; i < take; i++, to += bytes)
            memcpy(to, v->span + i * v->stride * bytes, bytes);
        first += take * v->stride;
        n -= take;
    }
    return OOC_OK;
}

static ooc_status view_read(void *ctx, void *buf, size_t n, ooc_err *err)
{
    view *v = ctx;
    uint8_t *to = buf;

    while (n) {
        uint64_t outer = v->at / v->inner, inner = v->at % v->inner;
        uint64_t take = ooc_min_u64(n, v->inner - inner);
        ooc_status st = read_run(v, to, outer * v->outer_stride + inner * v->stride, take, err);

        if (st)
            return st;
        to += take * v->item_bytes;
        n -= take;
        v->at += take;
    }
    return OOC_OK;
}

static ooc_status view_finish(void *ctx, ooc_err *err)
{
    view *v = ctx;
    ooc_stream *s;
    ooc_status st;

    if (!v->verify)
        return OOC_OK;
    st = ooc_zip_stream(&s, v->zip, v->storage, err);
    if (st)
        return st;
    st = ooc_stream_drain(s, err);
    ooc_stream_close(s);
    return st;
}

static void view_close(void *ctx)
{
    view *v = ctx;

    ooc_free(v->name);
    ooc_free(v);
}

/* A tensor's items as a sequence: dimension `inner` runs fastest; `from`: fixed first index of a
 * 2-row tensor (COO indices), or UINT64_MAX: all. */
static ooc_status tensor_seq(ooc_seq **out, const archive *a, const tensor *t, uint64_t fixed,
                             bool by_columns, bool verify, ooc_err *err)
{
    view *v = ooc_calloc(1, sizeof *v);
    char name[600];
    uint64_t n = 1;
    ooc_status st;

    *out = NULL;
    snprintf(name, sizeof name, "%s: %s", a->path, t->storage->name);
    if (v)
        v->name = ooc_strdup(name);
    if (!v || !v->name) {
        ooc_free(v);
        return ooc_fail(err, OOC_E_NOMEM, "%s: no memory to read it", a->path);
    }
    for (uint32_t d = fixed == UINT64_MAX ? 0 : 1; d < t->n_dims; d++)
        n *= t->size[d]; /* cannot overflow: checked by read_tensor */
    v->zip = a->zip;
    v->storage = t->storage;
    v->verify = verify;
    v->item_bytes = ooc_elem_bytes(t->elem);
    v->inner = n ? n : 1;
    v->stride = t->n_dims ? t->stride[t->n_dims - 1] : 1;
    st = ooc_zip_stored_range(a->zip, t->storage, &v->fd, &v->base, err);
    v->base += t->offset * v->item_bytes;
    if (fixed != UINT64_MAX)
        v->base += fixed * t->stride[0] * v->item_bytes;
    else if (t->n_dims == 2) {
        int fast = by_columns ? 0 : 1;

        v->inner = n ? t->size[fast] : 1;
        v->stride = t->stride[fast];
        v->outer_stride = t->stride[1 - fast];
    }
    *out = st ? NULL : ooc_seq_new(name, t->elem, n);
    if (!*out) {
        view_close(v);
        return st ? st : ooc_fail(err, OOC_E_NOMEM, "%s: no memory to read it", a->path);
    }
    (*out)->ctx = v;
    (*out)->swap = a->swap;
    (*out)->read = view_read;
    (*out)->finish = view_finish;
    (*out)->close = view_close;
    return OOC_OK;
}

/* --- what the pickle says --- */

static ooc_status find_storage(const archive *a, tensor *t, const ooc_pkl_node *id, ooc_err *err)
{
    char member[MAX_PREFIX + 64];
    const ooc_pkl_node *tuple =
        id && id->kind == OOC_PKL_STORAGE ? ooc_pkl_item(&a->pickle, id, 0) : NULL;
    const ooc_pkl_node *key;

    if (!tuple || tuple->kind != OOC_PKL_TUPLE || tuple->n < 5)
        return damaged(a, "a tensor without a storage", err);
    elem_of(ooc_pkl_item(&a->pickle, tuple, 1), &t->elem);
    key = ooc_pkl_item(&a->pickle, tuple, 2);
    if (key->kind != OOC_PKL_TEXT || strlen(key->text) > 40)
        return damaged(a, "a storage without a name", err);
    snprintf(member, sizeof member, "%sdata/%s", a->prefix, key->text);
    t->storage = ooc_zip_find(a->zip, member);
    return t->storage ? OOC_OK : damaged(a, "a storage is missing", err);
}

/* The last item that the view reaches must be in the storage. */
static bool within_storage(const tensor *t)
{
    uint64_t last = t->offset, n = 1, reach, bytes;

    for (uint32_t d = 0; d < t->n_dims; d++) {
        if (!ooc_mul_u64(n, t->size[d], &n))
            return false;
        if (!t->size[d])
            continue;
        if (!ooc_mul_u64(t->size[d] - 1, t->stride[d], &reach) || !ooc_add_u64(last, reach, &last))
            return false;
    }
    return !n || (last < UINT64_MAX && ooc_mul_u64(last + 1, ooc_elem_bytes(t->elem), &bytes) &&
                  bytes <= t->storage->unpacked_bytes);
}

static ooc_status read_tensor(const archive *a, tensor *t, const ooc_pkl_node *node, ooc_err *err)
{
    const ooc_pickle *p = &a->pickle;
    bool v3 = ooc_pkl_calls(p, node, "torch._utils _rebuild_tensor_v3");
    const ooc_pkl_node *args, *offset;
    uint32_t n_strides;
    ooc_status st;

    *t = (tensor){0};
    if (!v3 && !ooc_pkl_calls(p, node, "torch._utils _rebuild_tensor_v2") &&
        !ooc_pkl_calls(p, node, "torch._utils _rebuild_tensor"))
        return damaged(a, "a tensor of an unknown kind", err);
    args = ooc_pkl_item(p, node, 1);
    if (args->n < (v3 ? 7 : 4))
        return damaged(a, "a tensor without its shape", err);
    t->elem = OOC_ELEM_U8;
    st = find_storage(a, t, ooc_pkl_item(p, args, 0), err);
    if (st)
        return st;
    if (v3 && !elem_of(ooc_pkl_item(p, args, 6), &t->elem))
        return ooc_fail(err, OOC_E_UNSUPPORTED, "%s: a tensor of a type that is not read", a->path);
    offset = ooc_pkl_item(p, args, 1);
    if (offset->kind != OOC_PKL_INT || offset->number < 0)
        return damaged(a, "a tensor with a wrong offset", err);
    t->offset = (uint64_t)offset->number;
    if (!ooc_pkl_numbers(p, ooc_pkl_item(p, args, 2), t->size, 4, &t->n_dims) ||
        !ooc_pkl_numbers(p, ooc_pkl_item(p, args, 3), t->stride, 4, &n_strides) ||
        n_strides != t->n_dims)
        return damaged(a, "a tensor with a wrong shape", err);
    return within_storage(t) ? OOC_OK
                             : damaged(a, "a tensor reaches behind the end of its storage", err);
}

static ooc_status refuse_shape(const archive *a, ooc_err *err)
{
    return ooc_fail(err, OOC_E_UNSUPPORTED,
                    "%s: the tensor is no plain matrix: two dimensions, one number an entry",
                    a->path);
}

static ooc_status open_coo(ooc_index_parts *parts, const archive *a, const ooc_pkl_node *indices,
                           const ooc_pkl_node *values, ooc_err *err)
{
    tensor i, v;
    ooc_status st = read_tensor(a, &i, indices, err);

    if (!st)
        st = read_tensor(a, &v, values, err);
    if (st)
        return st;
    if (i.n_dims != 2 || i.size[0] != 2 || v.n_dims != 1)
        return refuse_shape(a, err);
    st = tensor_seq(&parts->row, a, &i, 0, false, true, err);
    if (!st)
        st = tensor_seq(&parts->col, a, &i, 1, false, false, err);
    if (!st)
        st = tensor_seq(&parts->val, a, &v, UINT64_MAX, false, true, err);
    return st;
}

static ooc_status open_compressed(ooc_index_parts *parts, const archive *a,
                                  const ooc_pkl_node *const *node, ooc_err *err)
{
    ooc_seq **seq[] = {&parts->ptr, &parts->col, &parts->val};
    ooc_status st = OOC_OK;

    for (int k = 0; !st && k < 3; k++) {
        tensor t;

        st = read_tensor(a, &t, node[k], err);
        if (!st && t.n_dims != 1)
            st = refuse_shape(a, err);
        if (!st)
            st = tensor_seq(seq[k], a, &t, UINT64_MAX, false, true, err);
    }
    return st;
}

/* _rebuild_sparse_tensor(layout, (indices, values, size[, coalesced])) or (layout, (compressed
 * indices, plain indices, values, size)). */
static ooc_status find_sparse(const archive *a, const ooc_pkl_node *call, ooc_index_parts *parts,
                              ooc_err *err)
{
    const ooc_pickle *p = &a->pickle;
    const ooc_pkl_node *args = ooc_pkl_item(p, call, 1);
    const ooc_pkl_node *layout = args->n == 2 ? ooc_pkl_item(p, args, 0) : NULL;
    const ooc_pkl_node *data = args->n == 2 ? ooc_pkl_item(p, args, 1) : NULL;
    const ooc_pkl_node *item[4] = {0};
    uint64_t shape[2] = {0};
    uint32_t n_dims = 0;
    bool coo;

    if (ooc_pkl_calls(p, layout, "torch.serialization _get_layout"))
        layout = ooc_pkl_item(p, ooc_pkl_item(p, layout, 1), 0);
    if (!layout || layout->kind != OOC_PKL_TEXT || data->kind != OOC_PKL_TUPLE)
        return damaged(a, "a sparse tensor without its parts", err);
    for (uint32_t i = 0; i < 4; i++)
        item[i] = ooc_pkl_item(p, data, i);
    coo = strcmp(layout->text, "torch.sparse_coo") == 0;
    parts->by_columns = strcmp(layout->text, "torch.sparse_csc") == 0;
    if (!coo && !parts->by_columns && strcmp(layout->text, "torch.sparse_csr") != 0)
        return ooc_fail(err, OOC_E_UNSUPPORTED,
                        "%s: a tensor of layout %s; convert it with "
                        ".to_sparse_coo() and save it again",
                        a->path, layout->text);
    if (!ooc_pkl_numbers(p, item[coo ? 2 : 3], shape, 2, &n_dims) || n_dims != 2)
        return refuse_shape(a, err);
    parts->n_rows = shape[0];
    parts->n_cols = shape[1];
    return coo ? open_coo(parts, a, item[0], item[1], err) : open_compressed(parts, a, item, err);
}

static ooc_status open_sparse(ooc_source **out, const archive *a, const ooc_pkl_node *call,
                              ooc_index_parts *parts, ooc_err *err)
{
    ooc_status st = find_sparse(a, call, parts, err);

    if (st) {
        ooc_index_parts_close(parts);
        return st;
    }
    return parts->ptr ? ooc_compressed_source(out, parts, err) : ooc_triple_source(out, parts, err);
}

static ooc_status open_dense(ooc_source **out, const archive *a, const ooc_pkl_node *node,
                             ooc_index_parts *parts, ooc_err *err)
{
    tensor t;
    ooc_status st = read_tensor(a, &t, node, err);

    if (!st && t.n_dims != 2)
        st = refuse_shape(a, err);
    if (!st) {
        parts->n_rows = t.size[0];
        parts->n_cols = t.size[1];
        parts->by_columns = t.stride[0] < t.stride[1];
        st = tensor_seq(&parts->val, a, &t, UINT64_MAX, parts->by_columns, true, err);
    }
    if (st) {
        ooc_index_parts_close(parts);
        return st;
    }
    return ooc_dense_source(out, parts, err);
}

static bool is_sparse(const ooc_pickle *p, const ooc_pkl_node *n)
{
    return ooc_pkl_calls(p, n, "torch._utils _rebuild_sparse_tensor") ||
           ooc_pkl_calls(p, n, "torch._utils _rebuild_sparse_csr_tensor");
}

static bool is_tensor(const ooc_pickle *p, const ooc_pkl_node *n)
{
    return is_sparse(p, n) || ooc_pkl_calls(p, n, "torch._utils _rebuild_tensor_v2") ||
           ooc_pkl_calls(p, n, "torch._utils _rebuild_tensor_v3") ||
           ooc_pkl_calls(p, n, "torch._utils _rebuild_tensor") ||
           ooc_pkl_calls(p, n, "torch._utils _rebuild_parameter");
}

/* The tensor that is meant: the root, or a value of the dict there: the one named `key`, else the
 * only sparse one, else the only one. */
static ooc_status find_tensor(const archive *a, const char *key, const ooc_pkl_node **out,
                              ooc_err *err)
{
    const ooc_pickle *p = &a->pickle;
    const ooc_pkl_node *root = &p->node[p->root], *found[2] = {0};
    uint32_t n[2] = {0};
    char names[300] = "";
    size_t n_text = 0;

    *out = root;
    if (is_tensor(p, root)) {
        if (key)
            return ooc_fail(err, OOC_E_ARG, "%s: holds one tensor without a name; leave out --key",
                            a->path);
        return OOC_OK;
    }
    if (root->kind != OOC_PKL_DICT)
        return ooc_fail(err, OOC_E_UNSUPPORTED, "%s: holds neither a tensor nor a dict of tensors",
                        a->path);
    for (uint32_t i = 0; i + 1 < root->n; i += 2) {
        const ooc_pkl_node *name = ooc_pkl_item(p, root, i);
        bool sparse;

        *out = ooc_pkl_item(p, root, i + 1);
        if (name->kind != OOC_PKL_TEXT || !is_tensor(p, *out))
            continue;
        if (key && strcmp(key, name->text) == 0)
            return OOC_OK;
        sparse = is_sparse(p, *out);
        found[sparse] = *out;
        n[sparse]++;
        if (n_text < sizeof names)
            n_text += (size_t)snprintf(names + n_text, sizeof names - n_text, "%s%s",
                                       n_text ? ", " : "", name->text);
    }
    *out = n[1] ? found[1] : found[0];
    if (!key && (n[1] == 1 || (!n[1] && n[0] == 1)))
        return OOC_OK;
    return ooc_fail(err, OOC_E_ARG, "%s: holds the tensors %s; choose one with --key NAME", a->path,
                    names);
}

/* --- the archive --- */

static void close_archive(void *ctx)
{
    archive *a = ctx;

    ooc_pickle_free(&a->pickle);
    ooc_zip_close(a->zip);
    ooc_free(a);
}

static const ooc_zip_member *find_pickle(archive *a)
{
    static const char suffix[] = "data.pkl";

    for (uint64_t i = 0; i < ooc_zip_count(a->zip); i++) {
        const ooc_zip_member *m = ooc_zip_at(a->zip, i);
        size_t n = strlen(m->name);

        if (n < sizeof suffix - 1 || strcmp(m->name + n - (sizeof suffix - 1), suffix) != 0 ||
            n - (sizeof suffix - 1) >= sizeof a->prefix)
            continue;
        memcpy(a->prefix, m->name, n - (sizeof suffix - 1));
        a->prefix[n - (sizeof suffix - 1)] = 0;
        return m;
    }
    return NULL;
}

static ooc_status read_member(const archive *a, const ooc_zip_member *m, uint8_t **bytes,
                              ooc_err *err)
{
    ooc_stream *s;
    ooc_status st = ooc_zip_stream(&s, a->zip, m, err);

    *bytes = NULL;
    if (st)
        return st;
    *bytes = ooc_malloc(m->unpacked_bytes + 1);
    st = *bytes ? ooc_stream_read_all(s, *bytes, m->unpacked_bytes, err)
                : ooc_fail(err, OOC_E_NOMEM, "%s: no memory for %s", a->path, m->name);
    if (!st)
        (*bytes)[m->unpacked_bytes] = 0;
    ooc_stream_close(s);
    return st;
}

static ooc_status read_byte_order(archive *a, ooc_err *err)
{
    char name[MAX_PREFIX + 16];
    const ooc_zip_member *m;
    uint8_t *text;
    ooc_status st;

    snprintf(name, sizeof name, "%sbyteorder", a->prefix);
    m = ooc_zip_find(a->zip, name);
    if (!m || m->unpacked_bytes > 16)
        return OOC_OK;
    st = read_member(a, m, &text, err);
    if (!st)
        a->swap = strcmp((const char *)text, "big") == 0;
    ooc_free(text);
    return st;
}

static ooc_status read_pickle(archive *a, ooc_err *err)
{
    const ooc_zip_member *m = find_pickle(a);
    uint8_t *bytes;
    ooc_status st;

    if (!m)
        return ooc_fail(err, OOC_E_FORMAT,
                        "%s: has no member data.pkl, so it was not saved by "
                        "torch.save",
                        a->path);
    if (m->unpacked_bytes > MAX_PICKLE)
        return ooc_fail(err, OOC_E_UNSUPPORTED,
                        "%s: its pickle is larger than %llu bytes; save the tensor alone", a->path,
                        (unsigned long long)MAX_PICKLE);
    st = read_member(a, m, &bytes, err);
    if (!st)
        st = ooc_pickle_parse(&a->pickle, bytes, m->unpacked_bytes, a->path, err);
    ooc_free(bytes);
    return st ? st : read_byte_order(a, err);
}

/* Files from before the zip container (PyTorch 1.6) begin with a pickled magic number. */
static bool is_legacy(const uint8_t *head, size_t n)
{
    static const uint8_t magic[] = {0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46,
                                    0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19};

    return n >= 2 + sizeof magic && head[0] == 0x80 && memcmp(head + 2, magic, sizeof magic) == 0;
}

static ooc_status refuse_legacy(const char *path, ooc_err *err)
{
    uint8_t head[16];
    size_t got;
    int fd;
    ooc_status st = ooc_sys_open(&fd, path, O_RDONLY, err);

    if (st)
        return st;
    st = ooc_sys_read_some(fd, path, head, sizeof head, &got, err);
    ooc_sys_close(fd);
    if (!st && is_legacy(head, got))
        st = ooc_fail(err, OOC_E_UNSUPPORTED,
                      "%s: was saved in the form from before PyTorch 1.6; load it with torch.load "
                      "and save it again",
                      path);
    return st;
}

static ooc_status open_archive(archive **out, const char *path, ooc_err *err)
{
    archive *a = ooc_calloc(1, sizeof *a);
    ooc_status st;

    *out = NULL;
    if (!a)
        return ooc_fail(err, OOC_E_NOMEM, "%s: no memory to read it", path);
    a->path = path;
    st = refuse_legacy(path, err);
    if (!st)
        st = ooc_zip_open(&a->zip, path, err);
    if (!st)
        st = read_pickle(a, err);
    if (st) {
        close_archive(a);
        return st;
    }
    *out = a;
    return OOC_OK;
}

static ooc_status names_of_pt(const ooc_source_request *request, ooc_name_sink sink, void *ctx,
                              ooc_err *err)
{
    const ooc_pkl_node *root, *name;
    archive *a;
    ooc_status st = open_archive(&a, request->path, err);

    if (st)
        return st;
    root = &a->pickle.node[a->pickle.root];
    if (is_tensor(&a->pickle, root))
        st = sink(ctx, NULL, err);
    for (uint32_t i = 0; !st && root->kind == OOC_PKL_DICT && i + 1 < root->n; i += 2) {
        name = ooc_pkl_item(&a->pickle, root, i);
        if (name->kind == OOC_PKL_TEXT &&
            is_tensor(&a->pickle, ooc_pkl_item(&a->pickle, root, i + 1)))
            st = sink(ctx, name->text, err);
    }
    close_archive(a);
    return st;
}

static ooc_status open_pt(ooc_source **out, const ooc_source_request *request, ooc_err *err)
{
    ooc_index_parts parts = {.name = request->path, .close_container = close_archive};
    const ooc_pkl_node *node;
    archive *a;
    ooc_status st = open_archive(&a, request->path, err);

    *out = NULL;
    if (st)
        return st;
    parts.container = a;
    st = find_tensor(a, request->key, &node, err);
    if (st) {
        close_archive(a);
        return st;
    }
    parts.container_bytes = ooc_zip_memory(a->zip) + sizeof *a + sizeof(view) * 3 +
                            a->pickle.max_nodes * sizeof *a->pickle.node +
                            a->pickle.max_items * sizeof *a->pickle.item + a->pickle.max_text;
    while (ooc_pkl_calls(&a->pickle, node, "torch._utils _rebuild_parameter"))
        node = ooc_pkl_item(&a->pickle, ooc_pkl_item(&a->pickle, node, 1), 0);
    if (is_sparse(&a->pickle, node))
        return open_sparse(out, a, node, &parts, err);
    return open_dense(out, a, node, &parts, err);
}

/* The first member of what torch.save writes is data.pkl. */
static bool fits_content(const ooc_probe *p)
{
    size_t n;

    if (is_legacy(p->head, p->n))
        return true;
    if (p->n < 30 || memcmp(p->head, "PK\3\4", 4) != 0)
        return false;
    n = p->head[26] | (size_t)p->head[27] << 8;
    return n >= 8 && 30 + n <= p->n && memcmp(p->head + 30 + n - 8, "data.pkl", 8) == 0;
}

static bool fits_name(const char *path)
{
    return ooc_path_ends(path, ".pt") || ooc_path_ends(path, ".pth");
}

const ooc_format ooc_format_pt = {.name = "pt",
                                  .what = "PyTorch's torch.save, FILE.pt (a tensor, or --key NAME "
                                          "of a dict)",
                                  .fits_content = fits_content,
                                  .fits_name = fits_name,
                                  .open = open_pt,
                                  .names = names_of_pt};
