#include "src/model/layer_dnnl.h"
#include "base/alloc.h"
#include "base/checked.h"

#include <oneapi/dnnl/dnnl.h>
#include <string.h>

struct ooc_dnnl {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
};

/* A primitive and the memory objects of its arguments; addresses are set before each run. */
typedef struct {
    dnnl_primitive_t primitive;
    dnnl_exec_arg_t arg[6];
    int n_args;
    uint64_t scratch_bytes;
} step;

struct ooc_layer {
    ooc_layer_shape shape;
    dnnl_memory_desc_t x, w, b, y; /* as the caller has them */
    step forward, backward_data, backward_weights;
    step pack_forward, pack_backward, unpack; /* no primitive: the caller's order is used */
    uint64_t packed_bytes;                    /* of the largest packed weights */
    uint64_t workspace_bytes;
};

/* The three directions, as one descriptor type. */
typedef union {
    dnnl_convolution_desc_t conv;
    dnnl_inner_product_desc_t linear;
} direction;

static ooc_status failed(ooc_err *err, const char *what, dnnl_status_t st)
{
    if (st == dnnl_out_of_memory)
        return ooc_fail(err, OOC_E_NOMEM, "oneDNN has no memory to %s", what);
    return ooc_fail(err, OOC_E_DEVICE, "oneDNN could not %s (its status %d)", what, (int)st);
}

ooc_status ooc_dnnl_open(ooc_dnnl **out, ooc_err *err)
{
    ooc_dnnl *d = ooc_calloc(1, sizeof *d);
    dnnl_status_t st;

    *out = NULL;
    if (!d)
        return ooc_fail(err, OOC_E_NOMEM, "no memory for oneDNN's handles");
    st = dnnl_engine_create(&d->engine, dnnl_cpu, 0);
    if (!st)
        st = dnnl_stream_create(&d->stream, d->engine, dnnl_stream_default_flags);
    if (st) {
        ooc_dnnl_close(d);
        return failed(err, "open the CPU", st);
    }
    *out = d;
    return OOC_OK;
}

void ooc_dnnl_close(ooc_dnnl *d)
{
    if (!d)
        return;
    if (d->stream)
        dnnl_stream_destroy(d->stream);
    if (d->engine)
        dnnl_engine_destroy(d->engine);
    ooc_free(d);
}

static void step_free(step *s)
{
    for (int i = 0; i < s->n_args; i++)
        dnnl_memory_destroy(s->arg[i].memory);
    if (s->primitive)
        dnnl_primitive_destroy(s->primitive);
}

static dnnl_status_t step_arg(ooc_dnnl *d, step *s, int id, const dnnl_memory_desc_t *md)
{
    dnnl_memory_t memory;
    dnnl_status_t st = dnnl_memory_create(&memory, md, d->engine, DNNL_MEMORY_NONE);

    if (st)
        return st;
    s->arg[s->n_args].arg = id;
    s->arg[s->n_args++].memory = memory;
    return dnnl_success;
}

/* Make the primitive of `pd` (destroyed here) and its scratch memory's argument. */
static dnnl_status_t step_make(ooc_dnnl *d, step *s, dnnl_primitive_desc_t pd)
{
    const dnnl_memory_desc_t *scratch =
        dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    dnnl_status_t st = dnnl_primitive_create(&s->primitive, pd);

    s->scratch_bytes = scratch ? dnnl_memory_desc_get_size(scratch) : 0;
    if (!st && s->scratch_bytes)
        st = step_arg(d, s, DNNL_ARG_SCRATCHPAD, scratch);
    dnnl_primitive_desc_destroy(pd);
    return st;
}

static dnnl_status_t step_set(step *s, int id, const void *p)
{
    for (int i = 0; i < s->n_args; i++)
        if (s->arg[i].arg == id)
            return dnnl_memory_set_data_handle(s->arg[i].memory, (void *)(uintptr_t)p);
    return dnnl_success; /* scratch that is not needed */
}

static ooc_status step_run(ooc_dnnl *d, step *s, const char *what, ooc_err *err)
{
    dnnl_status_t st = dnnl_primitive_execute(s->primitive, d->stream, s->n_args, s->arg);

    if (!st)
        st = dnnl_stream_wait(d->stream);
    return st ? failed(err, what, st) : OOC_OK;
}

