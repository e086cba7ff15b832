/* Checkpoints, predictions and preview pictures. */
#include "src/train/trainer_private.h"
#include "src/train/png_gray.h"
#include "src/train/tensor_file.h"
#include "base/checked.h"
#include "io/npy.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

ooc_status ooc_trainer_checkpoint(ooc_trainer *t, ooc_err *err)
{
    const ooc_train_state state = {.step = t->step,
                                   .seed = t->opts.seed,
                                   .n_samples = t->train.data.n,
                                   .batch = t->opts.batch};

    return ooc_checkpoint_save(t->opts.save, t->model, t->training ? &t->optimizer : NULL, &state,
                               t->buffer, err);
}

/* Input (not the targets) of the next batch, and X of it. */
static ooc_status forward_next(ooc_trainer *t, const ooc_sample_set *set, ooc_batch *batch,
                               ooc_err *err)
{
    const ooc_batch_arrays a = {.pool = t->pool,
                                .set = set,
                                .M = t->M,
                                .B = t->opts.batch,
                                .row_weights = t->row_weights,
                                .input = t->input,
                                .T = t->T};
    ooc_status st = ooc_loader_next(t->eval_loader, batch, err);

    if (!st)
        st = ooc_trainer_place(t, &a, batch, err);
    if (!st)
        st = ooc_model_forward(t->model, t->input, batch->number, batch->n, false, t->X, err);
    return st;
}

/* Row b of f(x), of sample `number`, through the transfer buffer. */
static ooc_status write_row(ooc_trainer *t, const float *row, uint64_t number, ooc_npy_writer *w,
                            ooc_err *err)
{
    const uint64_t bytes = t->N * sizeof(float);
    ooc_status st = OOC_OK;

    for (uint64_t at = 0; !st && at < bytes; at += OOC_TENSOR_BUFFER) {
        const uint64_t part = ooc_min_u64(OOC_TENSOR_BUFFER, bytes - at);

        st = t->dense->ops->download(t->dense, t->buffer, (const char *)row + at, part, err);
        if (!st && !ooc_all_finite(t->buffer, part / sizeof(float)))
            st = ooc_fail(err, OOC_E_NOT_FINITE,
                          "--predict %s: not written: f(x) of sample %" PRIu64
                          " is not a finite number everywhere",
                          t->opts.predict, number);
        if (!st)
            st = ooc_npy_writer_write(w, t->buffer, part, err);
    }
    return st;
}

ooc_status ooc_trainer_predict(ooc_trainer *t, ooc_err *err)
{
    const uint64_t shape[2] = {t->train.data.n, t->N};
    const ooc_loader_run run = {.set = &t->train.set, .n = ooc_batches_of(shape[0], t->opts.batch)};
    ooc_npy_writer *w = NULL;
    ooc_status st = ooc_npy_writer_open(&w, t->opts.predict, "<f4", 2, shape, err);

    if (!st)
        ooc_loader_begin(t->eval_loader, &run);
    for (uint64_t i = 0; !st && i < run.n; i++) {
        ooc_batch batch;

        st = forward_next(t, &t->train.set, &batch, err);
        for (uint32_t b = 0; !st && b < batch.n; b++)
            st = write_row(t, ooc_model_rows(t->model, t->X) + b * t->N, i * t->opts.batch + b, w,
                           err);
        if (!st && t->stop)
            st = ooc_fail(err, OOC_E_INTERRUPTED, "interrupted; %s was not written",
                          t->opts.predict);
    }
    if (!st)
        st = ooc_npy_writer_commit(w, err);
    ooc_npy_writer_close(w);
    return st;
}

static ooc_status write_picture(ooc_trainer *t, const char *what, const float *values,
                                const uint64_t shape[2], uint64_t n, bool symmetric, ooc_err *err)
{
    char path[4096];
    const int length =
        snprintf(path, sizeof path, "%s/step-%06" PRIu64 "-%s.png", t->opts.preview, t->step, what);

    if (length < 0 || (size_t)length >= sizeof path)
        return ooc_fail(err, OOC_E_ARG, "--preview: its name is too long");
    return ooc_png_gray_write(path, values, shape[0] ? shape[0] : 1, shape[0] ? shape[1] : n,
                              symmetric, err);
}

static ooc_status write_pictures(ooc_trainer *t, ooc_err *err)
{
    const uint64_t *in = t->opts.in_shape, *out = t->opts.out_shape, B = t->opts.batch;
    const float *rows = ooc_model_rows(t->model, t->X);
    ooc_status st = OOC_OK;

    if (t->picture) {
        st = t->dense->ops->download(t->dense, t->picture, rows, t->N * sizeof(float), err);
        rows = t->picture;
    }
    if (!st && t->input)
        st = write_picture(t, "input", t->samples ? t->samples : t->input, in, t->M, false, err);
    if (!st)
        st = write_picture(t, "output", rows, out, t->N, false, err);
    if (!st)
        st = write_picture(t, "projection", t->Y, in, t->M, false, err);
    for (uint64_t m = 0; !st && m < t->M; m++)
        t->Y[m] -= t->T[m * B];
    if (!st)
        st = write_picture(t, "residual", t->Y, in, t->M, true, err);
    return st;
}

/* Of the first sample of --val, or of --data. */
ooc_status ooc_trainer_preview(ooc_trainer *t, ooc_err *err)
{
    const ooc_sample_set *set = t->opts.val ? &t->val.set : &t->train.set;
    const ooc_loader_run run = {.set = set, .n = 1};
    const ooc_array X = ooc_trainer_array(t, t->X, t->opts.batch);
    const ooc_array Y = ooc_trainer_host_array(t->Y, 1);
    ooc_batch batch;
    ooc_status st;

    ooc_loader_begin(t->eval_loader, &run);
    st = forward_next(t, set, &batch, err);
    if (!st)
        st = ooc_engine_forward(t->engine, 1, &X, &Y, err);
    if (!st)
        st = write_pictures(t, err);
    return st;
}
