/* byte_stream.h - bytes read from front to back: a range of a file, plain or packed by deflate.
 *
 * Where a checksum is known it is verified when the end is reached.
 * Memory: plain none, packed about 320 KiB. Threads: one a stream; several streams may share an fd.
 */
#ifndef OOC_TILER_BYTE_STREAM_H
#define OOC_TILER_BYTE_STREAM_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum {
    OOC_PACKED_NOT = 0,
    OOC_PACKED_DEFLATE, /* raw, as in zip files */
    OOC_PACKED_ZLIB,    /* with its checksum, as in MATLAB files */
    OOC_PACKED_GZIP     /* one or several members, each with its checksum */
} ooc_packed;

typedef struct {
    int fd;           /* stays the caller's, must stay open */
    const char *name; /* for messages; copied */
    uint64_t off, bytes;
    ooc_packed packed;
    uint64_t unpacked_bytes; /* what must come out; UINT64_MAX: not known */
    bool has_crc;
    uint32_t crc; /* CRC-32 of what comes out */
} ooc_stream_opts;

typedef struct ooc_stream ooc_stream;

#define OOC_STREAM_MEMORY ((uint64_t)320 << 10)

ooc_status ooc_stream_open(ooc_stream **out, const ooc_stream_opts *opts, ooc_err *err);
void ooc_stream_close(ooc_stream *s); /* NULL is allowed */
/* Up to `bytes`; fewer only at the end. OOC_E_FORMAT: damaged or cut. */
ooc_status ooc_stream_read(ooc_stream *s, void *buf, size_t bytes, size_t *got, ooc_err *err);
/* Exactly `bytes`, or OOC_E_FORMAT. */
ooc_status ooc_stream_read_all(ooc_stream *s, void *buf, size_t bytes, ooc_err *err);
/* Read what is left and forget it, so that the checksum is verified. */
ooc_status ooc_stream_drain(ooc_stream *s, ooc_err *err);
double ooc_stream_done(const ooc_stream *s); /* the part of the file's bytes that was used, 0..1 */
#endif
