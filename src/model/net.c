#include "src/model/net.h"
#include "base/checked.h"

#include <assert.h>
#include <string.h>

void ooc_net_begin(ooc_net *net, uint32_t batch, ooc_image input)
{
    memset(net, 0, sizeof *net);
    net->batch = batch;
    net->n_tensors = 1;
    net->tensor[0].image = input;
    net->tensor[0].producer = -1;
}

static uint32_t add(ooc_net *net, const ooc_node *node, ooc_image image)
{
    const uint32_t t = net->n_tensors++;

    assert(net->n_nodes < OOC_NET_MAX_NODES);
    net->tensor[t].image = image;
    net->tensor[t].producer = (int)net->n_nodes;
    net->node[net->n_nodes] = *node;
    net->node[net->n_nodes++].out = t;
    return t;
}

uint32_t ooc_net_layer(ooc_net *net, uint32_t in, uint32_t channels, uint32_t kernel, bool linear,
                       bool relu, uint32_t weight, uint32_t group)
{
    const ooc_image from = net->tensor[in].image;
    const ooc_image to = {from.h, from.w, channels};
    const ooc_node node = {.kind = OOC_NODE_LAYER,
                           .in = in,
                           .group = group,
                           .weight = weight,
                           .bias = weight + 1,
                           .shape = {.batch = net->batch,
                                     .h = from.h,
                                     .w = from.w,
                                     .in = from.c,
                                     .out = channels,
                                     .kernel = kernel,
                                     .linear = linear,
                                     .relu = relu}};

    return add(net, &node, to);
}

uint32_t ooc_net_pool(ooc_net *net, uint32_t in, uint32_t group)
{
    const ooc_image from = net->tensor[in].image;
    const ooc_image to = {from.h / 2, from.w / 2, from.c};
    const ooc_node node = {.kind = OOC_NODE_POOL, .in = in, .group = group};

    return add(net, &node, to);
}

uint32_t ooc_net_upcat(ooc_net *net, uint32_t low, uint32_t skip, uint32_t group)
{
    const ooc_image side = net->tensor[skip].image;
    const ooc_image to = {side.h, side.w, net->tensor[low].image.c + side.c};
    const ooc_node node = {.kind = OOC_NODE_UPCAT, .in = low, .skip = skip, .group = group};

    return add(net, &node, to);
}

uint32_t ooc_net_resize(ooc_net *net, uint32_t in, uint32_t h, uint32_t w, uint32_t group)
{
    const ooc_image to = {h, w, 1};
    const ooc_node node = {.kind = OOC_NODE_RESIZE, .in = in, .group = group};

    return add(net, &node, to);
}

ooc_status ooc_net_make_layers(ooc_net *net, ooc_dense *d, bool backward, ooc_err *err)
{
    ooc_status st = OOC_OK;

    net->workspace_bytes = 0;
    for (uint32_t i = 0; !st && i < net->n_nodes; i++) {
        ooc_node *node = &net->node[i];

        if (node->kind != OOC_NODE_LAYER)
            continue;
        node->shape.backward = backward;
        st = d->ops->layer_new(d, &node->layer, &node->shape, err);
        if (!st)
            net->workspace_bytes =
                ooc_max_u64(net->workspace_bytes, d->ops->layer_workspace(node->layer));
    }
    if (st)
        ooc_net_free(net, d);
    return st;
}

void ooc_net_free(ooc_net *net, ooc_dense *d)
{
    for (uint32_t i = 0; i < net->n_nodes; i++) {
        if (net->node[i].layer)
            d->ops->layer_free(d, net->node[i].layer);
        net->node[i].layer = NULL;
    }
}

/* The activation of `t`; `again`: as recomputed, where it is. */
static float *activation(const ooc_net *net, const ooc_net_memory *m, uint32_t t, bool again)
{
    const ooc_net_place *p = &net->place[t];
    const uint64_t at = again && p->again != OOC_NET_OUTSIDE ? p->again : p->first;

    if (t == 0)
        return (float *)(uintptr_t)m->input;
    if (t == net->n_tensors - 1)
        return m->output;
    return m->block + at;
}

