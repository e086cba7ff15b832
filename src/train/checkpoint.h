/* checkpoint.h - a model and where its training stands, in one safetensors file.
 *
 * Tensors: the model's, under the names of docs/model.md; behind them the optimizer's states as
 * "optimizer.STATE.NAME" (left out before the first step, when they are zero). Text: what a run
 * must have alike to go on from it. The order of samples follows from seed and step, so no other
 * random state exists. The file appears complete or not at all. */
#ifndef OOC_SRC_TRAIN_CHECKPOINT_H
#define OOC_SRC_TRAIN_CHECKPOINT_H

#include "src/train/optimizer.h"
#include "src/train/tensor_file.h"

typedef struct {
    uint64_t step; /* steps done */
    uint64_t seed, n_samples;
    uint32_t batch;
} ooc_train_state;

/* buffer: OOC_TENSOR_BUFFER bytes of host memory, for moving data. optimizer NULL: weights only. */
ooc_status ooc_checkpoint_save(const char *path, const ooc_model *m, const ooc_optimizer *optimizer,
                               const ooc_train_state *state, void *buffer, ooc_err *err);
/* The gradients, under the names of their tensors. */
ooc_status ooc_gradients_save(const char *path, const ooc_model *m, void *buffer, ooc_err *err);

/* Weights alone. OOC_E_FORMAT where a tensor is missing, has another shape, or is none of ours. */
ooc_status ooc_checkpoint_load_weights(const char *path, ooc_model *m, void *buffer, ooc_err *err);
/* Weights, optimizer (NULL: left out) and step. state: in: how this run is; OOC_E_ARG if the file's
 * run was another one. out: the file's step. */
ooc_status ooc_checkpoint_resume(const char *path, ooc_model *m, ooc_optimizer *optimizer,
                                 ooc_train_state *state, void *buffer, ooc_err *err);
#endif
