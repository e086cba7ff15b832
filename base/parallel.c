#include "base/parallel.h"
#include "base/alloc.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

static uint32_t processors(void)
{
    cpu_set_t set;
    int n;

    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return 1;
    n = CPU_COUNT(&set);
    return n > 0 ? (uint32_t)n : 1;
}

#if !OOC_PARALLEL_PTHREADS

#include <omp.h>

struct ooc_pool {
    uint32_t n_threads;
};

ooc_pool *ooc_pool_new(uint32_t n_threads)
{
    ooc_pool *pool = ooc_calloc(1, sizeof *pool);

    if (pool)
        pool->n_threads = n_threads ? n_threads : processors();
    return pool;
}

void ooc_pool_free(ooc_pool *pool)
{
    ooc_free(pool);
}

void ooc_parallel_for(ooc_pool *pool, uint32_t n_tasks, ooc_task_fn fn, void *ctx)
{
    atomic_uint_fast32_t next = 0;

    if (pool->n_threads <= 1 || n_tasks <= 1) {
        for (uint32_t task = 0; task < n_tasks; task++)
            fn(ctx, task, 0);
        return;
    }
    /* The whole team even for few tasks: libgomp ends threads that a smaller team leaves over, and
     * the next call would create them again. */
#pragma omp parallel num_threads((int)pool->n_threads)
    {
        uint32_t thread = (uint32_t)omp_get_thread_num();

        for (;;) {
            uint32_t task = (uint32_t)atomic_fetch_add_explicit(&next, 1, memory_order_relaxed);

            if (task >= n_tasks)
                break;
            fn(ctx, task, thread);
        }
    }
}

#else

#include <pthread.h>

struct ooc_pool {
    uint32_t n_threads;
    uint32_t n_started;
    pthread_t *threads;
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    uint64_t round; /* counts calls, so that a worker runs each once */
    uint32_t n_busy;
    bool stop;
    ooc_task_fn fn;
    void *ctx;
    uint32_t n_tasks;
    atomic_uint_fast32_t next;
};

struct worker {
    ooc_pool *pool;
    uint32_t thread;
};

static void run_tasks(ooc_pool *pool, uint32_t thread)
{
    for (;;) {
        uint32_t task = (uint32_t)atomic_fetch_add(&pool->next, 1);

        if (task >= pool->n_tasks)
            break;
        pool->fn(pool->ctx, task, thread);
    }
}

static void *worker_main(void *arg)
{
    struct worker w = *(struct worker *)arg;
    uint64_t seen = 0;

    ooc_free(arg);
    pthread_mutex_lock(&w.pool->lock);
    for (;;) {
        while (!w.pool->stop && w.pool->round == seen)
            pthread_cond_wait(&w.pool->work, &w.pool->lock);
        if (w.pool->stop)
            break;
        seen = w.pool->round;
        pthread_mutex_unlock(&w.pool->lock);
        run_tasks(w.pool, w.thread);
        pthread_mutex_lock(&w.pool->lock);
        if (--w.pool->n_busy == 0)
            pthread_cond_signal(&w.pool->done);
    }
    pthread_mutex_unlock(&w.pool->lock);
    return NULL;
}

ooc_pool *ooc_pool_new(uint32_t n_threads)
{
    ooc_pool *pool = ooc_calloc(1, sizeof *pool);

    if (!pool)
        return NULL;
    pool->n_threads = n_threads ? n_threads : processors();
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->work, NULL);
    pthread_cond_init(&pool->done, NULL);
    pool->threads = ooc_calloc(pool->n_threads, sizeof *pool->threads);
    if (!pool->threads)
        goto fail;
    for (; pool->n_started + 1 < pool->n_threads; pool->n_started++) {
        struct worker *w = ooc_malloc(sizeof *w);

        if (!w)
            goto fail;
        w->pool = pool;
        w->thread = pool->n_started + 1; /* thread 0 is the caller */
        if (pthread_create(&pool->threads[pool->n_started], NULL, worker_main, w) != 0) {
            ooc_free(w);
            goto fail;
        }
    }
    return pool;
fail:
    ooc_pool_free(pool);
    return NULL;
}

void ooc_pool_free(ooc_pool *pool)
{
    if (!pool)
        return;
    pthread_mutex_lock(&pool->lock);
    pool->stop = true;
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->lock);
    for (uint32_t i = 0; i < pool->n_started; i++)
        pthread_join(pool->threads[i], NULL);
    pthread_cond_destroy(&pool->done);
    pthread_cond_destroy(&pool->work);
    pthread_mutex_destroy(&pool->lock);
    ooc_free(pool->threads);
    ooc_free(pool);
}

void ooc_parallel_for(ooc_pool *pool, uint32_t n_tasks, ooc_task_fn fn, void *ctx)
{
    pthread_mutex_lock(&pool->lock);
    pool->fn = fn;
    pool->ctx = ctx;
    pool->n_tasks = n_tasks;
    atomic_store(&pool->next, 0);
    pool->n_busy = pool->n_started;
    pool->round++;
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->lock);
    run_tasks(pool, 0);
    pthread_mutex_lock(&pool->lock);
    while (pool->n_busy)
        pthread_cond_wait(&pool->done, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
}

#endif

uint32_t ooc_pool_threads(const ooc_pool *pool)
{
    return pool->n_threads;
}
