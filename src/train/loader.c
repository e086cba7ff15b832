#include "src/train/loader.h"
#include "base/alloc.h"
#include "base/checked.h"
#include "src/model/rng.h"

#include <pthread.h>
#include <string.h>

#define N_SLOTS 2

typedef struct {
    uint32_t *number;
    void *input, *target, *weight;
    ooc_batch batch;
    ooc_status st;
    ooc_err err;
} slot;

struct ooc_loader {
    uint32_t batch;
    uint64_t input_bytes, target_bytes, weight_bytes; /* of a slot */
    uint64_t max_samples;
    uint32_t *order;
    slot slot[N_SLOTS];
    pthread_t thread;
    bool running;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* under the lock */
    bool stop;
    uint64_t round; /* counts runs */
    ooc_loader_run run;
    uint64_t n_read, n_taken; /* batches of this run: read into slots, handed out */
    /* the thread's own */
    uint64_t order_epoch;
    const ooc_sample_set *order_set;
    uint64_t order_seed;
};

ooc_status ooc_loader_open(ooc_loader **out, uint32_t batch, const ooc_sample_set *sets,
                           uint32_t n_sets, ooc_err *err)
{
    ooc_loader *l = ooc_calloc(1, sizeof *l);

    *out = l;
    if (!l)
        return ooc_fail(err, OOC_E_NOMEM, "no memory for reading samples");
    l->batch = batch;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->changed, NULL);
    for (uint32_t i = 0; i < n_sets; i++) {
        const ooc_sample_set *s = &sets[i];

        l->input_bytes = ooc_max_u64(l->input_bytes, s->input->sample_bytes * batch);
        if (s->target)
            l->target_bytes = ooc_max_u64(l->target_bytes, s->target->sample_bytes * batch);
        if (s->weight)
            l->weight_bytes = ooc_max_u64(l->weight_bytes, s->weight->sample_bytes * batch);
        l->max_samples = ooc_max_u64(l->max_samples, s->input->n);
    }
    return OOC_OK;
}

void ooc_loader_plan(const ooc_loader *l, ooc_plan *ram)
{
    ooc_plan_add(ram, "order of samples", l->max_samples, sizeof *l->order);
    for (int i = 0; i < N_SLOTS; i++) {
        ooc_plan_add(ram, "sample slots", l->input_bytes, 1);
        if (l->target_bytes)
            ooc_plan_add(ram, "sample slots", l->target_bytes, 1);
        if (l->weight_bytes)
            ooc_plan_add(ram, "sample slots", l->weight_bytes, 1);
        ooc_plan_add(ram, "sample slots", l->batch, sizeof(uint32_t));
    }
}

static uint32_t size_of_batch(uint64_t n_samples, uint32_t batch, uint64_t place)
{
    return (uint32_t)ooc_min_u64(batch, n_samples - place * batch);
}

/* The thread's order array for the epoch of the batch; made anew only when it changes. */
static void make_order(ooc_loader *l, const ooc_loader_run *run, uint64_t epoch)
{
    const uint32_t n = (uint32_t)run->set->input->n;
    ooc_rng rng;

    if (l->order_set == run->set && l->order_epoch == epoch && l->order_seed == run->seed)
        return;
    ooc_rng_seed(&rng, run->seed, 1 + epoch);
    ooc_rng_shuffle(&rng, l->order, n);
    l->order_set = run->set;
    l->order_epoch = epoch;
    l->order_seed = run->seed;
}

static ooc_status read_one(const ooc_sample_file *f, uint64_t number, void *to, uint32_t place,
                           ooc_err *err)
{
    return f ? ooc_sample_file_read(f, number, (char *)to + place * f->sample_bytes, err) : OOC_OK;
}

static void read_batch(ooc_loader *l, const ooc_loader_run *run, uint64_t number, slot *s)
{
    const ooc_sample_set *set = run->set;
    const uint64_t per_epoch = ooc_batches_of(set->input->n, l->batch);
    const uint64_t epoch = number / per_epoch, place = number % per_epoch;

    s->batch.epoch = epoch;
    s->batch.n = size_of_batch(set->input->n, l->batch, place);
    s->batch.number = s->number;
    s->batch.input = s->input;
    s->batch.target = set->target ? s->target : NULL;
    s->batch.weight = set->weight ? s->weight : NULL;
    if (run->shuffle)
        make_order(l, run, epoch);
    s->st = OOC_OK;
    for (uint32_t i = 0; !s->st && i < s->batch.n; i++) {
        const uint64_t at = place * l->batch + i;

        s->number[i] = run->shuffle ? l->order[at] : (uint32_t)at;
        s->st = read_one(set->input, s->number[i], s->input, i, &s->err);
        if (!s->st)
            s->st = read_one(set->target, s->number[i], s->target, i, &s->err);
        if (!s->st)
            s->st = read_one(set->weight, s->number[i], s->weight, i, &s->err);
    }
}

