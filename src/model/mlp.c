#include "src/model/model_build.h"

#include <inttypes.h>
#include <stdio.h>

ooc_status ooc_mlp_check(const ooc_model_opts *o, ooc_err *err)
{
    if (o->n_widths > OOC_MODEL_MAX_HIDDEN)
        return ooc_fail(err, OOC_E_ARG, "--hidden takes at most %d numbers", OOC_MODEL_MAX_HIDDEN);
    for (uint32_t i = 0; i < o->n_widths; i++)
        if (o->widths[i] < 1 || o->widths[i] > 1000000)
            return ooc_fail(err, OOC_E_ARG, "--hidden: %" PRIu64 " is not within 1 to 1000000",
                            o->widths[i]);
    if (o->n_in > INT32_MAX || o->n_out > INT32_MAX)
        return ooc_fail(err, OOC_E_ARG,
                        "--model mlp: a matrix of %" PRIu64 " x %" PRIu64
                        " is beyond its 2147483647 rows and columns",
                        o->n_in, o->n_out);
    return OOC_OK;
}

void ooc_mlp_build(const ooc_model_opts *o, ooc_net *net, ooc_params *params)
{
    const ooc_image input = {1, 1, (uint32_t)o->n_in};
    uint32_t t = 0;

    ooc_net_begin(net, o->batch, input);
    for (uint32_t i = 0; i <= o->n_widths; i++) {
        const bool last = i == o->n_widths;
        const uint32_t width = (uint32_t)(last ? o->n_out : o->widths[i]);
        char name[32];
        uint32_t weight;

        snprintf(name, sizeof name, "layers.%u", i);
        weight = ooc_params_add_layer(params, name, net->tensor[t].image.c, width, 0);
        t = ooc_net_layer(net, t, width, 1, true, !last, weight, i);
    }
}
