/* Opening and starting an engine; what it tells about itself. */
#include "src/engine_private.h"
#include "base/alloc.h"
#include "base/checked.h"

#include <inttypes.h>
#include <string.h>

#define MAX_THREADS 1024u

/* ---- open and close ---- */

/* A caller's options, of whatever version, with the defaults filled in. */
static ooc_status take_opts(ooc_matrix_opts *out, const ooc_matrix_opts *opts, ooc_err *err)
{
    memset(out, 0, sizeof *out);
    if (opts && !opts->size)
        return ooc_fail(err, OOC_E_ARG, "opts.size is 0: set it to sizeof(ooc_matrix_opts)");
    if (opts)
        memcpy(out, opts, opts->size < sizeof *out ? opts->size : sizeof *out);
    out->size = sizeof *out;
    if (!out->max_batch)
        out->max_batch = 1;
    if (out->dense != OOC_F32 && out->dense != OOC_F64)
        return ooc_fail(err, OOC_E_ARG, "opts.dense: dense arrays are OOC_F32 or OOC_F64");
    if (out->n_slots > OOC_READER_MAX_IN_FLIGHT)
        return ooc_fail(err, OOC_E_ARG, "%" PRIu32 " slots are too many: at most %u", out->n_slots,
                        OOC_READER_MAX_IN_FLIGHT);
    if (out->n_threads > MAX_THREADS)
        return ooc_fail(err, OOC_E_ARG, "%" PRIu32 " threads are too many: at most %u",
                        out->n_threads, MAX_THREADS);
    if (out->io > OOC_IO_PREAD || out->pass > OOC_PASS_TWO)
        return ooc_fail(err, OOC_E_ARG, "opts.io or opts.pass is none of its values");
    return OOC_OK;
}

static void find_max_decoded(ooc_engine *e)
{
    ooc_tile_info t;

    for (uint64_t k = 0; k < e->info->n_tiles; k++) {
        ooc_store_get_tile(e->store, k, &t);
        if (!t.raw)
            e->max_decoded_bytes = ooc_max_u64(e->max_decoded_bytes, t.kernel_bytes);
    }
}

ooc_status ooc_engine_open_on(ooc_engine **out, const char *path, const ooc_matrix_opts *opts,
                              ooc_device *device, ooc_err *err)
{
    ooc_matrix_opts o;
    ooc_status st = take_opts(&o, opts, err);
    ooc_engine *e;

    *out = NULL;
    if (st)
        return st;
    e = ooc_calloc(1, sizeof *e);
    if (!e)
        return ooc_fail(err, OOC_E_NOMEM, "%s: no memory for an engine", path);
    e->opts = o;
    e->dense_bytes = ooc_dtype_bytes(o.dense);
    e->device = device;
    e->own_device = !device;
    st = ooc_store_open(&e->store, path, err);
    if (st)
        goto out;
    e->info = ooc_store_get_info(e->store);
    find_max_decoded(e);
    e->pool = ooc_pool_new(o.n_threads);
    e->place = ooc_calloc(e->info->n_tiles, sizeof *e->place);
    if (!e->pool || !e->place) {
        st = ooc_fail(err, OOC_E_NOMEM, "%s: no memory for an engine", path);
        goto out;
    }
    if (!device)
        st = ooc_device_open(&e->device, o.device, e->pool, o.warn, o.warn_ctx, err);
    if (st)
        goto out;
    *out = e;
    e = NULL;
out:
    ooc_engine_close(e);
    return st;
}

ooc_status ooc_engine_open(ooc_engine **out, const char *path, const ooc_matrix_opts *opts,
                           ooc_err *err)
{
    return ooc_engine_open_on(out, path, opts, NULL, err);
}

void ooc_engine_stop(ooc_engine *e)
{
    const ooc_device_ops *ops;

    if (!e || !e->vram)
        return;
    ops = e->device->ops;
    ooc_pass_reset(e);
    ooc_reader_close(e->reader);
    e->reader = NULL;
    for (uint32_t i = 0; i < OOC_MAX_LANES; i++) {
        ops->event_close(e->device, e->lane[i].filled);
        ops->event_close(e->device, e->lane[i].done);
        ops->event_close(e->device, e->lane[i].free);
        ops->event_close(e->device, e->staging[i].sent);
    }
    for (uint32_t i = 0; i < OOC_READER_MAX_IN_FLIGHT; i++)
        ops->event_close(e->device, e->io[i].sent);
    ops->stream_close(e->device, e->copy_in);
    ops->stream_close(e->device, e->compute);
    ops->stream_close(e->device, e->copy_out);
    if (e->registered)
        ops->host_unregister(e->device, e->host_base);
    e->vram = e->ram = NULL;
}

void ooc_engine_close(ooc_engine *e)
{
    if (!e)
        return;
    ooc_engine_stop(e);
    if (e->own_device)
        ooc_device_close(e->device);
    ooc_pool_free(e->pool);
    ooc_store_close(e->store);
    ooc_free(e->place);
    ooc_free(e);
}

/* ---- start ---- */

