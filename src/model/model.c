#include "src/model/model.h"
#include "base/alloc.h"
#include "base/checked.h"
#include "src/model/model_build.h"
#include "src/model/rng.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

struct ooc_model {
    ooc_model_opts opts;
    ooc_dense *dense;
    ooc_params params;
    ooc_net net;  /* the sweep that backward can follow (opts.train), or the only one */
    ooc_net eval; /* a forward sweep alone; shares net's layers */
    float *weights, *gradients;
    float *block;   /* activations and their gradients */
    float *outputs; /* batch x N: f's output, later its gradient; NULL: X and G themselves */
    void *workspace;
    float *weight_at[OOC_MODEL_MAX_PARAMS], *gradient_at[OOC_MODEL_MAX_PARAMS];
};

const char *ooc_model_kind_name(ooc_model_kind kind)
{
    static const char *const names[] = {"unet", "mlp", "pixels"};

    return names[kind];
}

uint32_t ooc_params_add(ooc_params *p, const char *name, const char *suffix, uint64_t fan_in,
                        uint32_t n_dims, const uint64_t *shape)
{
    ooc_param *t = &p->list[p->n];

    snprintf(t->name, sizeof t->name, "%s%s", name, suffix);
    t->fan_in = fan_in;
    t->n_dims = n_dims;
    t->n = 1;
    for (uint32_t i = 0; i < n_dims; i++) {
        t->shape[i] = shape[i];
        t->n *= shape[i];
    }
    t->off = p->floats;
    p->floats += ooc_round_up(t->n, 16);
    return p->n++;
}

uint32_t ooc_params_add_layer(ooc_params *p, const char *name, uint64_t in, uint64_t out,
                              uint64_t k)
{
    const uint64_t shape[4] = {out, in, k, k};
    const uint64_t fan_in = in * (k ? k * k : 1);
    const uint32_t weight = ooc_params_add(p, name, ".weight", fan_in, k ? 4 : 2, shape);

    ooc_params_add(p, name, ".bias", fan_in, 1, shape);
    return weight;
}

/* A shape that was given must fit whatever the model: pictures are drawn by it, too. */
static ooc_status check_shape(const char *option, const char *what, const uint64_t shape[2],
                              uint64_t n, bool needed, ooc_err *err)
{
    uint64_t side = (uint64_t)sqrt((double)n);
    char example[64];

    if (!shape[0] && !shape[1] && !needed)
        return OOC_OK;
    if (shape[0] && shape[1] && shape[0] <= n / shape[1] && shape[0] * shape[1] == n)
        return OOC_OK;
    if (!n)
        return ooc_fail(err, OOC_E_ARG, "%s: %s has no entries", option, what);
    while (side > 1 && n % side)
        side--;
    snprintf(example, sizeof example, "%" PRIu64 "x%" PRIu64, side, n / side);
    if (!shape[0])
        return ooc_fail(err, OOC_E_ARG,
                        "%s is needed: %s has %" PRIu64 " entries, so give HEIGHTxWIDTH whose "
                        "product is %" PRIu64 ", such as %s",
                        option, what, n, n, example);
    return ooc_fail(err, OOC_E_ARG,
                    "%s %" PRIu64 "x%" PRIu64 " does not fit: %s has %" PRIu64
                    " entries, so HEIGHT times WIDTH must be %" PRIu64 ", such as %s",
                    option, shape[0], shape[1], what, n, n, example);
}

static ooc_status check_shapes(const ooc_model_opts *o, ooc_err *err)
{
    const bool needed = o->kind == OOC_MODEL_UNET;
    ooc_status st = check_shape("--input-shape", "a sample (a row of A each)", o->in_shape, o->n_in,
                                needed, err);

    return st ? st
              : check_shape("--output-shape", "X (a column of A each)", o->out_shape, o->n_out,
                            needed, err);
}

ooc_status ooc_model_check(const ooc_model_opts *o, ooc_err *err)
{
    uint64_t entries;
    ooc_status st;

    if (o->batch < 1 || o->batch > OOC_MODEL_MAX_BATCH)
        return ooc_fail(err, OOC_E_ARG, "--batch-size %u is not within 1 to %d", o->batch,
                        OOC_MODEL_MAX_BATCH);
    if (o->n_in > UINT32_MAX || o->n_out > UINT32_MAX)
        return ooc_fail(err, OOC_E_ARG,
                        "a matrix of %" PRIu64 " x %" PRIu64 " is beyond the models' 2^32 - 1",
                        o->n_in, o->n_out);
    if (o->kind != OOC_MODEL_PIXELS && (!o->n_in || !o->n_out))
        return ooc_fail(err, OOC_E_ARG,
                        "a matrix of %" PRIu64 " x %" PRIu64 " leaves a net nothing to %s", o->n_in,
                        o->n_out, o->n_in ? "give" : "take");
    st = check_shapes(o, err);
    if (st)
        return st;
    if (o->kind == OOC_MODEL_UNET)
        return ooc_unet_check(o, err);
    if (o->kind == OOC_MODEL_MLP)
        return ooc_mlp_check(o, err);
    if (!ooc_mul_u64(o->n_samples, o->n_out, &entries) || entries > UINT64_MAX / 64)
        return ooc_fail(err, OOC_E_ARG, "--model pixels: %" PRIu64 " images are too many",
                        o->n_samples);
    return OOC_OK;
}

