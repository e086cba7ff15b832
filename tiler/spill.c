#include "tiler/spill.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/parse.h"
#include "io/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum {
    RUN_BUFFER_MIN = 512 /* entries: below, reads get too small */
};

struct run {
    uint64_t key_off, val_off, n;
};

struct ooc_spill {
    char *dir;
    int fd;
    bool wide;
    uint64_t file_bytes, total_bytes;
    struct run *run;
    uint64_t n_runs, max_runs;
};

static ooc_status open_unnamed(int *fd, const char *dir, ooc_err *err)
{
    ooc_status st = ooc_sys_open(fd, dir, O_TMPFILE | O_RDWR | O_EXCL, err);
    size_t room = strlen(dir) + 32;
    char *name;

    if (!st || !err || (err->sys != EOPNOTSUPP && err->sys != EISDIR && err->sys != EINVAL))
        return st;
    name = ooc_malloc(room);
    if (!name)
        return ooc_fail(err, OOC_E_NOMEM, "no memory for the name of a temporary file");
    snprintf(name, room, "%s/.tile-convert-XXXXXX", dir);
    *fd = mkostemp(name, O_CLOEXEC);
    if (*fd < 0)
        st = ooc_fail_errno(err, OOC_E_IO, "%s: cannot create a temporary file", dir);
    else {
        (void)unlink(name);
        st = OOC_OK;
    }
    ooc_free(name);
    return st;
}

ooc_status ooc_spill_open(ooc_spill **out, const char *dir, bool wide, ooc_err *err)
{
    ooc_err own;
    ooc_spill *s = ooc_calloc(1, sizeof *s);
    ooc_status st;

    *out = NULL;
    if (!s)
        return ooc_fail(err, OOC_E_NOMEM, "no memory for the external sort");
    s->fd = -1;
    s->wide = wide;
    s->dir = ooc_strdup(dir);
    if (!s->dir) {
        ooc_spill_close(s);
        return ooc_fail(err, OOC_E_NOMEM, "no memory for the external sort");
    }
    st = open_unnamed(&s->fd, dir, err ? err : &own);
    if (st) {
        ooc_spill_close(s);
        return ooc_fail_wrap(err, st, "temporary file");
    }
    *out = s;
    return OOC_OK;
}

void ooc_spill_close(ooc_spill *s)
{
    if (!s)
        return;
    ooc_sys_close(s->fd);
    ooc_free(s->dir);
    ooc_free(s->run);
    ooc_free(s);
}

uint64_t ooc_spill_bytes(const ooc_spill *s)
{
    return s->total_bytes;
}

/* Reserve room for a run of n entries; its entries are then written by put(). */
static ooc_status add_run(ooc_spill *s, uint64_t n, ooc_err *err)
{
    if (s->n_runs == s->max_runs) {
        uint64_t max = s->max_runs ? 2 * s->max_runs : 64;
        struct run *grown = ooc_realloc(s->run, max * sizeof *grown);

        if (!grown)
            return ooc_fail(err, OOC_E_NOMEM, "no memory for the list of sorted runs");
        s->run = grown;
        s->max_runs = max;
    }
    s->run[s->n_runs++] = (struct run){s->file_bytes, s->file_bytes + n * 8, n};
    s->file_bytes += n * (8 + ooc_value_bytes(s->wide));
    s->total_bytes += n * (8 + ooc_value_bytes(s->wide));
    return OOC_OK;
}

/* Write n entries to places first.. of the last run. */
static ooc_status put(ooc_spill *s, const ooc_entries *e, uint64_t first, uint64_t n, ooc_err *err)
{
    const struct run *r = &s->run[s->n_runs - 1];
    uint64_t width = ooc_value_bytes(s->wide);
    ooc_status st =
        ooc_sys_pwrite(s->fd, "temporary file", e->key, n * 8, r->key_off + first * 8, err);

    if (!st)
        st = ooc_sys_pwrite(s->fd, "temporary file", e->val, n * width, r->val_off + first * width,
                            err);
    return st ? ooc_fail_wrap(err, st, "%s (choose another folder with --tmp)", s->dir) : OOC_OK;
}

ooc_status ooc_spill_write(ooc_spill *s, const ooc_entries *e, uint64_t n, ooc_err *err)
{
    ooc_status st = add_run(s, n, err);

    return st ? st : put(s, e, 0, n, err);
}

/* --- merging: rounds. In a round every run shows a buffer full of its next entries; all entries up
 * to the smallest of the last ones can go, whatever follows in the file. They are gathered in the
 * order of the runs and sorted by the stable radix sort, which is parallel and faster than a heap
 * of many runs. --- */

