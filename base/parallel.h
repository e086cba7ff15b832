/* parallel.h - the one compute pool: run n tasks on the pool's threads.
 *
 * Body: OpenMP, because oneDNN brings the same libgomp and a second pool would fight it for the
 * cores; pthreads where OOC_PARALLEL_PTHREADS is 1 (the thread sanitizer does not know libgomp).
 * Which thread runs which task is not fixed; results must not depend on it. */
#ifndef OOC_BASE_PARALLEL_H
#define OOC_BASE_PARALLEL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ooc_pool ooc_pool;

/* `task` runs over 0..n_tasks-1, `thread` over 0..n_threads-1 (for per-thread scratch). */
typedef void (*ooc_task_fn)(void *ctx, uint32_t task, uint32_t thread);

/* n_threads 0: the processors that this process may use. NULL: no memory. The caller frees it. */
ooc_pool *ooc_pool_new(uint32_t n_threads);
void ooc_pool_free(ooc_pool *pool); /* NULL is allowed */
uint32_t ooc_pool_threads(const ooc_pool *pool);

/* Returns when all tasks have run. Tasks are handed out in ascending order. No allocation. Not
 * re-entrant: a task must not call it, and one pool serves one caller at a time. */
void ooc_parallel_for(ooc_pool *pool, uint32_t n_tasks, ooc_task_fn fn, void *ctx);

#ifdef __cplusplus
}
#endif
#endif
