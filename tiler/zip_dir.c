#include "tiler/zip_dir.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "io/sys.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

enum {
    LOCAL_BYTES = 30,
    CENTRAL_BYTES = 46,
    END_BYTES = 22,
    END64_BYTES = 56,
    LOCATOR64_BYTES = 20,
    MAX_COMMENT = 65535
};

#define MAX_DIRECTORY ((uint64_t)16 << 20) /* a hostile file must not make us take more */

struct ooc_zip {
    int fd;
    char *path;
    uint64_t file_bytes;
    uint64_t n;
    ooc_zip_member *member;
    char *names;
    uint64_t names_bytes;
};

static uint16_t u16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static uint32_t u32(const uint8_t *p)
{
    return (uint32_t)u16(p) | (uint32_t)u16(p + 2) << 16;
}

static uint64_t u64(const uint8_t *p)
{
    return (uint64_t)u32(p) | (uint64_t)u32(p + 4) << 32;
}

typedef struct {
    uint64_t n, off, bytes;
} directory;

static ooc_status damaged(const ooc_zip *z, const char *what, ooc_err *err)
{
    return ooc_fail(err, OOC_E_FORMAT, "%s: %s; the zip file is damaged or was cut off", z->path,
                    what);
}

/* The zip64 end record, where the plain one at `end_off` has no room for the numbers. */
static ooc_status find_zip64(const ooc_zip *z, uint64_t end_off, directory *d, ooc_err *err)
{
    uint8_t locator[LOCATOR64_BYTES], end[END64_BYTES];
    ooc_status st;

    if (end_off < LOCATOR64_BYTES)
        return damaged(z, "its zip64 directory is missing", err);
    st = ooc_sys_pread(z->fd, z->path, locator, sizeof locator, end_off - LOCATOR64_BYTES, err);
    if (st)
        return st;
    if (u32(locator) != 0x07064b50 || !ooc_range_within(u64(locator + 8), END64_BYTES, end_off))
        return damaged(z, "its zip64 directory is missing", err);
    st = ooc_sys_pread(z->fd, z->path, end, sizeof end, u64(locator + 8), err);
    if (st)
        return st;
    if (u32(end) != 0x06064b50)
        return damaged(z, "its zip64 directory is missing", err);
    *d = (directory){u64(end + 32), u64(end + 48), u64(end + 40)};
    return OOC_OK;
}

static ooc_status find_directory(const ooc_zip *z, directory *d, ooc_err *err)
{
    uint64_t tail_bytes = ooc_min_u64(z->file_bytes, END_BYTES + MAX_COMMENT);
    uint64_t tail_off = z->file_bytes - tail_bytes;
    uint8_t *tail = ooc_malloc(tail_bytes);
    const uint8_t *end = NULL;
    ooc_status st;

    if (!tail)
        return ooc_fail(err, OOC_E_NOMEM, "%s: no memory to read it", z->path);
    st = ooc_sys_pread(z->fd, z->path, tail, tail_bytes, tail_off, err);
    for (uint64_t i = tail_bytes - END_BYTES + 1; !st && !end && i-- > 0;)
        if (u32(tail + i) == 0x06054b50 && i + END_BYTES + u16(tail + i + 20) <= tail_bytes)
            end = tail + i;
    if (!st && !end)
        st = damaged(z, "no directory at the end", err);
    if (!st) {
        uint64_t end_off = tail_off + (uint64_t)(end - tail);

        *d = (directory){u16(end + 10), u32(end + 16), u32(end + 12)};
        if (d->n == 0xffff || d->off == 0xffffffff || d->bytes == 0xffffffff)
            st = find_zip64(z, end_off, d, err);
        if (!st &&
            (!ooc_range_within(d->off, d->bytes, end_off) || d->n > d->bytes / CENTRAL_BYTES))
            st = damaged(z, "its directory does not fit the file", err);
        if (!st && d->bytes > MAX_DIRECTORY)
            st = ooc_fail(err, OOC_E_UNSUPPORTED,
                          "%s: the zip directory has %llu bytes; more than "
                          "%llu are not read",
                          z->path, (unsigned long long)d->bytes, (unsigned long long)MAX_DIRECTORY);
    }
    ooc_free(tail);
    return st;
}

