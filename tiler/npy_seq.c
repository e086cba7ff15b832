#include "tiler/npy_seq.h"

#include "base/alloc.h"
#include "io/sys.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#define MAX_HEADER ((size_t)64 << 10)

ooc_status ooc_npy_read_header(ooc_npy *out, ooc_stream *stream, uint64_t total_bytes,
                               const char *name, ooc_err *err)
{
    uint8_t lead[12];
    size_t bytes, lead_bytes = 10;
    uint8_t *head;
    bool need_more;
    ooc_status st = ooc_stream_read_all(stream, lead, lead_bytes, err);

    if (st)
        return st;
    bytes = lead[8] | (size_t)lead[9] << 8;
    if (lead[6] > 1) { /* versions 2 and 3 have four bytes of length */
        st = ooc_stream_read_all(stream, lead + 10, 2, err);
        if (st)
            return st;
        lead_bytes = 12;
        bytes |= (size_t)lead[10] << 16 | (size_t)lead[11] << 24;
    }
    if (memcmp(lead, "\x93NUMPY", 6) != 0 || bytes > MAX_HEADER)
        return ooc_fail(err, OOC_E_FORMAT, "%s: is not an .npy array", name);
    head = ooc_malloc(lead_bytes + bytes);
    if (!head)
        return ooc_fail(err, OOC_E_NOMEM, "%s: no memory for its header", name);
    memcpy(head, lead, lead_bytes);
    st = ooc_stream_read_all(stream, head + lead_bytes, bytes, err);
    if (!st)
        st = ooc_npy_parse(out, head, lead_bytes + bytes, total_bytes, name, &need_more, err);
    ooc_free(head);
    return st;
}

/* `stream` becomes the sequence's, also on failure. */
static ooc_status seq_of(ooc_seq **out, ooc_stream *stream, uint64_t total_bytes, const char *name,
                         ooc_npy *npy, ooc_err *err)
{
    ooc_elem elem;
    ooc_status st = ooc_npy_read_header(npy, stream, total_bytes, name, err);

    if (!st && !ooc_elem_from_kind(npy->kind, npy->item_bytes, &elem))
        st = ooc_fail(err, OOC_E_UNSUPPORTED, "%s: numbers of type '%c%u' are not read", name,
                      npy->kind, npy->item_bytes);
    if (st) {
        ooc_stream_close(stream);
        return st;
    }
    return ooc_seq_from_stream(out, stream, name, elem, npy->big_endian, npy->n_items, err);
}

ooc_status ooc_npz_seq(ooc_seq **out, const ooc_zip *z, const char *name, ooc_npy *npy,
                       ooc_err *err)
{
    char member[64], full_name[512];
    const ooc_zip_member *m;
    ooc_stream *stream;
    ooc_npy own;
    ooc_status st;

    *out = NULL;
    snprintf(member, sizeof member, "%s.npy", name);
    m = ooc_zip_find(z, member);
    if (!m)
        return ooc_fail(err, OOC_E_FORMAT, "%s: has no member %s", ooc_zip_path(z), member);
    snprintf(full_name, sizeof full_name, "%s: %s", ooc_zip_path(z), member);
    st = ooc_zip_stream(&stream, z, m, err);
    if (st)
        return st;
    return seq_of(out, stream, m->unpacked_bytes, full_name, npy ? npy : &own, err);
}

ooc_status ooc_npy_file_seq(ooc_seq **out, int *fd, const char *path, ooc_err *err)
{
    ooc_stream_opts opts = {.name = path, .unpacked_bytes = UINT64_MAX};
    ooc_stream *stream;
    ooc_npy npy;
    ooc_status st = ooc_sys_open(fd, path, O_RDONLY, err);

    *out = NULL;
    if (!st)
        st = ooc_sys_size(*fd, path, &opts.bytes, err);
    opts.fd = *fd;
    if (!st)
        st = ooc_stream_open(&stream, &opts, err);
    if (!st)
        st = seq_of(out, stream, opts.bytes, path, &npy, err);
    if (st) {
        ooc_sys_close(*fd);
        *fd = -1;
    }
    return st;
}

ooc_status ooc_seq_read_few(ooc_seq *s, uint64_t *out, size_t n, ooc_err *err)
{
    ooc_status st;

    if (s->n_items != n)
        return ooc_fail(err, OOC_E_FORMAT, "%s: has %llu numbers, expected %zu", s->name,
                        (unsigned long long)s->n_items, n);
    st = ooc_seq_read_index(s, out, n, err);
    return st ? st : ooc_seq_finish(s, err);
}
