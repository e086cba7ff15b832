/* model.h - the networks f: from a sample of M entries to an X of N entries. See docs/model.md.
 *
 *     unet    images: M = input shape, N = output shape
 *     mlp     vectors of any length
 *     pixels  one trainable image a sample; the sample itself is not looked at
 *
 *     ooc_model_open(&m, &opts, dense, err);    layers made, nothing large taken
 *     ooc_model_plan(m, &plan);                 what it will take, to the byte
 *     ooc_model_start(m, arena, err);           takes it
 *     ooc_model_init(m, seed, err);
 *     forward, backward, forward, ...
 *
 * X and its gradient G are N x B with the B entries of a row contiguous, as the engine has them.
 * Memory:  all large arrays from the arena. Threads: one. */
#ifndef OOC_SRC_MODEL_MODEL_H
#define OOC_SRC_MODEL_MODEL_H

#include "src/arena.h"
#include "src/model/dense_ops.h"

#include <stdbool.h>

#define OOC_MODEL_MAX_LEVELS 8
#define OOC_MODEL_MAX_HIDDEN 16
#define OOC_MODEL_MAX_PARAMS 72
#define OOC_MODEL_MAX_BATCH  65536

typedef enum { OOC_MODEL_UNET = 0, OOC_MODEL_MLP, OOC_MODEL_PIXELS } ooc_model_kind;

typedef struct {
    ooc_model_kind kind;
    uint32_t batch;
    uint64_t n_in, n_out;               /* M and N */
    uint64_t n_samples;                 /* pixels: images */
    uint64_t in_shape[2], out_shape[2]; /* unet: height and width */
    uint32_t n_widths;                  /* unet: levels; mlp: hidden layers (may be 0) */
    uint64_t widths[OOC_MODEL_MAX_HIDDEN];
    bool train;     /* gradients and backward are wanted */
    bool recompute; /* keep fewer activations, compute them again in backward */
} ooc_model_opts;

/* A trained tensor. Tensors stand one behind the other in one block, each at a multiple of 16
 * floats; the gaps are zero. */
typedef struct {
    char name[40]; /* as in the PyTorch modules of docs/model.md */
    uint32_t n_dims;
    uint64_t shape[4];
    uint64_t n;      /* elements */
    uint64_t off;    /* floats, from the start of the block */
    uint64_t fan_in; /* initial values are uniform within 1 / sqrt(fan_in); 0: zero */
} ooc_param;

typedef struct ooc_model ooc_model;

/* OOC_E_ARG where the options can't be: the text says what would be right. */
ooc_status ooc_model_check(const ooc_model_opts *opts, ooc_err *err);
/* Makes the layers. `dense` must outlive the model. On success the caller ends *out with
 * ooc_model_close(); on failure it is NULL. */
ooc_status ooc_model_open(ooc_model **out, const ooc_model_opts *opts, ooc_dense *dense,
                          ooc_err *err);
void ooc_model_close(ooc_model *m); /* NULL is allowed */

void ooc_model_plan(const ooc_model *m, ooc_plan *plan);
ooc_status ooc_model_start(ooc_model *m, ooc_arena *arena, ooc_err *err);
/* Initial weights as PyTorch's layers have them (uniform), from our own generator. */
ooc_status ooc_model_init(ooc_model *m, uint64_t seed, ooc_err *err);

/* X = f(input) for the first n_used samples (1..batch); other columns are unspecified. input: batch
 * x M on the device, finite, also beyond n_used. samples: their numbers (pixels; host memory).
 * `keep`: backward will follow. */
ooc_status ooc_model_forward(ooc_model *m, const float *input, const uint32_t *samples,
                             uint32_t n_used, bool keep, float *X, ooc_err *err);
/* Gradients of all weights (overwritten), from G = dLoss/dX of the same samples. */
ooc_status ooc_model_backward(ooc_model *m, const float *input, const uint32_t *samples,
                              uint32_t n_used, const float *G, ooc_err *err);

/* f(input) of the last forward as batch x N, where it is kept so; `X` is what forward wrote. */
const float *ooc_model_rows(const ooc_model *m, const float *X);

uint32_t ooc_model_n_params(const ooc_model *m);
const ooc_param *ooc_model_param(const ooc_model *m, uint32_t i);
/* The whole blocks (device addresses): weights and gradients (NULL unless opts.train). */
uint64_t ooc_model_block_floats(const ooc_model *m);
float *ooc_model_weights(const ooc_model *m);
float *ooc_model_gradients(const ooc_model *m);
const ooc_model_opts *ooc_model_get_opts(const ooc_model *m);
ooc_dense *ooc_model_dense(const ooc_model *m);
const char *ooc_model_kind_name(ooc_model_kind kind);
#endif
