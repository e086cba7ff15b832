/* From options to a trainer that is ready to run: files, shapes, model, loaders. */
#include "src/train/trainer_private.h"
#include "base/alloc.h"
#include "base/checked.h"
#include "src/device.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define DEFAULT_LR        1e-4
#define DEFAULT_LR_PIXELS 0.03

static void no_files(ooc_sample_source *s)
{
    s->data.fd = s->target.fd = s->weight.fd = -1;
}

static void close_files(ooc_sample_source *s)
{
    ooc_sample_file_close(&s->data);
    ooc_sample_file_close(&s->target);
    ooc_sample_file_close(&s->weight);
}

/* A file that must have as many samples as `data`. */
static ooc_status open_companion(ooc_sample_file *f, const char *option, const char *path,
                                 const ooc_sample_file *data, ooc_err *err)
{
    ooc_status st = ooc_sample_file_open(f, option, path, data->entries, err);

    if (!st && f->n != data->n)
        st = ooc_fail(err, OOC_E_ARG, "%s %s: has %" PRIu64 " samples, %s has %" PRIu64, option,
                      path, f->n, data->option, data->n);
    return st;
}

static void join_files(ooc_sample_source *s)
{
    s->set.input = &s->data;
    s->set.target = s->target.fd >= 0 ? &s->target : NULL;
    s->set.weight = s->weight.fd >= 0 ? &s->weight : NULL;
}

/* --weights is (M,), the same for all samples, or (n, M). */
static ooc_status open_weights(ooc_trainer *t, ooc_err *err)
{
    ooc_sample_file f;
    ooc_status st = ooc_sample_file_open(&f, "--weights", t->opts.weights, t->M, err);

    if (st)
        return st;
    if (f.n == 1) {
        t->row_weight_file = f;
        return OOC_OK;
    }
    t->train.weight = f;
    if (f.n != t->train.data.n)
        return ooc_fail(err, OOC_E_ARG,
                        "--weights %s: has %" PRIu64 " samples, --data has %" PRIu64
                        "; give (M,) or (n, M)",
                        t->opts.weights, f.n, t->train.data.n);
    return OOC_OK;
}

static ooc_status open_validation(ooc_trainer *t, ooc_err *err)
{
    const ooc_train_opts *o = &t->opts;
    ooc_status st;

    if (o->model == OOC_MODEL_PIXELS)
        return ooc_fail(err, OOC_E_ARG,
                        "--val: pixels has an image for each sample of --data and none for others");
    if (o->target && !o->val_target)
        return ooc_fail(err, OOC_E_ARG, "--val with --target needs --val-target");
    if (t->train.weight.fd >= 0 && !o->val_weights)
        return ooc_fail(err, OOC_E_ARG, "--val with --weights of each sample needs --val-weights");
    st = ooc_sample_file_open(&t->val.data, "--val", o->val, t->M, err);
    if (!st && o->val_target)
        st = open_companion(&t->val.target, "--val-target", o->val_target, &t->val.data, err);
    if (!st && o->val_weights)
        st = open_companion(&t->val.weight, "--val-weights", o->val_weights, &t->val.data, err);
    join_files(&t->val);
    return st;
}

static ooc_status open_samples(ooc_trainer *t, ooc_err *err)
{
    const ooc_train_opts *o = &t->opts;
    ooc_status st = ooc_sample_file_open(&t->train.data, "--data", o->data, t->M, err);

    if (!st && o->target)
        st = open_companion(&t->train.target, "--target", o->target, &t->train.data, err);
    if (!st && o->weights)
        st = open_weights(t, err);
    join_files(&t->train);
    if (!st && o->val)
        st = open_validation(t, err);
    else if (!st && (o->val_target || o->val_weights))
        st = ooc_fail(err, OOC_E_ARG, "--val-target and --val-weights belong to --val");
    return st;
}

