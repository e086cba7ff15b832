/* The pass: every tile is visited once, in ascending order.
 *
 *     disk -> I/O slot (or its place in the RAM tier) -> kernel form: in place, in a lane's tile
 *     slot, or in its place in the device tier -> one job (forward, loss, adjoint)
 *
 * While a tile is computed the reads of the next ones are in flight; on a device with memory of its
 * own so are the copies (stream copy_in) of the next and the results (copy_out) of the last.
 * Always ascending, also where two passes follow each other: the resident set is fixed, so turning
 * round would save nothing, and G's bits would depend on the direction.
 * Events: lane.free is recorded when nothing uses the lane any more, lane.filled when its copies
 * are done; an I/O slot's `sent` when the copy out of it is done. */
#include "src/engine_private.h"
#include "src/prepare.h"
#include "base/clock.h"

#include <assert.h>
#include <string.h>

#define ASK_EVERY_NS 100000000u /* opts.interrupted */

struct pass {
    ooc_engine *e;
    const ooc_pass_args *a;
    const ooc_device_ops *ops;
    ooc_device *d;
    ooc_tile_job job; /* what all visits share; each fills in the rest */
    ooc_job_times times;
    uint64_t asked_ns; /* when opts.interrupted was asked, at first when the pass began */
};

/* Where the stored bytes and the kernel form of the visited tile are. */
struct visit {
    uint64_t k;
    ooc_place *place;
    ooc_lane *lane;
    ooc_tile_info info;
    const void *stored;  /* NULL: the kernel form is resident on the device */
    ooc_host_slot *slot; /* that `stored` occupies, or NULL */
    bool copied;         /* something was given to copy_in for it */
};

/* ---- reading ahead ---- */

static bool must_read(const ooc_place *p)
{
    return p->tier == OOC_TIER_DISK || !(p->loaded || p->on_way);
}

/* I/O slots whose contents have been used and sent. `wait`: at least one, if any was released. */
static ooc_status free_slots(struct pass *p, bool wait, ooc_err *err)
{
    ooc_engine *e = p->e;

    while (e->ahead.freed < e->ahead.released) {
        ooc_host_slot *s = &e->io[e->ahead.freed % e->n_io];
        bool reached = true;
        ooc_status st = OOC_OK;

        if (s->sending)
            st = wait ? p->ops->event_sync(p->d, s->sent, err)
                      : p->ops->event_query(p->d, s->sent, &reached, err);
        if (st || !reached)
            return st;
        s->sending = false;
        wait = false;
        e->ahead.freed++;
    }
    return OOC_OK;
}

/* Start as many reads as there are slots for. */
static ooc_status read_ahead(struct pass *p, ooc_err *err)
{
    ooc_engine *e = p->e;
    uint64_t n = e->info->n_tiles;
    uint64_t end = e->ahead.base + (e->prefetch || p->a->continues ? 2 * n : n);
    ooc_status st = free_slots(p, false, err);

    while (!st && e->ahead.next < end && ooc_reader_in_flight(e->reader) < e->n_io) {
        uint64_t k = e->ahead.next % n;
        ooc_place *place = &e->place[k];
        ooc_tile_read read = {.tile = k, .dst = place->addr};
        ooc_tile_info info;

        if (must_read(place)) {
            if (place->tier != OOC_TIER_RAM) {
                if (e->ahead.taken - e->ahead.freed == e->n_io) {
                    /* Nothing on its way, so the visit to come needs a slot that is being sent. */
                    if (e->ahead.started > e->ahead.waited || e->ahead.freed == e->ahead.released)
                        break;
                    st = free_slots(p, true, err);
                    continue;
                }
                read.dst = e->io[e->ahead.taken++ % e->n_io].bytes;
            }
            ooc_store_get_tile(e->store, k, &info);
            read.file_off = info.file_off;
            read.bytes = info.stored_bytes;
            place->on_way = place->tier != OOC_TIER_DISK;
            e->ahead.dst[e->ahead.started++ % OOC_READER_MAX_IN_FLIGHT] = read.dst;
            ooc_reader_submit(e->reader, &read);
        }
        e->ahead.next++;
    }
    return st;
}

