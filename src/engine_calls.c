/* The engine's calls: what is refused, strips of max_batch columns, sweeps. */
#include "src/engine_private.h"
#include "base/checked.h"
#include "kernels/cpu/loss_cpu.h"

#include <math.h>

/* One call: its sweeps, strip by strip. `two`: the adjoint in a sweep of its own. */
static ooc_status run_strips(ooc_engine *e, ooc_pass_args *a, uint32_t B, bool two, ooc_err *err)
{
    uint32_t todo = a->todo;
    const ooc_array *G = a->G;
    ooc_status st = OOC_OK;

    for (uint32_t b0 = 0; b0 < B && !st; b0 += a->B) {
        bool last = B - b0 <= e->opts.max_batch;
        ooc_pass_args s = *a;

        s.b0 = b0;
        s.B = a->B = last ? B - b0 : e->opts.max_batch;
        s.continues = !last;
        if (two) {
            s.todo = todo & ~(uint32_t)OOC_DO_ADJOINT;
            s.G = NULL;
            s.R_all = s.continues = true;
            st = ooc_pass_run(e, &s, err);
            s = (ooc_pass_args){.todo = OOC_DO_ADJOINT,
                                .B = s.B,
                                .b0 = b0,
                                .dense = a->dense,
                                .G = G,
                                .R_all = true,
                                .continues = !last};
        }
        if (!st)
            st = ooc_pass_run(e, &s, err);
    }
    if (st == OOC_E_INTERRUPTED)
        atomic_store(&e->interrupted, false);
    return st;
}

static ooc_status check_call(const ooc_engine *e, uint32_t B, const ooc_array *first, ooc_err *err)
{
    if (!e->reader)
        return ooc_fail(err, OOC_E_ARG, "the engine has not been started");
    if (!B)
        return ooc_fail(err, OOC_E_ARG, "B is 0: at least one column is needed");
    if (!first)
        return ooc_fail(err, OOC_E_ARG, "an array is missing (NULL)");
    return OOC_OK;
}

/* X or G: on the device, or there is room for a copy. */
static ooc_status check_cols(const ooc_engine *e, const char *what, const ooc_array *a, uint32_t B,
                             ooc_dtype dense, ooc_array *out, ooc_err *err)
{
    ooc_status st = ooc_array_check(e, what, a, e->info->n_cols, B, dense, out, err);

    if (!st && e->opts.arrays_on_device && !ooc_array_in_place(e, a))
        return ooc_fail(err, OOC_E_ARG, "%s is not on %s, as opts.arrays_on_device says", what,
                        e->device->props.name);
    return st;
}

ooc_status ooc_engine_forward(ooc_engine *e, uint32_t B, const ooc_array *X, const ooc_array *Y,
                              ooc_err *err)
{
    ooc_pass_args a = {.todo = OOC_DO_FORWARD};
    ooc_array x, y;
    ooc_status st = check_call(e, B, X, err);

    if (!st)
        st = check_cols(e, "X", X, B, X->dtype, &x, err);
    if (!st)
        st = ooc_array_check(e, "Y", Y, e->info->n_rows, B, X->dtype, &y, err);
    if (st)
        return st;
    a.dense = x.dtype;
    a.X = &x;
    a.Y = &y;
    return run_strips(e, &a, B, false, err);
}

ooc_status ooc_engine_adjoint(ooc_engine *e, uint32_t B, const ooc_array *R, const ooc_array *G,
                              ooc_err *err)
{
    ooc_pass_args a = {.todo = OOC_DO_ADJOINT};
    ooc_array r, g;
    ooc_status st = check_call(e, B, R, err);

    if (!st)
        st = ooc_array_check(e, "R", R, e->info->n_rows, B, R->dtype, &r, err);
    if (!st)
        st = check_cols(e, "G", G, B, R->dtype, &g, err);
    if (st)
        return st;
    a.dense = r.dtype;
    a.R = &r;
    a.G = &g;
    return run_strips(e, &a, B, false, err);
}

/* ---- the step ---- */

/* Sums of weights on the host: ranges of rows that do not depend on the threads, added in order. */
#define SUM_RANGES 64u
struct weight_run {
    const ooc_array *W;
    uint64_t rows;
    uint32_t B;
    bool per_column;
    double sum[SUM_RANGES];
};

static void weight_task(void *ctx, uint32_t task, uint32_t thread)
{
    struct weight_run *w = ctx;
    uint64_t per = (w->rows + SUM_RANGES - 1) / SUM_RANGES;
    uint64_t r0 = ooc_min_u64(w->rows, task * per), r1 = ooc_min_u64(w->rows, r0 + per);

    (void)thread;
    w->sum[task] = ooc_weight_sum_cpu(ooc_array_at(w->W, r0, 0), w->W->ld, w->per_column, r1 - r0,
                                      w->B, w->W->dtype);
}

/* Through memory of the engine: a copy that outlives a failed call must not write to a dead stack.
 */
