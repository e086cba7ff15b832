#include "tiler/number_seq.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "tiler/value_convert.h"

#include <string.h>

static const struct {
    const char *name;
    uint8_t bytes;
    char kind;
    bool wide;
} elems[] = {
    [OOC_ELEM_BOOL] = {"bool", 1, 'b', false},       [OOC_ELEM_I8] = {"int8", 1, 'i', false},
    [OOC_ELEM_U8] = {"uint8", 1, 'u', false},        [OOC_ELEM_I16] = {"int16", 2, 'i', false},
    [OOC_ELEM_U16] = {"uint16", 2, 'u', false},      [OOC_ELEM_I32] = {"int32", 4, 'i', true},
    [OOC_ELEM_U32] = {"uint32", 4, 'u', true},       [OOC_ELEM_I64] = {"int64", 8, 'i', true},
    [OOC_ELEM_U64] = {"uint64", 8, 'u', true},       [OOC_ELEM_F16] = {"float16", 2, 'f', false},
    [OOC_ELEM_BF16] = {"bfloat16", 2, 'f', false},   [OOC_ELEM_F32] = {"float32", 4, 'f', false},
    [OOC_ELEM_F64] = {"float64", 8, 'f', true},      [OOC_ELEM_C64] = {"complex64", 8, 'c', false},
    [OOC_ELEM_C128] = {"complex128", 16, 'c', true},
};

uint32_t ooc_elem_bytes(ooc_elem e)
{
    return elems[e].bytes;
}

const char *ooc_elem_name(ooc_elem e)
{
    return elems[e].name;
}

bool ooc_elem_is_index(ooc_elem e)
{
    return elems[e].kind == 'i' || elems[e].kind == 'u';
}

bool ooc_elem_is_complex(ooc_elem e)
{
    return elems[e].kind == 'c';
}

bool ooc_elem_is_wide(ooc_elem e)
{
    return elems[e].wide;
}

bool ooc_elem_from_kind(char kind, uint32_t item_bytes, ooc_elem *out)
{
    for (ooc_elem e = OOC_ELEM_BOOL; e <= OOC_ELEM_C128; e++)
        if (elems[e].kind == kind && elems[e].bytes == item_bytes && e != OOC_ELEM_BF16) {
            *out = e;
            return true;
        }
    return false;
}

ooc_seq *ooc_seq_new(const char *name, ooc_elem elem, uint64_t n_items)
{
    ooc_seq *s = ooc_calloc(1, sizeof *s);

    if (!s)
        return NULL;
    s->elem = elem;
    s->n_items = n_items;
    s->name = ooc_strdup(name);
    s->buffer = ooc_malloc(OOC_SEQ_BUFFER);
    if (!s->name || !s->buffer) {
        ooc_seq_close(s);
        return NULL;
    }
    return s;
}

void ooc_seq_close(ooc_seq *s)
{
    if (!s)
        return;
    if (s->close)
        s->close(s->ctx);
    ooc_free(s->name);
    ooc_free(s->buffer);
    ooc_free(s);
}

/* --- sequences in a byte stream --- */

struct stream_ctx {
    ooc_stream *stream;
    uint32_t item_bytes;
};

static ooc_status stream_read(void *ctx, void *buf, size_t n, ooc_err *err)
{
    struct stream_ctx *c = ctx;

    return ooc_stream_read_all(c->stream, buf, n * c->item_bytes, err);
}

static ooc_status stream_finish(void *ctx, ooc_err *err)
{
    return ooc_stream_drain(((struct stream_ctx *)ctx)->stream, err);
}

static double stream_done(const void *ctx)
{
    return ooc_stream_done(((const struct stream_ctx *)ctx)->stream);
}

static void stream_close(void *ctx)
{
    ooc_stream_close(((struct stream_ctx *)ctx)->stream);
    ooc_free(ctx);
}

