#include "src/prepare.h"

ooc_status ooc_prepare_open(ooc_prepare *p, ooc_engine *e, uint64_t k, const void *stored,
                            ooc_err *err)
{
    p->block = NULL;
    p->scratch = e->scratch;
    p->scratch_bytes = e->scratch_bytes;
    atomic_init(&p->failed, false);
    return ooc_stored_tile_open(&p->tile, e->store, k, stored, err);
}

static bool prepare(void *ctx, uint32_t task, uint32_t thread)
{
    ooc_prepare *p = ctx;
    ooc_err err;

    if (!ooc_stored_tile_decode(&p->tile, task, p->block, p->scratch + thread * p->scratch_bytes,
                                &err))
        return true;
    if (!atomic_exchange(&p->failed, true))
        p->err = err;
    return false;
}

static ooc_status first_error(void *ctx, ooc_err *err)
{
    ooc_prepare *p = ctx;

    if (err)
        *err = p->err;
    return p->err.code;
}

void ooc_prepare_hook(ooc_prepare *p, ooc_tile_job *job)
{
    job->prepare = prepare;
    job->prepare_error = first_error;
    job->prepare_ctx = p;
    job->n_prepare = p->tile.n_tasks;
    job->prepare_by_chunk = !p->tile.info.raw;
}

static void prepare_task(void *ctx, uint32_t task, uint32_t thread)
{
    ooc_prepare *p = ctx;

    if (!atomic_load_explicit(&p->failed, memory_order_relaxed))
        (void)prepare(p, task, thread);
}

ooc_status ooc_prepare_all(ooc_prepare *p, ooc_pool *pool, ooc_err *err)
{
    ooc_parallel_for(pool, p->tile.n_tasks, prepare_task, p);
    return atomic_load(&p->failed) ? first_error(p, err) : OOC_OK;
}
