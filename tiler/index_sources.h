/* index_sources.h - sources made of number sequences: compressed (CSR, CSC), triples (COO), dense.
 *
 * What most formats hold, whatever their container: a reader finds the sequences and the shape.
 * Memory: the sequences' and, for compressed ones, a block of pointers. */
#ifndef OOC_TILER_INDEX_SOURCES_H
#define OOC_TILER_INDEX_SOURCES_H

#include "tiler/number_seq.h"
#include "tiler/reader.h"

typedef struct {
    const char *name; /* for messages; copied */
    uint64_t n_rows, n_cols;
    bool by_columns;   /* compressed: CSC */
    ooc_seq *ptr;      /* compressed: n_rows + 1 (by_columns: n_cols + 1) places; else NULL */
    ooc_seq *row;      /* triples only */
    ooc_seq *col;      /* compressed: the other index */
    ooc_seq *val;      /* NULL: every value is 1 */
    bool exact_length; /* compressed: the last pointer must be the number of entries */
    /* What the sequences stand in (a zip file); closed after them. Both may be NULL. */
    void *container;
    void (*close_container)(void *container);
    uint64_t container_bytes; /* its memory */
} ooc_index_parts;

/* Everything in *parts becomes the source's, also on failure. */
ooc_status ooc_compressed_source(ooc_source **out, const ooc_index_parts *parts, ooc_err *err);
ooc_status ooc_triple_source(ooc_source **out, const ooc_index_parts *parts, ooc_err *err);
/* Dense values in `val`, row by row (by_columns: column by column); zeros are no entries. */
ooc_status ooc_dense_source(ooc_source **out, const ooc_index_parts *parts, ooc_err *err);
/* For readers that fail before they have a source. */
void ooc_index_parts_close(const ooc_index_parts *parts);

/* Entries 0..n-1 of the batch as pieces. */
void ooc_batch_cut(ooc_batch *b, uint32_t n);
#endif
