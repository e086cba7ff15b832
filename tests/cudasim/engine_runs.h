/* engine_runs.h - a fixed piece of work for the engine on simulated cards, in several layouts. */
#ifndef OOC_TESTS_ENGINE_RUNS_H
#define OOC_TESTS_ENGINE_RUNS_H

#include "base/err.h"

#include <stdint.h>
#include <vector>

/* Where the callers' arrays are. */
enum arrays_at { ON_HOST, ON_PINNED_HOST, ON_MATRIX_DEVICE, ON_OTHER_DEVICE };

struct engine_run {
    const char *name;
    arrays_at where;
    bool no_peer;
    uint64_t vram; /* of A's device */
    bool resident; /* what fits is kept */
    bool raw;      /* tiles stand in kernel form on disk */
    bool two;      /* two passes a step */
    bool f64;
    uint32_t B, max_batch;
    bool interrupt; /* a step is stopped half way before the others */
};

extern const engine_run engine_runs[];
extern const int n_engine_runs;

/* Stores (raw and zstd) in folder `dir`, and the same matrix for the oracle. False: it failed. */
bool engine_runs_prepare(const char *dir);
void engine_runs_find(const char *dir); /* the stores are there already */

struct engine_result {
    ooc_status st;
    ooc_err err;
    std::vector<double> values; /* everything that came out, in a fixed order */
    uint64_t peak, budget;      /* of A's device */
    uint64_t n_live;            /* device objects that were not given back */
    uint64_t tiles_read, n_tiles;
};

/* Steps, products and their results. The stand-in must have been reset for it. */
engine_result engine_run_once(const engine_run &r);
/* Largest error of those values as a share of the bounds of DESIGN section 9. */
double engine_run_error(const engine_run &r, const std::vector<double> &values);

#endif