static dnnl_status_t user_scratch(dnnl_primitive_attr_t *attr, bool relu)
{
    dnnl_post_ops_t ops = NULL;
    dnnl_status_t st = dnnl_primitive_attr_create(attr);

    if (!st)
        st = dnnl_primitive_attr_set_scratchpad_mode(*attr, dnnl_scratchpad_mode_user);
    if (!st && relu) {
        st = dnnl_post_ops_create(&ops);
        if (!st)
            st = dnnl_post_ops_append_eltwise(ops, 1, dnnl_eltwise_relu, 0, 0);
        if (!st)
            st = dnnl_primitive_attr_set_post_ops(*attr, ops);
        if (ops)
            dnnl_post_ops_destroy(ops);
    }
    return st;
}

static dnnl_status_t describe_caller(ooc_layer *l)
{
    const ooc_layer_shape *s = &l->shape;
    const dnnl_dims_t x = {s->batch, s->in, s->h, s->w}, y = {s->batch, s->out, s->h, s->w};
    const dnnl_dims_t w = {s->out, s->in, s->kernel, s->kernel}, b = {s->out};
    const int n = s->linear ? 2 : 4;
    dnnl_status_t st;

    st = dnnl_memory_desc_init_by_tag(&l->x, n, x, dnnl_f32, s->linear ? dnnl_ab : dnnl_nhwc);
    if (!st)
        st = dnnl_memory_desc_init_by_tag(&l->y, n, y, dnnl_f32, s->linear ? dnnl_ab : dnnl_nhwc);
    if (!st)
        st = dnnl_memory_desc_init_by_tag(&l->w, n, w, dnnl_f32, s->linear ? dnnl_ab : dnnl_oihw);
    if (!st)
        st = dnnl_memory_desc_init_by_tag(&l->b, 1, b, dnnl_f32, dnnl_a);
    return st;
}

/* kind: dnnl_forward_training, dnnl_backward_data or dnnl_backward_weights. */
static dnnl_status_t describe(ooc_layer *l, dnnl_prop_kind_t kind, direction *out)
{
    const dnnl_dims_t stride = {1, 1}, pad = {l->shape.kernel / 2, l->shape.kernel / 2};
    dnnl_memory_desc_t w = l->w;

    if (l->shape.linear) {
        if (kind == dnnl_backward_data)
            return dnnl_inner_product_backward_data_desc_init(&out->linear, &l->x, &w, &l->y);
        if (kind == dnnl_backward_weights)
            return dnnl_inner_product_backward_weights_desc_init(&out->linear, &l->x, &w, &l->b,
                                                                 &l->y);
        return dnnl_inner_product_forward_desc_init(&out->linear, kind, &l->x, &w, &l->b, &l->y);
    }
    dnnl_memory_desc_init_by_tag(&w, 4, l->w.dims, dnnl_f32, dnnl_format_tag_any);
    if (kind == dnnl_backward_data)
        return dnnl_convolution_backward_data_desc_init(&out->conv, dnnl_convolution_direct, &l->x,
                                                        &w, &l->y, stride, pad, pad);
    if (kind == dnnl_backward_weights)
        return dnnl_convolution_backward_weights_desc_init(
            &out->conv, dnnl_convolution_direct, &l->x, &w, &l->b, &l->y, stride, pad, pad);
    return dnnl_convolution_forward_desc_init(&out->conv, kind, dnnl_convolution_direct, &l->x, &w,
                                              &l->b, &l->y, stride, pad, pad);
}

/* The reorder from `from` to `to`; nothing where they are the same. */
static dnnl_status_t make_reorder(ooc_dnnl *d, step *s, const dnnl_memory_desc_t *from,
                                  const dnnl_memory_desc_t *to)
{
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t pd;
    dnnl_status_t st;

    if (dnnl_memory_desc_equal(from, to))
        return dnnl_success;
    st = user_scratch(&attr, false);
    if (!st)
        st = dnnl_reorder_primitive_desc_create(&pd, from, d->engine, to, d->engine, attr);
    if (!st)
        st = step_make(d, s, pd);
    if (attr)
        dnnl_primitive_attr_destroy(attr);
    if (!st)
        st = step_arg(d, s, DNNL_ARG_FROM, from);
    if (!st)
        st = step_arg(d, s, DNNL_ARG_TO, to);
    return st;
}

/* Makes the primitive; *weights gets the order in which it wants (or gives) the weights. `hint`:
 * the forward primitive's descriptor, for the backward ones. */
