/* One step, and the loss over the validation set. */
#include "src/train/trainer_private.h"
#include "base/checked.h"
#include "base/clock.h"

#include <inttypes.h>
#include <math.h>

ooc_array ooc_trainer_host_array(float *data, uint64_t ld)
{
    const ooc_array a = {.data = data, .ld = ld, .dtype = OOC_F32, .device = OOC_HOST};

    return a;
}

ooc_status ooc_trainer_place(ooc_trainer *t, const ooc_batch_arrays *wanted, const ooc_batch *batch,
                             ooc_err *err)
{
    ooc_batch_arrays a = *wanted;
    ooc_status st;

    if (t->samples && a.input)
        a.input = t->samples;
    st = ooc_batch_place(&a, batch, err);
    if (!st && t->samples && a.input)
        st = t->dense->ops->upload(t->dense, t->input, t->samples, a.B * a.M * sizeof(float), err);
    return st;
}

ooc_array ooc_trainer_array(const ooc_trainer *t, float *data, uint64_t ld)
{
    const ooc_array a = {.data = data,
                         .ld = ld,
                         .dtype = OOC_F32,
                         .device = t->dense->ordinal,
                         .stream = t->dense->stream};

    return a;
}

static ooc_memory_use memory_now(const ooc_trainer *t)
{
    const ooc_memory_use use = {.matrix_device = ooc_arena_used(t->vram_arena),
                                .model_device = ooc_arena_used(t->model_arena),
                                .host = ooc_arena_used(t->ram_arena),
                                .process = ooc_process_bytes(false)};

    return use;
}

static void highest(ooc_memory_use *h, const ooc_memory_use *now)
{
    h->matrix_device = ooc_max_u64(h->matrix_device, now->matrix_device);
    h->model_device = ooc_max_u64(h->model_device, now->model_device);
    h->host = ooc_max_u64(h->host, now->host);
    h->process = ooc_max_u64(h->process, now->process);
}

static void phase_begins(ooc_trainer *t, int phase)
{
    if (t->opts.memory_report && t->step == t->sum.first_step)
        t->sum.memory.before[phase] = memory_now(t);
}

static void phase_ends(ooc_trainer *t, int phase)
{
    ooc_memory_use now;

    if (!t->opts.memory_report)
        return;
    now = memory_now(t);
    if (t->step == t->sum.first_step)
        t->sum.memory.after[phase] = now;
    highest(&t->sum.memory.highest[phase], &now);
}

static ooc_status place(ooc_trainer *t, const ooc_sample_set *set, const ooc_batch *batch,
                        ooc_err *err)
{
    const ooc_batch_arrays a = {.pool = t->pool,
                                .set = set,
                                .M = t->M,
                                .B = t->opts.batch,
                                .row_weights = t->row_weights,
                                .input = t->input,
                                .T = t->T,
                                .W = t->W};

    return ooc_trainer_place(t, &a, batch, err);
}

/* One sweep over A: the loss of X's first n columns; G NULL: only that. */
static ooc_status sweep(ooc_trainer *t, const ooc_batch *batch, float *G, double *loss,
                        ooc_err *err)
{
    const uint64_t B = t->opts.batch;
    const ooc_array X = ooc_trainer_array(t, t->X, B), T = ooc_trainer_host_array(t->T, B);
    const ooc_array to = ooc_trainer_array(t, G, B);
    const bool own = batch->weight != NULL;
    const ooc_array W = ooc_trainer_host_array(own ? t->W : t->row_weights, own ? B : 1);
    const ooc_loss_opts opts = {
        .size = sizeof opts, .kind = t->opts.loss, .W = W.data ? &W : NULL, .w_per_column = own};

    return ooc_engine_step(t->engine, batch->n, &X, &T, &opts, NULL, G ? &to : NULL, loss, err);
}

static ooc_status check_loss(const ooc_trainer *t, double loss, const char *where, ooc_err *err)
{
    if (isfinite(loss))
        return OOC_OK;
    return ooc_fail(err, OOC_E_NOT_FINITE, "step %" PRIu64 ": the %sloss is %s; %s", t->step + 1,
                    where, isnan(loss) ? "not a number" : "infinite",
                    t->opts.loss == OOC_LOSS_POISSON
                        ? "poisson needs A*f(x) above 0 (another --init, a smaller --lr)"
                        : "a smaller --lr or --clip-norm may help");
}

