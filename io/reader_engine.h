/* reader_engine.h - between tile_reader.c and its engines: reads cut into pieces, pieces completed.
 *
 * A flight is one tile on its way; a piece is a part of it that one system call reads. Engines take
 * pieces with ooc_flight_next(), read them, and report with ooc_flight_done(), which may ask them
 * to read the rest of a short one. Locking is the engine's business (pread: one mutex around both;
 * io_uring: none, everything happens on the caller's thread). */
#ifndef OOC_IO_READER_ENGINE_H
#define OOC_IO_READER_ENGINE_H

#include "io/tile_reader.h"

typedef struct {
    ooc_tile_read read;
    uint64_t piece_bytes; /* all pieces but the last */
    uint64_t given;       /* bytes handed out as pieces */
    uint64_t finished;    /* bytes of pieces that are over, read or failed */
    int sys;              /* errno of the first failure, 0: none */
    bool cut;             /* the file ended */
    uint64_t bad_off;     /* file offset of the first failure */
} ooc_flight;

typedef struct {
    ooc_flight *flight;
    uint64_t off; /* inside the tile: what is still to be read begins here */
    uint64_t end;
    bool buffered; /* must not use O_DIRECT (the rest of a short read is not aligned) */
} ooc_piece;

/* What an engine does. Calls come from one thread. */
typedef struct {
    /* ooc_flight_add(), then start as many pieces as possible. */
    void (*submit)(ooc_reader *r, const ooc_tile_read *read);
    /* Sleep until `f` is over. */
    void (*wait)(ooc_reader *r, ooc_flight *f);
    void (*close)(ooc_reader *r); /* nothing is in flight any more */
} ooc_reader_ops;

struct ooc_reader {
    const ooc_reader_ops *ops;
    ooc_reader_opts opts;
    ooc_reader_info info;
    char *path;
    int fd;        /* buffered, the caller's */
    int direct_fd; /* -1: none */
    ooc_flight flights[OOC_READER_MAX_IN_FLIGHT];
    uint64_t head, tail; /* flights head..tail-1 (mod size) are in flight */
    uint64_t next;       /* the first of them that may have pieces left */
    void *engine;        /* its own state */
};

/* Pieces that a read is cut into at most; engines size their queues by it. */
#define OOC_READER_MAX_PIECES 16u

/* Append a flight. */
void ooc_flight_add(ooc_reader *r, const ooc_tile_read *read);

/* The next piece of the oldest flight that has one; false: none is left. */
bool ooc_flight_next(ooc_reader *r, ooc_piece *piece);

/* `res` is what the system call gave for `piece` (bytes, or -errno). True: read on, `piece` says
 * what. False: the piece is over. */
bool ooc_flight_done(ooc_reader *r, ooc_piece *piece, int64_t res);

static inline bool ooc_flight_over(const ooc_flight *f)
{
    return f->finished == f->read.bytes;
}

static inline int ooc_piece_fd(const ooc_reader *r, const ooc_piece *p)
{
    return r->direct_fd >= 0 && !p->buffered ? r->direct_fd : r->fd;
}

/* Say one line through opts.warn, with the file's name before it. */
void ooc_reader_warn(const ooc_reader *r, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Fill r->ops and r->engine. URING: OOC_E_UNSUPPORTED with the reason where it is refused. */
ooc_status ooc_reader_uring_start(ooc_reader *r, ooc_err *err);
ooc_status ooc_reader_pread_start(ooc_reader *r, ooc_err *err);
#endif