static dnnl_status_t make_direction(ooc_dnnl *d, ooc_layer *l, dnnl_prop_kind_t kind, step *s,
                                    dnnl_memory_desc_t *weights, dnnl_primitive_desc_t hint,
                                    dnnl_primitive_desc_t *keep)
{
    const bool relu = l->shape.relu && !hint;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t pd = NULL;
    direction what;
    dnnl_status_t st = user_scratch(&attr, relu);

    if (!st)
        st = describe(l, kind, &what);
    if (!st)
        st = dnnl_primitive_desc_create(&pd, &what, attr, d->engine, hint);
    if (attr)
        dnnl_primitive_attr_destroy(attr);
    if (st)
        return st;
    *weights = *dnnl_primitive_desc_query_md(
        pd, kind == dnnl_backward_weights ? dnnl_query_diff_weights_md : dnnl_query_weights_md, 0);
    if (keep)
        st = dnnl_primitive_desc_clone(keep, pd);
    if (st) {
        dnnl_primitive_desc_destroy(pd);
        return st;
    }
    return step_make(d, s, pd);
}

static dnnl_status_t make_forward(ooc_dnnl *d, ooc_layer *l, dnnl_primitive_desc_t *keep)
{
    dnnl_memory_desc_t w;
    const dnnl_prop_kind_t kind =
        l->shape.backward ? dnnl_forward_training : dnnl_forward_inference;
    dnnl_status_t st = make_direction(d, l, kind, &l->forward, &w, NULL, keep);

    if (!st)
        st = step_arg(d, &l->forward, DNNL_ARG_SRC, &l->x);
    if (!st)
        st = step_arg(d, &l->forward, DNNL_ARG_WEIGHTS, &w);
    if (!st)
        st = step_arg(d, &l->forward, DNNL_ARG_BIAS, &l->b);
    if (!st)
        st = step_arg(d, &l->forward, DNNL_ARG_DST, &l->y);
    if (!st)
        st = make_reorder(d, &l->pack_forward, &l->w, &w);
    if (!st && l->pack_forward.primitive)
        l->packed_bytes = dnnl_memory_desc_get_size(&w);
    return st;
}

static dnnl_status_t make_backward(ooc_dnnl *d, ooc_layer *l, dnnl_primitive_desc_t hint)
{
    step *data = &l->backward_data, *weights = &l->backward_weights;
    dnnl_memory_desc_t w, dw;
    dnnl_status_t st = make_direction(d, l, dnnl_backward_data, data, &w, hint, NULL);

    if (!st)
        st = make_direction(d, l, dnnl_backward_weights, weights, &dw, hint, NULL);
    if (!st)
        st = step_arg(d, data, DNNL_ARG_DIFF_DST, &l->y);
    if (!st)
        st = step_arg(d, data, DNNL_ARG_WEIGHTS, &w);
    if (!st)
        st = step_arg(d, data, DNNL_ARG_DIFF_SRC, &l->x);
    if (!st)
        st = step_arg(d, weights, DNNL_ARG_SRC, &l->x);
    if (!st)
        st = step_arg(d, weights, DNNL_ARG_DIFF_DST, &l->y);
    if (!st)
        st = step_arg(d, weights, DNNL_ARG_DIFF_WEIGHTS, &dw);
    if (!st)
        st = step_arg(d, weights, DNNL_ARG_DIFF_BIAS, &l->b);
    if (!st)
        st = make_reorder(d, &l->pack_backward, &l->w, &w);
    if (!st)
        st = make_reorder(d, &l->unpack, &dw, &l->w);
    if (!st && l->pack_backward.primitive)
        l->packed_bytes = ooc_max_u64(l->packed_bytes, dnnl_memory_desc_get_size(&w));
    if (!st && l->unpack.primitive)
        l->packed_bytes = ooc_max_u64(l->packed_bytes, dnnl_memory_desc_get_size(&dw));
    return st;
}

void ooc_layer_dnnl_free(ooc_layer *l)
{
    if (!l)
        return;
    step_free(&l->forward);
    step_free(&l->backward_data);
    step_free(&l->backward_weights);
    step_free(&l->pack_forward);
    step_free(&l->pack_backward);
    step_free(&l->unpack);
    ooc_free(l);
}

static uint64_t largest_scratch(const ooc_layer *l)
{
    const step *steps[6] = {&l->forward,      &l->backward_data, &l->backward_weights,
                            &l->pack_forward, &l->pack_backward, &l->unpack};
    uint64_t bytes = 0;

    for (int i = 0; i < 6; i++)
        bytes = ooc_max_u64(bytes, steps[i]->scratch_bytes);
    return bytes;
}

ooc_status ooc_layer_dnnl_new(ooc_dnnl *d, ooc_layer **out, const ooc_layer_shape *shape,
                              ooc_err *err)
{
    ooc_layer *l = ooc_calloc(1, sizeof *l);
    dnnl_primitive_desc_t forward = NULL;
    dnnl_status_t st;

    *out = NULL;
    if (!l)
        return ooc_fail(err, OOC_E_NOMEM, "no memory for a layer");
    l->shape = *shape;
    st = describe_caller(l);
    if (!st)
        st = make_forward(d, l, &forward);
    if (!st && shape->backward)
        st = make_backward(d, l, forward);
    if (forward)
        dnnl_primitive_desc_destroy(forward);
    if (st) {
        ooc_layer_dnnl_free(l);
        return failed(err, "make a layer", st);
    }
    l->packed_bytes = ooc_round_up(l->packed_bytes, 64);
    l->workspace_bytes = l->packed_bytes + ooc_round_up(largest_scratch(l), 64);
    *out = l;
    return OOC_OK;
}