/* Slot k % N_SLOTS holds batch k of the run. The batch handed out last stays untouched until the
 * next is asked for, so at most n_taken - 1 + N_SLOTS batches may have been read. */
static bool may_read(const ooc_loader *l)
{
    const uint64_t given_back = l->n_taken ? l->n_taken - 1 : 0;

    return l->n_read < l->run.n && l->n_read < given_back + N_SLOTS;
}

static void *thread_main(void *arg)
{
    ooc_loader *l = arg;

    pthread_mutex_lock(&l->lock);
    for (;;) {
        ooc_loader_run run;
        uint64_t k, round;

        while (!l->stop && !may_read(l))
            pthread_cond_wait(&l->changed, &l->lock);
        if (l->stop)
            break;
        run = l->run;
        round = l->round;
        k = l->n_read;
        pthread_mutex_unlock(&l->lock);
        read_batch(l, &run, run.first + k, &l->slot[k % N_SLOTS]);
        pthread_mutex_lock(&l->lock);
        if (round == l->round)
            l->n_read++;
        pthread_cond_broadcast(&l->changed);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

static ooc_status take(ooc_arena *ram, const char *what, uint64_t bytes, void *out, ooc_err *err)
{
    void *p;
    ooc_status st = ooc_arena_take(ram, what, bytes, &p, err);

    memcpy(out, &p, sizeof p);
    return st;
}

ooc_status ooc_loader_start(ooc_loader *l, ooc_arena *ram, ooc_err *err)
{
    ooc_status st =
        take(ram, "order of samples", l->max_samples * sizeof *l->order, &l->order, err);

    for (int i = 0; i < N_SLOTS; i++) {
        slot *s = &l->slot[i];

        if (!st)
            st = take(ram, "sample slots", l->input_bytes, &s->input, err);
        if (!st)
            st = take(ram, "sample slots", l->target_bytes, &s->target, err);
        if (!st)
            st = take(ram, "sample slots", l->weight_bytes, &s->weight, err);
        if (!st)
            st = take(ram, "sample slots", l->batch * sizeof(uint32_t), &s->number, err);
    }
    if (st)
        return st;
    if (pthread_create(&l->thread, NULL, thread_main, l) != 0)
        return ooc_fail(err, OOC_E_NOMEM, "no thread for reading samples");
    l->running = true;
    return OOC_OK;
}

void ooc_loader_close(ooc_loader *l)
{
    if (!l)
        return;
    if (l->running) {
        pthread_mutex_lock(&l->lock);
        l->stop = true;
        pthread_cond_broadcast(&l->changed);
        pthread_mutex_unlock(&l->lock);
        pthread_join(l->thread, NULL);
    }
    pthread_cond_destroy(&l->changed);
    pthread_mutex_destroy(&l->lock);
    ooc_free(l);
}

void ooc_loader_begin(ooc_loader *l, const ooc_loader_run *run)
{
    pthread_mutex_lock(&l->lock);
    l->run = *run;
    l->round++;
    l->n_read = l->n_taken = 0;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
}

ooc_status ooc_loader_next(ooc_loader *l, ooc_batch *out, ooc_err *err)
{
    slot *s = NULL;

    pthread_mutex_lock(&l->lock);
    if (l->n_taken < l->run.n) {
        const uint64_t k = l->n_taken++;

        pthread_cond_broadcast(&l->changed); /* the batch before is given back */
        while (l->n_read <= k)
            pthread_cond_wait(&l->changed, &l->lock);
        s = &l->slot[k % N_SLOTS];
    }
    pthread_mutex_unlock(&l->lock);
    if (!s)
        return ooc_fail(err, OOC_E_ARG, "no more samples in this run");
    if (s->st) {
        if (err)
            *err = s->err;
        return s->st;
    }
    *out = s->batch;
    return OOC_OK;
}
