#include "io/tile_reader.h"
#include "io/reader_engine.h"
#include "io/sys.h"
#include "base/alloc.h"
#include "base/checked.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define PAGE                  4096u
#define DEFAULT_REQUEST_BYTES (4u << 20)

void ooc_reader_warn(const ooc_reader *r, const char *fmt, ...)
{
    char text[300], line[600];
    va_list ap;

    if (!r->opts.warn)
        return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    snprintf(line, sizeof line, "%.250s: %s", r->path, text);
    r->opts.warn(r->opts.warn_ctx, line);
}

/* O_DIRECT needs a second descriptor; between the two opens the name may have been given to another
 * file, and tiles of one must not be mixed with the index of the other. */
static ooc_status open_direct(ooc_reader *r, ooc_err *err)
{
    struct stat mine, theirs;
    ooc_err why;

    if (r->opts.no_direct)
        return OOC_OK;
    if (ooc_sys_open(&r->direct_fd, r->path, O_RDONLY | O_DIRECT, &why)) {
        r->direct_fd = -1;
        if (why.sys != EINVAL && why.sys != EOPNOTSUPP) {
            if (err)
                *err = why;
            return why.code;
        }
        ooc_reader_warn(r, "the file system refuses O_DIRECT; reading through the page cache");
        return OOC_OK;
    }
    if (fstat(r->fd, &mine) != 0 || fstat(r->direct_fd, &theirs) != 0)
        return ooc_fail_errno(err, OOC_E_IO, "%s: fstat", r->path);
    if (mine.st_dev != theirs.st_dev || mine.st_ino != theirs.st_ino)
        return ooc_fail(err, OOC_E_IO, "%s: replaced while it was being opened; try again",
                        r->path);
    return OOC_OK;
}

static ooc_status start_engine(ooc_reader *r, ooc_err *err)
{
    ooc_err why;
    ooc_status st;

    if (r->opts.kind == OOC_READER_PREAD)
        return ooc_reader_pread_start(r, err);
    st = ooc_reader_uring_start(r, &why);
    if (st == OOC_E_UNSUPPORTED && r->opts.kind == OOC_READER_AUTO) {
        ooc_reader_warn(r, "%s; reading with pread threads", why.text);
        return ooc_reader_pread_start(r, err);
    }
    if (st && err)
        *err = why;
    return st;
}

ooc_status ooc_reader_open(ooc_reader **out, const char *path, int fd, const ooc_reader_opts *opts,
                           ooc_err *err)
{
    ooc_reader *r = ooc_calloc(1, sizeof *r);
    ooc_status st;

    *out = NULL;
    if (!r)
        return ooc_fail(err, OOC_E_NOMEM, "%s: no memory for a reader", path);
    assert(opts->max_in_flight >= 1 && opts->max_in_flight <= OOC_READER_MAX_IN_FLIGHT);
    r->opts = *opts;
    if (!r->opts.request_bytes)
        r->opts.request_bytes = DEFAULT_REQUEST_BYTES;
    r->fd = fd;
    r->direct_fd = -1;
    r->path = ooc_strdup(path);
    if (!r->path) {
        st = ooc_fail(err, OOC_E_NOMEM, "%s: no memory for a reader", path);
        goto out;
    }
    st = open_direct(r, err);
    if (st)
        goto out;
    st = start_engine(r, err);
    if (st)
        goto out;
    r->info.direct = r->direct_fd >= 0;
    *out = r;
    r = NULL;
out:
    ooc_reader_close(r);
    return st;
}

void ooc_reader_close(ooc_reader *r)
{
    if (!r)
        return;
    if (r->ops) {
        ooc_reader_drain(r);
        r->ops->close(r);
    }
    ooc_sys_close(r->direct_fd);
    ooc_free(r->path);
    ooc_free(r);
}

static ooc_flight *flight_at(ooc_reader *r, uint64_t i)
{
    return &r->flights[i % OOC_READER_MAX_IN_FLIGHT];
}

