#include "io/tile_verify.h"
#include "io/sys.h"
#include "base/alloc.h"
#include "base/checked.h"

#include <stdatomic.h>

struct verify {
    const ooc_store *store;
    ooc_stored_tile tile;
    uint8_t *stored, *block, *scratch;
    uint64_t stored_bytes, block_bytes, scratch_bytes; /* sizes; scratch: of each thread */
    uint32_t n_threads;
    atomic_uint_fast32_t first_bad; /* the lowest task that failed */
};

static void check_task(void *ctx, uint32_t task, uint32_t thread)
{
    struct verify *v = ctx;
    uint_fast32_t seen = atomic_load(&v->first_bad);

    if (ooc_stored_tile_decode(&v->tile, task, v->tile.info.raw ? NULL : v->block,
                               v->scratch + thread * v->scratch_bytes, NULL))
        while (task < seen && !atomic_compare_exchange_weak(&v->first_bad, &seen, task))
            ;
}

static ooc_status verify_tile(struct verify *v, uint64_t k, ooc_pool *pool, ooc_err *err)
{
    ooc_tile_info i;
    ooc_status st;

    ooc_store_get_tile(v->store, k, &i);
    st = ooc_sys_pread(ooc_store_fd(v->store), ooc_store_path(v->store), v->stored, i.stored_bytes,
                       i.file_off, err);
    if (!st)
        st = ooc_stored_tile_open(&v->tile, v->store, k, v->stored, err);
    if (st)
        return st;
    atomic_store(&v->first_bad, UINT32_MAX);
    ooc_parallel_for(pool, v->tile.n_tasks, check_task, v);
    if (atomic_load(&v->first_bad) == UINT32_MAX)
        return OOC_OK;
    /* Once more, for the message: it must not depend on which thread came first. */
    return ooc_stored_tile_decode(&v->tile, (uint32_t)v->first_bad, i.raw ? NULL : v->block,
                                  v->scratch, err);
}

static ooc_status take_memory(struct verify *v, ooc_err *err)
{
    const ooc_store_info *info = ooc_store_get_info(v->store);

    v->stored_bytes = info->max_stored_bytes;
    v->block_bytes = info->max_kernel_bytes;
    v->scratch_bytes = ooc_round_up(info->max_scratch_bytes, 64);
    v->stored = ooc_pages_alloc(v->stored_bytes);
    v->block = ooc_pages_alloc(v->block_bytes);
    v->scratch = ooc_pages_alloc(v->scratch_bytes * v->n_threads);
    if (v->stored && v->block && v->scratch)
        return OOC_OK;
    return ooc_fail(err, OOC_E_NOMEM, "%s: no memory for its largest tile (%llu bytes)",
                    ooc_store_path(v->store), (unsigned long long)v->block_bytes);
}

ooc_status ooc_store_verify(const ooc_store *s, ooc_pool *pool, ooc_verify_progress_fn progress,
                            void *ctx, ooc_err *err)
{
    struct verify v = {.store = s, .n_threads = ooc_pool_threads(pool)};
    uint64_t bytes = 0;
    ooc_status st = take_memory(&v, err);

    for (uint64_t k = 0; !st && k < ooc_store_get_info(s)->n_tiles; k++) {
        st = verify_tile(&v, k, pool, err);
        bytes += v.tile.info.stored_bytes;
        if (!st && progress && !progress(ctx, k + 1, bytes))
            st = ooc_fail(err, OOC_E_INTERRUPTED, "%s: interrupted", ooc_store_path(s));
    }
    ooc_pages_free(v.stored, v.stored_bytes);
    ooc_pages_free(v.block, v.block_bytes);
    ooc_pages_free(v.scratch, v.scratch_bytes * v.n_threads);
    return st;
}
