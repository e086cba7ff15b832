#include "tiler/byte_stream.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "io/sys.h"

#include <string.h>
#include <zlib.h>

#define INPUT_BYTES ((size_t)256 << 10)

struct ooc_stream {
    ooc_stream_opts opts;
    char *name;
    uint64_t used; /* bytes of the range that were read */
    uint64_t out;  /* bytes that came out */
    uint32_t crc;
    bool end;
    z_stream z;
    bool z_ready, member_end; /* between two gzip members */
    uint8_t *input;
};

ooc_status ooc_stream_open(ooc_stream **out, const ooc_stream_opts *opts, ooc_err *err)
{
    ooc_stream *s = ooc_calloc(1, sizeof *s);

    *out = NULL;
    if (s) {
        s->opts = *opts;
        s->name = ooc_strdup(opts->name);
        s->input = opts->packed ? ooc_malloc(INPUT_BYTES) : NULL;
    }
    if (!s || !s->name || (opts->packed && !s->input))
        goto no_memory;
    if (opts->packed) {
        static const int window_bits[] = {[OOC_PACKED_DEFLATE] = -MAX_WBITS,
                                          [OOC_PACKED_ZLIB] = MAX_WBITS,
                                          [OOC_PACKED_GZIP] = 16 + MAX_WBITS};

        if (inflateInit2(&s->z, window_bits[opts->packed]) != Z_OK)
            goto no_memory;
        s->z_ready = true;
    } else if (s->opts.unpacked_bytes == UINT64_MAX)
        s->opts.unpacked_bytes = opts->bytes;
    *out = s;
    return OOC_OK;
no_memory:
    ooc_stream_close(s);
    return ooc_fail(err, OOC_E_NOMEM, "%s: no memory to read it", opts->name);
}

void ooc_stream_close(ooc_stream *s)
{
    if (!s)
        return;
    if (s->z_ready)
        inflateEnd(&s->z);
    ooc_free(s->input);
    ooc_free(s->name);
    ooc_free(s);
}

double ooc_stream_done(const ooc_stream *s)
{
    uint64_t used = s->used - (s->z_ready ? s->z.avail_in : 0);

    return s->opts.bytes ? (double)used / (double)s->opts.bytes : 1;
}

static ooc_status read_input(ooc_stream *s, void *buf, size_t bytes, size_t *got, ooc_err *err)
{
    ooc_status st;

    *got = (size_t)ooc_min_u64(bytes, s->opts.bytes - s->used);
    st = ooc_sys_pread(s->opts.fd, s->name, buf, *got, s->opts.off + s->used, err);
    s->used += *got;
    return st;
}

/* Behind a gzip member: another one, zero padding, or the end. */
static ooc_status next_member(ooc_stream *s, ooc_err *err)
{
    while (s->z.avail_in && !*s->z.next_in) {
        s->z.next_in++;
        s->z.avail_in--;
    }
    if (!s->z.avail_in) {
        s->end = s->used == s->opts.bytes;
        return OOC_OK;
    }
    if (*s->z.next_in != 0x1f)
        return ooc_fail(err, OOC_E_FORMAT,
                        "%s: something that is not gzip follows the packed data at byte %llu; the "
                        "file is damaged",
                        s->name, (unsigned long long)(s->used - s->z.avail_in));
    s->member_end = false;
    return inflateReset(&s->z) == Z_OK
               ? OOC_OK
               : ooc_fail(err, OOC_E_FORMAT, "%s: cannot unpack it", s->name);
}

