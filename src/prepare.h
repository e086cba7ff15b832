/* prepare.h - make a stored tile ready for kernels on the pool's threads: checksums, decoding.
 *
 * Memory: none of its own; scratch comes from the engine. One preparation at a time. */
#ifndef OOC_SRC_PREPARE_H
#define OOC_SRC_PREPARE_H

#include "src/engine_private.h"

typedef struct {
    ooc_stored_tile tile;
    void *block; /* where the kernel form goes; NULL: a raw tile is checked in place */
    char *scratch;
    uint64_t scratch_bytes; /* a thread */
    atomic_bool failed;     /* the first failure has claimed `err` */
    ooc_err err;
} ooc_prepare;

/* Check the directory of tile k, whose stored bytes are at `stored`. block is NULL afterwards. */
ooc_status ooc_prepare_open(ooc_prepare *p, ooc_engine *e, uint64_t k, const void *stored,
                            ooc_err *err);
/* Let a job of a host-visible device do it. */
void ooc_prepare_hook(ooc_prepare *p, ooc_tile_job *job);
/* Do it now. */
ooc_status ooc_prepare_all(ooc_prepare *p, ooc_pool *pool, ooc_err *err);
#endif
