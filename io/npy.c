#include "io/npy.h"
#include "io/sys.h"
#include "base/alloc.h"
#include "base/checked.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#define MAGIC_BYTES 6
/* Plain arrays need some 100 bytes; what is longer holds field names or is no .npy at all. */
#define MAX_HEADER_BYTES (1u << 20)
#define DATA_ALIGN       64

/* The header's text: a Python dictionary with three known keys. */
struct text {
    const char *at, *end;
};

static void skip_blanks(struct text *t)
{
    while (t->at < t->end && (*t->at == ' ' || *t->at == '\t' || *t->at == '\n' || *t->at == '\r'))
        t->at++;
}

static bool take(struct text *t, char c)
{
    skip_blanks(t);
    if (t->at == t->end || *t->at != c)
        return false;
    t->at++;
    return true;
}

static bool take_word(struct text *t, const char *word)
{
    size_t n = strlen(word);

    skip_blanks(t);
    if ((size_t)(t->end - t->at) < n || memcmp(t->at, word, n) != 0)
        return false;
    t->at += n;
    return true;
}

/* 'text' or "text", without escapes, into out[room]. */
static bool take_string(struct text *t, char *out, size_t room)
{
    const char *stop;
    char quote;

    skip_blanks(t);
    if (t->at == t->end || (*t->at != '\'' && *t->at != '"'))
        return false;
    quote = *t->at++;
    stop = memchr(t->at, quote, (size_t)(t->end - t->at));
    if (!stop || (size_t)(stop - t->at) >= room || memchr(t->at, '\\', (size_t)(stop - t->at)))
        return false;
    memcpy(out, t->at, (size_t)(stop - t->at));
    out[stop - t->at] = 0;
    t->at = stop + 1;
    return true;
}

static bool take_number(struct text *t, uint64_t *value)
{
    const char *first;

    skip_blanks(t);
    first = t->at;
    for (*value = 0; t->at < t->end && *t->at >= '0' && *t->at <= '9'; t->at++)
        if (!ooc_mul_u64(*value, 10, value) ||
            !ooc_add_u64(*value, (uint64_t)(*t->at - '0'), value))
            return false;
    if (t->at == first)
        return false;
    (void)take(t, 'L'); /* Python 2 wrote 10L */
    return true;
}

/* (), (3,), (3, 4) */
static bool take_shape(struct text *t, ooc_npy *out)
{
    if (!take(t, '('))
        return false;
    for (out->n_dims = 0; !take(t, ')'); out->n_dims++) {
        if (out->n_dims == OOC_NPY_MAX_DIMS || !take_number(t, &out->shape[out->n_dims]))
            return false;
        if (!take(t, ',')) {
            out->n_dims++;
            return out->n_dims > 1 && take(t, ')');
        }
    }
    return true;
}

static bool set_type(const char *descr, ooc_npy *out)
{
    struct text t = {descr, descr + strlen(descr)};
    uint64_t bytes;

    out->big_endian = false;
    if (t.at < t.end && strchr("<>|=", *t.at))
        out->big_endian = *t.at++ == '>';
    if (t.at == t.end || !strchr("fiubc", *t.at))
        return false;
    out->kind = *t.at++;
    if (!take_number(&t, &bytes) || t.at != t.end || bytes > 16 || (bytes & (bytes - 1)) ||
        !bytes || (bytes == 16 && out->kind != 'c') || (out->kind == 'b' && bytes != 1) ||
        (out->kind == 'f' && bytes == 1) || (out->kind == 'c' && bytes < 8))
        return false;
    out->item_bytes = (uint32_t)bytes;
    return true;
}

enum { HAS_DESCR = 1, HAS_ORDER = 2, HAS_SHAPE = 4, HAS_ALL = 7 };

/* One `key: value`; returns its HAS_ bit, or 0 with *why. */
static unsigned take_pair(struct text *t, ooc_npy *out, const char **why)
{
    char key[16], descr[32];

    *why = "its header cannot be understood";
    if (!take_string(t, key, sizeof key) || !take(t, ':'))
        return 0;
    if (strcmp(key, "descr") == 0) {
        skip_blanks(t);
        *why = "its items are not plain numbers (f4, f8, f2, integers, bool, complex)";
        return take_string(t, descr, sizeof descr) && set_type(descr, out) ? HAS_DESCR : 0;
    }
    if (strcmp(key, "fortran_order") == 0) {
        out->fortran_order = take_word(t, "True");
        return out->fortran_order || take_word(t, "False") ? HAS_ORDER : 0;
    }
    if (strcmp(key, "shape") == 0) {
        *why = "its shape cannot be understood, or has more than 8 dimensions";
        return take_shape(t, out) ? HAS_SHAPE : 0;
    }
    return 0;
}