/* The stored bytes of the visited tile, which is not resident. */
static ooc_status wait_stored(struct pass *p, struct visit *v, ooc_err *err)
{
    ooc_engine *e = p->e;
    uint64_t began = ooc_now_ns();
    ooc_status st;

    assert(e->ahead.started > e->ahead.waited);
    st = ooc_reader_wait(e->reader, err);

    e->stats.read_wait_ns += ooc_now_ns() - began;
    v->stored = e->ahead.dst[e->ahead.waited++ % OOC_READER_MAX_IN_FLIGHT];
    if (v->place->tier != OOC_TIER_RAM)
        v->slot = &e->io[e->ahead.released % e->n_io];
    e->stats.tiles_read++;
    e->stats.read_bytes += v->info.stored_bytes;
    return st;
}

/* The device has nothing to do any more. */
static void all_is_free(ooc_engine *e)
{
    for (uint32_t i = 0; i < e->n_lanes; i++)
        e->lane[i].user = NULL;
    for (uint32_t i = 0; i < e->n_io; i++)
        e->io[i].sending = false;
    for (uint32_t i = 0; i < e->n_staging; i++)
        e->staging[i].sending = false;
    e->sending_Y = false;
}

/* Nothing of `s` runs any more. A first wait may only tell of an earlier failure. */
static void settle(ooc_engine *e, ooc_stream *s)
{
    const ooc_device_ops *ops = e->device->ops;

    if (s && ops->stream_sync(e->device, s, NULL))
        (void)ops->stream_sync(e->device, s, NULL);
}

void ooc_pass_reset(ooc_engine *e)
{
    if (e->reader)
        ooc_reader_drain(e->reader);
    settle(e, e->copy_in);
    settle(e, e->compute);
    settle(e, e->copy_out);
    memset(&e->ahead, 0, sizeof e->ahead);
    all_is_free(e);
    for (uint64_t k = 0; e->place && k < e->info->n_tiles; k++)
        e->place[k].on_way = false;
}

/* ---- one visit ---- */

/* Work that `s` is given from now on may use the lane. */
static ooc_status claim_lane(struct pass *p, struct visit *v, ooc_stream *s, ooc_err *err)
{
    ooc_stream *user = v->lane->user;

    v->lane->user = NULL;
    return user && user != s ? p->ops->event_wait(p->d, s, v->lane->free, err) : OOC_OK;
}

static ooc_status copying(struct pass *p, struct visit *v, ooc_err *err)
{
    v->copied = true;
    return claim_lane(p, v, p->e->copy_in, err);
}

static ooc_status send(struct pass *p, struct visit *v, void *dst, const void *src,
                       ooc_host_slot *slot, ooc_err *err)
{
    ooc_status st = copying(p, v, err);

    if (!st)
        st = ooc_device_copy_flat(p->d, p->e->copy_in, OOC_COPY_H2D, dst, src, v->info.kernel_bytes,
                                  err);
    if (!st && slot) {
        slot->sending = true;
        st = p->ops->event_record(p->d, slot->sent, p->e->copy_in, err);
    }
    return st;
}

