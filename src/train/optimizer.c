#include "src/train/optimizer.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define BETA1 0.9
#define BETA2 0.999
#define EPS   1e-8

const char *ooc_optim_kind_name(ooc_optim_kind kind)
{
    return kind == OOC_OPTIM_ADAM ? "adam" : "sgd";
}

void ooc_optimizer_init(ooc_optimizer *o, const ooc_optimizer_opts *opts, const ooc_model *m)
{
    memset(o, 0, sizeof *o);
    o->opts = *opts;
    o->floats = ooc_model_block_floats(m);
    o->n_states = opts->kind == OOC_OPTIM_ADAM ? 2 : opts->momentum != 0 ? 1 : 0;
}

void ooc_optimizer_plan(const ooc_optimizer *o, ooc_plan *plan)
{
    for (uint32_t k = 0; k < o->n_states; k++)
        ooc_plan_add(plan, "optimizer state", o->floats, sizeof(float));
}

ooc_status ooc_optimizer_start(ooc_optimizer *o, const ooc_model *m, ooc_arena *arena, ooc_err *err)
{
    ooc_dense *d = ooc_model_dense(m);
    ooc_status st = OOC_OK;

    for (uint32_t k = 0; !st && k < o->n_states; k++) {
        void *p;

        st = ooc_arena_take(arena, "optimizer state", o->floats * sizeof(float), &p, err);
        o->state[k] = p;
        if (!st)
            st = d->ops->zero(d, o->state[k], o->floats, err);
    }
    return st;
}

double ooc_optimizer_rate(const ooc_optimizer_opts *opts, uint64_t i)
{
    double done;

    if (i < opts->warmup_steps)
        return opts->lr * (double)(i + 1) / (double)opts->warmup_steps;
    if (opts->rate == OOC_RATE_CONSTANT || opts->total_steps <= opts->warmup_steps)
        return opts->lr;
    done = (double)(i - opts->warmup_steps) / (double)(opts->total_steps - opts->warmup_steps);
    return opts->lr * 0.5 * (1 + cos(acos(-1.0) * fmin(done, 1)));
}

/* clip_grad_norm_: scaled by max_norm / (norm + 1e-6) where that is below 1. */
static float clip_scale(const ooc_optimizer_opts *opts, double norm)
{
    if (opts->clip_norm == 0)
        return 1;
    return (float)fmin(1, opts->clip_norm / (norm + 1e-6));
}

ooc_status ooc_optimizer_step(ooc_optimizer *o, ooc_model *m, uint64_t i, double *norm,
                              ooc_err *err)
{
    ooc_dense *d = ooc_model_dense(m);
    float *w = ooc_model_weights(m);
    const float *g = ooc_model_gradients(m);
    const double lr = ooc_optimizer_rate(&o->opts, i);
    double squares;
    ooc_status st = d->ops->sum_squares(d, g, o->floats, &squares, err);

    if (st)
        return st;
    *norm = sqrt(squares);
    if (!isfinite(*norm))
        return ooc_fail(err, OOC_E_NOT_FINITE,
                        "step %" PRIu64 ": the gradients are not finite; a smaller --lr or "
                        "--clip-norm may help",
                        i + 1);
    if (o->opts.kind == OOC_OPTIM_ADAM) {
        const ooc_adam_args a = {.lr = lr,
                                 .beta1 = BETA1,
                                 .beta2 = BETA2,
                                 .eps = EPS,
                                 .weight_decay = o->opts.weight_decay,
                                 .bias1 = 1 - pow(BETA1, (double)(i + 1)),
                                 .bias2 = 1 - pow(BETA2, (double)(i + 1)),
                                 .grad_scale = clip_scale(&o->opts, *norm)};

        return d->ops->adam(d, &a, w, g, o->state[0], o->state[1], o->floats, err);
    }
    {
        const ooc_sgd_args a = {.lr = lr,
                                .momentum = o->opts.momentum,
                                .weight_decay = o->opts.weight_decay,
                                .grad_scale = clip_scale(&o->opts, *norm)};

        return d->ops->sgd(d, &a, w, g, o->state[0], o->floats, err);
    }
}

const char *ooc_optimizer_state_name(const ooc_optimizer *o, uint32_t k)
{
    static const char *const adam[] = {"exp_avg", "exp_avg_sq"};

    return o->opts.kind == OOC_OPTIM_ADAM ? adam[k] : "momentum_buffer";
}
