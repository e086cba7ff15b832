/* mtx_header.h - the head of a Matrix Market file: banner, comments, size line. */
#ifndef OOC_TILER_MTX_HEADER_H
#define OOC_TILER_MTX_HEADER_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum { OOC_MTX_REAL, OOC_MTX_INTEGER, OOC_MTX_PATTERN, OOC_MTX_COMPLEX } ooc_mtx_field;
typedef enum {
    OOC_MTX_GENERAL,
    OOC_MTX_SYMMETRIC,
    OOC_MTX_SKEW,
    OOC_MTX_HERMITIAN
} ooc_mtx_symmetry;

typedef struct {
    bool array; /* dense values by columns; else coordinate */
    ooc_mtx_field field;
    ooc_mtx_symmetry symmetry;
    uint64_t n_rows, n_cols;
    uint64_t n_lines;      /* data lines that must follow */
    uint64_t header_lines; /* lines up to and with the size line */
    size_t header_bytes;   /* text behind this is data */
} ooc_mtx_header;

const char *ooc_mtx_field_name(ooc_mtx_field field); /* "real" */

/* Parse the head in text[0..bytes), which is followed by a line end and OOC_TEXT_SLACK bytes.
 * `whole`: the text is all of the file. *need_more: the size line isn't in the text yet.
 * OOC_E_FORMAT names the line. */
ooc_status ooc_mtx_header_parse(ooc_mtx_header *out, const char *text, size_t bytes, bool whole,
                                const char *name, bool *need_more, ooc_err *err);
#endif
