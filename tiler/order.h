/* order.h - entries in any order in, entries in row order out, within a fixed area of memory.
 *
 * Keys are row << col_bits | column of the converted matrix. Entries collect in the area. When it
 * is full, what is settled (see reader.h) goes on, sorted; where nothing is settled, the area is
 * sorted and spilled to a temporary file, and all is merged at the end. Values of the same place
 * stand next to each other in what comes out; adding them is the sink's work. */
#ifndef OOC_TILER_ORDER_H
#define OOC_TILER_ORDER_H

#include "tiler/reader.h"
#include "tiler/spill.h"

/* What becomes of complex values. STACK: [Re -Im; Im Re], 2M x 2N. */
typedef enum {
    OOC_PART_NONE = 0, /* complex matrices are refused */
    OOC_PART_REAL,
    OOC_PART_IMAG,
    OOC_PART_ABS,
    OOC_PART_STACK
} ooc_part;

typedef struct {
    const ooc_source_info *source; /* of the matrix as it is in the file; stays the caller's */
    bool transpose;
    ooc_part part;
    bool wide; /* values as doubles */
    bool allow_nonfinite;
    uint64_t area_bytes;
    const char *tmp_dir;
    const char *name; /* of the input, for messages */
    ooc_entry_sink sink;
    void *sink_ctx;
    ooc_watch watch;
} ooc_order_opts;

typedef struct ooc_order ooc_order;

/* The shape after --part and --transpose. False: a dimension exceeds 64 bits. */
bool ooc_order_shape(const ooc_order_opts *opts, uint64_t *n_rows, uint64_t *n_cols);
/* Bits of a column in a key, for n_cols columns. */
int ooc_order_col_bits(uint64_t n_cols);
/* Bytes of area that one entry takes. */
uint64_t ooc_order_entry_bytes(bool wide);

ooc_status ooc_order_open(ooc_order **out, const ooc_order_opts *opts, ooc_pool *pool,
                          ooc_err *err);
void ooc_order_close(ooc_order *o); /* NULL is allowed */
ooc_status ooc_order_push(ooc_order *o, const ooc_batch *batch, ooc_err *err);
ooc_status ooc_order_finish(ooc_order *o, ooc_err *err);
uint64_t ooc_order_spilled_bytes(const ooc_order *o);
uint64_t ooc_order_entries(const ooc_order *o); /* pushed so far, duplicates counted */
#endif
