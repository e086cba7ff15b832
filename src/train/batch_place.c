#include "src/train/batch_place.h"
#include "base/checked.h"

#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#define ENTRIES_PER_TASK 8192u

/* The first bad value found, as sample * M + entry; which file it is in. */
typedef struct {
    const ooc_batch_arrays *a;
    const ooc_batch *batch;
    atomic_uint_fast64_t bad_input, bad_target, bad_weight;
} job;

static void note(atomic_uint_fast64_t *bad, uint64_t at)
{
    uint_fast64_t seen = atomic_load(bad);

    while (at < seen && !atomic_compare_exchange_weak(bad, &seen, at))
        ;
}

static float weight_at(const job *j, uint32_t b, uint64_t m)
{
    const ooc_batch_arrays *a = j->a;

    if (j->batch->weight)
        return ooc_sample_value(&a->set->weight->npy, j->batch->weight, b * a->M + m);
    return a->row_weights ? a->row_weights[m] : 1;
}

static void place_entry(job *j, uint32_t b, uint64_t m)
{
    const ooc_batch_arrays *a = j->a;
    const uint64_t at = b * a->M + m;
    const float w = weight_at(j, b, m);
    float x = 0;

    if (!(w >= 0) || !isfinite(w))
        note(&j->bad_weight, at);
    if (a->input || !j->batch->target)
        x = ooc_sample_value(&a->set->input->npy, j->batch->input, at);
    if (!isfinite(x)) {
        if (w != 0)
            note(&j->bad_input, at);
        x = 0;
    }
    if (a->input)
        a->input[at] = x;
    if (j->batch->target)
        x = ooc_sample_value(&a->set->target->npy, j->batch->target, at);
    if (w != 0 && !isfinite(x))
        note(&j->bad_target, at);
    if (a->T)
        a->T[m * a->B + b] = x;
    if (j->batch->weight && a->W)
        a->W[m * a->B + b] = w;
}

static void place_task(void *ctx, uint32_t task, uint32_t thread)
{
    job *j = ctx;
    const uint64_t m0 = (uint64_t)task * ENTRIES_PER_TASK;
    const uint64_t m1 = ooc_min_u64(m0 + ENTRIES_PER_TASK, j->a->M);

    (void)thread;
    for (uint32_t b = 0; b < j->batch->n; b++)
        for (uint64_t m = m0; m < m1; m++)
            place_entry(j, b, m);
}

static ooc_status complain(const job *j, const ooc_sample_file *f, uint64_t at, ooc_status code,
                           const char *what, ooc_err *err)
{
    return ooc_fail(err, code, "%s %s: sample %u, entry %" PRIu64 ": %s", f->option, f->path,
                    j->batch->number[at / j->a->M], at % j->a->M, what);
}

ooc_status ooc_batch_place(const ooc_batch_arrays *a, const ooc_batch *batch, ooc_err *err)
{
    static const char *const not_finite =
        "not a finite number, and no weight of 0 (--weights) says to leave it out";
    const ooc_sample_set *set = a->set;
    job j = {.a = a, .batch = batch};

    atomic_init(&j.bad_input, UINT64_MAX);
    atomic_init(&j.bad_target, UINT64_MAX);
    atomic_init(&j.bad_weight, UINT64_MAX);
    ooc_parallel_for(a->pool, (uint32_t)((a->M + ENTRIES_PER_TASK - 1) / ENTRIES_PER_TASK),
                     place_task, &j);
    if (a->input && batch->n < a->B)
        memset(a->input + batch->n * a->M, 0, (a->B - batch->n) * a->M * sizeof(float));
    if (j.bad_weight != UINT64_MAX && set->weight)
        return complain(&j, set->weight, j.bad_weight, OOC_E_FORMAT,
                        "a weight must be a finite number of at least 0", err);
    if (j.bad_input != UINT64_MAX)
        return complain(&j, set->input, j.bad_input, OOC_E_NOT_FINITE, not_finite, err);
    if (j.bad_target != UINT64_MAX)
        return complain(&j, set->target ? set->target : set->input, j.bad_target, OOC_E_NOT_FINITE,
                        not_finite, err);
    return OOC_OK;
}

ooc_status ooc_row_weights_read(const ooc_sample_file *f, void *raw, float *to, ooc_err *err)
{
    ooc_status st = ooc_sample_file_read(f, 0, raw, err);

    for (uint64_t i = 0; !st && i < f->entries; i++) {
        to[i] = ooc_sample_value(&f->npy, raw, i);
        if (!(to[i] >= 0) || !isfinite(to[i]))
            st =
                ooc_fail(err, OOC_E_FORMAT,
                         "%s %s: entry %" PRIu64 ": a weight must be a finite number of at least 0",
                         f->option, f->path, i);
    }
    return st;
}