/* Where the user gave no shape: that of the samples' array, or a square. */
static void guess_shape(uint64_t shape[2], uint64_t n, const uint64_t hint[2])
{
    uint64_t side = (uint64_t)sqrt((double)n);

    if (shape[0])
        return;
    if (hint[0] && hint[1] && hint[0] <= n / hint[1] && hint[0] * hint[1] == n) {
        shape[0] = hint[0];
        shape[1] = hint[1];
        return;
    }
    while (side > 0 && side > n / side)
        side--;
    if (side * side == n)
        shape[0] = shape[1] = side;
}

static void default_widths(ooc_model_opts *m)
{
    static const uint64_t channels[] = {16, 32, 64}, hidden[] = {256, 256};
    const bool unet = m->kind == OOC_MODEL_UNET;

    m->n_widths = unet ? 3 : m->kind == OOC_MODEL_MLP ? 2 : 0;
    memcpy(m->widths, unet ? channels : hidden, m->n_widths * sizeof *m->widths);
}

/* auto: where the matrix is. */
static ooc_status open_dense(ooc_trainer *t, ooc_err *err)
{
    const ooc_device_props *matrix = &ooc_engine_device(t->engine)->props;
    const char *name = t->opts.model_device;
    ooc_status st;

    if (!name || !strcmp(name, "auto"))
        name = matrix->name;
    st = ooc_dense_open(&t->dense, name, t->pool, err);
    if (!st && t->dense->ordinal != OOC_HOST && matrix->host_visible)
        st =
            ooc_fail(err, OOC_E_ARG,
                     "--model-device %s: the model can be on a GPU only where the matrix is on one "
                     "(give --matrix-device cuda:N)",
                     name);
    return st;
}

static ooc_status open_model(ooc_trainer *t, ooc_err *err)
{
    ooc_train_opts *o = &t->opts;
    ooc_model_opts m = {.kind = o->model,
                        .batch = o->batch,
                        .n_in = t->M,
                        .n_out = t->N,
                        .n_samples = t->train.data.n,
                        .n_widths = o->n_widths,
                        .train = t->training,
                        .recompute = o->recompute};
    const uint64_t none[2] = {0, 0};
    uint64_t image[2];
    ooc_status st;

    ooc_sample_file_image(&t->train.data, image);
    guess_shape(o->in_shape, t->M, image);
    guess_shape(o->out_shape, t->N, none);
    memcpy(m.in_shape, o->in_shape, sizeof m.in_shape);
    memcpy(m.out_shape, o->out_shape, sizeof m.out_shape);
    memcpy(m.widths, o->widths, sizeof m.widths);
    if (!o->widths_given)
        default_widths(&m);
    st = ooc_model_check(&m, err);
    if (!st)
        st = open_dense(t, err);
    if (!st)
        st = ooc_model_open(&t->model, &m, t->dense, err);
    return st;
}

static void count_steps(ooc_trainer *t)
{
    ooc_train_opts *o = &t->opts;
    const uint64_t per_epoch = ooc_batches_of(t->train.data.n, o->batch);
    uint64_t by_epochs;

    if (o->epochs == OOC_NO_LIMIT && o->steps == OOC_NO_LIMIT)
        o->epochs = 1;
    if (o->epochs == OOC_NO_LIMIT || !ooc_mul_u64(o->epochs, per_epoch, &by_epochs))
        by_epochs = UINT64_MAX;
    t->total_steps = ooc_min_u64(by_epochs, o->steps);
    o->optimizer.total_steps = t->total_steps;
    t->training = t->total_steps > 0;
}

static ooc_status open_loaders(ooc_trainer *t, ooc_err *err)
{
    const ooc_sample_set sets[2] = {t->train.set, t->val.set};
    ooc_status st = OOC_OK;

    if (t->training)
        st = ooc_loader_open(&t->loader, t->opts.batch, sets, 1, err);
    if (!st && (t->opts.val || t->opts.predict || t->opts.preview))
        st = ooc_loader_open(&t->eval_loader, t->opts.batch, sets, t->opts.val ? 2 : 1, err);
    return st;
}