/* Numbers that did not fit 32 bits stand in an extra field, in this order. */
static void read_extra(ooc_zip_member *m, const uint8_t *extra, size_t bytes)
{
    while (bytes >= 4) {
        size_t n = u16(extra + 2);

        if (n > bytes - 4)
            return;
        if (u16(extra) == 1) {
            const uint8_t *p = extra + 4;
            uint64_t *wide[] = {&m->unpacked_bytes, &m->packed_bytes, &m->header_off};

            for (int i = 0; i < 3; i++)
                if (*wide[i] == 0xffffffff && n >= 8) {
                    *wide[i] = u64(p);
                    p += 8;
                    n -= 8;
                }
            return;
        }
        extra += 4 + n;
        bytes -= 4 + n;
    }
}

static ooc_status read_members(ooc_zip *z, const uint8_t *p, const directory *d, ooc_err *err)
{
    const uint8_t *end = p + d->bytes;
    char *name = z->names;

    for (uint64_t i = 0; i < d->n; i++) {
        ooc_zip_member *m = &z->member[i];
        size_t name_bytes, extra_bytes, comment_bytes;

        if (end - p < CENTRAL_BYTES || u32(p) != 0x02014b50)
            return damaged(z, "its directory is not readable", err);
        name_bytes = u16(p + 28);
        extra_bytes = u16(p + 30);
        comment_bytes = u16(p + 32);
        if ((size_t)(end - p) < CENTRAL_BYTES + name_bytes + extra_bytes + comment_bytes)
            return damaged(z, "its directory is not readable", err);
        *m = (ooc_zip_member){.name = name,
                              .packed_bytes = u32(p + 20),
                              .unpacked_bytes = u32(p + 24),
                              .header_off = u32(p + 42),
                              .crc = u32(p + 16),
                              .method = u16(p + 10),
                              .encrypted = u16(p + 8) & 1};
        memcpy(name, p + CENTRAL_BYTES, name_bytes);
        name[name_bytes] = 0;
        name += name_bytes + 1;
        read_extra(m, p + CENTRAL_BYTES + name_bytes, extra_bytes);
        if (!ooc_range_within(m->header_off, LOCAL_BYTES, z->file_bytes) ||
            m->packed_bytes > z->file_bytes)
            return damaged(z, "a member lies outside of the file", err);
        p += CENTRAL_BYTES + name_bytes + extra_bytes + comment_bytes;
    }
    z->n = d->n;
    return OOC_OK;
}

static ooc_status read_directory(ooc_zip *z, ooc_err *err)
{
    directory d = {0};
    uint8_t *bytes = NULL;
    ooc_status st;

    if (z->file_bytes < END_BYTES)
        return damaged(z, "too short", err);
    st = find_directory(z, &d, err);
    if (st)
        return st;
    bytes = ooc_malloc(d.bytes);
    z->member = ooc_calloc(d.n, sizeof *z->member);
    z->names = ooc_malloc(d.bytes + d.n);
    z->names_bytes = d.bytes + d.n;
    if (bytes && z->member && z->names)
        st = ooc_sys_pread(z->fd, z->path, bytes, d.bytes, d.off, err);
    else
        st = ooc_fail(err, OOC_E_NOMEM, "%s: no memory for its directory", z->path);
    if (!st)
        st = read_members(z, bytes, &d, err);
    ooc_free(bytes);
    return st;
}

