/* The order of the steps of a sweep, and where each buffer lies while it is needed. */
#include "src/model/net.h"
#include "base/checked.h"

#include <assert.h>
#include <stddef.h>

#define ALIGN_FLOATS 16u /* 64 bytes */
#define MAX_BUFFERS  (3 * (OOC_NET_MAX_NODES + 1))

/* One buffer: when it is needed, how large it is, and where the schedule wants to read its place.
 */
typedef struct {
    uint32_t begin, end; /* steps, both included; begin > end: never */
    uint64_t floats;
    uint64_t *place;
} buffer;

typedef struct {
    buffer list[MAX_BUFFERS]; /* tensor t: [3t] first, [3t + 1] again, [3t + 2] gradient */
    uint32_t n;
} buffers;

static bool read_elsewhere(const ooc_net *net, uint32_t t)
{
    const int producer = net->tensor[t].producer;

    for (uint32_t i = 0; i < net->n_nodes; i++) {
        const ooc_node *n = &net->node[i];

        if (n->in == t || (n->kind == OOC_NODE_UPCAT && n->skip == t))
            if (producer < 0 || n->group != net->node[producer].group)
                return true;
    }
    return false;
}

/* Whether backward finds `t` computed again: only what no other group reads, and not in the last
 * group, whose activations are still there when backward begins. */
static bool computed_again(const ooc_net *net, uint32_t t)
{
    const int producer = net->tensor[t].producer;

    return net->recompute && producer >= 0 && t != net->n_tensors - 1 &&
           net->node[producer].group != net->node[net->n_nodes - 1].group &&
           !read_elsewhere(net, t);
}

static void add_step(ooc_net *net, ooc_step_kind kind, uint32_t node, bool again)
{
    const ooc_net_step s = {.kind = kind, .node = node, .again = again};

    net->step[net->n_steps++] = s;
}

static void add_recomputation(ooc_net *net, uint32_t last)
{
    uint32_t first = last;

    while (first > 0 && net->node[first - 1].group == net->node[last].group)
        first--;
    for (uint32_t i = first; i <= last; i++)
        if (computed_again(net, net->node[i].out))
            add_step(net, OOC_STEP_FORWARD, i, true);
}

/* Several nodes may read a tensor; the last of them runs backward first and overwrites. */
static void add_data_step(ooc_net *net, uint32_t node, bool *written)
{
    const ooc_node *n = &net->node[node];

    add_step(net, OOC_STEP_DATA, node, false);
    net->step[net->n_steps - 1].add = written[n->in];
    assert(!written[n->in] || n->kind == OOC_NODE_POOL); /* only pooling can add */
    written[n->in] = true;
    if (n->kind == OOC_NODE_UPCAT) {
        assert(!written[n->skip]);
        written[n->skip] = true;
    }
}

static void add_steps(ooc_net *net)
{
    bool written[OOC_NET_MAX_NODES + 1] = {false};

    net->n_steps = 0;
    for (uint32_t i = 0; i < net->n_nodes; i++)
        add_step(net, OOC_STEP_FORWARD, i, false);
    net->first_backward = net->n_steps;
    for (uint32_t i = net->n_nodes; net->backward && i-- > 0;) {
        const ooc_node *n = &net->node[i];

        if (i + 1 == net->n_nodes || n->group != net->node[i + 1].group)
            add_recomputation(net, i);
        if (n->kind == OOC_NODE_LAYER && n->shape.relu)
            add_step(net, OOC_STEP_MASK, i, false);
        if (n->kind == OOC_NODE_LAYER)
            add_step(net, OOC_STEP_WEIGHTS, i, false);
        if (n->in != 0) /* the input of the whole net has no gradient */
            add_data_step(net, i, written);
    }
}

static void touch(buffer *b, uint32_t step)
{
    if (b->begin > b->end) {
        b->begin = b->end = step;
        return;
    }
    if (step > b->end)
        b->end = step;
}

