/* The loop over the steps, and what a run leaves behind. */
#include "src/train/trainer_private.h"
#include "base/checked.h"
#include "base/clock.h"

#include <math.h>

static bool ends_epoch(const ooc_trainer *t)
{
    return t->step % ooc_batches_of(t->train.data.n, t->opts.batch) == 0;
}

static void add_to_summary(ooc_trainer *t, const ooc_step_info *info)
{
    ooc_train_summary *s = &t->sum;

    if (info->step == s->first_step + 1)
        s->first_loss = info->loss;
    else
        t->step_seconds += info->seconds;
    s->last_loss = info->loss;
    if (!isnan(info->val_loss))
        s->val_loss = info->val_loss;
}

/* Checkpoint and preview, unless the end of the run writes them anyway. */
static ooc_status write_between(ooc_trainer *t, ooc_err *err)
{
    ooc_status st = OOC_OK;

    if (!t->opts.checkpoint_every || t->step % t->opts.checkpoint_every ||
        t->step == t->total_steps)
        return OOC_OK;
    st = ooc_trainer_checkpoint(t, err);
    if (!st && t->opts.preview)
        st = ooc_trainer_preview(t, err);
    return st;
}

static ooc_status run_steps(ooc_trainer *t, ooc_err *err)
{
    const ooc_loader_run run = {.set = &t->train.set,
                                .shuffle = true,
                                .seed = t->opts.seed,
                                .first = t->step,
                                .n = t->step < t->total_steps ? t->total_steps - t->step : 0};
    ooc_status st = OOC_OK;

    if (t->loader)
        ooc_loader_begin(t->loader, &run);
    while (!st && t->step < t->total_steps) {
        ooc_step_info info;

        if (t->stop)
            return ooc_fail(err, OOC_E_INTERRUPTED, "interrupted");
        ooc_engine_prefetch(t->engine, t->step + 1 < t->total_steps);
        st = ooc_trainer_step(t, &info, err);
        if (!st && t->opts.val && (ends_epoch(t) || t->step == t->total_steps))
            st = ooc_trainer_validate(t, &info.val_loss, err);
        if (st && st != OOC_E_INTERRUPTED)
            return st;
        if (st)
            break;
        add_to_summary(t, &info);
        st = ooc_run_log_step(&t->log, &info, err);
        if (!st && t->opts.on_step)
            t->opts.on_step(t->opts.ctx, &info, t->total_steps);
        if (!st)
            st = write_between(t, err);
    }
    return st;
}

static ooc_status write_outputs(ooc_trainer *t, ooc_err *err)
{
    ooc_status st = OOC_OK;

    if (t->opts.save)
        st = ooc_trainer_checkpoint(t, err);
    if (!st && t->opts.preview)
        st = ooc_trainer_preview(t, err);
    if (!st && t->opts.predict)
        st = ooc_trainer_predict(t, err);
    return st;
}

static void finish_summary(ooc_trainer *t, uint64_t begin)
{
    ooc_train_summary *s = &t->sum;
    const uint64_t done = t->step - s->first_step;

    s->n_steps = t->step;
    s->n_samples = t->train.data.n;
    for (uint32_t i = 0; i < ooc_model_n_params(t->model); i++)
        s->n_parameters += ooc_model_param(t->model, i)->n;
    s->seconds = (double)(ooc_now_ns() - begin) * 1e-9;
    s->seconds_per_step = done > 1 ? t->step_seconds / (double)(done - 1) : NAN;
    s->device_budget = t->opts.vram_budget;
    s->device_peak_bytes = ooc_arena_peak(t->vram_arena);
    s->host_budget = t->opts.ram_budget;
    s->host_peak_bytes = ooc_arena_peak(t->ram_arena);
    if (t->own_model_arena) {
        s->model_budget = t->opts.model_budget;
        s->model_peak_bytes = ooc_arena_peak(t->own_model_arena);
    }
    s->process_peak_bytes = ooc_process_bytes(true);
    s->matrix = t->shape;
}

ooc_status ooc_trainer_run(ooc_trainer *t, ooc_train_summary *summary, ooc_err *err)
{
    const uint64_t begin = ooc_now_ns();
    ooc_status st, log_st;

    t->sum.first_loss = t->sum.last_loss = t->sum.val_loss = NAN;
    if (!t->training && t->opts.val) {
        st = ooc_trainer_validate(t, &t->sum.val_loss, err);
    } else {
        st = run_steps(t, err);
    }
    if (!st) {
        st = write_outputs(t, err);
    } else if (st == OOC_E_INTERRUPTED && t->opts.save) {
        ooc_status saved = ooc_trainer_checkpoint(t, err);

        st = saved ? saved
                   : ooc_fail(err, OOC_E_INTERRUPTED, "interrupted; go on with --resume %s",
                              t->opts.save);
    }
    t->sum.interrupted = st == OOC_E_INTERRUPTED;
    finish_summary(t, begin);
    *summary = t->sum;
    log_st = st && st != OOC_E_INTERRUPTED ? OOC_OK
                                           : ooc_run_log_summary(&t->log, &t->opts, summary, err);
    return log_st ? log_st : st;
}