static ooc_status open_streams(ooc_engine *e, ooc_err *err)
{
    const ooc_device_ops *ops = e->device->ops;
    ooc_device *d = e->device;
    ooc_status st = ops->stream_open(d, &e->compute, err);

    if (!st)
        st = ops->stream_open(d, &e->copy_in, err);
    if (!st)
        st = ops->stream_open(d, &e->copy_out, err);
    for (uint32_t i = 0; i < e->n_lanes && !st; i++) {
        st = ops->event_open(d, &e->lane[i].filled, err);
        if (!st)
            st = ops->event_open(d, &e->lane[i].done, err);
        if (!st)
            st = ops->event_open(d, &e->lane[i].free, err);
    }
    for (uint32_t i = 0; i < e->n_io && !st; i++)
        st = ops->event_open(d, &e->io[i].sent, err);
    for (uint32_t i = 0; i < e->n_staging && !st; i++)
        st = ops->event_open(d, &e->staging[i].sent, err);
    return st;
}

static ooc_status open_reader(ooc_engine *e, ooc_err *err)
{
    static const ooc_reader_kind kinds[] = {OOC_READER_AUTO, OOC_READER_URING, OOC_READER_PREAD};
    ooc_reader_opts o = {.kind = kinds[e->opts.io],
                         .max_in_flight = e->n_io,
                         .max_bytes = e->info->max_stored_bytes,
                         .slots = e->io[0].bytes,
                         .slot_bytes = e->io_bytes,
                         .n_slots = e->n_io,
                         .warn = e->opts.warn,
                         .warn_ctx = e->opts.warn_ctx};
    ooc_reader_info info;
    ooc_status st;

    st = ooc_reader_open(&e->reader, ooc_store_path(e->store), ooc_store_fd(e->store), &o, err);
    if (st)
        return st;
    ooc_reader_get_info(e->reader, &info);
    e->stats.io = info.kind == OOC_READER_URING ? OOC_IO_URING : OOC_IO_PREAD;
    return OOC_OK;
}

static void nothing(void *ctx, uint32_t task, uint32_t thread)
{
    (void)ctx, (void)task, (void)thread;
}

ooc_status ooc_engine_start(ooc_engine *e, ooc_arena *vram, ooc_arena *ram, ooc_err *err)
{
    ooc_status st;

    e->vram = vram;
    e->ram = ram;
    st = ooc_engine_take(e, err);
    if (!st && e->host_bytes) {
        st = e->device->ops->host_register(e->device, e->host_base, e->host_bytes, err);
        e->registered = !st;
    }
    if (!st)
        st = open_streams(e, err);
    if (!st)
        st = open_reader(e, err);
    /* The pool's threads come to be here, not in the first pass. */
    ooc_parallel_for(e->pool, ooc_pool_threads(e->pool), nothing, NULL);
    return st;
}

/* ---- the rest ---- */

/* A caller's struct may be of an older version: shorter. */
static void put(void *out, size_t out_bytes, const void *in, size_t in_bytes)
{
    const size_t head = sizeof(size_t); /* `size`, which stays */
    size_t n = out_bytes < in_bytes ? out_bytes : in_bytes;

    if (n > head)
        memcpy((char *)out + head, (const char *)in + head, n - head);
}

void ooc_engine_get_shape(const ooc_engine *e, ooc_matrix_shape *out)
{
    const ooc_matrix_shape s = {.n_rows = e->info->n_rows,
                                .n_cols = e->info->n_cols,
                                .n_entries = e->info->n_entries,
                                .n_tiles = e->info->n_tiles,
                                .stored_bytes = e->info->stored_bytes,
                                .kernel_bytes = e->info->kernel_bytes,
                                .values = e->info->vtype};

    put(out, out->size, &s, sizeof s);
}

void ooc_engine_get_stats(const ooc_engine *e, ooc_matrix_stats *out)
{
    ooc_matrix_stats s = e->stats;

    for (uint64_t k = 0; k < e->info->n_tiles; k++) {
        s.tiles_resident_device += e->place[k].loaded && e->place[k].tier == OOC_TIER_DEVICE;
        s.tiles_resident_ram += e->place[k].loaded && e->place[k].tier == OOC_TIER_RAM;
    }
    if (e->reader) {
        s.device_budget = ooc_arena_size(e->vram);
        s.device_peak_bytes = ooc_arena_peak(e->vram);
        s.host_budget = ooc_arena_size(e->ram);
        s.host_peak_bytes = ooc_arena_peak(e->ram);
    }
    s.n_slots = e->n_io;
    s.n_threads = ooc_pool_threads(e->pool);
    s.isa = e->device->props.model;
    s.device = e->device->props.name;
    put(out, out->size, &s, sizeof s);
}

void ooc_engine_reset_stats(ooc_engine *e)
{
    const ooc_io io = e->stats.io;

    memset(&e->stats, 0, sizeof e->stats);
    e->stats.io = io;
}

void ooc_engine_interrupt(ooc_engine *e)
{
    atomic_store(&e->interrupted, true);
}

void ooc_engine_prefetch(ooc_engine *e, bool on)
{
    e->prefetch = on;
}

const ooc_matrix_opts *ooc_engine_opts(const ooc_engine *e)
{
    return &e->opts;
}

ooc_pool *ooc_engine_pool(ooc_engine *e)
{
    return e->pool;
}

ooc_device *ooc_engine_device(ooc_engine *e)
{
    return e->device;
}
