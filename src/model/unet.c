#include "src/model/model_build.h"

#include <inttypes.h>
#include <stdio.h>

ooc_status ooc_unet_check(const ooc_model_opts *o, ooc_err *err)
{
    const uint64_t least = (uint64_t)1 << (o->n_widths ? o->n_widths - 1 : 0);

    if (o->n_widths < 1 || o->n_widths > OOC_MODEL_MAX_LEVELS)
        return ooc_fail(err, OOC_E_ARG, "--channels takes 1 to %d numbers, one a level",
                        OOC_MODEL_MAX_LEVELS);
    for (uint32_t i = 0; i < o->n_widths; i++)
        if (o->widths[i] < 1 || o->widths[i] > 4096)
            return ooc_fail(err, OOC_E_ARG, "--channels: %" PRIu64 " is not within 1 to 4096",
                            o->widths[i]);
    if (o->in_shape[0] < least || o->in_shape[1] < least)
        return ooc_fail(err, OOC_E_ARG,
                        "--channels: %u levels halve the input %u times, which needs at least "
                        "%" PRIu64 "x%" PRIu64 "; it is %" PRIu64 "x%" PRIu64
                        ": give fewer --channels",
                        o->n_widths, o->n_widths - 1, least, least, o->in_shape[0], o->in_shape[1]);
    return OOC_OK;
}

/* Two 3x3 convolutions with ReLU, named SIDE.LEVEL.conv1 and conv2. */
static uint32_t add_pair(ooc_net *net, ooc_params *params, const char *side, uint32_t level,
                         uint32_t in, uint32_t channels, uint32_t group)
{
    uint32_t t = in;

    for (uint32_t i = 1; i <= 2; i++) {
        char name[32];
        uint32_t weight;

        snprintf(name, sizeof name, "%s.%u.conv%u", side, level, i);
        weight = ooc_params_add_layer(params, name, net->tensor[t].image.c, channels, 3);
        t = ooc_net_layer(net, t, channels, 3, false, true, weight, group);
    }
    return t;
}

void ooc_unet_build(const ooc_model_opts *o, ooc_net *net, ooc_params *params)
{
    const ooc_image input = {(uint32_t)o->in_shape[0], (uint32_t)o->in_shape[1], 1};
    uint32_t skip[OOC_MODEL_MAX_LEVELS] = {0};
    uint32_t t = 0, group = 0, weight;

    ooc_net_begin(net, o->batch, input);
    for (uint32_t l = 0; l < o->n_widths; l++, group++) {
        if (l > 0)
            t = ooc_net_pool(net, t, group);
        t = skip[l] = add_pair(net, params, "down", l, t, (uint32_t)o->widths[l], group);
    }
    for (uint32_t l = o->n_widths - 1; l-- > 0; group++) {
        t = ooc_net_upcat(net, t, skip[l], group);
        t = add_pair(net, params, "up", l, t, (uint32_t)o->widths[l], group);
    }
    weight = ooc_params_add_layer(params, "last", o->widths[0], 1, 1);
    t = ooc_net_layer(net, t, 1, 1, false, false, weight, group);
    if (o->in_shape[0] != o->out_shape[0] || o->in_shape[1] != o->out_shape[1])
        ooc_net_resize(net, t, (uint32_t)o->out_shape[0], (uint32_t)o->out_shape[1], group);
}
