/* loader.h - batches of samples, read ahead by a thread into slots of the RAM budget.
 *
 * Batch s of an epoch holds the samples order[s*B] .. order[s*B + B-1], the last one what is left.
 * With shuffling the order of epoch e is ooc_rng_shuffle() from ooc_rng_seed(seed, 1 + e), else it
 * is 0, 1, 2, ... (docs/model.md shows both in Python). So a batch follows from its number alone.
 * Memory:  from the arena, as planned; nothing is allocated while it runs.
 * Threads: one reader thread of its own; the caller is one thread. */
#ifndef OOC_SRC_TRAIN_LOADER_H
#define OOC_SRC_TRAIN_LOADER_H

#include "src/arena.h"
#include "src/train/sample_file.h"

#include <stdbool.h>

/* What a sample has: inputs; targets (NULL: the inputs); weights of its own (NULL: none). */
typedef struct {
    const ooc_sample_file *input, *target, *weight;
} ooc_sample_set;

typedef struct {
    uint64_t epoch; /* from 0 */
    uint32_t n;     /* samples, 1..B */
    const uint32_t *number;
    const void *input, *target, *weight; /* raw, n samples each; NULL as in the set */
} ooc_batch;

typedef struct ooc_loader ooc_loader;

/* Batches of `batch` samples of any of these sets will be asked for. */
ooc_status ooc_loader_open(ooc_loader **out, uint32_t batch, const ooc_sample_set *sets,
                           uint32_t n_sets, ooc_err *err);
void ooc_loader_plan(const ooc_loader *l, ooc_plan *ram);
ooc_status ooc_loader_start(ooc_loader *l, ooc_arena *ram, ooc_err *err);
void ooc_loader_close(ooc_loader *l); /* NULL is allowed; ends the thread; before the arena */

typedef struct {
    const ooc_sample_set *set; /* must outlive the run */
    bool shuffle;
    uint64_t seed;
    uint64_t first, n; /* batches: numbers counted through all epochs */
} ooc_loader_run;

/* Begin (or begin anew): batches first, first + 1, ... are read ahead. */
void ooc_loader_begin(ooc_loader *l, const ooc_loader_run *run);
/* The next batch; valid until the next call. After the run's last one: OOC_E_ARG. */
ooc_status ooc_loader_next(ooc_loader *l, ooc_batch *out, ooc_err *err);

/* Batches of one epoch. */
static inline uint64_t ooc_batches_of(uint64_t n_samples, uint32_t batch)
{
    return (n_samples + batch - 1) / batch;
}
#endif