static const char *parse_text(struct text *t, ooc_npy *out)
{
    static const char *const bad = "its header cannot be understood";
    unsigned seen = 0;
    const char *why;

    if (!take(t, '{'))
        return bad;
    while (!take(t, '}')) {
        unsigned bit = take_pair(t, out, &why);

        if (!bit)
            return why;
        if (seen & bit)
            return bad;
        seen |= bit;
        if (!take(t, ',') && (skip_blanks(t), t->at == t->end || *t->at != '}'))
            return bad;
    }
    skip_blanks(t);
    return seen == HAS_ALL && t->at == t->end ? NULL : bad;
}

/* Length of the text and where it starts; NULL, or why not. *need_more as ooc_npy_parse. */
static const char *parse_prefix(const uint8_t *h, size_t bytes, uint64_t *text_off,
                                uint64_t *text_bytes, bool *need_more)
{
    static const uint8_t magic[MAGIC_BYTES] = {0x93, 'N', 'U', 'M', 'P', 'Y'};

    if (memcmp(h, magic, bytes < MAGIC_BYTES ? bytes : MAGIC_BYTES) != 0)
        return "not an .npy file (it does not begin with \\x93NUMPY)";
    if (bytes < 12) {
        *need_more = true;
        return "its header is cut off";
    }
    *text_bytes = (uint64_t)(h[8] | h[9] << 8);
    *text_off = 10;
    if (h[6] == 2 || h[6] == 3) {
        *text_bytes |= (uint64_t)h[10] << 16 | (uint64_t)h[11] << 24;
        *text_off = 12;
    } else if (h[6] != 1)
        return "an .npy version that is not known here (1.0, 2.0 and 3.0 are)";
    if (*text_bytes > MAX_HEADER_BYTES)
        return "its header is longer than 1 MiB";
    if (*text_off + *text_bytes > bytes) {
        *need_more = true;
        return "its header is cut off";
    }
    return NULL;
}

ooc_status ooc_npy_parse(ooc_npy *out, const void *head, size_t bytes, uint64_t total_bytes,
                         const char *name, bool *need_more, ooc_err *err)
{
    uint64_t text_off, text_bytes, end;
    struct text t;
    const char *why;

    memset(out, 0, sizeof *out);
    *need_more = false;
    why = parse_prefix(head, bytes, &text_off, &text_bytes, need_more);
    if (why)
        return ooc_fail(err, OOC_E_FORMAT, "%s: %s", name, why);
    t.at = (const char *)head + text_off;
    t.end = t.at + text_bytes;
    why = parse_text(&t, out);
    if (why)
        return ooc_fail_at(err, OOC_E_FORMAT, (uint64_t)(t.at - (const char *)head), -1, "%s: %s",
                           name, why);
    out->data_off = text_off + text_bytes;
    out->n_items = 1;
    for (uint32_t i = 0; i < out->n_dims; i++)
        if (!ooc_mul_u64(out->n_items, out->shape[i], &out->n_items))
            return ooc_fail(err, OOC_E_FORMAT, "%s: its shape has more than 2^64 items", name);
    if (!ooc_mul_u64(out->n_items, out->item_bytes, &end) || !ooc_add_u64(end, out->data_off, &end))
        return ooc_fail(err, OOC_E_FORMAT, "%s: its shape has more than 2^64 bytes", name);
    if (end > total_bytes)
        return ooc_fail_at(err, OOC_E_FORMAT, total_bytes, -1,
                           "%s: cut off: its header promises %llu bytes, there are %llu", name,
                           (unsigned long long)end, (unsigned long long)total_bytes);
    return OOC_OK;
}

