/* net.h - a network as a list of operations, and the schedule that runs it in a planned memory.
 *
 * A builder (unet.c, mlp.c) adds tensors and nodes in forward order. ooc_net_schedule() then writes
 * down every step of a forward (and backward) sweep, follows how long each buffer is needed and
 * packs the buffers into one block: what activations cost is known, exactly, before anything is
 * taken.
 *
 *     activation of tensor t      written by its node's forward step, needed until the last step
 *                                 that reads it
 *     gradient of tensor t        written by the backward step of its last consumer (earlier ones
 *                                 add), needed until its own node's backward step
 *
 * Recomputation: nodes carry a group number. Only tensors that another group reads are kept; before
 * a group's backward its forward steps run again for the others (same inputs, same bits).
 * Tensors are float; `input` and `output` live outside of the block. */
#ifndef OOC_SRC_MODEL_NET_H
#define OOC_SRC_MODEL_NET_H

#include "src/model/dense_ops.h"

#define OOC_NET_MAX_NODES 64

typedef enum { OOC_NODE_LAYER, OOC_NODE_POOL, OOC_NODE_UPCAT, OOC_NODE_RESIZE } ooc_node_kind;

typedef struct {
    ooc_node_kind kind;
    uint32_t in, skip, out; /* tensors; skip: UPCAT only */
    uint32_t group;
    ooc_layer_shape shape; /* LAYER */
    ooc_layer *layer;      /* LAYER: made by ooc_net_make_layers, the net's own */
    uint32_t weight, bias; /* LAYER: places in the model's parameter list */
} ooc_node;

typedef struct {
    ooc_image image; /* of one sample; plain vectors are 1 x 1 x length */
    int producer;    /* node, or -1: the input */
} ooc_tensor;

/* A layer's backward is three steps, so that its input's gradient may lie where its input did. */
typedef enum {
    OOC_STEP_FORWARD,
    OOC_STEP_MASK,    /* LAYER with ReLU: the gradient of `out` before the activation, in place */
    OOC_STEP_WEIGHTS, /* LAYER: gradients of weight and bias */
    OOC_STEP_DATA     /* the gradients of `in` and `skip` from that of `out` */
} ooc_step_kind;

typedef struct {
    ooc_step_kind kind;
    uint32_t node;
    bool again; /* FORWARD: a recomputed one */
    bool add;   /* DATA: the gradient of `in` is added to what is there */
} ooc_net_step;

/* Places in the block, in floats; OOC_NET_OUTSIDE for input, output and what is never needed. */
#define OOC_NET_OUTSIDE UINT64_MAX

typedef struct {
    uint64_t first, again; /* the activation as first computed, and as recomputed */
    uint64_t gradient;
} ooc_net_place;

typedef struct {
    uint32_t batch;
    uint32_t n_nodes, n_tensors;
    ooc_node node[OOC_NET_MAX_NODES];
    ooc_tensor tensor[OOC_NET_MAX_NODES + 1]; /* 0 is the input, the last node's is the output */
    /* the schedule */
    bool backward, recompute;
    uint32_t n_steps, first_backward;
    ooc_net_step step[5 * OOC_NET_MAX_NODES];
    ooc_net_place place[OOC_NET_MAX_NODES + 1];
    uint64_t block_floats;
    uint64_t workspace_bytes; /* the largest of all layers */
} ooc_net;

/* Building. The input is tensor 0. Each returns the new tensor. */
void ooc_net_begin(ooc_net *net, uint32_t batch, ooc_image input);
/* A 3x3 or 1x1 convolution, or (linear) a dense layer on a vector. */
uint32_t ooc_net_layer(ooc_net *net, uint32_t in, uint32_t channels, uint32_t kernel, bool linear,
                       bool relu, uint32_t weight, uint32_t group);
uint32_t ooc_net_pool(ooc_net *net, uint32_t in, uint32_t group);
uint32_t ooc_net_upcat(ooc_net *net, uint32_t low, uint32_t skip, uint32_t group);
uint32_t ooc_net_resize(ooc_net *net, uint32_t in, uint32_t h, uint32_t w, uint32_t group);

/* Makes the layers of the backend: from here on ooc_net_free() is due. */
ooc_status ooc_net_make_layers(ooc_net *net, ooc_dense *d, bool backward, ooc_err *err);
void ooc_net_free(ooc_net *net, ooc_dense *d);
/* Steps, places and sizes. backward false: a forward sweep alone, in less memory. */
void ooc_net_schedule(ooc_net *net, bool backward, bool recompute);

/* What a sweep works with. */
typedef struct {
    const float *input;    /* batch samples */
    float *output;         /* batch samples, written by forward */
    const float *doutput;  /* its gradient, read by backward */
    float *block;          /* block_floats */
    void *workspace;       /* workspace_bytes */
    float *const *weights; /* parameters and their gradients, by the nodes' places */
    float *const *gradients;
} ooc_net_memory;

ooc_status ooc_net_forward(const ooc_net *net, ooc_dense *d, const ooc_net_memory *m, ooc_err *err);
/* After a forward of the same schedule, with the block untouched. Gradients are overwritten. */
ooc_status ooc_net_backward(const ooc_net *net, ooc_dense *d, const ooc_net_memory *m,
                            ooc_err *err);

/* Floats of one tensor, all samples. */
static inline uint64_t ooc_net_floats(const ooc_net *net, uint32_t t)
{
    const ooc_image i = net->tensor[t].image;

    return (uint64_t)net->batch * i.h * i.w * i.c;
}
#endif
