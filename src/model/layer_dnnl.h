/* layer_dnnl.h - convolution and linear layers by oneDNN, for the CPU backend (dense_cpu.c).
 *
 * Activations are channels-last, linear weights plain: oneDNN takes both as they are. The weights
 * of a convolution are put into the order that its implementation likes (a few KiB to MiB) inside
 * the workspace; scratch memory is the caller's too, so oneDNN holds nothing large by itself. */
#ifndef OOC_SRC_MODEL_LAYER_DNNL_H
#define OOC_SRC_MODEL_LAYER_DNNL_H

#include "src/model/dense_ops.h"

typedef struct ooc_dnnl ooc_dnnl; /* oneDNN's engine and stream */

ooc_status ooc_dnnl_open(ooc_dnnl **out, ooc_err *err);
void ooc_dnnl_close(ooc_dnnl *d); /* NULL is allowed */

/* As the calls of the same name in dense_ops.h. */
ooc_status ooc_layer_dnnl_new(ooc_dnnl *d, ooc_layer **out, const ooc_layer_shape *shape,
                              ooc_err *err);
void ooc_layer_dnnl_free(ooc_layer *l);
uint64_t ooc_layer_dnnl_workspace(const ooc_layer *l);
ooc_status ooc_layer_dnnl_forward(ooc_dnnl *d, ooc_layer *l, const float *x, const float *w,
                                  const float *b, float *y, void *workspace, ooc_err *err);
ooc_status ooc_layer_dnnl_backward_weights(ooc_dnnl *d, ooc_layer *l, const float *x,
                                           const float *dy, float *dw, float *db, void *workspace,
                                           ooc_err *err);
ooc_status ooc_layer_dnnl_backward_data(ooc_dnnl *d, ooc_layer *l, const float *w, const float *dy,
                                        float *dx, void *workspace, ooc_err *err);
#endif
