/* model_build.h - how the networks are put together; shared by model.c, unet.c and mlp.c. */
#ifndef OOC_SRC_MODEL_MODEL_BUILD_H
#define OOC_SRC_MODEL_MODEL_BUILD_H

#include "src/model/model.h"
#include "src/model/net.h"

/* The parameters in the order of the file. */
typedef struct {
    ooc_param list[OOC_MODEL_MAX_PARAMS];
    uint32_t n;
    uint64_t floats; /* of the block so far */
} ooc_params;

/* Append a tensor; its name is `name` + `suffix`. Returns its place. */
uint32_t ooc_params_add(ooc_params *p, const char *name, const char *suffix, uint64_t fan_in,
                        uint32_t n_dims, const uint64_t *shape);
/* Weight and bias of a k x k convolution (k > 0) or a linear layer (k = 0): the weight's place. */
uint32_t ooc_params_add_layer(ooc_params *p, const char *name, uint64_t in, uint64_t out,
                              uint64_t k);

/* Each checks its own options (OOC_E_ARG) and builds net and parameters of checked ones. */
ooc_status ooc_unet_check(const ooc_model_opts *o, ooc_err *err);
void ooc_unet_build(const ooc_model_opts *o, ooc_net *net, ooc_params *params);
ooc_status ooc_mlp_check(const ooc_model_opts *o, ooc_err *err);
void ooc_mlp_build(const ooc_model_opts *o, ooc_net *net, ooc_params *params);
#endif