static ooc_status fetch_double(ooc_engine *e, double *out, ooc_err *err)
{
    ooc_status st = ooc_device_copy_flat(e->device, e->compute, OOC_COPY_D2H, &e->fetched, e->loss,
                                         sizeof e->fetched, err);

    if (!st)
        st = e->device->ops->stream_sync(e->device, e->compute, err);
    *out = e->fetched;
    return st;
}

static ooc_status zero_double(ooc_engine *e, ooc_err *err)
{
    return e->device->ops->zero(e->device, e->compute, e->loss, sizeof(double), sizeof(double), 1,
                                err);
}

/* The sum of the weights of all M*B entries. */
static ooc_status weight_total(ooc_engine *e, uint32_t B, const ooc_array *W, bool per_column,
                               double *total, ooc_err *err)
{
    const ooc_device_ops *ops = e->device->ops;
    struct weight_run run = {W, e->info->n_rows, B, per_column, {0}};
    ooc_status st;

    *total = (double)e->info->n_rows * B;
    if (!W)
        return OOC_OK;
    *total = 0;
    if (W->device == OOC_HOST) {
        ooc_parallel_for(e->pool, SUM_RANGES, weight_task, &run);
        for (uint32_t i = 0; i < SUM_RANGES; i++)
            *total += run.sum[i];
    } else {
        if (!ooc_array_in_place(e, W))
            return ooc_fail(err, OOC_E_UNSUPPORTED, "W must be on the host or on %s",
                            e->device->props.name);
        st = ops->wait_caller(e->device, e->compute, W->device, W->stream, err);
        if (!st)
            st = zero_double(e, err);
        if (!st)
            st = ops->weight_sum(e->device, e->compute, W->data, W->ld, e->info->n_rows,
                                 per_column ? B : 1, W->dtype, e->loss, e->work, err);
        if (!st)
            st = fetch_double(e, total, err);
        if (st)
            return st;
    }
    *total *= per_column ? 1 : B;
    if (!isfinite(*total) || *total < 0)
        return ooc_fail(err, OOC_E_ARG, "W: the weights sum to %g; all must be finite and >= 0",
                        *total);
    return OOC_OK;
}

/* Copies of the arrays of a step, with ld filled in. */
struct step_arrays {
    ooc_array X, T, W, Y, G;
};

static ooc_status check_step(const ooc_engine *e, uint32_t B, const ooc_array *X,
                             const ooc_array *T, const ooc_loss_opts *loss, const ooc_array *Y,
                             const ooc_array *G, struct step_arrays *out, ooc_err *err)
{
    uint64_t M = e->info->n_rows;
    ooc_status st = check_call(e, B, X, err);

    if (!st)
        st = check_cols(e, "X", X, B, X->dtype, &out->X, err);
    if (!st)
        st = ooc_array_check(e, "T", T, M, B, X->dtype, &out->T, err);
    if (!st && Y)
        st = ooc_array_check(e, "Y", Y, M, B, X->dtype, &out->Y, err);
    if (!st && G)
        st = check_cols(e, "G", G, B, X->dtype, &out->G, err);
    if (!st && loss && loss->size < sizeof *loss)
        return ooc_fail(err, OOC_E_ARG, "loss.size: set it to sizeof(ooc_loss_opts)");
    if (!st && loss && loss->kind > OOC_LOSS_POISSON)
        return ooc_fail(err, OOC_E_ARG, "loss.kind %d is none of its values", (int)loss->kind);
    if (!st && loss && loss->W)
        st =
            ooc_array_check(e, "W", loss->W, M, loss->w_per_column ? B : 1, X->dtype, &out->W, err);
    return st;
}

ooc_status ooc_engine_step(ooc_engine *e, uint32_t B, const ooc_array *X, const ooc_array *T,
                           const ooc_loss_opts *loss, const ooc_array *Y, const ooc_array *G,
                           double *loss_out, ooc_err *err)
{
    ooc_pass_args a = {.todo = OOC_DO_FORWARD | OOC_DO_LOSS};
    struct step_arrays s;
    double total, sum = 0;
    ooc_status st = check_step(e, B, X, T, loss, Y, G, &s, err);

    if (st)
        return st;
    a.dense = X->dtype;
    a.X = &s.X;
    a.T = &s.T;
    a.Y = Y ? &s.Y : NULL;
    if (G) {
        a.todo |= OOC_DO_ADJOINT;
        a.G = &s.G;
    }
    if (loss) {
        a.loss_kind = loss->kind;
        a.w_per_column = loss->w_per_column;
        a.W = loss->W ? &s.W : NULL;
    }
    st = weight_total(e, B, a.W, a.w_per_column, &total, err);
    a.scale = !st && total > 0 ? 1 / total : 0;
    if (!st)
        st = zero_double(e, err);
    if (!st)
        st = run_strips(e, &a, B, G && e->opts.pass == OOC_PASS_TWO, err);
    if (!st)
        st = fetch_double(e, &sum, err);
    if (!st && loss_out)
        *loss_out = sum * a.scale;
    return st;
}