/* Kernel form on a device with memory of its own: checked or decoded on the host, then sent. */
static ooc_status send_tile(struct pass *p, struct visit *v, ooc_prepare *prep, void *dst,
                            ooc_err *err)
{
    ooc_engine *e = p->e;
    ooc_host_slot *staging = NULL;
    const void *kernel_form = ooc_stored_tile_kernel_form(&prep->tile);
    uint64_t began;
    ooc_status st = OOC_OK;

    if (!v->info.raw) {
        staging = &e->staging[e->n_visits % e->n_staging];
        if (staging->sending)
            st = p->ops->event_sync(p->d, staging->sent, err);
        staging->sending = false;
        kernel_form = staging->bytes;
        prep->block = staging->bytes;
    }
    began = ooc_now_ns();
    if (!st && !(v->info.raw && v->place->loaded))
        st = ooc_prepare_all(prep, e->pool, err);
    p->times.decode_ns += ooc_now_ns() - began;
    return st ? st : send(p, v, dst, kernel_form, staging ? staging : v->slot, err);
}

/* Fill in job->view (and the hooks that will make it ready). */
static ooc_status place_tile(struct pass *p, struct visit *v, ooc_prepare *prep, ooc_tile_job *job,
                             ooc_err *err)
{
    bool to_tier = v->place->tier == OOC_TIER_DEVICE;
    void *block = to_tier ? v->place->addr : v->lane->tile;
    ooc_status st;

    if (!v->stored) {
        job->view = ooc_tile_view_of(&v->info.n, v->info.constant, block);
        return OOC_OK;
    }
    st = ooc_prepare_open(prep, p->e, v->k, v->stored, err);
    if (st)
        return st;
    if (!v->info.raw)
        p->e->stats.decoded_bytes += v->info.kernel_bytes;
    if (!p->d->props.host_visible) {
        st = send_tile(p, v, prep, block, err);
    } else if (v->info.raw && !to_tier) {
        block = (void *)(uintptr_t)ooc_stored_tile_kernel_form(&prep->tile);
        if (!v->place->loaded) /* else it was checked when it came */
            ooc_prepare_hook(prep, job);
    } else {
        prep->block = block;
        ooc_prepare_hook(prep, job);
    }
    job->view = job->prepare_by_chunk ? ooc_stored_tile_early_view(&prep->tile, block)
                                      : ooc_tile_view_of(&v->info.n, v->info.constant, block);
    return st;
}

/* The rows of the tile in one of the M-row arrays: in place, or in the lane's block. */
static ooc_status bind_rows(struct pass *p, struct visit *v, const ooc_array *a, uint32_t b0,
                            uint32_t B, void *block, bool input, void **ptr, uint64_t *ld,
                            ooc_err *err)
{
    ooc_status st = OOC_OK;

    if (ooc_array_in_place(p->e, a)) {
        *ptr = ooc_array_at(a, v->info.first_row, b0);
        *ld = a->ld;
        return OOC_OK;
    }
    *ptr = block;
    *ld = B;
    if (input)
        st = copying(p, v, err);
    if (input && !st)
        st = ooc_array_copy(p->e, p->e->copy_in, a, v->info.first_row, v->info.n.n_rows, b0, B,
                            block, true, err);
    return st;
}

static ooc_status bind_arrays(struct pass *p, struct visit *v, ooc_tile_job *job, ooc_err *err)
{
    const ooc_pass_args *a = p->a;
    uint64_t size = ooc_dtype_bytes(a->dense);
    ooc_status st = OOC_OK;
    void *in;

    job->R = v->lane->R;
    job->ldr = a->B;
    if (a->R_all)
        job->R = (char *)p->e->R_all + v->info.first_row * a->B * size;
    if (a->R)
        st = bind_rows(p, v, a->R, a->b0, a->B, v->lane->R, true, &job->R, &job->ldr, err);
    job->Y = job->R; /* the loss then turns Y into R in place */
    job->ldy = job->ldr;
    if (!st && a->Y)
        st = bind_rows(p, v, a->Y, a->b0, a->B, v->lane->Y, false, &job->Y, &job->ldy, err);
    if (!st && a->T) {
        st = bind_rows(p, v, a->T, a->b0, a->B, v->lane->T, true, &in, &job->ldt, err);
        job->T = in;
    }
    if (!st && a->W) {
        st = bind_rows(p, v, a->W, a->w_per_column ? a->b0 : 0, a->w_per_column ? a->B : 1,
                       v->lane->W, true, &in, &job->ldw, err);
        job->W = in;
    }
    return st;
}