ooc_status ooc_seq_from_stream(ooc_seq **out, ooc_stream *stream, const char *name, ooc_elem elem,
                               bool swap, uint64_t n_items, ooc_err *err)
{
    ooc_seq *s = ooc_seq_new(name, elem, n_items);
    struct stream_ctx *c = ooc_malloc(sizeof *c);

    *out = NULL;
    if (!s || !c) {
        ooc_stream_close(stream);
        ooc_seq_close(s);
        ooc_free(c);
        return ooc_fail(err, OOC_E_NOMEM, "%s: no memory to read it", name);
    }
    *c = (struct stream_ctx){stream, ooc_elem_bytes(elem)};
    s->swap = swap;
    s->ctx = c;
    s->read = stream_read;
    s->finish = stream_finish;
    s->done = stream_done;
    s->close = stream_close;
    *out = s;
    return OOC_OK;
}

/* --- numbers --- */

static void swap_items(void *buf, size_t n, uint32_t bytes)
{
    uint8_t *p = buf;

    for (size_t i = 0; i < n; i++, p += bytes)
        for (uint32_t a = 0, b = bytes - 1; a < b; a++, b--) {
            uint8_t t = p[a];

            p[a] = p[b];
            p[b] = t;
        }
}

static ooc_status read_raw(ooc_seq *s, size_t n, ooc_err *err)
{
    uint32_t bytes = ooc_elem_bytes(s->elem);
    ooc_status st;

    if (n > s->n_items - s->at)
        return ooc_fail(err, OOC_E_FORMAT, "%s: has %llu items, more were expected", s->name,
                        (unsigned long long)s->n_items);
    st = s->read(s->ctx, s->buffer, n, err);
    if (st)
        return st;
    s->at += n;
    if (s->swap && ooc_elem_is_complex(s->elem))
        swap_items(s->buffer, 2 * n, bytes / 2);
    else if (s->swap && bytes > 1)
        swap_items(s->buffer, n, bytes);
    return OOC_OK;
}

#define CONVERT(type)                                                                              \
    for (size_t i = 0; i < n; i++)                                                                 \
        out[i] = (uint64_t)((const type *)raw)[i];

/* Sign-extended: a negative number becomes a huge one. False: not a type for indices. */
static bool to_index(uint64_t *out, const void *raw, size_t n, ooc_elem elem)
{
    switch (elem) {
    case OOC_ELEM_I8:
        CONVERT(int8_t)
        return true;
    case OOC_ELEM_U8:
        CONVERT(uint8_t)
        return true;
    case OOC_ELEM_I16:
        CONVERT(int16_t)
        return true;
    case OOC_ELEM_U16:
        CONVERT(uint16_t)
        return true;
    case OOC_ELEM_I32:
        CONVERT(int32_t)
        return true;
    case OOC_ELEM_U32:
        CONVERT(uint32_t)
        return true;
    case OOC_ELEM_I64:
    case OOC_ELEM_U64:
        CONVERT(uint64_t)
        return true;
    default:
        return false;
    }
}

#undef CONVERT

static size_t chunk_items(const ooc_seq *s, size_t n)
{
    return (size_t)ooc_min_u64(n, OOC_SEQ_BUFFER / ooc_elem_bytes(s->elem));
}

ooc_status ooc_seq_read_index(ooc_seq *s, uint64_t *out, size_t n, ooc_err *err)
{
    while (n) {
        size_t take = chunk_items(s, n);
        uint64_t top = 0;
        ooc_status st = read_raw(s, take, err);

        if (st)
            return st;
        if (!to_index(out, s->buffer, take, s->elem))
            return ooc_fail(err, OOC_E_FORMAT, "%s: is of type %s; indices must be whole numbers",
                            s->name, ooc_elem_name(s->elem));
        for (size_t i = 0; i < take; i++)
            top |= out[i];
        for (size_t i = 0; top >> 63 && i < take; i++)
            if (out[i] >> 63)
                return ooc_fail(err, OOC_E_FORMAT, "%s: item %llu is %lld; no index is negative",
                                s->name, (unsigned long long)(s->at - take + i), (long long)out[i]);
        out += take;
        n -= take;
    }
    return OOC_OK;
}

#define CONVERT(type)                                                                              \
    for (size_t i = 0; i < n; i++)                                                                 \
        re[i] = (double)((const type *)raw)[i];                                                    \
    break;
