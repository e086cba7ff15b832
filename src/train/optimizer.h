/* optimizer.h - adam and sgd over a model's whole block of weights, as PyTorch does them.
 *
 *     adam   torch.optim.Adam: betas 0.9 and 0.999, eps 1e-8. Weight decay is added to the gradient
 *            (the L2 penalty); it is not AdamW's decoupled decay.
 *     sgd    torch.optim.SGD: no dampening, no Nesterov
 *     clip   torch.nn.utils.clip_grad_norm_: the norm of all gradients together
 *     rate   warm-up: lr * (i + 1) / warmup for the first steps i; then constant, or half a cosine
 *            from lr down to 0 at total_steps
 *
 * Memory:  the moments, from the arena. Threads: one. */
#ifndef OOC_SRC_TRAIN_OPTIMIZER_H
#define OOC_SRC_TRAIN_OPTIMIZER_H

#include "src/model/model.h"

typedef enum { OOC_OPTIM_ADAM = 0, OOC_OPTIM_SGD } ooc_optim_kind;
typedef enum { OOC_RATE_CONSTANT = 0, OOC_RATE_COSINE } ooc_rate_kind;

typedef struct {
    ooc_optim_kind kind;
    double lr, momentum, weight_decay; /* momentum: sgd */
    double clip_norm;                  /* 0: no clipping */
    ooc_rate_kind rate;
    uint64_t warmup_steps, total_steps;
} ooc_optimizer_opts;

typedef struct {
    ooc_optimizer_opts opts;
    uint64_t floats;
    uint32_t n_states; /* arrays: adam 2; sgd 1 with momentum, else 0 */
    float *state[2];   /* device: exp_avg and exp_avg_sq, or momentum_buffer */
} ooc_optimizer;

/* Plain data: nothing to close. */
void ooc_optimizer_init(ooc_optimizer *o, const ooc_optimizer_opts *opts, const ooc_model *m);
void ooc_optimizer_plan(const ooc_optimizer *o, ooc_plan *plan);
ooc_status ooc_optimizer_start(ooc_optimizer *o, const ooc_model *m, ooc_arena *arena,
                               ooc_err *err);
/* The learning rate of step i (from 0). */
double ooc_optimizer_rate(const ooc_optimizer_opts *opts, uint64_t i);
/* Update the weights from the gradients, as step i. *norm gets the gradients' norm before clipping;
 * where it is not finite nothing is changed and OOC_E_NOT_FINITE comes back. */
ooc_status ooc_optimizer_step(ooc_optimizer *o, ooc_model *m, uint64_t i, double *norm,
                              ooc_err *err);
/* "exp_avg", ...: the name of state k < n_states. */
const char *ooc_optimizer_state_name(const ooc_optimizer *o, uint32_t k);
const char *ooc_optim_kind_name(ooc_optim_kind kind);
#endif
