#include "src/train/tensor_file.h"
#include "base/alloc.h"
#include "base/checked.h"
#include "io/sys.h"

#include <cjson/cJSON.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Far beyond what a model here has; bounds what a damaged length field can ask for. */
#define MAX_HEADER  ((uint64_t)16 << 20)
#define MAX_TENSORS 4096

typedef struct {
    const char *name; /* in the JSON tree */
    bool f32;
    uint32_t n_dims;
    uint64_t shape[OOC_TENSOR_MAX_DIMS];
    uint64_t begin, end; /* in the data */
} stored;

struct ooc_tensor_file {
    int fd;
    char *path;
    cJSON *root;
    uint64_t data_off;
    uint32_t n;
    stored *list;
};

/* A JSON number that is a count: whole, not negative, exact in a double. */
static bool whole(const cJSON *item, uint64_t *value)
{
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0) || item->valuedouble > 0x1p53)
        return false;
    *value = (uint64_t)item->valuedouble;
    return (double)*value == item->valuedouble;
}

static uint64_t dtype_bytes(const char *dtype)
{
    static const struct {
        const char *name;
        uint64_t bytes;
    } known[] = {{"F64", 8}, {"I64", 8}, {"U64", 8},  {"F32", 4}, {"I32", 4},
                 {"U32", 4}, {"F16", 2}, {"BF16", 2}, {"I16", 2}, {"U16", 2},
                 {"I8", 1},  {"U8", 1},  {"BOOL", 1}};

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].name, dtype) == 0)
            return known[i].bytes;
    return 0;
}

/* Type, shape and place of one tensor; false where they don't agree with each other or the file. */
static bool parse_entry(const cJSON *item, uint64_t data_bytes, stored *s)
{
    const cJSON *dtype = cJSON_GetObjectItemCaseSensitive(item, "dtype");
    const cJSON *shape = cJSON_GetObjectItemCaseSensitive(item, "shape");
    const cJSON *offsets = cJSON_GetObjectItemCaseSensitive(item, "data_offsets");
    const cJSON *dim;
    uint64_t bytes;

    if (!cJSON_IsString(dtype) || !cJSON_IsArray(shape) || !cJSON_IsArray(offsets) ||
        cJSON_GetArraySize(offsets) != 2)
        return false;
    s->name = item->string;
    s->f32 = strcmp(dtype->valuestring, "F32") == 0;
    bytes = dtype_bytes(dtype->valuestring);
    cJSON_ArrayForEach(dim, shape)
    {
        if (s->n_dims == OOC_TENSOR_MAX_DIMS || !whole(dim, &s->shape[s->n_dims]) ||
            !ooc_mul_u64(bytes, s->shape[s->n_dims], &bytes))
            return false;
        s->n_dims++;
    }
    return dtype_bytes(dtype->valuestring) && whole(cJSON_GetArrayItem(offsets, 0), &s->begin) &&
           whole(cJSON_GetArrayItem(offsets, 1), &s->end) && s->begin <= s->end &&
           s->end <= data_bytes && s->end - s->begin == bytes;
}

static bool overlap(const stored *a, const stored *b)
{
    return a->begin < b->end && b->begin < a->end;
}

/* All tensors, without overlap, repetition or bytes that nobody owns. */
static ooc_status parse_list(ooc_tensor_file *f, uint64_t data_bytes, ooc_err *err)
{
    const int n = cJSON_GetArraySize(f->root);
    uint64_t total = 0;
    const cJSON *item;

    if (n > MAX_TENSORS)
        return ooc_fail(err, OOC_E_FORMAT, "%s: %d tensors are more than any model here has",
                        f->path, n);
    f->list = ooc_calloc((size_t)n + 1, sizeof *f->list);
    if (!f->list)
        return ooc_fail(err, OOC_E_NOMEM, "%s: no memory for its list of tensors", f->path);
    cJSON_ArrayForEach(item, f->root)
    {
        stored *s = &f->list[f->n];

        if (strcmp(item->string, "__metadata__") == 0)
            continue;
        if (!parse_entry(item, data_bytes, s))
            return ooc_fail(err, OOC_E_FORMAT,
                            "%s: tensor %.60s: its type, shape and place don't agree with the file "
                            "of %" PRIu64 " data bytes",
                            f->path, item->string, data_bytes);
        for (uint32_t i = 0; i < f->n; i++)
            if (overlap(&f->list[i], s) || strcmp(f->list[i].name, s->name) == 0)
                return ooc_fail(err, OOC_E_FORMAT, "%s: tensors %.60s and %.60s overlap", f->path,
                                f->list[i].name, s->name);
        total += s->end - s->begin;
        f->n++;
    }
    if (total != data_bytes)
        return ooc_fail(err, OOC_E_FORMAT,
                        "%s: its tensors have %" PRIu64 " bytes, the file holds %" PRIu64, f->path,
                        total, data_bytes);
    return OOC_OK;
}