static void touch_activation(const ooc_net *net, buffers *all, uint32_t t, bool again,
                             uint32_t step)
{
    touch(&all->list[3 * t + (again && computed_again(net, t) ? 1 : 0)], step);
}

static void follow(const ooc_net *net, buffers *all, uint32_t i)
{
    const ooc_net_step *s = &net->step[i];
    const ooc_node *n = &net->node[s->node];

    if (s->kind == OOC_STEP_FORWARD) {
        touch_activation(net, all, n->in, s->again, i);
        touch_activation(net, all, n->out, s->again, i);
        if (n->kind == OOC_NODE_UPCAT)
            touch_activation(net, all, n->skip, s->again, i);
        return;
    }
    touch(&all->list[3 * n->out + 2], i);
    if (s->kind == OOC_STEP_MASK)
        touch_activation(net, all, n->out, true, i);
    if (s->kind == OOC_STEP_WEIGHTS || (s->kind == OOC_STEP_DATA && n->kind == OOC_NODE_POOL))
        touch_activation(net, all, n->in, true, i);
    if (s->kind == OOC_STEP_DATA)
        touch(&all->list[3 * n->in + 2], i);
    if (s->kind == OOC_STEP_DATA && n->kind == OOC_NODE_UPCAT)
        touch(&all->list[3 * n->skip + 2], i);
}

static bool meet(const buffer *a, const buffer *b)
{
    return a->begin <= b->end && b->begin <= a->end;
}

/* The lowest place for `b` beside those of `done` that are needed at the same time. */
static uint64_t lowest_place(const buffer *const *done, uint32_t n_done, const buffer *b)
{
    uint64_t at = 0;
    bool moved = true;

    while (moved) {
        moved = false;
        for (uint32_t i = 0; i < n_done; i++) {
            const buffer *o = done[i];

            if (meet(o, b) && at < *o->place + o->floats && *o->place < at + b->floats) {
                at = *o->place + o->floats;
                moved = true;
            }
        }
    }
    return at;
}

/* Largest first: what is placed later finds gaps. */
static uint64_t pack(buffers *all)
{
    const buffer *done[MAX_BUFFERS];
    uint32_t n_done = 0;
    uint64_t total = 0;

    for (;;) {
        buffer *next = NULL;

        for (uint32_t i = 0; i < all->n; i++) {
            buffer *b = &all->list[i];

            if (b->begin <= b->end && *b->place == OOC_NET_OUTSIDE &&
                (!next || b->floats > next->floats))
                next = b;
        }
        if (!next)
            return total;
        *next->place = lowest_place(done, n_done, next);
        total = ooc_max_u64(total, *next->place + next->floats);
        done[n_done++] = next;
    }
}

void ooc_net_schedule(ooc_net *net, bool backward, bool recompute)
{
    buffers all = {0};

    net->backward = backward;
    net->recompute = backward && recompute;
    add_steps(net);
    all.n = 3 * net->n_tensors;
    for (uint32_t t = 0; t < net->n_tensors; t++) {
        ooc_net_place *p = &net->place[t];
        uint64_t *place[3] = {&p->first, &p->again, &p->gradient};

        for (uint32_t k = 0; k < 3; k++) {
            const buffer b = {1, 0, ooc_round_up(ooc_net_floats(net, t), ALIGN_FLOATS), place[k]};

            all.list[3 * t + k] = b;
            *place[k] = OOC_NET_OUTSIDE;
        }
    }
    for (uint32_t i = 0; i < net->n_steps; i++)
        follow(net, &all, i);
    for (uint32_t k = 0; k < 3; k++) { /* input and output are the caller's */
        all.list[k].begin = all.list[all.n - 3 + k].begin = 1;
        all.list[k].end = all.list[all.n - 3 + k].end = 0;
    }
    net->block_floats = pack(&all);
}