static ooc_status compute(ooc_trainer *t, const ooc_batch *b, double *loss, ooc_err *err)
{
    double norm;
    ooc_status st;

    phase_begins(t, OOC_PHASE_FORWARD);
    st = ooc_model_forward(t->model, t->input, b->number, b->n, true, t->X, err);
    phase_ends(t, OOC_PHASE_FORWARD);
    phase_begins(t, OOC_PHASE_LOSS);
    if (!st)
        st = sweep(t, b, t->G, loss, err);
    phase_ends(t, OOC_PHASE_LOSS);
    if (!st)
        st = check_loss(t, *loss, "", err);
    phase_begins(t, OOC_PHASE_BACKWARD);
    if (!st)
        st = ooc_model_backward(t->model, t->input, b->number, b->n, t->G, err);
    phase_ends(t, OOC_PHASE_BACKWARD);
    if (!st && t->opts.dump_gradients && t->step == t->sum.first_step)
        st = ooc_gradients_save(t->opts.dump_gradients, t->model, t->buffer, err);
    if (!st && t->stop)
        return ooc_fail(err, OOC_E_INTERRUPTED, "interrupted");
    phase_begins(t, OOC_PHASE_OPTIMIZER);
    if (!st)
        st = ooc_optimizer_step(&t->optimizer, t->model, t->step, &norm, err);
    if (!st)
        st = t->dense->ops->sync(t->dense, err);
    phase_ends(t, OOC_PHASE_OPTIMIZER);
    return st;
}

/* The engine's counters since the last call, added to the run's. */
static ooc_matrix_stats account(ooc_trainer *t)
{
    ooc_matrix_stats stats = {.size = sizeof stats};

    ooc_engine_get_stats(t->engine, &stats);
    ooc_engine_reset_stats(t->engine);
    t->sum.read_bytes += stats.read_bytes;
    t->sum.decoded_bytes += stats.decoded_bytes;
    t->sum.tiles_read += stats.tiles_read;
    t->sum.stats = stats;
    return stats;
}

ooc_status ooc_trainer_step(ooc_trainer *t, ooc_step_info *info, ooc_err *err)
{
    const uint64_t begin = ooc_now_ns();
    ooc_matrix_stats stats;
    ooc_batch batch;
    ooc_status st;

    st = ooc_loader_next(t->loader, &batch, err);
    if (!st)
        st = place(t, &t->train.set, &batch, err);
    if (!st)
        st = compute(t, &batch, &info->loss, err);
    if (st)
        return st;
    stats = account(t);
    info->lr = ooc_optimizer_rate(&t->optimizer.opts, t->step);
    info->step = ++t->step;
    info->epoch = batch.epoch + 1;
    info->seconds = (double)(ooc_now_ns() - begin) * 1e-9;
    info->val_loss = NAN;
    info->read_bytes = stats.read_bytes;
    info->decoded_bytes = stats.decoded_bytes;
    info->tiles_read = stats.tiles_read;
    info->tiles_resident = stats.tiles_resident_device + stats.tiles_resident_ram;
    info->read_seconds = (double)stats.read_wait_ns * 1e-9;
    info->device_peak_bytes = ooc_arena_peak(t->vram_arena);
    info->host_peak_bytes = ooc_arena_peak(t->ram_arena);
    return OOC_OK;
}

/* The mean over the samples of their batches' losses. */
ooc_status ooc_trainer_validate(ooc_trainer *t, double *loss, ooc_err *err)
{
    const uint64_t n = t->val.data.n;
    const ooc_loader_run run = {.set = &t->val.set, .n = ooc_batches_of(n, t->opts.batch)};
    double sum = 0;
    ooc_status st = OOC_OK;

    ooc_loader_begin(t->eval_loader, &run);
    for (uint64_t i = 0; !st && i < run.n; i++) {
        ooc_batch batch;
        double part = 0;

        st = ooc_loader_next(t->eval_loader, &batch, err);
        if (!st)
            st = place(t, &t->val.set, &batch, err);
        if (!st)
            st = ooc_model_forward(t->model, t->input, batch.number, batch.n, false, t->X, err);
        if (!st)
            st = sweep(t, &batch, NULL, &part, err);
        if (!st && t->stop)
            st = ooc_fail(err, OOC_E_INTERRUPTED, "interrupted");
        if (!st)
            sum += part * batch.n;
    }
    account(t);
    *loss = sum / (double)n;
    return st ? st : check_loss(t, *loss, "validation ", err);
}