/* Order the job behind its copies, run it, and send Y out behind it. */
static ooc_status run_job(struct pass *p, struct visit *v, const ooc_tile_job *job, ooc_err *err)
{
    ooc_engine *e = p->e;
    ooc_lane *lane = v->lane;
    bool send_Y = p->a->Y && !ooc_array_in_place(e, p->a->Y);
    ooc_status st = OOC_OK;

    e->sending_Y |= send_Y;
    if (v->copied) {
        st = p->ops->event_record(p->d, lane->filled, e->copy_in, err);
        if (!st)
            st = p->ops->event_wait(p->d, e->compute, lane->filled, err);
    } else { /* a Y may still be on its way out of the lane */
        st = claim_lane(p, v, e->compute, err);
    }
    if (!st)
        st = p->ops->tile_run(p->d, e->compute, job, err);
    if (!st && send_Y) {
        st = p->ops->event_record(p->d, lane->done, e->compute, err);
        if (!st)
            st = p->ops->event_wait(p->d, e->copy_out, lane->done, err);
        if (!st)
            st = ooc_array_copy(e, e->copy_out, p->a->Y, v->info.first_row, v->info.n.n_rows,
                                p->a->b0, p->a->B, lane->Y, false, err);
    }
    /* The last lanes of a call are free when it has finished. */
    if (!st && (p->a->continues || v->k + e->n_lanes < e->info->n_tiles)) {
        lane->user = send_Y ? e->copy_out : e->compute;
        st = p->ops->event_record(p->d, lane->free, lane->user, err);
    }
    return st;
}

static ooc_status visit_tile(struct pass *p, uint64_t k, ooc_err *err)
{
    ooc_engine *e = p->e;
    struct visit v = {.k = k, .place = &e->place[k], .lane = &e->lane[e->n_visits % e->n_lanes]};
    ooc_tile_job job = p->job;
    ooc_prepare prep;
    ooc_status st;

    ooc_store_get_tile(e->store, k, &v.info);
    st = read_ahead(p, err);
    if (!st && v.place->loaded && v.place->tier == OOC_TIER_RAM)
        v.stored = v.place->addr;
    else if (!st && !v.place->loaded)
        st = wait_stored(p, &v, err);
    if (!st)
        st = place_tile(p, &v, &prep, &job, err);
    if (!st)
        st = bind_arrays(p, &v, &job, err);
    if (!st)
        st = run_job(p, &v, &job, err);
    if (st)
        return st;
    if (v.slot)
        e->ahead.released++;
    v.place->loaded = v.place->tier != OOC_TIER_DISK;
    e->n_visits++;
    return OOC_OK;
}

/* ---- begin and end ---- */

/* Work on the device waits for what the callers' streams have queued so far. */
static ooc_status wait_callers(struct pass *p, ooc_err *err)
{
    const ooc_pass_args *a = p->a;
    enum { N = 6 };
    const ooc_array *const all[N] = {a->X, a->Y, a->T, a->W, a->R, a->G};
    ooc_status st = OOC_OK;

    for (size_t i = 0; i < N && !st; i++) {
        const ooc_array *x = all[i];
        bool copied_in;

        if (!x || x->device == OOC_HOST || !p->ops->wait_caller)
            continue;
        /* Y goes out behind the job, X and G are copied by `compute` itself. */
        copied_in = (x == a->T || x == a->W || x == a->R) && !ooc_array_in_place(p->e, x);
        st = p->ops->wait_caller(p->d, copied_in ? p->e->copy_in : p->e->compute, x->device,
                                 x->stream, err);
    }
    return st;
}