struct cursor {
    const struct run *run;
    uint64_t read;        /* entries that have been read from the file */
    uint32_t start, held; /* of the buffer */
    uint32_t take;        /* how many go in this round */
    uint64_t to;          /* where they go in the gathered array */
    ooc_status st;
};

struct merge {
    ooc_spill *s;
    ooc_entries buffers, gather, scratch;
    uint64_t buffer_entries;
    struct cursor *cursor;
    uint32_t n_cursors;
    uint64_t bound;
    uint64_t n; /* gathered */
    ooc_err err;
};

static ooc_entries buffer_of(const struct merge *m, uint32_t i)
{
    return ooc_entries_at(m->buffers, i * m->buffer_entries, m->s->wide);
}

static void refill(void *ctx, uint32_t i, uint32_t thread)
{
    struct merge *m = ctx;
    struct cursor *c = &m->cursor[i];
    uint64_t width = ooc_value_bytes(m->s->wide);
    ooc_entries b = buffer_of(m, i);
    ooc_entries old = ooc_entries_at(b, c->start, m->s->wide);
    uint64_t n = ooc_min_u64(m->buffer_entries - c->held, c->run->n - c->read);

    (void)thread;
    c->st = OOC_OK;
    if (!n)
        return; /* what is left stays where it is */
    memmove(b.key, old.key, c->held * 8);
    memmove(b.val, old.val, c->held * width);
    c->start = 0;
    old = ooc_entries_at(b, c->held, m->s->wide);
    c->st = ooc_sys_pread(m->s->fd, "temporary file", old.key, n * 8, c->run->key_off + c->read * 8,
                          NULL);
    if (!c->st)
        c->st = ooc_sys_pread(m->s->fd, "temporary file", old.val, n * width,
                              c->run->val_off + c->read * width, NULL);
    c->read += n;
    c->held += (uint32_t)n;
}