static void build_pixels(const ooc_model_opts *o, ooc_params *params)
{
    const uint64_t shape[2] = {o->n_samples, o->n_out};

    ooc_params_add(params, "image", "", 0, 2, shape);
}

ooc_status ooc_model_open(ooc_model **out, const ooc_model_opts *opts, ooc_dense *dense,
                          ooc_err *err)
{
    ooc_model *m;
    ooc_status st;

    *out = NULL;
    st = ooc_model_check(opts, err);
    if (st)
        return st;
    m = ooc_calloc(1, sizeof *m);
    if (!m)
        return ooc_fail(err, OOC_E_NOMEM, "no memory for a model");
    m->opts = *opts;
    m->dense = dense;
    if (opts->kind == OOC_MODEL_PIXELS) {
        build_pixels(opts, &m->params);
    } else {
        if (opts->kind == OOC_MODEL_UNET)
            ooc_unet_build(opts, &m->net, &m->params);
        else
            ooc_mlp_build(opts, &m->net, &m->params);
        st = ooc_net_make_layers(&m->net, dense, opts->train, err);
        ooc_net_schedule(&m->net, opts->train, opts->recompute);
        m->eval = m->net;
        ooc_net_schedule(&m->eval, false, false);
    }
    if (st) {
        ooc_model_close(m);
        return st;
    }
    *out = m;
    return OOC_OK;
}

void ooc_model_close(ooc_model *m)
{
    if (!m)
        return;
    ooc_net_free(&m->net, m->dense);
    ooc_free(m);
}

static uint64_t block_floats(const ooc_model *m)
{
    return ooc_max_u64(m->net.block_floats, m->eval.block_floats);
}

void ooc_model_plan(const ooc_model *m, ooc_plan *plan)
{
    ooc_plan_add(plan, "weights", m->params.floats, sizeof(float));
    if (m->opts.train)
        ooc_plan_add(plan, "gradients", m->params.floats, sizeof(float));
    if (m->opts.batch > 1)
        ooc_plan_add(plan, "model output", m->opts.batch * m->opts.n_out, sizeof(float));
    if (m->net.n_nodes) {
        ooc_plan_add(plan, "activations", block_floats(m), sizeof(float));
        ooc_plan_add(plan, "layer workspace", m->net.workspace_bytes, 1);
    }
}

ooc_status ooc_model_start(ooc_model *m, ooc_arena *arena, ooc_err *err)
{
    const uint64_t bytes = m->params.floats * sizeof(float);
    void *p;
    ooc_status st = ooc_arena_take(arena, "weights", bytes, &p, err);

    m->weights = p;
    if (!st && m->opts.train)
        st = ooc_arena_take(arena, "gradients", bytes, &p, err);
    if (!st && m->opts.train)
        m->gradients = p;
    if (!st && m->opts.batch > 1) {
        st = ooc_arena_take(arena, "model output", m->opts.batch * m->opts.n_out * sizeof(float),
                            &p, err);
        m->outputs = p;
    }
    if (!st)
        st = ooc_arena_take(arena, "activations", block_floats(m) * sizeof(float), &p, err);
    m->block = p;
    if (!st)
        st = ooc_arena_take(arena, "layer workspace", m->net.workspace_bytes, &p, err);
    m->workspace = p;
    if (!st)
        st = m->dense->ops->zero(m->dense, m->weights, m->params.floats, err);
    if (!st && m->gradients)
        st = m->dense->ops->zero(m->dense, m->gradients, m->params.floats, err);
    for (uint32_t i = 0; !st && i < m->params.n; i++) {
        m->weight_at[i] = m->weights + m->params.list[i].off;
        m->gradient_at[i] = m->gradients ? m->gradients + m->params.list[i].off : NULL;
    }
    return st;
}