ooc_status ooc_zip_open(ooc_zip **out, const char *path, ooc_err *err)
{
    ooc_zip *z = ooc_calloc(1, sizeof *z);
    ooc_status st;

    *out = NULL;
    if (!z)
        return ooc_fail(err, OOC_E_NOMEM, "%s: no memory to read it", path);
    z->fd = -1;
    z->path = ooc_strdup(path);
    st = z->path ? ooc_sys_open(&z->fd, path, O_RDONLY, err)
                 : ooc_fail(err, OOC_E_NOMEM, "%s: no memory to read it", path);
    if (!st)
        st = ooc_sys_size(z->fd, path, &z->file_bytes, err);
    if (!st)
        st = read_directory(z, err);
    if (st) {
        ooc_zip_close(z);
        return st;
    }
    *out = z;
    return OOC_OK;
}

void ooc_zip_close(ooc_zip *z)
{
    if (!z)
        return;
    ooc_sys_close(z->fd);
    ooc_free(z->path);
    ooc_free(z->member);
    ooc_free(z->names);
    ooc_free(z);
}

const char *ooc_zip_path(const ooc_zip *z)
{
    return z->path;
}

uint64_t ooc_zip_count(const ooc_zip *z)
{
    return z->n;
}

const ooc_zip_member *ooc_zip_at(const ooc_zip *z, uint64_t i)
{
    return &z->member[i];
}

const ooc_zip_member *ooc_zip_find(const ooc_zip *z, const char *name)
{
    for (uint64_t i = 0; i < z->n; i++)
        if (strcmp(z->member[i].name, name) == 0)
            return &z->member[i];
    return NULL;
}

uint64_t ooc_zip_memory(const ooc_zip *z)
{
    return sizeof *z + z->n * sizeof *z->member + z->names_bytes;
}

/* Behind the local header, whose name and extra field may differ in length from the directory's. */
static ooc_status data_offset(const ooc_zip *z, const ooc_zip_member *m, uint64_t *off,
                              ooc_err *err)
{
    uint8_t local[LOCAL_BYTES];
    ooc_status st = ooc_sys_pread(z->fd, z->path, local, sizeof local, m->header_off, err);

    if (st)
        return st;
    *off = m->header_off + LOCAL_BYTES + u16(local + 26) + u16(local + 28);
    if (u32(local) != 0x04034b50 || !ooc_range_within(*off, m->packed_bytes, z->file_bytes))
        return damaged(z, "a member lies outside of the file", err);
    if (m->encrypted)
        return ooc_fail(err, OOC_E_UNSUPPORTED, "%s: %s is encrypted", z->path, m->name);
    if (m->method != 0 && m->method != 8)
        return ooc_fail(err, OOC_E_UNSUPPORTED,
                        "%s: %s is packed by method %u; only stored and deflated members are read",
                        z->path, m->name, m->method);
    if (m->method == 0 && m->packed_bytes != m->unpacked_bytes)
        return damaged(z, "a stored member has two sizes", err);
    return OOC_OK;
}

ooc_status ooc_zip_stream(ooc_stream **out, const ooc_zip *z, const ooc_zip_member *m, ooc_err *err)
{
    char name[512];
    ooc_stream_opts opts = {.fd = z->fd,
                            .name = name,
                            .bytes = m->packed_bytes,
                            .packed = m->method ? OOC_PACKED_DEFLATE : OOC_PACKED_NOT,
                            .unpacked_bytes = m->unpacked_bytes,
                            .has_crc = true,
                            .crc = m->crc};
    ooc_status st = data_offset(z, m, &opts.off, err);

    *out = NULL;
    if (st)
        return st;
    snprintf(name, sizeof name, "%s: %s", z->path, m->name);
    return ooc_stream_open(out, &opts, err);
}

ooc_status ooc_zip_stored_range(const ooc_zip *z, const ooc_zip_member *m, int *fd, uint64_t *off,
                                ooc_err *err)
{
    if (m->method)
        return ooc_fail(err, OOC_E_UNSUPPORTED, "%s: %s is packed; it must be stored plainly",
                        z->path, m->name);
    *fd = z->fd;
    return data_offset(z, m, off, err);
}