bool ooc_flight_next(ooc_reader *r, ooc_piece *piece)
{
    ooc_flight *f;

    while (r->next < r->tail && flight_at(r, r->next)->given == flight_at(r, r->next)->read.bytes)
        r->next++;
    if (r->next == r->tail)
        return false;
    f = flight_at(r, r->next);
    piece->flight = f;
    piece->off = f->given;
    piece->end = ooc_min_u64(f->read.bytes, f->given + f->piece_bytes);
    piece->buffered = false;
    f->given = piece->end;
    return true;
}

static void piece_failed(ooc_piece *piece, int sys, bool cut)
{
    ooc_flight *f = piece->flight;

    if (!f->sys && !f->cut) {
        f->sys = sys;
        f->cut = cut;
        f->bad_off = f->read.file_off + piece->off;
    }
}

bool ooc_flight_done(ooc_reader *r, ooc_piece *piece, int64_t res)
{
    uint64_t begun = piece->off;

    if (res == -EINTR || res == -EAGAIN)
        return true;
    if (res == -EINVAL && r->direct_fd >= 0 && !piece->buffered) {
        /* Opened with O_DIRECT, but not readable like that (block size, file system). */
        if (r->info.direct)
            ooc_reader_warn(r, "O_DIRECT reads fail here; reading through the page cache");
        r->info.direct = false;
        piece->buffered = true;
        return true;
    }
    if (res > 0) {
        piece->off += ooc_min_u64((uint64_t)res, piece->end - piece->off);
        if (piece->off < piece->end) {
            piece->buffered = true;
            piece->flight->finished += piece->off - begun;
            return true;
        }
    } else {
        piece_failed(piece, (int)-res, res == 0);
    }
    piece->flight->finished += piece->end - begun;
    return false;
}

void ooc_flight_add(ooc_reader *r, const ooc_tile_read *read)
{
    ooc_flight *f = flight_at(r, r->tail);
    uint64_t share =
        ooc_round_up((read->bytes + OOC_READER_MAX_PIECES - 1) / OOC_READER_MAX_PIECES, PAGE);

    if (r->next < r->head)
        r->next = r->head;
    memset(f, 0, sizeof *f);
    f->read = *read;
    f->piece_bytes = ooc_max_u64(ooc_round_up(r->opts.request_bytes, PAGE), share);
    r->tail++;
}

void ooc_reader_submit(ooc_reader *r, const ooc_tile_read *read)
{
    assert(ooc_reader_in_flight(r) < r->opts.max_in_flight);
    assert(read->bytes <= r->opts.max_bytes && (uintptr_t)read->dst % PAGE == 0);
    r->ops->submit(r, read);
}

ooc_status ooc_reader_wait(ooc_reader *r, ooc_err *err)
{
    ooc_flight *f = flight_at(r, r->head);
    ooc_status st = OOC_OK;

    assert(r->head < r->tail);
    r->ops->wait(r, f);
    if (f->cut) {
        st = ooc_fail_at(err, OOC_E_FORMAT, f->bad_off, (int64_t)f->read.tile,
                         "%s: cut off at byte %" PRIu64 " inside tile %" PRIu64 " (bytes %" PRIu64
                         " to %" PRIu64 ")",
                         r->path, f->bad_off, f->read.tile, f->read.file_off,
                         f->read.file_off + f->read.bytes);
    } else if (f->sys) {
        errno = f->sys;
        st = ooc_fail_errno(err, OOC_E_IO, "%s: read of tile %" PRIu64 " at byte %" PRIu64, r->path,
                            f->read.tile, f->bad_off);
        if (err) {
            err->offset = f->bad_off;
            err->tile = (int64_t)f->read.tile;
        }
    }
    r->head++;
    return st;
}

uint32_t ooc_reader_in_flight(const ooc_reader *r)
{
    return (uint32_t)(r->tail - r->head);
}

void ooc_reader_drain(ooc_reader *r)
{
    while (ooc_reader_in_flight(r))
        (void)ooc_reader_wait(r, NULL);
}

void ooc_reader_get_info(const ooc_reader *r, ooc_reader_info *out)
{
    *out = r->info;
}