ooc_status ooc_model_init(ooc_model *m, uint64_t seed, ooc_err *err)
{
    enum { CHUNK = 1024 };
    float values[CHUNK];
    ooc_rng rng;
    ooc_status st = OOC_OK;

    ooc_rng_seed(&rng, seed, 0);
    for (uint32_t i = 0; !st && i < m->params.n; i++) {
        const ooc_param *t = &m->params.list[i];
        const float bound = t->fan_in ? (float)(1 / sqrt((double)t->fan_in)) : 0;

        for (uint64_t at = 0; !st && t->fan_in && at < t->n; at += CHUNK) {
            const uint64_t n = ooc_min_u64(CHUNK, t->n - at);

            for (uint64_t k = 0; k < n; k++)
                values[k] = bound * (2 * ooc_rng_uniform(&rng) - 1);
            st = m->dense->ops->upload(m->dense, m->weight_at[i] + at, values, n * sizeof(float),
                                       err);
        }
    }
    return st;
}

/* pixels: the batch x N rows of `rows` are the images of these samples; the rest zero. */
static ooc_status gather_images(ooc_model *m, const uint32_t *samples, uint32_t n_used, float *rows,
                                ooc_err *err)
{
    const uint64_t n = m->opts.n_out;
    ooc_status st = OOC_OK;

    for (uint32_t b = 0; !st && b < n_used; b++)
        st = m->dense->ops->copy(m->dense, m->weights + samples[b] * n, rows + b * n, n, err);
    if (!st && n_used < m->opts.batch)
        st = m->dense->ops->zero(m->dense, rows + n_used * n, (m->opts.batch - n_used) * n, err);
    return st;
}

static ooc_status scatter_images(ooc_model *m, const uint32_t *samples, uint32_t n_used,
                                 const float *rows, ooc_err *err)
{
    const uint64_t n = m->opts.n_out;
    ooc_status st = m->dense->ops->zero(m->dense, m->gradients, m->params.floats, err);

    for (uint32_t b = 0; !st && b < n_used; b++)
        st = m->dense->ops->copy(m->dense, rows + b * n, m->gradients + samples[b] * n, n, err);
    return st;
}

static ooc_net_memory memory_of(const ooc_model *m, const float *input)
{
    const ooc_net_memory mem = {.input = input,
                                .block = m->block,
                                .workspace = m->workspace,
                                .weights = m->weight_at,
                                .gradients = m->gradient_at};

    return mem;
}

ooc_status ooc_model_forward(ooc_model *m, const float *input, const uint32_t *samples,
                             uint32_t n_used, bool keep, float *X, ooc_err *err)
{
    float *rows = m->outputs ? m->outputs : X;
    ooc_net_memory mem = memory_of(m, input);
    ooc_status st;

    mem.output = rows;
    if (m->opts.kind == OOC_MODEL_PIXELS)
        st = gather_images(m, samples, n_used, rows, err);
    else
        st = ooc_net_forward(keep ? &m->net : &m->eval, m->dense, &mem, err);
    if (!st && rows != X)
        st = m->dense->ops->transpose(m->dense, rows, m->opts.batch, m->opts.n_out, X, err);
    return st;
}

ooc_status ooc_model_backward(ooc_model *m, const float *input, const uint32_t *samples,
                              uint32_t n_used, const float *G, ooc_err *err)
{
    const uint64_t n = m->opts.n_out, batch = m->opts.batch;
    const float *rows = m->outputs ? m->outputs : G;
    ooc_net_memory mem = memory_of(m, input);
    ooc_status st = OOC_OK;

    if (m->outputs)
        st = m->dense->ops->transpose(m->dense, G, n, batch, m->outputs, err);
    if (!st && n_used < batch) /* samples that are not there have no part in the gradient */
        st = m->dense->ops->zero(m->dense, m->outputs + n_used * n, (batch - n_used) * n, err);
    if (st)
        return st;
    if (m->opts.kind == OOC_MODEL_PIXELS)
        return scatter_images(m, samples, n_used, rows, err);
    mem.doutput = rows;
    return ooc_net_backward(&m->net, m->dense, &mem, err);
}

const float *ooc_model_rows(const ooc_model *m, const float *X)
{
    return m->outputs ? m->outputs : X;
}

uint32_t ooc_model_n_params(const ooc_model *m)
{
    return m->params.n;
}

const ooc_param *ooc_model_param(const ooc_model *m, uint32_t i)
{
    return &m->params.list[i];
}

uint64_t ooc_model_block_floats(const ooc_model *m)
{
    return m->params.floats;
}

float *ooc_model_weights(const ooc_model *m)
{
    return m->weights;
}

float *ooc_model_gradients(const ooc_model *m)
{
    return m->gradients;
}

const ooc_model_opts *ooc_model_get_opts(const ooc_model *m)
{
    return &m->opts;
}

ooc_dense *ooc_model_dense(const ooc_model *m)
{
    return m->dense;
}
