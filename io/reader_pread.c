/* Threads that pread, for where io_uring is refused. They sleep while there is nothing to read. */
#include "io/reader_engine.h"
#include "io/sys.h"
#include "base/alloc.h"
#include "base/checked.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>

#define DEFAULT_THREADS 4u
#define MAX_THREADS     64u
#define MAX_PREAD       (1u << 30)

struct pread_engine {
    pthread_mutex_t lock; /* guards the reader's flights, too */
    pthread_cond_t work, done;
    bool stop;
    uint32_t n_started;
    pthread_t thread[MAX_THREADS];
};

static int64_t read_piece(const ooc_piece *p, int fd)
{
    size_t bytes = (size_t)ooc_min_u64(p->end - p->off, MAX_PREAD);
    int64_t got = ooc_sys_pread_once(fd, (char *)p->flight->read.dst + p->off, bytes,
                                     p->flight->read.file_off + p->off);

    return got < 0 ? -(int64_t)errno : got;
}

static void *thread_main(void *arg)
{
    ooc_reader *r = arg;
    struct pread_engine *e = r->engine;
    ooc_piece piece;

    pthread_mutex_lock(&e->lock);
    while (!e->stop) {
        int64_t res;
        int fd;

        if (!ooc_flight_next(r, &piece)) {
            pthread_cond_wait(&e->work, &e->lock);
            continue;
        }
        do {
            fd = ooc_piece_fd(r, &piece);
            pthread_mutex_unlock(&e->lock);
            res = read_piece(&piece, fd);
            pthread_mutex_lock(&e->lock);
        } while (ooc_flight_done(r, &piece, res));
        if (ooc_flight_over(piece.flight))
            pthread_cond_signal(&e->done);
    }
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

static void pread_submit(ooc_reader *r, const ooc_tile_read *read)
{
    struct pread_engine *e = r->engine;

    pthread_mutex_lock(&e->lock);
    ooc_flight_add(r, read);
    pthread_cond_broadcast(&e->work);
    pthread_mutex_unlock(&e->lock);
}

static void pread_wait(ooc_reader *r, ooc_flight *f)
{
    struct pread_engine *e = r->engine;

    pthread_mutex_lock(&e->lock);
    while (!ooc_flight_over(f))
        pthread_cond_wait(&e->done, &e->lock);
    pthread_mutex_unlock(&e->lock);
}

static void pread_close(ooc_reader *r)
{
    struct pread_engine *e = r->engine;

    pthread_mutex_lock(&e->lock);
    e->stop = true;
    pthread_cond_broadcast(&e->work);
    pthread_mutex_unlock(&e->lock);
    for (uint32_t i = 0; i < e->n_started; i++)
        pthread_join(e->thread[i], NULL);
    pthread_cond_destroy(&e->done);
    pthread_cond_destroy(&e->work);
    pthread_mutex_destroy(&e->lock);
    ooc_free(e);
}

static const ooc_reader_ops pread_ops = {pread_submit, pread_wait, pread_close};

ooc_status ooc_reader_pread_start(ooc_reader *r, ooc_err *err)
{
    struct pread_engine *e = ooc_calloc(1, sizeof *e);
    uint32_t n = r->opts.n_threads ? r->opts.n_threads : DEFAULT_THREADS;
    sigset_t all, before;
    int rc = 0;

    if (!e)
        return ooc_fail(err, OOC_E_NOMEM, "%s: no memory for a reader", r->path);
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->work, NULL);
    pthread_cond_init(&e->done, NULL);
    r->engine = e;
    r->info.kind = OOC_READER_PREAD;
    /* Signals belong to the program's own threads. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (!rc && e->n_started < n && e->n_started < MAX_THREADS) {
        rc = pthread_create(&e->thread[e->n_started], NULL, thread_main, r);
        e->n_started += !rc;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!e->n_started) {
        pread_close(r);
        errno = rc;
        return ooc_fail_errno(err, OOC_E_IO, "%s: no thread for reading", r->path);
    }
    r->ops = &pread_ops; /* fewer threads than asked for do */
    return OOC_OK;
}