static ooc_status open_engine(ooc_trainer *t, ooc_err *err)
{
    const ooc_train_opts *o = &t->opts;
    const ooc_matrix_opts m = {.size = sizeof m,
                               .device = o->matrix_device,
                               .vram_budget = o->vram_budget,
                               .ram_budget = o->ram_budget,
                               .max_batch = o->batch,
                               .n_threads = o->n_threads,
                               .io = o->io,
                               .pass = o->pass,
                               .warn = o->warn,
                               .warn_ctx = o->ctx};
    ooc_status st = ooc_engine_open(&t->engine, o->matrix, &m, err);

    if (st)
        return st;
    t->shape.size = sizeof t->shape;
    ooc_engine_get_shape(t->engine, &t->shape);
    t->M = t->shape.n_rows;
    t->N = t->shape.n_cols;
    t->pool = ooc_engine_pool(t->engine);
    return OOC_OK;
}

/* Initial weights, or those of a file; a resumed run's step. */
static ooc_status load(ooc_trainer *t, ooc_err *err)
{
    ooc_train_state state = {
        .seed = t->opts.seed, .n_samples = t->train.data.n, .batch = t->opts.batch};
    ooc_status st = ooc_model_init(t->model, t->opts.seed, err);

    if (!st && t->opts.init)
        st = ooc_checkpoint_load_weights(t->opts.init, t->model, t->buffer, err);
    if (!st && t->opts.resume)
        st = ooc_checkpoint_resume(t->opts.resume, t->model, t->training ? &t->optimizer : NULL,
                                   &state, t->buffer, err);
    t->step = t->sum.first_step = state.step;
    return st;
}

/* Everything that can be refused is refused before a large array is taken. */
static ooc_status open_all(ooc_trainer *t, ooc_err *err)
{
    ooc_status st = ooc_trainer_check_opts(&t->opts, err);

    if (!st)
        st = open_engine(t, err);
    if (!st)
        st = open_samples(t, err);
    if (st)
        return st;
    count_steps(t);
    t->uses_engine = t->training || t->opts.val || t->opts.preview;
    if (t->opts.optimizer.lr == 0)
        t->opts.optimizer.lr = t->opts.model == OOC_MODEL_PIXELS ? DEFAULT_LR_PIXELS : DEFAULT_LR;
    st = open_model(t, err);
    if (!st)
        st = open_loaders(t, err);
    if (st)
        return st;
    ooc_optimizer_init(&t->optimizer, &t->opts.optimizer, t->model);
    st = ooc_trainer_take_memory(t, err);
    if (!st)
        st = ooc_trainer_check_outputs(t, err);
    if (!st)
        st = load(t, err);
    if (!st && t->opts.log)
        st = ooc_run_log_open(&t->log, t->opts.log, t->opts.resume != NULL, err);
    return st;
}

ooc_status ooc_trainer_open(ooc_trainer **out, const ooc_train_opts *opts, ooc_err *err)
{
    ooc_trainer *t = ooc_calloc(1, sizeof *t);
    ooc_status st;

    *out = NULL;
    if (!t)
        return ooc_fail(err, OOC_E_NOMEM, "no memory for a trainer");
    t->opts = *opts;
    t->log.fd = t->row_weight_file.fd = -1;
    no_files(&t->train);
    no_files(&t->val);
    st = open_all(t, err);
    if (st) {
        ooc_trainer_close(t);
        return st;
    }
    *out = t;
    return OOC_OK;
}

void ooc_trainer_close(ooc_trainer *t)
{
    if (!t)
        return;
    ooc_run_log_close(&t->log);
    ooc_loader_close(t->loader);
    ooc_loader_close(t->eval_loader);
    ooc_model_close(t->model);
    ooc_trainer_give_memory_back(t);
    close_files(&t->train);
    close_files(&t->val);
    ooc_sample_file_close(&t->row_weight_file);
    ooc_free(t);
}

void ooc_trainer_interrupt(ooc_trainer *t)
{
    t->stop = 1;
    ooc_engine_interrupt(t->engine);
}