static ooc_status begin(struct pass *p, ooc_err *err)
{
    ooc_engine *e = p->e;
    const ooc_pass_args *a = p->a;
    uint64_t size = ooc_dtype_bytes(a->dense), n = e->info->n_cols;
    ooc_tile_job *job = &p->job;
    ooc_status st = wait_callers(p, err);

    job->todo = a->todo;
    job->n_cols = n;
    job->B = a->B;
    job->dense = a->dense;
    job->w_per_column = a->w_per_column;
    job->loss_kind = a->loss_kind;
    job->scale = a->scale;
    job->loss = e->loss;
    job->work = e->work;
    job->times = &p->times;
    if (a->X && ooc_array_in_place(e, a->X)) {
        job->X = ooc_array_at(a->X, 0, a->b0);
        job->ldx = a->X->ld;
    } else if (a->X) {
        job->X = e->X;
        job->ldx = a->B;
        if (!st)
            st = ooc_array_copy(e, e->compute, a->X, 0, n, a->b0, a->B, e->X, true, err);
    }
    if (a->G) {
        bool in_place = ooc_array_in_place(e, a->G);

        job->G = in_place ? ooc_array_at(a->G, 0, a->b0) : e->G;
        job->ldg = in_place ? a->G->ld : a->B;
        if (!st)
            st = p->ops->zero(p->d, e->compute, job->G, job->ldg * size, a->B * size, n, err);
    }
    return st;
}

/* Results are where the caller wants them when the last sweep of a call has finished. */
static ooc_status finish(struct pass *p, ooc_err *err)
{
    ooc_engine *e = p->e;
    const ooc_pass_args *a = p->a;
    ooc_status st = OOC_OK;

    if (a->G && !ooc_array_in_place(e, a->G))
        st = ooc_array_copy(e, e->compute, a->G, 0, e->info->n_cols, a->b0, a->B, e->G, false, err);
    if (st || a->continues)
        return st;
    if (e->sending_Y)
        st = p->ops->stream_sync(p->d, e->copy_out, err);
    /* Sending Y comes behind the jobs of this sweep, but not behind G. */
    if (!st && !(e->sending_Y && a->Y && !a->G))
        st = p->ops->stream_sync(p->d, e->compute, err);
    if (!st)
        all_is_free(e);
    return st;
}

static bool interrupted(struct pass *p)
{
    const ooc_matrix_opts *o = &p->e->opts;
    uint64_t now;

    if (atomic_load(&p->e->interrupted))
        return true;
    if (!o->interrupted)
        return false;
    now = ooc_now_ns();
    if (now - p->asked_ns < ASK_EVERY_NS)
        return false;
    p->asked_ns = now;
    return o->interrupted(o->interrupted_ctx);
}

ooc_status ooc_pass_run(ooc_engine *e, const ooc_pass_args *a, ooc_err *err)
{
    struct pass p = {.e = e, .a = a, .ops = e->device->ops, .d = e->device};
    uint64_t n = e->info->n_tiles;
    ooc_status st = begin(&p, err);

    p.asked_ns = ooc_now_ns();
    if (e->ahead.next < e->ahead.base)
        e->ahead.next = e->ahead.base;
    for (uint64_t k = 0; k < n && !st; k++) {
        if (interrupted(&p))
            st = ooc_fail(err, OOC_E_INTERRUPTED, "interrupted");
        else
            st = visit_tile(&p, k, err);
        if (!st && e->opts.progress)
            e->opts.progress(e->opts.progress_ctx, k + 1, n);
    }
    if (!st && n)
        st = read_ahead(&p, err); /* of the sweep to come */
    if (!st)
        st = finish(&p, err);
    e->ahead.base += n;
    e->stats.passes++;
    e->stats.decode_ns += p.times.decode_ns;
    e->stats.forward_ns += p.times.forward_ns;
    e->stats.loss_ns += p.times.loss_ns;
    e->stats.adjoint_ns += p.times.adjoint_ns;
    if (st)
        ooc_pass_reset(e);
    return st;
}
