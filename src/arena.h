/* arena.h - the budget as an account: a plan of named parts, and one block of memory that serves
 * it.
 *
 * A plan is made before anything is taken: everybody who will need memory of a device adds parts to
 * it. If its total exceeds the budget, ooc_plan_refuse() writes the one line that says which part
 * needs how many bytes. Otherwise an arena of exactly the planned size is opened and the parts are
 * taken from it; since plan and arena round alike, a take that was planned cannot fail.
 * Memory: the arena's block, plus a small table of names. Threads: one owner. */
#ifndef OOC_SRC_ARENA_H
#define OOC_SRC_ARENA_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

#define OOC_ARENA_ALIGN                                                                            \
    4096u /* every part begins on a page: O_DIRECT, registered buffers, no false sharing */
#define OOC_PLAN_MAX 64

typedef struct {
    struct {
        char what[40];
        uint64_t bytes;
    } part[OOC_PLAN_MAX];
    uint32_t n_parts;
    uint64_t total; /* of the rounded parts; UINT64_MAX once a sum has overflowed */
} ooc_plan;

/* Add `count * size` bytes, rounded up to OOC_ARENA_ALIGN, under a name that users can read ("model
 * activations"). Parts of the same name are merged. Overflow makes the total UINT64_MAX. */
void ooc_plan_add(ooc_plan *plan, const char *what, uint64_t count, uint64_t size);
/* OOC_E_BUDGET: "--vram-budget 1048576 bytes is too small: 3145728 bytes are needed (X 4096, ...);
 * hint". */
ooc_status ooc_plan_refuse(const ooc_plan *plan, const char *option, uint64_t budget,
                           const char *hint, ooc_err *err);

typedef struct ooc_arena ooc_arena;

/* Host memory of `bytes` bytes, from ooc_pages_alloc. On failure *out is NULL and err says how
 * much. */
ooc_status ooc_arena_open_host(ooc_arena **out, const char *name, uint64_t bytes, ooc_err *err);
/* Over a block that a device backend took (and gives back after close). */
ooc_status ooc_arena_open_at(ooc_arena **out, const char *name, void *base, uint64_t bytes,
                             ooc_err *err);
void ooc_arena_close(ooc_arena *a); /* NULL is allowed */

/* A part: aligned, not zeroed. OOC_E_BUDGET with the numbers where it does not fit. */
ooc_status ooc_arena_take(ooc_arena *a, const char *what, uint64_t bytes, void **out, ooc_err *err);

/* Scratch in stack order: everything taken after the mark is given back by release. */
uint64_t ooc_arena_mark(const ooc_arena *a);
void ooc_arena_release(ooc_arena *a, uint64_t mark);

uint64_t ooc_arena_size(const ooc_arena *a);
uint64_t ooc_arena_used(const ooc_arena *a);
uint64_t ooc_arena_peak(const ooc_arena *a);
uint64_t ooc_arena_free(const ooc_arena *a);
#endif
