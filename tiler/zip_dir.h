/* zip_dir.h - what is in a zip file, and its members as byte streams. Zip64; stored and deflated.
 *
 * The directory is checked against the file's size; checksums are verified by the streams.
 * Memory: the directory (about 100 bytes a member), taken at open. */
#ifndef OOC_TILER_ZIP_DIR_H
#define OOC_TILER_ZIP_DIR_H

#include "tiler/byte_stream.h"

typedef struct {
    const char *name;
    uint64_t packed_bytes, unpacked_bytes;
    uint64_t header_off; /* of the local header */
    uint32_t crc;
    uint16_t method; /* 0: stored, 8: deflated */
    bool encrypted;
} ooc_zip_member;

typedef struct ooc_zip ooc_zip;

ooc_status ooc_zip_open(ooc_zip **out, const char *path, ooc_err *err);
void ooc_zip_close(ooc_zip *z); /* NULL is allowed; after all its streams */
const char *ooc_zip_path(const ooc_zip *z);
uint64_t ooc_zip_count(const ooc_zip *z);
const ooc_zip_member *ooc_zip_at(const ooc_zip *z, uint64_t i);
const ooc_zip_member *ooc_zip_find(const ooc_zip *z, const char *name); /* NULL: not there */
uint64_t ooc_zip_memory(const ooc_zip *z);

ooc_status ooc_zip_stream(ooc_stream **out, const ooc_zip *z, const ooc_zip_member *m,
                          ooc_err *err);
/* Where a stored member's bytes stand, for reading out of order: *fd stays the zip's.
 * OOC_E_UNSUPPORTED where it is deflated. */
ooc_status ooc_zip_stored_range(const ooc_zip *z, const ooc_zip_member *m, int *fd, uint64_t *off,
                                ooc_err *err);
#endif
