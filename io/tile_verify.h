/* tile_verify.h - read and check every byte of a tile store. */
#ifndef OOC_IO_TILE_VERIFY_H
#define OOC_IO_TILE_VERIFY_H

#include "base/parallel.h"
#include "io/tile_store.h"

/* Called after each tile; false stops with OOC_E_INTERRUPTED. */
typedef bool (*ooc_verify_progress_fn)(void *ctx, uint64_t tiles_done, uint64_t bytes_done);

/* All checksums, all decoding, all padding. Opening the store has checked its header and index.
 * Memory: the largest tile, stored and in kernel form, and scratch for each thread of the pool.
 * OOC_E_FORMAT names the first bad place; OOC_E_UNSUPPORTED, OOC_E_IO, OOC_E_NOMEM,
 * OOC_E_INTERRUPTED. `progress` may be NULL. */
ooc_status ooc_store_verify(const ooc_store *s, ooc_pool *pool, ooc_verify_progress_fn progress,
                            void *ctx, ooc_err *err);
#endif
