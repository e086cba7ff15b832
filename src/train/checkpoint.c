#include "src/train/checkpoint.h"
#include "base/alloc.h"
#include "base/parse.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define STATE_PREFIX "optimizer."

/* 1 + optimizer states for each of the model's tensors. */
#define MAX_ENTRIES (3 * OOC_MODEL_MAX_PARAMS)

static ooc_status download(void *ctx, void *to, const void *from, uint64_t bytes, ooc_err *err)
{
    ooc_dense *d = ctx;

    return d->ops->download(d, to, from, bytes, err);
}

/* A checkpoint that nobody can go on from must not replace one that is good. */
static ooc_status download_finite(void *ctx, void *to, const void *from, uint64_t bytes,
                                  ooc_err *err)
{
    ooc_status st = download(ctx, to, from, bytes, err);

    if (!st && !ooc_all_finite(to, bytes / sizeof(float)))
        st = ooc_fail(err, OOC_E_NOT_FINITE,
                      "not written: the weights or the optimizer's state became NaN or infinite; a "
                      "smaller --lr or --clip-norm may help");
    return st;
}

static ooc_status upload(void *ctx, void *to, const void *from, uint64_t bytes, ooc_err *err)
{
    ooc_dense *d = ctx;

    if (!ooc_all_finite(from, bytes / sizeof(float)))
        return ooc_fail(err, OOC_E_NOT_FINITE, "holds NaN or infinity");
    return d->ops->upload(d, to, from, bytes, err);
}

/* Parameter p of the model, with its data inside `block`. */
static void fill_entry(ooc_tensor_entry *e, const ooc_param *p, const char *state, float *block)
{
    if (state)
        snprintf(e->name, sizeof e->name, STATE_PREFIX "%s.%s", state, p->name);
    else
        snprintf(e->name, sizeof e->name, "%s", p->name);
    e->n_dims = p->n_dims;
    memcpy(e->shape, p->shape, sizeof p->shape);
    e->n = p->n;
    e->at = block + p->off;
}

static void fill_model(ooc_tensor_entry *list, const ooc_model *m, const char *state, float *block)
{
    for (uint32_t i = 0; i < ooc_model_n_params(m); i++)
        fill_entry(&list[i], ooc_model_param(m, i), state, block);
}

/* Weights, and the optimizer's states where there are any yet. Returns how many. */
static uint32_t fill_all(ooc_tensor_entry *list, const ooc_model *m, const ooc_optimizer *o,
                         uint64_t step)
{
    const uint32_t n_params = ooc_model_n_params(m);
    uint32_t n = n_params;

    fill_model(list, m, NULL, ooc_model_weights(m));
    for (uint32_t k = 0; o && step > 0 && k < o->n_states; k++, n += n_params)
        fill_model(list + n, m, ooc_optimizer_state_name(o, k), o->state[k]);
    return n;
}

ooc_status ooc_checkpoint_save(const char *path, const ooc_model *m, const ooc_optimizer *optimizer,
                               const ooc_train_state *state, void *buffer, ooc_err *err)
{
    char step[24], seed[24], samples[24], batch[24];
    const ooc_tensor_text texts[] = {
        {"format", "pt"},
        {"stream_train", "1"},
        {"model", ooc_model_kind_name(ooc_model_get_opts(m)->kind)},
        {"optimizer", optimizer ? ooc_optim_kind_name(optimizer->opts.kind) : "none"},
        {"step", step},
        {"seed", seed},
        {"samples", samples},
        {"batch_size", batch}};
    ooc_tensor_entry *list = ooc_calloc(MAX_ENTRIES, sizeof *list);
    ooc_status st;

    if (!list)
        return ooc_fail(err, OOC_E_NOMEM, "%s: no memory for its list of tensors", path);
    snprintf(step, sizeof step, "%" PRIu64, state->step);
    snprintf(seed, sizeof seed, "%" PRIu64, state->seed);
    snprintf(samples, sizeof samples, "%" PRIu64, state->n_samples);
    snprintf(batch, sizeof batch, "%u", state->batch);
    st = ooc_tensor_file_write(path, list, fill_all(list, m, optimizer, state->step), texts,
                               sizeof texts / sizeof *texts, download_finite, ooc_model_dense(m),
                               buffer, err);
    ooc_free(list);
    return st == OOC_E_NOT_FINITE ? ooc_fail_wrap(err, st, "%s", path) : st;
}

ooc_status ooc_gradients_save(const char *path, const ooc_model *m, void *buffer, ooc_err *err)
{
    ooc_tensor_entry *list = ooc_calloc(MAX_ENTRIES, sizeof *list);
    ooc_status st;

    if (!list)
        return ooc_fail(err, OOC_E_NOMEM, "%s: no memory for its list of tensors", path);
    fill_model(list, m, NULL, ooc_model_gradients(m));
    st = ooc_tensor_file_write(path, list, ooc_model_n_params(m), NULL, 0, download,
                               ooc_model_dense(m), buffer, err);
    ooc_free(list);
    return st;
}

