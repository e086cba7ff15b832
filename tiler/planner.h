/* planner.h - how a conversion spends its memory, and the sizes of tiles and panels. */
#ifndef OOC_TILER_PLANNER_H
#define OOC_TILER_PLANNER_H

#include "io/tile_writer.h"

typedef struct {
    ooc_tile_writer_opts *writer; /* shape and value type; panel_columns 0 is replaced */
    uint64_t tile_bytes;          /* 0: chosen */
    uint64_t ram_budget;
    uint64_t source_bytes; /* what the source holds */
    uint64_t max_entries;  /* of the source, OOC_ENTRIES_UNKNOWN */
    bool streams;          /* rows are finished on the way: the area needs to hold few of them */
    uint32_t min_batch;    /* of the source */
    uint32_t n_threads;
    uint32_t expand; /* entries that one entry of the source becomes (--part stack: 4) */
    bool wide;       /* entries carry doubles while they are sorted */
    bool is_complex; /* batches have imaginary parts */
} ooc_planner_request;

typedef struct {
    uint64_t tile_bytes;
    uint32_t batch_entries;
    uint64_t batch_bytes;
    uint64_t area_bytes;  /* to sort in */
    uint64_t tile_memory; /* builder and writer may take this much */
    bool may_spill;       /* all entries may not fit the area */
} ooc_memory_plan;

/* OOC_E_BUDGET with the bytes that are needed. */
ooc_status ooc_memory_plan_make(ooc_memory_plan *out, const ooc_planner_request *request,
                                ooc_err *err);
#endif