uint64_t ooc_layer_dnnl_workspace(const ooc_layer *l)
{
    return l->workspace_bytes;
}

static void *scratch_of(const ooc_layer *l, void *workspace)
{
    return (char *)workspace + l->packed_bytes;
}

/* Bring weights into (or back from) the order in the workspace. */
static ooc_status reorder(ooc_dnnl *d, ooc_layer *l, step *s, const void *from, void *to,
                          void *workspace, ooc_err *err)
{
    dnnl_status_t st = step_set(s, DNNL_ARG_FROM, from);

    if (!st)
        st = step_set(s, DNNL_ARG_TO, to);
    if (!st)
        st = step_set(s, DNNL_ARG_SCRATCHPAD, scratch_of(l, workspace));
    if (st)
        return failed(err, "place weights", st);
    return step_run(d, s, "reorder weights", err);
}

ooc_status ooc_layer_dnnl_forward(ooc_dnnl *d, ooc_layer *l, const float *x, const float *w,
                                  const float *b, float *y, void *workspace, ooc_err *err)
{
    const void *weights = l->pack_forward.primitive ? workspace : (const void *)w;
    ooc_status st = OOC_OK;
    dnnl_status_t set;

    if (l->pack_forward.primitive)
        st = reorder(d, l, &l->pack_forward, w, workspace, workspace, err);
    if (st)
        return st;
    set = step_set(&l->forward, DNNL_ARG_SRC, x);
    if (!set)
        set = step_set(&l->forward, DNNL_ARG_WEIGHTS, weights);
    if (!set)
        set = step_set(&l->forward, DNNL_ARG_BIAS, b);
    if (!set)
        set = step_set(&l->forward, DNNL_ARG_DST, y);
    if (!set)
        set = step_set(&l->forward, DNNL_ARG_SCRATCHPAD, scratch_of(l, workspace));
    if (set)
        return failed(err, "place a layer's arguments", set);
    return step_run(d, &l->forward, "run a layer forward", err);
}

ooc_status ooc_layer_dnnl_backward_weights(ooc_dnnl *d, ooc_layer *l, const float *x,
                                           const float *dy, float *dw, float *db, void *workspace,
                                           ooc_err *err)
{
    step *s = &l->backward_weights;
    dnnl_status_t set = step_set(s, DNNL_ARG_SRC, x);
    ooc_status st;

    if (!set)
        set = step_set(s, DNNL_ARG_DIFF_DST, dy);
    if (!set)
        set = step_set(s, DNNL_ARG_DIFF_WEIGHTS, l->unpack.primitive ? workspace : (void *)dw);
    if (!set)
        set = step_set(s, DNNL_ARG_DIFF_BIAS, db);
    if (!set)
        set = step_set(s, DNNL_ARG_SCRATCHPAD, scratch_of(l, workspace));
    if (set)
        return failed(err, "place a layer's arguments", set);
    st = step_run(d, s, "run a layer's weight gradient", err);
    if (!st && l->unpack.primitive)
        st = reorder(d, l, &l->unpack, workspace, dw, workspace, err);
    return st;
}

ooc_status ooc_layer_dnnl_backward_data(ooc_dnnl *d, ooc_layer *l, const float *w, const float *dy,
                                        float *dx, void *workspace, ooc_err *err)
{
    step *s = &l->backward_data;
    const void *weights = l->pack_backward.primitive ? workspace : (const void *)w;
    ooc_status st = OOC_OK;
    dnnl_status_t set;

    if (l->pack_backward.primitive)
        st = reorder(d, l, &l->pack_backward, w, workspace, workspace, err);
    if (st)
        return st;
    set = step_set(s, DNNL_ARG_DIFF_DST, dy);
    if (!set)
        set = step_set(s, DNNL_ARG_WEIGHTS, weights);
    if (!set)
        set = step_set(s, DNNL_ARG_DIFF_SRC, dx);
    if (!set)
        set = step_set(s, DNNL_ARG_SCRATCHPAD, scratch_of(l, workspace));
    if (set)
        return failed(err, "place a layer's arguments", set);
    return step_run(d, s, "run a layer's input gradient", err);
}
