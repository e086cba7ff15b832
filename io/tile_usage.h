/* tile_usage.h - what the bytes of a tile store are spent on. For tile-info and benches. */
#ifndef OOC_IO_TILE_USAGE_H
#define OOC_IO_TILE_USAGE_H

#include "io/tile_format.h"
#include "io/tile_store.h"

typedef enum {
    OOC_USE_SEGMENTS, /* rows, panels and lengths of segments */
    OOC_USE_COLUMNS,
    OOC_USE_VALUES,
    OOC_N_USES
} ooc_use;

typedef struct {
    uint64_t kernel_tiles;                           /* in KERNEL layout */
    uint64_t directories;                            /* bytes, padding before the data included */
    uint64_t padding;                                /* behind tiles */
    uint64_t stored[OOC_N_USES][OOC_N_PIECE_CODECS]; /* bytes by codec; KERNEL tiles are raw */
    uint64_t plain[OOC_N_USES];                      /* what these bytes decode to */
} ooc_store_usage;

/* Read the directory of tile k and add it up. OOC_E_IO, OOC_E_FORMAT, OOC_E_NOMEM. */
ooc_status ooc_store_add_usage(const ooc_store *s, uint64_t k, ooc_store_usage *u, ooc_err *err);
#endif
