/* io_uring: everything happens on the caller's thread; the kernel reads while it computes. */
#include "io/reader_engine.h"

#if OOC_HAVE_URING
#include "base/alloc.h"
#include "base/checked.h"
#include "base/fault.h"

#include <assert.h>
#include <errno.h>
#include <liburing.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>

struct uring {
    struct io_uring ring;
    uint32_t n_requests;
    uint32_t n_free;
    uint32_t *free_list; /* indices into piece[] */
    ooc_piece *piece;
};

static void prepare(ooc_reader *r, uint32_t i)
{
    struct uring *u = r->engine;
    const ooc_piece *p = &u->piece[i];
    char *dst = (char *)p->flight->read.dst + p->off;
    unsigned bytes = (unsigned)ooc_min_u64(p->end - p->off, 1u << 30);
    uint64_t file_off = p->flight->read.file_off + p->off;
    uint64_t in_slots = (uint64_t)((uintptr_t)dst - (uintptr_t)r->opts.slots);
    int fd = ooc_piece_fd(r, p);
    struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);

    assert(sqe); /* the ring has an entry for each request */
    if (r->info.registered && in_slots < r->opts.slot_bytes * r->opts.n_slots)
        io_uring_prep_read_fixed(sqe, fd, dst, bytes, file_off,
                                 (int)(in_slots / r->opts.slot_bytes));
    else
        io_uring_prep_read(sqe, fd, dst, bytes, file_off);
    /* A buffered read may copy from the page cache at once, on this thread: send it to a worker. */
    if (fd == r->fd)
        sqe->flags |= IOSQE_ASYNC;
    io_uring_sqe_set_data64(sqe, i);
}

static void start_pieces(ooc_reader *r)
{
    struct uring *u = r->engine;
    ooc_piece piece;

    while (u->n_free && ooc_flight_next(r, &piece)) {
        uint32_t i = u->free_list[--u->n_free];

        u->piece[i] = piece;
        prepare(r, i);
    }
    /* What the kernel does not take now stays in the ring for the next call. */
    (void)io_uring_submit(&u->ring);
}

static void uring_submit(ooc_reader *r, const ooc_tile_read *read)
{
    ooc_flight_add(r, read);
    start_pieces(r);
}

static int64_t with_faults(int64_t res)
{
    if (ooc_fault_hit(OOC_FAULT_READ))
        return -EIO;
    if (ooc_fault_hit(OOC_FAULT_READ_EINTR))
        return -EINTR;
    if (ooc_fault_hit(OOC_FAULT_SHORT_READ) && res > 1)
        return res / 2;
    return res;
}

static void uring_wait(ooc_reader *r, ooc_flight *f)
{
    struct uring *u = r->engine;

    while (!ooc_flight_over(f)) {
        struct io_uring_cqe *cqe;

        if (io_uring_peek_cqe(&u->ring, &cqe) != 0) {
            int rc = io_uring_submit_and_wait(&u->ring, 1);

            if (rc < 0 && rc != -EINTR) /* out of kernel memory: it passes */
                (void)nanosleep(&(struct timespec){0, 1000000}, NULL);
            continue;
        }
        while (io_uring_peek_cqe(&u->ring, &cqe) == 0) {
            uint32_t i = (uint32_t)io_uring_cqe_get_data64(cqe);
            int64_t res = with_faults(cqe->res);

            io_uring_cqe_seen(&u->ring, cqe);
            if (ooc_flight_done(r, &u->piece[i], res))
                prepare(r, i);
            else
                u->free_list[u->n_free++] = i;
        }
        start_pieces(r);
    }
}

static void uring_close(ooc_reader *r)
{
    struct uring *u = r->engine;

    if (!u)
        return;
    if (u->ring.ring_fd >= 0)
        io_uring_queue_exit(&u->ring);
    ooc_free(u->free_list);
    ooc_free(u->piece);
    ooc_free(u);
}

static const ooc_reader_ops uring_ops = {uring_submit, uring_wait, uring_close};

static void register_slots(ooc_reader *r)
{
    struct uring *u = r->engine;
    struct iovec v[OOC_READER_MAX_IN_FLIGHT];
    uint32_t n = r->opts.n_slots;
    int rc;

    if (!n || n > OOC_READER_MAX_IN_FLIGHT)
        return;
    for (uint32_t i = 0; i < n; i++) {
        v[i].iov_base = (char *)r->opts.slots + i * r->opts.slot_bytes;
        v[i].iov_len = r->opts.slot_bytes;
    }
    rc = io_uring_register_buffers(&u->ring, v, n);
    if (rc == 0)
        r->info.registered = true;
    else if (rc == -ENOMEM || rc == -EPERM)
        ooc_reader_warn(r, "the memlock limit (ulimit -l) is too small to register the slots; "
                           "reading without");
    else
        ooc_reader_warn(r, "the slots cannot be registered (%s); reading without", strerror(-rc));
}

static int init_ring(struct uring *u, uint32_t entries)
{
    int rc;

    if (ooc_fault_hit(OOC_FAULT_URING))
        return -EPERM;
    /* Completions are handled when this thread waits, never by interrupting what it computes. */
    rc = io_uring_queue_init(entries, &u->ring, IORING_SETUP_COOP_TASKRUN);
    if (rc == -EINVAL)
        rc = io_uring_queue_init(entries, &u->ring, 0);
    if (rc < 0)
        u->ring.ring_fd = -1;
    return rc;
}

ooc_status ooc_reader_uring_start(ooc_reader *r, ooc_err *err)
{
    struct uring *u = ooc_calloc(1, sizeof *u);
    uint32_t n = r->opts.max_in_flight * OOC_READER_MAX_PIECES;
    int rc;

    if (!u)
        return ooc_fail(err, OOC_E_NOMEM, "%s: no memory for a reader", r->path);
    u->ring.ring_fd = -1;
    r->engine = u;
    u->n_requests = u->n_free = n;
    u->free_list = ooc_calloc(n, sizeof *u->free_list);
    u->piece = ooc_calloc(n, sizeof *u->piece);
    if (!u->free_list || !u->piece) {
        uring_close(r);
        return ooc_fail(err, OOC_E_NOMEM, "%s: no memory for a reader", r->path);
    }
    for (uint32_t i = 0; i < n; i++)
        u->free_list[i] = i;
    rc = init_ring(u, n);
    if (rc < 0) {
        uring_close(r);
        return ooc_fail(err, OOC_E_UNSUPPORTED, "io_uring is refused (%s)", strerror(-rc));
    }
    register_slots(r);
    r->info.kind = OOC_READER_URING;
    r->ops = &uring_ops;
    return OOC_OK;
}
#else
ooc_status ooc_reader_uring_start(ooc_reader *r, ooc_err *err)
{
    (void)r;
    return ooc_fail(err, OOC_E_UNSUPPORTED, "io_uring is not built in");
}
#endif
