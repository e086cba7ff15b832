/* entry_sort.h - stable parallel sort of entries by a 64-bit key (row and column in one).
 *
 * Least significant digit first, only over the bits in which the keys differ; input that is in
 * order already is recognised in one sweep and left alone.
 * Memory: the caller's second set of arrays, and a fixed table in the sorter. */
#ifndef OOC_TILER_ENTRY_SORT_H
#define OOC_TILER_ENTRY_SORT_H

#include "base/parallel.h"

#include <stdbool.h>
#include <stdint.h>

/* Keys and values of the same place; values are floats, or doubles where `wide`. */
typedef struct {
    uint64_t *key;
    void *val;
} ooc_entries;

static inline uint32_t ooc_value_bytes(bool wide)
{
    return wide ? 8 : 4;
}

/* The entries from number `i` on. */
static inline ooc_entries ooc_entries_at(ooc_entries e, uint64_t i, bool wide)
{
    ooc_entries at = {e.key + i, (char *)e.val + i * ooc_value_bytes(wide)};

    return at;
}

typedef struct ooc_sorter ooc_sorter;

/* NULL: no memory. */
ooc_sorter *ooc_sorter_new(ooc_pool *pool, bool wide);
void ooc_sorter_free(ooc_sorter *s); /* NULL is allowed */
uint64_t ooc_sorter_memory(uint32_t n_threads);

/* Sort the first n entries of *a, with *b as scratch of the same size. The arrays of *a and *b may
 * be exchanged: afterwards *a is the sorted one. */
void ooc_sorter_sort(ooc_sorter *s, ooc_entries *a, ooc_entries *b, uint64_t n);
#endif
