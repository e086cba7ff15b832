/* tile_reader.h - read whole tiles asynchronously, in the order asked for, several in flight.
 *
 * Two engines behind one interface: io_uring with O_DIRECT and registered buffers, and threads that
 * pread. Each step of the first falls back by itself, said once through `warn`: no registered
 * buffers where the memlock limit is too small, buffered reads where the file system refuses
 * O_DIRECT, the pread threads where io_uring is refused or not built in.
 *
 *     submit(tile 0 -> slot 0); submit(tile 1 -> slot 1);
 *     wait()  -> tile 0 is in slot 0;  ... compute ...;  submit(tile 2 -> slot 0);  wait() ...
 *
 * Memory:  a few hundred bytes a read in flight, taken at open. Nothing is allocated, opened or
 *          created afterwards.
 * Threads: a reader belongs to one thread at a time; waiting sleeps, nothing polls. */
#ifndef OOC_IO_TILE_READER_H
#define OOC_IO_TILE_READER_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum {
    OOC_READER_AUTO = 0, /* io_uring if it works, else pread */
    OOC_READER_URING,    /* only io_uring: OOC_E_UNSUPPORTED where it is refused */
    OOC_READER_PREAD
} ooc_reader_kind;

typedef struct {
    ooc_reader_kind kind;
    uint32_t max_in_flight; /* tiles, 1..OOC_READER_MAX_IN_FLIGHT */
    uint64_t max_bytes;     /* of one read */
    uint64_t request_bytes; /* a tile is read in requests of about this size; 0: the default */
    uint32_t n_threads;     /* of the pread engine; 0: the default */
    bool no_direct;         /* leave O_DIRECT out (tests) */
    /* Slots to register with the kernel: n_slots of slot_bytes each from `slots` on; they must
     * outlive the reader. Reads to other memory work too. */
    void *slots;
    uint64_t slot_bytes;
    uint32_t n_slots;
    void (*warn)(void *ctx, const char *line); /* may be NULL */
    void *warn_ctx;
} ooc_reader_opts;

#define OOC_READER_MAX_IN_FLIGHT 64u

typedef struct ooc_reader ooc_reader;

/* Read `path` with O_DIRECT where possible; `fd` is the same file, opened for buffered reads, and
 * stays the caller's. OOC_E_IO (also: `path` is another file by now), OOC_E_UNSUPPORTED,
 * OOC_E_NOMEM. On failure *out is NULL. */
ooc_status ooc_reader_open(ooc_reader **out, const char *path, int fd, const ooc_reader_opts *opts,
                           ooc_err *err);
void ooc_reader_close(ooc_reader *r); /* waits for what is in flight; NULL is allowed */

/* One tile: `bytes` bytes at `file_off` to `dst`, all multiples of 4096. */
typedef struct {
    uint64_t tile; /* for messages */
    uint64_t file_off, bytes;
    void *dst;
} ooc_tile_read;

/* Start a read. Fewer than max_in_flight may be in flight. A failure shows up at the wait. */
void ooc_reader_submit(ooc_reader *r, const ooc_tile_read *read);
/* Wait for the oldest read that was submitted and not waited for. OOC_E_IO with errno, file, offset
 * and tile; OOC_E_FORMAT where the file ends before. Either way nothing writes to its dst any more.
 */
ooc_status ooc_reader_wait(ooc_reader *r, ooc_err *err);
uint32_t ooc_reader_in_flight(const ooc_reader *r);
/* Wait for everything in flight and forget it, errors too. */
void ooc_reader_drain(ooc_reader *r);

typedef struct {
    ooc_reader_kind kind; /* the engine in use */
    bool direct, registered;
} ooc_reader_info;
/* Call it while nothing is in flight. */
void ooc_reader_get_info(const ooc_reader *r, ooc_reader_info *out);
#endif