/* How many of the buffered entries do not exceed the bound. */
static uint32_t count_up_to(const struct merge *m, uint32_t i)
{
    const struct cursor *c = &m->cursor[i];
    const uint64_t *key = buffer_of(m, i).key + c->start;
    uint32_t low = 0, high = c->held;

    while (low < high) {
        uint32_t mid = low + (high - low) / 2;

        if (key[mid] <= m->bound)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static void gather(void *ctx, uint32_t i, uint32_t thread)
{
    struct merge *m = ctx;
    struct cursor *c = &m->cursor[i];
    ooc_entries from = ooc_entries_at(buffer_of(m, i), c->start, m->s->wide);
    ooc_entries to = ooc_entries_at(m->gather, c->to, m->s->wide);

    (void)thread;
    memcpy(to.key, from.key, (size_t)c->take * 8);
    memcpy(to.val, from.val, (size_t)c->take * ooc_value_bytes(m->s->wide));
    c->start += c->take;
    c->held -= c->take;
}

static ooc_status next_round(struct merge *m, ooc_pool *pool, ooc_sorter *sorter, ooc_err *err)
{
    ooc_parallel_for(pool, m->n_cursors, refill, m);
    m->bound = UINT64_MAX;
    for (uint32_t i = 0; i < m->n_cursors; i++) {
        const struct cursor *c = &m->cursor[i];

        if (c->st)
            return ooc_fail(err, c->st, "%s: the temporary file could not be read back", m->s->dir);
        if (c->read < c->run->n)
            m->bound = ooc_min_u64(m->bound, buffer_of(m, i).key[(uint64_t)c->start + c->held - 1]);
    }
    m->n = 0;
    for (uint32_t i = 0; i < m->n_cursors; i++) {
        m->cursor[i].take = count_up_to(m, i);
        m->cursor[i].to = m->n;
        m->n += m->cursor[i].take;
    }
    ooc_parallel_for(pool, m->n_cursors, gather, m);
    ooc_sorter_sort(sorter, &m->gather, &m->scratch, m->n);
    return OOC_OK;
}

static ooc_status merge_runs(ooc_spill *s, uint64_t first_run, uint32_t n_runs,
                             const ooc_entries *area, uint64_t capacity, ooc_sorter *sorter,
                             ooc_pool *pool, ooc_entry_sink sink, void *sink_ctx,
                             const ooc_watch *watch, ooc_err *err)
{
    uint64_t third = capacity / 3, total = 0, done = 0;
    struct merge m = {.s = s,
                      .buffers = *area,
                      .gather = ooc_entries_at(*area, third, s->wide),
                      .scratch = ooc_entries_at(*area, 2 * third, s->wide),
                      .buffer_entries = ooc_min_u64(third / n_runs, UINT32_MAX),
                      .n_cursors = n_runs};
    ooc_status st = OOC_OK;

    m.cursor = ooc_calloc(n_runs, sizeof *m.cursor);
    if (!m.cursor)
        return ooc_fail(err, OOC_E_NOMEM, "no memory to merge %u sorted runs", n_runs);
    for (uint32_t i = 0; i < n_runs; i++) {
        m.cursor[i].run = &s->run[first_run + i];
        total += m.cursor[i].run->n;
    }
    while (!st && done < total) {
        if (watch->interrupted && watch->interrupted(watch->ctx)) {
            st = ooc_fail(err, OOC_E_INTERRUPTED, "interrupted while sorting");
            break;
        }
        st = next_round(&m, pool, sorter, err);
        if (!st)
            st = sink(sink_ctx, &m.gather, m.n, err);
        done += m.n;
        if (watch->progress)
            watch->progress(watch->ctx, (double)done / (double)total);
    }
    ooc_free(m.cursor);
    return st;
}

/* A sink that writes a longer run into another spill file. */
struct longer_run {
    ooc_spill *to;
    uint64_t written;
};

static ooc_status append_to_run(void *ctx, const ooc_entries *e, uint64_t n, ooc_err *err)
{
    struct longer_run *l = ctx;
    ooc_status st = put(l->to, e, l->written, n, err);

    l->written += n;
    return st;
}

/* One level: groups of at most `fan_in` runs become one run each, in a new file. */
static ooc_status merge_level(ooc_spill *s, uint32_t fan_in, const ooc_entries *area,
                              uint64_t capacity, ooc_sorter *sorter, ooc_pool *pool,
                              const ooc_watch *watch, ooc_err *err)
{
    ooc_watch quiet = {.interrupted = watch->interrupted, .ctx = watch->ctx};
    ooc_spill *next = NULL, old;
    ooc_status st = ooc_spill_open(&next, s->dir, s->wide, err);

    for (uint64_t first = 0; !st && first < s->n_runs; first += fan_in) {
        uint32_t n_runs = (uint32_t)ooc_min_u64(fan_in, s->n_runs - first);
        struct longer_run l = {.to = next};
        uint64_t n = 0;

        for (uint32_t i = 0; i < n_runs; i++)
            n += s->run[first + i].n;
        st = add_run(next, n, err);
        if (!st)
            st = merge_runs(s, first, n_runs, area, capacity, sorter, pool, append_to_run, &l,
                            &quiet, err);
    }
    if (!st) { /* the new file takes the old one's place */
        old = *s;
        next->total_bytes += old.total_bytes;
        *s = *next;
        *next = old;
    }
    ooc_spill_close(next);
    return st;
}

ooc_status ooc_spill_merge(ooc_spill *s, const ooc_entries *area, uint64_t capacity,
                           ooc_sorter *sorter, ooc_pool *pool, ooc_entry_sink sink, void *sink_ctx,
                           const ooc_watch *watch, ooc_err *err)
{
    uint32_t fan_in = (uint32_t)ooc_min_u64(capacity / 3 / RUN_BUFFER_MIN, 65536);
    ooc_status st;

    while (s->n_runs > fan_in) {
        st = merge_level(s, fan_in, area, capacity, sorter, pool, watch, err);
        if (st)
            return st;
    }
    if (!s->n_runs)
        return OOC_OK;
    return merge_runs(s, 0, (uint32_t)s->n_runs, area, capacity, sorter, pool, sink, sink_ctx,
                      watch, err);
}

ooc_status ooc_spill_check_space(const char *dir, uint64_t bytes, ooc_err *err)
{
    char need[32], have[32];
    struct statvfs fs;
    uint64_t free_bytes;

    if (statvfs(dir, &fs) != 0)
        return ooc_fail_errno(err, OOC_E_ARG, "%s: cannot be used for temporary files", dir);
    if (!ooc_mul_u64(fs.f_bavail, fs.f_frsize, &free_bytes) || bytes <= free_bytes)
        return OOC_OK;
    return ooc_fail(err, OOC_E_BUDGET,
                    "%s: %s of temporary space are needed to sort the entries, %s are free; choose "
                    "another folder with --tmp or a larger --ram-budget",
                    dir, ooc_format_size(bytes, need), ooc_format_size(free_bytes, have));
}