/* One step of unpacking into buf; *got may be 0 before the end. */
static ooc_status unpack(ooc_stream *s, void *buf, size_t bytes, size_t *got, ooc_err *err)
{
    size_t n;
    int z;

    *got = 0;
    if (!s->z.avail_in) {
        ooc_status st = read_input(s, s->input, INPUT_BYTES, &n, err);

        if (st)
            return st;
        s->z.next_in = s->input;
        s->z.avail_in = (uInt)n;
        if (s->member_end && !n) {
            s->end = true;
            return OOC_OK;
        }
        if (!n)
            return ooc_fail_at(err, OOC_E_FORMAT, s->opts.off + s->used, -1,
                               "%s: the packed data end early, after %llu unpacked bytes; the file "
                               "was cut off",
                               s->name, (unsigned long long)s->out);
    }
    if (s->member_end)
        return next_member(s, err);
    s->z.next_out = buf;
    s->z.avail_out = (uInt)ooc_min_u64(bytes, (uint64_t)1 << 30);
    n = s->z.avail_out;
    z = inflate(&s->z, Z_NO_FLUSH);
    *got = n - s->z.avail_out;
    if (z == Z_STREAM_END) {
        s->member_end = s->opts.packed == OOC_PACKED_GZIP;
        s->end = !s->member_end;
        return OOC_OK;
    }
    if (z == Z_OK || z == Z_BUF_ERROR)
        return OOC_OK;
    if (z == Z_MEM_ERROR)
        return ooc_fail(err, OOC_E_NOMEM, "%s: no memory to unpack it", s->name);
    return ooc_fail_at(err, OOC_E_FORMAT, s->opts.off + s->used - s->z.avail_in, -1,
                       "%s: the packed data are damaged at byte %llu (%s)", s->name,
                       (unsigned long long)(s->opts.off + s->used - s->z.avail_in),
                       s->z.msg ? s->z.msg : "wrong checksum");
}

static ooc_status check_end(const ooc_stream *s, ooc_err *err)
{
    if (s->opts.unpacked_bytes != UINT64_MAX && s->out != s->opts.unpacked_bytes)
        return ooc_fail(
            err, OOC_E_FORMAT, "%s: holds %llu bytes where %llu were promised; the file is damaged",
            s->name, (unsigned long long)s->out, (unsigned long long)s->opts.unpacked_bytes);
    if (s->opts.has_crc && s->crc != s->opts.crc)
        return ooc_fail(err, OOC_E_FORMAT,
                        "%s: wrong checksum: %08x, expected %08x; the file is "
                        "damaged",
                        s->name, s->crc, s->opts.crc);
    return OOC_OK;
}

ooc_status ooc_stream_read(ooc_stream *s, void *buf, size_t bytes, size_t *got, ooc_err *err)
{
    uint8_t *to = buf;

    *got = 0;
    while (*got < bytes && !s->end) {
        size_t n;
        ooc_status st = s->opts.packed ? unpack(s, to + *got, bytes - *got, &n, err)
                                       : read_input(s, to + *got, bytes - *got, &n, err);

        if (st)
            return st;
        if (s->opts.has_crc)
            s->crc = (uint32_t)crc32_z(s->crc, to + *got, n);
        *got += n;
        s->out += n;
        if (!s->opts.packed && s->used == s->opts.bytes)
            s->end = true;
        if (s->out > s->opts.unpacked_bytes) /* a bomb must not be unpacked to its end */
            s->end = true;
        if (s->end) {
            st = check_end(s, err);
            if (st)
                return st;
        }
    }
    return OOC_OK;
}

ooc_status ooc_stream_read_all(ooc_stream *s, void *buf, size_t bytes, ooc_err *err)
{
    size_t got;
    ooc_status st = ooc_stream_read(s, buf, bytes, &got, err);

    if (st || got == bytes)
        return st;
    return ooc_fail(err, OOC_E_FORMAT, "%s: ends after %llu bytes, %zu more were expected", s->name,
                    (unsigned long long)s->out, bytes - got);
}

ooc_status ooc_stream_drain(ooc_stream *s, ooc_err *err)
{
    uint8_t rest[16384];
    size_t got;
    ooc_status st;

    do
        st = ooc_stream_read(s, rest, sizeof rest, &got, err);
    while (!st && got);
    return st;
}