static float *gradient(const ooc_net *net, const ooc_net_memory *m, uint32_t t)
{
    if (t == net->n_tensors - 1)
        return (float *)(uintptr_t)m->doutput;
    return m->block + net->place[t].gradient;
}

static ooc_status run_forward(const ooc_net *net, ooc_dense *d, const ooc_net_memory *m,
                              const ooc_net_step *s, ooc_err *err)
{
    const ooc_node *n = &net->node[s->node];
    const float *in = activation(net, m, n->in, s->again);
    float *out = activation(net, m, n->out, s->again);
    const ooc_image from = net->tensor[n->in].image, to = net->tensor[n->out].image;

    switch (n->kind) {
    case OOC_NODE_LAYER:
        return d->ops->layer_forward(d, n->layer, in, m->weights[n->weight], m->weights[n->bias],
                                     out, m->workspace, err);
    case OOC_NODE_POOL:
        return d->ops->maxpool_forward(d, in, net->batch, from, out, err);
    case OOC_NODE_UPCAT:
        return d->ops->upcat_forward(d, in, from, activation(net, m, n->skip, s->again), net->batch,
                                     net->tensor[n->skip].image, out, err);
    case OOC_NODE_RESIZE:
        break;
    }
    return d->ops->resize_forward(d, in, net->batch, from, to.h, to.w, out, err);
}

/* The gradients of a node's inputs. */
static ooc_status run_data(const ooc_net *net, ooc_dense *d, const ooc_net_memory *m,
                           const ooc_net_step *s, ooc_err *err)
{
    const ooc_node *n = &net->node[s->node];
    const ooc_image from = net->tensor[n->in].image, to = net->tensor[n->out].image;
    const float *dy = gradient(net, m, n->out);
    float *dx = gradient(net, m, n->in);

    switch (n->kind) {
    case OOC_NODE_LAYER:
        return d->ops->layer_backward_data(d, n->layer, m->weights[n->weight], dy, dx, m->workspace,
                                           err);
    case OOC_NODE_POOL:
        return d->ops->maxpool_backward(d, activation(net, m, n->in, true), net->batch, from, dy,
                                        s->add, dx, err);
    case OOC_NODE_UPCAT:
        return d->ops->upcat_backward(d, dy, net->batch, from, net->tensor[n->skip].image, dx,
                                      gradient(net, m, n->skip), err);
    case OOC_NODE_RESIZE:
        break;
    }
    return d->ops->resize_backward(d, dy, net->batch, from, to.h, to.w, dx, err);
}

static ooc_status run_step(const ooc_net *net, ooc_dense *d, const ooc_net_memory *m,
                           const ooc_net_step *s, ooc_err *err)
{
    const ooc_node *n = &net->node[s->node];

    switch (s->kind) {
    case OOC_STEP_FORWARD:
        return run_forward(net, d, m, s, err);
    case OOC_STEP_MASK:
        return d->ops->relu_backward(d, activation(net, m, n->out, true), gradient(net, m, n->out),
                                     ooc_net_floats(net, n->out), err);
    case OOC_STEP_WEIGHTS:
        return d->ops->layer_backward_weights(d, n->layer, activation(net, m, n->in, true),
                                              gradient(net, m, n->out), m->gradients[n->weight],
                                              m->gradients[n->bias], m->workspace, err);
    case OOC_STEP_DATA:
        break;
    }
    return run_data(net, d, m, s, err);
}

static ooc_status run_steps(const ooc_net *net, ooc_dense *d, const ooc_net_memory *m, uint32_t s0,
                            uint32_t s1, ooc_err *err)
{
    ooc_status st = OOC_OK;

    for (uint32_t i = s0; !st && i < s1; i++)
        st = run_step(net, d, m, &net->step[i], err);
    return st;
}

ooc_status ooc_net_forward(const ooc_net *net, ooc_dense *d, const ooc_net_memory *m, ooc_err *err)
{
    return run_steps(net, d, m, 0, net->first_backward, err);
}

ooc_status ooc_net_backward(const ooc_net *net, ooc_dense *d, const ooc_net_memory *m, ooc_err *err)
{
    assert(net->backward);
    return run_steps(net, d, m, net->first_backward, net->n_steps, err);
}