static ooc_status read_header(ooc_tensor_file *f, ooc_err *err)
{
    uint8_t length[8];
    uint64_t file_bytes, bytes = 0;
    char *text;
    ooc_status st = ooc_sys_size(f->fd, f->path, &file_bytes, err);

    if (!st)
        st = ooc_sys_pread(f->fd, f->path, length, 8, 0, err);
    if (st)
        return st;
    for (int i = 0; i < 8; i++)
        bytes |= (uint64_t)length[i] << (8 * i);
    if (bytes > file_bytes - 8 || bytes > MAX_HEADER)
        return ooc_fail_at(err, OOC_E_FORMAT, 0, -1,
                           "%s: not a safetensors file, or cut off: a header of %" PRIu64
                           " bytes in a file of %" PRIu64,
                           f->path, bytes, file_bytes);
    text = ooc_malloc(bytes);
    if (!text)
        return ooc_fail(err, OOC_E_NOMEM, "%s: no memory for a header of %" PRIu64 " bytes",
                        f->path, bytes);
    st = ooc_sys_pread(f->fd, f->path, text, bytes, 8, err);
    if (!st)
        f->root = cJSON_ParseWithLength(text, bytes);
    ooc_free(text);
    if (st)
        return st;
    if (!cJSON_IsObject(f->root))
        return ooc_fail_at(err, OOC_E_FORMAT, 8, -1,
                           "%s: not a safetensors file: its header is no JSON object", f->path);
    f->data_off = 8 + bytes;
    return parse_list(f, file_bytes - f->data_off, err);
}

ooc_status ooc_tensor_file_open(ooc_tensor_file **out, const char *path, ooc_err *err)
{
    cJSON_Hooks hooks = {ooc_malloc, ooc_free}; /* the same heap, but counted and made to fail */
    ooc_tensor_file *f = ooc_calloc(1, sizeof *f);
    ooc_status st;

    *out = NULL;
    cJSON_InitHooks(&hooks);
    if (!f)
        return ooc_fail(err, OOC_E_NOMEM, "%s: no memory", path);
    f->fd = -1;
    f->path = ooc_strdup(path);
    st = f->path ? ooc_sys_open(&f->fd, path, O_RDONLY, err)
                 : ooc_fail(err, OOC_E_NOMEM, "%s: no memory", path);
    if (!st)
        st = read_header(f, err);
    if (st) {
        ooc_tensor_file_close(f);
        return st;
    }
    *out = f;
    return OOC_OK;
}

void ooc_tensor_file_close(ooc_tensor_file *f)
{
    if (!f)
        return;
    ooc_sys_close(f->fd);
    cJSON_Delete(f->root);
    ooc_free(f->list);
    ooc_free(f->path);
    ooc_free(f);
}

const char *ooc_tensor_file_text(const ooc_tensor_file *f, const char *key)
{
    const cJSON *meta = cJSON_GetObjectItemCaseSensitive(f->root, "__metadata__");

    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(meta, key));
}

uint32_t ooc_tensor_file_count(const ooc_tensor_file *f)
{
    return f->n;
}

const char *ooc_tensor_file_name(const ooc_tensor_file *f, uint32_t i)
{
    return f->list[i].name;
}

static const stored *find(const ooc_tensor_file *f, const char *name)
{
    for (uint32_t i = 0; i < f->n; i++)
        if (strcmp(f->list[i].name, name) == 0)
            return &f->list[i];
    return NULL;
}

bool ooc_tensor_file_has(const ooc_tensor_file *f, const char *name)
{
    return find(f, name) != NULL;
}

/* "(16, 1, 3, 3)" */
static void shape_text(uint32_t n_dims, const uint64_t *shape, char *out, size_t bytes)
{
    size_t n = (size_t)snprintf(out, bytes, "(");

    for (uint32_t i = 0; i < n_dims && n < bytes; i++)
        n += (size_t)snprintf(out + n, bytes - n, "%s%" PRIu64, i ? ", " : "", shape[i]);
    if (n < bytes)
        snprintf(out + n, bytes - n, ")");
}

static ooc_status check_fits(const ooc_tensor_file *f, const stored *s, const ooc_tensor_entry *e,
                             ooc_err *err)
{
    char have[200], want[200];

    if (!s)
        return ooc_fail(err, OOC_E_FORMAT,
                        "%s: no tensor %s in it: is it from another --model, --channels or "
                        "--hidden?",
                        f->path, e->name);
    if (!s->f32)
        return ooc_fail(err, OOC_E_FORMAT, "%s: tensor %s is not F32", f->path, e->name);
    if (s->n_dims == e->n_dims && memcmp(s->shape, e->shape, e->n_dims * sizeof *e->shape) == 0)
        return OOC_OK;
    shape_text(s->n_dims, s->shape, have, sizeof have);
    shape_text(e->n_dims, e->shape, want, sizeof want);
    return ooc_fail(err, OOC_E_FORMAT, "%s: tensor %s has the shape %s; this model has %s", f->path,
                    e->name, have, want);
}

ooc_status ooc_tensor_file_read(const ooc_tensor_file *f, const ooc_tensor_entry *entry,
                                ooc_tensor_move upload, void *ctx, void *buffer, ooc_err *err)
{
    const stored *s = find(f, entry->name);
    ooc_status st = check_fits(f, s, entry, err);

    for (uint64_t at = 0; !st && at < s->end - s->begin; at += OOC_TENSOR_BUFFER) {
        const uint64_t part = ooc_min_u64(OOC_TENSOR_BUFFER, s->end - s->begin - at);

        st = ooc_sys_pread(f->fd, f->path, buffer, part, f->data_off + s->begin + at, err);
        if (!st)
            st = upload(ctx, (char *)entry->at + at, buffer, part, err);
    }
    return st;
}
