/* engine.h - the pass: tiles stream from a store through slots to a device, and what is done with
 * each.
 *
 * This is what ooc_matrix (streamtrain.h) is made of, for callers inside src/ that share a device's
 * budget with it: the trainer plans its model and the engine together, opens one arena, and lets
 * both take their parts.
 *
 *     ooc_engine_open(&e, path, &opts, err);         store, device, threads; no slot yet
 *     ooc_engine_plan(e, &vram, &ram);               adds the smallest workable parts to both plans
 *     ... others add theirs; compare with the budgets; open arenas of the budgets' sizes ...
 *     ooc_engine_start(e, vram_arena, ram_arena, err);  takes the parts, then what is left of both
 * arenas for more slots and resident tiles
 *
 * Everybody else must have taken from the arenas before start: the engine keeps what is left.
 * Memory:  all of it from the two arenas, but for the store's index and small structs taken at
 * open. Threads: one engine serves one thread at a time. Inside a pass nothing is allocated, opened
 * or created. */
#ifndef OOC_SRC_ENGINE_H
#define OOC_SRC_ENGINE_H

#include "src/arena.h"
#include "src/streamtrain.h"

#include "base/parallel.h"

typedef struct ooc_engine ooc_engine;
struct ooc_device; /* src/device.h */

ooc_status ooc_engine_open(ooc_engine **out, const char *path, const ooc_matrix_opts *opts,
                           ooc_err *err);
/* Ends what start began: nothing uses the arenas any more. For callers whose arena lies in a block
 * of the engine's own device; start cannot follow. NULL is allowed. */
void ooc_engine_stop(ooc_engine *e);
void ooc_engine_close(ooc_engine *e); /* stops, too; before the arenas; NULL is allowed */

/* On a device that the caller opened and closes after the engine (tests). */
ooc_status ooc_engine_open_on(ooc_engine **out, const char *path, const ooc_matrix_opts *opts,
                              struct ooc_device *device, ooc_err *err);

/* The smallest workable parts for calls of opts.max_batch columns: on the device tile slots and the
 * blocks of rows that a visit works on (and X and G, where the device cannot use the callers'), and
 * in RAM the I/O slots with their scratch. */
void ooc_engine_plan(const ooc_engine *e, ooc_plan *vram, ooc_plan *ram);
/* What would make the plan smaller, for ooc_plan_refuse(): names the largest tile, or the row that
 * alone makes it so large. */
void ooc_engine_advice(const ooc_engine *e, char *out, size_t bytes);
ooc_status ooc_engine_start(ooc_engine *e, ooc_arena *vram, ooc_arena *ram, ooc_err *err);

/* As the calls of the same name in streamtrain.h. */
ooc_status ooc_engine_forward(ooc_engine *e, uint32_t B, const ooc_array *X, const ooc_array *Y,
                              ooc_err *err);
ooc_status ooc_engine_adjoint(ooc_engine *e, uint32_t B, const ooc_array *R, const ooc_array *G,
                              ooc_err *err);
ooc_status ooc_engine_step(ooc_engine *e, uint32_t B, const ooc_array *X, const ooc_array *T,
                           const ooc_loss_opts *loss, const ooc_array *Y, const ooc_array *G,
                           double *loss_out, ooc_err *err);
void ooc_engine_get_shape(const ooc_engine *e, ooc_matrix_shape *out);
void ooc_engine_get_stats(const ooc_engine *e, ooc_matrix_stats *out);
void ooc_engine_reset_stats(ooc_engine *e);
void ooc_engine_interrupt(ooc_engine *e);
/* Read the first tiles of the next pass already at the end of a pass, while the caller does
 * something else. Off at first: a last pass would read in vain. */
void ooc_engine_prefetch(ooc_engine *e, bool on);
const ooc_matrix_opts *ooc_engine_opts(const ooc_engine *e); /* with the defaults filled in */
ooc_pool *ooc_engine_pool(ooc_engine *e); /* the one compute pool, for the trainer too */
struct ooc_device *ooc_engine_device(ooc_engine *e);
#endif
