/* tile_plan.h - how a block of CSR rows becomes a tile: chunks, panels, runs. Inner part of the
 * writer. */
#ifndef OOC_IO_TILE_PLAN_H
#define OOC_IO_TILE_PLAN_H

#include "base/parallel.h"
#include "io/tile_format.h"
#include "io/tile_writer.h"

/* The writer aims at chunks of these sizes in kernel form; rows are never cut. */
#define OOC_CHUNK_BYTES     (1u << 20)
#define OOC_MIN_CHUNK_BYTES (128u << 10)
/* Chunks with more entries (one long row) are written in kernel layout: this bounds the encoder's
 * memory. */
#define OOC_ENCODE_ENTRIES (1u << 18)

typedef struct {
    uint64_t n_cols;
    uint32_t panel_columns, n_all_panels; /* of the matrix */
    ooc_dtype vtype;                      /* of the store */
    uint32_t *row_segs;                   /* [OOC_MAX_TILE_ROWS] segments that no panel pairs */
    uint32_t *panel_index; /* [n_all_panels] place in the list; scratch between tiles */
    /* results for the tile at hand */
    ooc_tile_counts n;
    double constant;
    bool rows_possible; /* fits the limits of the ROWS layout and of the encoder */
    uint32_t max_chunk_entries, max_chunk_segments, max_chunk_rows;
    uint8_t *head; /* the kernel form's arrays before seg_row */
    uint64_t head_room;
    const uint32_t *chunk_row, *panel_id, *len_base, *seg_off, *ent_off; /* in head */
} ooc_tile_plan;

ooc_status ooc_tile_plan_init(ooc_tile_plan *p, const ooc_tile_writer_opts *o, ooc_err *err);
void ooc_tile_plan_free(ooc_tile_plan *p);
/* OOC_E_ARG if `rows` breaks its contract (tile_writer.h). */
ooc_status ooc_tile_plan_make(ooc_tile_plan *p, const ooc_csr_rows *rows, ooc_pool *pool,
                              ooc_err *err);
uint32_t ooc_tile_plan_chunk_segments(const ooc_tile_plan *p, uint32_t chunk);
/* Bounds for any tile of so many rows, entries and segments: panels and chunks, nothing else. */
ooc_tile_counts ooc_tile_plan_bound(const ooc_tile_writer_opts *o, uint32_t n_rows,
                                    uint64_t n_entries, uint64_t n_segments);
/* What a plan takes whatever the tiles. */
uint64_t ooc_tile_plan_fixed_bytes(const ooc_tile_writer_opts *o);

/* The columns of one row, panel by panel. */
typedef struct {
    const uint32_t *col;
    uint32_t n, panel_columns;
    uint32_t begin, end; /* the part at hand: entries of the row */
    uint32_t panel;      /* its panel's number in the matrix */
} ooc_row_parts;

static inline ooc_row_parts ooc_row_parts_of(const ooc_csr_rows *rows, uint32_t r,
                                             uint32_t panel_columns)
{
    uint64_t at = rows->row_off[r] - rows->row_off[0];

    return (ooc_row_parts){.col = rows->col + at,
                           .n = (uint32_t)(rows->row_off[r + 1] - rows->row_off[r]),
                           .panel_columns = panel_columns};
}

static inline bool ooc_row_parts_next(ooc_row_parts *p)
{
    uint64_t limit;
    uint32_t i = p->end;

    if (i == p->n)
        return false;
    p->begin = i;
    p->panel = p->col[i] / p->panel_columns;
    limit = ((uint64_t)p->panel + 1) * p->panel_columns;
    while (++i < p->n && p->col[i] < limit)
        ;
    p->end = i;
    return true;
}
#endif
