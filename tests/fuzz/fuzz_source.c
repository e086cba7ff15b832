#include "fuzz_source.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { CAPACITY = 8192, MAX_BATCHES = 50 };

static uint64_t row[CAPACITY], col[CAPACITY];
static double val[CAPACITY], imag[CAPACITY];

static void must_have_text(const ooc_err *err)
{
    if (!err->text[0])
        abort();
}

static void check(const ooc_batch *b)
{
    uint64_t sum = 0;

    if (b->n_pieces > OOC_BATCH_PIECES)
        abort();
    for (uint32_t p = 0; p < b->n_pieces; p++) {
        if ((uint64_t)b->piece[p].first + b->piece[p].n > CAPACITY)
            abort();
        sum += b->piece[p].n;
    }
    if (sum > CAPACITY)
        abort();
}

static void read_batches(ooc_source *s, ooc_pool *pool)
{
    ooc_batch *b = calloc(1, sizeof *b);
    ooc_err err = {0};

    if (!b)
        abort();
    b->row = row;
    b->col = col;
    b->val = val;
    b->imag = s->info.is_complex ? imag : NULL;
    b->capacity = CAPACITY;
    for (int i = 0; i < MAX_BATCHES && !b->end; i++) {
        b->n_pieces = 0;
        b->settled = 0;
        if (s->next(s, b, pool, &err)) {
            must_have_text(&err);
            break;
        }
        check(b);
    }
    free(b);
}

int fuzz_source(const ooc_format *format, const uint8_t *data, size_t bytes)
{
    static ooc_pool *pool;
    char path[64];
    ooc_source_request request = {.path = path, .memory_bytes = 256 << 10, .n_threads = 1};
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    ooc_source *s = NULL;
    ooc_err err = {0};

    if (!pool)
        pool = ooc_pool_new(1);
    if (fd < 0 || !pool || write(fd, data, bytes) != (ssize_t)bytes)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (format->open(&s, &request, &err))
        must_have_text(&err);
    else if (s->info.min_batch <= CAPACITY)
        read_batches(s, pool);
    ooc_source_close(s);
    close(fd);
    return 0;
}
