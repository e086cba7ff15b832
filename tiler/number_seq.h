/* number_seq.h - a sequence of numbers of any stored type, read front to back as indices or values.
 *
 * Readers make one from a byte stream (or fill in their own `read`), and give it to the sources of
 * index_sources.h. Memory: OOC_SEQ_MEMORY each. */
#ifndef OOC_TILER_NUMBER_SEQ_H
#define OOC_TILER_NUMBER_SEQ_H

#include "tiler/byte_stream.h"

typedef enum {
    OOC_ELEM_BOOL,
    OOC_ELEM_I8,
    OOC_ELEM_U8,
    OOC_ELEM_I16,
    OOC_ELEM_U16,
    OOC_ELEM_I32,
    OOC_ELEM_U32,
    OOC_ELEM_I64,
    OOC_ELEM_U64,
    OOC_ELEM_F16,
    OOC_ELEM_BF16,
    OOC_ELEM_F32,
    OOC_ELEM_F64,
    OOC_ELEM_C64, /* two floats */
    OOC_ELEM_C128
} ooc_elem;

uint32_t ooc_elem_bytes(ooc_elem e);
const char *ooc_elem_name(ooc_elem e); /* "int32" */
bool ooc_elem_is_index(ooc_elem e);    /* whole numbers, to be kept exactly; bool not */
bool ooc_elem_is_complex(ooc_elem e);
bool ooc_elem_is_wide(ooc_elem e); /* float does not hold every value exactly */
/* kind 'f', 'i', 'u', 'b', 'c' and item size, as .npy has them; false: not one of ours. */
bool ooc_elem_from_kind(char kind, uint32_t item_bytes, ooc_elem *out);

#define OOC_SEQ_BUFFER ((size_t)64 << 10)
#define OOC_SEQ_MEMORY (OOC_SEQ_BUFFER + OOC_STREAM_MEMORY)

typedef struct ooc_seq ooc_seq;
struct ooc_seq {
    ooc_elem elem;
    bool swap; /* stored in the other byte order */
    uint64_t n_items, at;
    char *name; /* for messages; owned */
    void *buffer;
    void *ctx;
    /* Exactly n items as stored, into buf. */
    ooc_status (*read)(void *ctx, void *buf, size_t n, ooc_err *err);
    /* Check what can be checked once all was read; may be NULL. */
    ooc_status (*finish)(void *ctx, ooc_err *err);
    double (*done)(const void *ctx); /* may be NULL */
    void (*close)(void *ctx);
};

/* Without a `read` yet: for readers with their own. NULL: no memory. */
ooc_seq *ooc_seq_new(const char *name, ooc_elem elem, uint64_t n_items);
/* Items from here on in `stream`, which becomes the sequence's, also on failure. */
ooc_status ooc_seq_from_stream(ooc_seq **out, ooc_stream *stream, const char *name, ooc_elem elem,
                               bool swap, uint64_t n_items, ooc_err *err);
void ooc_seq_close(ooc_seq *s); /* NULL is allowed */

/* The next n numbers (at most n_items - at) as indices: OOC_E_FORMAT where one is negative. */
ooc_status ooc_seq_read_index(ooc_seq *s, uint64_t *out, size_t n, ooc_err *err);
/* ... as values; im may be NULL unless complex. OOC_E_ARG where a double cannot hold an integer. */
ooc_status ooc_seq_read_value(ooc_seq *s, double *re, double *im, size_t n, ooc_err *err);
ooc_status ooc_seq_skip(ooc_seq *s, uint64_t n, ooc_err *err);
/* Skip the rest and verify. */
ooc_status ooc_seq_finish(ooc_seq *s, ooc_err *err);
#endif