static ooc_status check_all_known(const ooc_tensor_file *f, const char *path, const ooc_model *m,
                                  ooc_err *err)
{
    for (uint32_t i = 0; i < ooc_tensor_file_count(f); i++) {
        const char *name = ooc_tensor_file_name(f, i);
        bool known = strncmp(name, STATE_PREFIX, strlen(STATE_PREFIX)) == 0;

        for (uint32_t k = 0; !known && k < ooc_model_n_params(m); k++)
            known = strcmp(ooc_model_param(m, k)->name, name) == 0;
        if (!known)
            return ooc_fail(err, OOC_E_FORMAT,
                            "%s: its tensor %.60s is none of this model's: is it from another "
                            "--model, --channels or --hidden?",
                            path, name);
    }
    return OOC_OK;
}

static ooc_status read_all(const ooc_tensor_file *f, const char *path, const ooc_model *m,
                           const ooc_optimizer *o, uint64_t step, void *buffer, ooc_err *err)
{
    ooc_tensor_entry *list = ooc_calloc(MAX_ENTRIES, sizeof *list);
    ooc_status st;
    uint32_t n;

    if (!list)
        return ooc_fail(err, OOC_E_NOMEM, "%s: no memory for its list of tensors", path);
    st = check_all_known(f, path, m, err);
    n = fill_all(list, m, o, step);
    for (uint32_t i = 0; !st && i < n; i++) {
        st = ooc_tensor_file_read(f, &list[i], upload, ooc_model_dense(m), buffer, err);
        if (st == OOC_E_NOT_FINITE)
            st = ooc_fail_wrap(err, st, "%s: tensor %s", path, list[i].name);
    }
    ooc_free(list);
    return st;
}

ooc_status ooc_checkpoint_load_weights(const char *path, ooc_model *m, void *buffer, ooc_err *err)
{
    ooc_tensor_file *f;
    ooc_status st = ooc_tensor_file_open(&f, path, err);

    if (!st)
        st = read_all(f, path, m, NULL, 0, buffer, err);
    ooc_tensor_file_close(f);
    return st;
}

static ooc_status number_of(const ooc_tensor_file *f, const char *path, const char *key,
                            uint64_t *value, ooc_err *err)
{
    const char *text = ooc_tensor_file_text(f, key);

    if (!text || !ooc_parse_u64(text, value))
        return ooc_fail(err, OOC_E_FORMAT,
                        "%s: no \"%s\" in its metadata: not a checkpoint of stream-train (--init "
                        "takes weights alone)",
                        path, key);
    return OOC_OK;
}

static ooc_status same_number(const ooc_tensor_file *f, const char *path, const char *key,
                              const char *option, uint64_t now, ooc_err *err)
{
    uint64_t then;
    ooc_status st = number_of(f, path, key, &then, err);

    if (!st && then != now)
        st = ooc_fail(err, OOC_E_ARG,
                      "--resume %s: that run had %s %" PRIu64 ", this one has %" PRIu64
                      "; give the same to go on, or --init for its weights alone",
                      path, option, then, now);
    return st;
}

static ooc_status check_same_run(const ooc_tensor_file *f, const char *path, const ooc_model *m,
                                 const ooc_optimizer *o, const ooc_train_state *state, ooc_err *err)
{
    const char *model = ooc_tensor_file_text(f, "model");
    const char *optimizer = ooc_tensor_file_text(f, "optimizer");
    const char *model_now = ooc_model_kind_name(ooc_model_get_opts(m)->kind);
    ooc_status st = same_number(f, path, "stream_train", "checkpoint version", 1, err);

    if (!st && (!model || strcmp(model, model_now) != 0))
        st = ooc_fail(err, OOC_E_ARG, "--resume %s: that run had --model %.20s, this one has %s",
                      path, model ? model : "(none)", model_now);
    if (!st && o && state->step > 0 &&
        (!optimizer || strcmp(optimizer, ooc_optim_kind_name(o->opts.kind)) != 0))
        st =
            ooc_fail(err, OOC_E_ARG, "--resume %s: that run had --optimizer %.20s, this one has %s",
                     path, optimizer ? optimizer : "(none)", ooc_optim_kind_name(o->opts.kind));
    if (!st)
        st = same_number(f, path, "seed", "--seed", state->seed, err);
    if (!st)
        st = same_number(f, path, "batch_size", "--batch-size", state->batch, err);
    if (!st)
        st = same_number(f, path, "samples", "samples:", state->n_samples, err);
    return st;
}

ooc_status ooc_checkpoint_resume(const char *path, ooc_model *m, ooc_optimizer *optimizer,
                                 ooc_train_state *state, void *buffer, ooc_err *err)
{
    ooc_tensor_file *f;
    ooc_status st = ooc_tensor_file_open(&f, path, err);

    if (!st)
        st = number_of(f, path, "step", &state->step, err);
    if (!st)
        st = check_same_run(f, path, m, optimizer, state, err);
    if (!st)
        st = read_all(f, path, m, optimizer, state->step, buffer, err);
    ooc_tensor_file_close(f);
    return st;
}