ooc_status ooc_npy_open(int *fd, ooc_npy *out, const char *path, ooc_err *err)
{
    uint64_t file_bytes;
    size_t bytes = 4096;
    bool need_more;
    ooc_status st;

    st = ooc_sys_open(fd, path, O_RDONLY, err);
    if (st)
        return st;
    st = ooc_sys_size(*fd, path, &file_bytes, err);
    for (bool done = st != OOC_OK; !done;) {
        size_t n = (size_t)ooc_min_u64(bytes, file_bytes);
        char *head = ooc_malloc(n);

        st = head ? ooc_sys_pread(*fd, path, head, n, 0, err)
                  : ooc_fail(err, OOC_E_NOMEM, "%s: no memory for its header", path);
        need_more = false;
        if (!st)
            st = ooc_npy_parse(out, head, n, file_bytes, path, &need_more, err);
        ooc_free(head);
        done = !need_more || n == file_bytes;
        bytes = MAX_HEADER_BYTES + 4096;
    }
    if (st) {
        ooc_sys_close(*fd);
        *fd = -1;
    }
    return st;
}

struct ooc_npy_writer {
    ooc_new_file file;
    uint64_t at, end; /* file offsets: the next byte, behind the last one */
};

/* Python's text for the header, padded so that the data start at a multiple of 64. */
static size_t put_header(char *out, size_t room, const char *descr, uint32_t n_dims,
                         const uint64_t *shape)
{
    size_t n = 10, total;

    n += (size_t)snprintf(out + n, room - n, "{'descr': '%s', 'fortran_order': False, 'shape': (",
                          descr);
    for (uint32_t i = 0; i < n_dims; i++)
        n += (size_t)snprintf(out + n, room - n, i + 1 < n_dims || n_dims == 1 ? "%llu, " : "%llu",
                              (unsigned long long)shape[i]);
    n += (size_t)snprintf(out + n, room - n, "), }");
    total = (n + 1 + DATA_ALIGN - 1) / DATA_ALIGN * DATA_ALIGN;
    memset(out + n, ' ', total - n);
    out[total - 1] = '\n';
    memcpy(out, "\x93NUMPY\x01\x00", 8);
    out[8] = (char)((total - 10) & 255);
    out[9] = (char)((total - 10) >> 8);
    return total;
}

ooc_status ooc_npy_writer_open(ooc_npy_writer **out, const char *path, const char *descr,
                               uint32_t n_dims, const uint64_t *shape, ooc_err *err)
{
    char head[512];
    ooc_npy check = {0};
    uint64_t bytes = 1;
    size_t head_bytes;
    ooc_npy_writer *w;
    ooc_status st;

    *out = NULL;
    if (n_dims > OOC_NPY_MAX_DIMS || strlen(descr) > 8 || !set_type(descr, &check))
        return ooc_fail(err, OOC_E_ARG, "%s: '%s' with %u dimensions cannot be written", path,
                        descr, n_dims);
    head_bytes = put_header(head, sizeof head, descr, n_dims, shape);
    for (uint32_t i = 0; i < n_dims; i++)
        if (!ooc_mul_u64(bytes, shape[i], &bytes))
            bytes = UINT64_MAX;
    if (!ooc_mul_u64(bytes, check.item_bytes, &bytes) || bytes > INT64_MAX - sizeof head)
        return ooc_fail(err, OOC_E_ARG, "%s: an array of that shape cannot be written", path);
    w = ooc_calloc(1, sizeof *w);
    if (!w)
        return ooc_fail(err, OOC_E_NOMEM, "%s: no memory for a writer", path);
    w->file.fd = -1;
    w->end = head_bytes + bytes;
    st = ooc_new_file_open(&w->file, path, true, err);
    if (!st)
        st = ooc_sys_pwrite(w->file.fd, path, head, head_bytes, 0, err);
    w->at = head_bytes;
    if (st)
        ooc_npy_writer_close(w);
    else
        *out = w;
    return st;
}

ooc_status ooc_npy_writer_write(ooc_npy_writer *w, const void *data, size_t bytes, ooc_err *err)
{
    ooc_status st;

    if (bytes > w->end - w->at)
        return ooc_fail(err, OOC_E_ARG, "%s: more data than its shape holds", w->file.path);
    st = ooc_sys_pwrite(w->file.fd, w->file.path, data, bytes, w->at, err);
    if (!st)
        w->at += bytes;
    return st;
}

ooc_status ooc_npy_writer_commit(ooc_npy_writer *w, ooc_err *err)
{
    if (w->at != w->end)
        return ooc_fail(err, OOC_E_ARG, "%s: %llu bytes of its data were not written", w->file.path,
                        (unsigned long long)(w->end - w->at));
    return ooc_new_file_commit(&w->file, err);
}

void ooc_npy_writer_close(ooc_npy_writer *w)
{
    if (!w)
        return;
    ooc_new_file_discard(&w->file);
    ooc_free(w);
}
