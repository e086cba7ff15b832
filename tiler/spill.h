/* spill.h - sorted runs of entries in an unnamed temporary file, and merging them.
 *
 * The file has no name from the start (or loses it at once), so nothing is left behind however the
 * process ends.
 * Memory: 24 bytes a run; merging works in the area that the caller gives. */
#ifndef OOC_TILER_SPILL_H
#define OOC_TILER_SPILL_H

#include "base/err.h"
#include "tiler/entry_sort.h"

typedef struct ooc_spill ooc_spill;

/* Takes sorted entries; they stay the caller's. */
typedef ooc_status (*ooc_entry_sink)(void *ctx, const ooc_entries *e, uint64_t n, ooc_err *err);

/* Both may be NULL. Asked now and then; true ends the work with OOC_E_INTERRUPTED. */
typedef struct {
    bool (*interrupted)(void *ctx);
    void (*progress)(void *ctx, double done); /* of the merge, 0..1 */
    void *ctx;
} ooc_watch;

ooc_status ooc_spill_open(ooc_spill **out, const char *dir, bool wide, ooc_err *err);
void ooc_spill_close(ooc_spill *s); /* NULL is allowed */

/* Append n >= 1 sorted entries as one run. */
ooc_status ooc_spill_write(ooc_spill *s, const ooc_entries *e, uint64_t n, ooc_err *err);
uint64_t ooc_spill_bytes(const ooc_spill *s); /* written in all, over all levels */

/* Give all entries to the sink in order of their keys; equal keys in the order of their runs as far
 * as they meet in one round. `area` has room for `capacity` entries; at least OOC_MERGE_MIN. The
 * runs are used up. */
#define OOC_MERGE_MIN 8192u
ooc_status ooc_spill_merge(ooc_spill *s, const ooc_entries *area, uint64_t capacity,
                           ooc_sorter *sorter, ooc_pool *pool, ooc_entry_sink sink, void *sink_ctx,
                           const ooc_watch *watch, ooc_err *err);

/* OOC_E_BUDGET where the file system of `dir` has less than `bytes` free. */
ooc_status ooc_spill_check_space(const char *dir, uint64_t bytes, ooc_err *err);
#endif
