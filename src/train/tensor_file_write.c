#include "src/train/tensor_file.h"
#include "base/alloc.h"
#include "base/checked.h"
#include "io/sys.h"
#include "src/train/text.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

bool ooc_all_finite(const float *values, uint64_t n)
{
    bool finite = true;

    for (uint64_t i = 0; i < n; i++)
        finite &= fabsf(values[i]) <= FLT_MAX; /* unlike isfinite() the compiler takes vectors */
    return finite;
}

/* Names and values are our own words and numbers: nothing in them needs escaping. */
static void print_header(ooc_text *t, const ooc_tensor_entry *entries, uint32_t n,
                         const ooc_tensor_text *texts, uint32_t n_texts)
{
    uint64_t begin = 0;

    ooc_text_append(t, "{\"__metadata__\":{");
    for (uint32_t i = 0; i < n_texts; i++)
        ooc_text_append(t, "%s\"%s\":\"%s\"", i ? "," : "", texts[i].key, texts[i].value);
    ooc_text_append(t, "}");
    for (uint32_t i = 0; i < n; i++) {
        const ooc_tensor_entry *e = &entries[i];

        ooc_text_append(t, ",\"%s\":{\"dtype\":\"F32\",\"shape\":[", e->name);
        for (uint32_t k = 0; k < e->n_dims; k++)
            ooc_text_append(t, "%s%" PRIu64, k ? "," : "", e->shape[k]);
        ooc_text_append(t, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", begin,
                        begin + e->n * sizeof(float));
        begin += e->n * sizeof(float);
    }
    ooc_text_append(t, "}");
}

/* The JSON text, padded by spaces so that the data begin at a multiple of 64. NULL: no memory. */
static char *make_header(const ooc_tensor_entry *entries, uint32_t n, const ooc_tensor_text *texts,
                         uint32_t n_texts, uint64_t *bytes)
{
    ooc_text t = {NULL, 0, 0};
    size_t length;

    print_header(&t, entries, n, texts, n_texts);
    length = t.n;
    *bytes = ooc_round_up(8 + length, 64) - 8;
    t.size = *bytes + 1;
    t.at = ooc_malloc(t.size);
    t.n = 0;
    if (!t.at)
        return NULL;
    print_header(&t, entries, n, texts, n_texts);
    memset(t.at + length, ' ', *bytes - length);
    return t.at;
}

static ooc_status write_header(int fd, const char *path, const char *header, uint64_t bytes,
                               ooc_err *err)
{
    uint8_t length[8];
    ooc_status st;

    for (int i = 0; i < 8; i++)
        length[i] = (uint8_t)(bytes >> (8 * i));
    st = ooc_sys_pwrite(fd, path, length, 8, 0, err);
    if (!st)
        st = ooc_sys_pwrite(fd, path, header, bytes, 8, err);
    return st;
}

static ooc_status write_entry(int fd, const char *path, const ooc_tensor_entry *e,
                              uint64_t file_off, ooc_tensor_move download, void *ctx, void *buffer,
                              ooc_err *err)
{
    const uint64_t bytes = e->n * sizeof(float);
    ooc_status st = OOC_OK;

    for (uint64_t at = 0; !st && at < bytes; at += OOC_TENSOR_BUFFER) {
        const uint64_t part = ooc_min_u64(OOC_TENSOR_BUFFER, bytes - at);

        st = download(ctx, buffer, (const char *)e->at + at, part, err);
        if (!st)
            st = ooc_sys_pwrite(fd, path, buffer, part, file_off + at, err);
    }
    return st;
}

ooc_status ooc_tensor_file_write(const char *path, const ooc_tensor_entry *entries, uint32_t n,
                                 const ooc_tensor_text *texts, uint32_t n_texts,
                                 ooc_tensor_move download, void *ctx, void *buffer, ooc_err *err)
{
    ooc_new_file file = {.fd = -1};
    uint64_t header_bytes, off;
    char *header = make_header(entries, n, texts, n_texts, &header_bytes);
    ooc_status st;

    if (!header)
        return ooc_fail(err, OOC_E_NOMEM, "%s: no memory for its header", path);
    st = ooc_new_file_open(&file, path, true, err);
    if (!st)
        st = write_header(file.fd, path, header, header_bytes, err);
    off = 8 + header_bytes;
    for (uint32_t i = 0; !st && i < n; i++) {
        st = write_entry(file.fd, path, &entries[i], off, download, ctx, buffer, err);
        off += entries[i].n * sizeof(float);
    }
    if (!st)
        st = ooc_new_file_commit(&file, err);
    ooc_new_file_discard(&file);
    ooc_free(header);
    return st;
}