#define CONVERT_COMPLEX(type)                                                                      \
    for (size_t i = 0; i < n; i++) {                                                               \
        re[i] = (double)((const type *)raw)[2 * i];                                                \
        if (im)                                                                                    \
            im[i] = (double)((const type *)raw)[2 * i + 1];                                        \
    }                                                                                              \
    break;

static void to_value(double *re, double *im, const void *raw, size_t n, ooc_elem elem)
{
    switch (elem) {
    case OOC_ELEM_BOOL:
        for (size_t i = 0; i < n; i++)
            re[i] = ((const uint8_t *)raw)[i] ? 1 : 0;
        break;
    case OOC_ELEM_I8:
        CONVERT(int8_t)
    case OOC_ELEM_U8:
        CONVERT(uint8_t)
    case OOC_ELEM_I16:
        CONVERT(int16_t)
    case OOC_ELEM_U16:
        CONVERT(uint16_t)
    case OOC_ELEM_I32:
        CONVERT(int32_t)
    case OOC_ELEM_U32:
        CONVERT(uint32_t)
    case OOC_ELEM_I64:
        CONVERT(int64_t)
    case OOC_ELEM_U64:
        CONVERT(uint64_t)
    case OOC_ELEM_F16:
        for (size_t i = 0; i < n; i++)
            re[i] = ooc_small_to_double(((const uint16_t *)raw)[i], 10, 15);
        break;
    case OOC_ELEM_BF16:
        for (size_t i = 0; i < n; i++)
            re[i] = ooc_small_to_double(((const uint16_t *)raw)[i], 7, 127);
        break;
    case OOC_ELEM_F32:
        CONVERT(float)
    case OOC_ELEM_F64:
        CONVERT(double)
    case OOC_ELEM_C64:
        CONVERT_COMPLEX(float)
    case OOC_ELEM_C128:
        CONVERT_COMPLEX(double)
    }
}

#undef CONVERT
#undef CONVERT_COMPLEX

/* 64-bit integers beyond 2^53 may have been rounded. */
static ooc_status check_exact(const ooc_seq *s, const double *re, size_t n, ooc_err *err)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t bits;
        bool same;

        if (fabs(re[i]) < 9007199254740992.0)
            continue;
        bits = ((const uint64_t *)s->buffer)[i];
        if (s->elem == OOC_ELEM_I64)
            same = re[i] < 9223372036854775808.0 && (int64_t)re[i] == (int64_t)bits;
        else
            same = re[i] < 18446744073709551616.0 && (uint64_t)re[i] == bits;
        if (!same)
            return ooc_fail(err, OOC_E_ARG,
                            "%s: item %llu, the whole number %lld, cannot be held exactly by f64, "
                            "the widest value type there is",
                            s->name, (unsigned long long)(s->at - n + i), (long long)bits);
    }
    return OOC_OK;
}

ooc_status ooc_seq_read_value(ooc_seq *s, double *re, double *im, size_t n, ooc_err *err)
{
    while (n) {
        size_t take = chunk_items(s, n);
        ooc_status st = read_raw(s, take, err);

        if (st)
            return st;
        to_value(re, im, s->buffer, take, s->elem);
        if (s->elem == OOC_ELEM_I64 || s->elem == OOC_ELEM_U64) {
            st = check_exact(s, re, take, err);
            if (st)
                return st;
        }
        re += take;
        im = im ? im + take : NULL;
        n -= take;
    }
    return OOC_OK;
}

ooc_status ooc_seq_skip(ooc_seq *s, uint64_t n, ooc_err *err)
{
    ooc_status st = OOC_OK;

    while (n && !st) {
        size_t take = chunk_items(s, n);

        st = read_raw(s, take, err);
        n -= take;
    }
    return st;
}

ooc_status ooc_seq_finish(ooc_seq *s, ooc_err *err)
{
    ooc_status st = ooc_seq_skip(s, s->n_items - s->at, err);

    return st || !s->finish ? st : s->finish(s->ctx, err);
}
