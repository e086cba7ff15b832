#include "tiler/entry_sort.h"

#include "base/alloc.h"

#include <string.h>

enum {
    MAX_DIGIT_BITS = 10, /* 1,024 streams of writes: more of them miss the TLB */
    MAX_BUCKETS = 1 << MAX_DIGIT_BITS,
    SLICE_MIN = 16384 /* below, the start of a task costs more than it saves */
};

struct ooc_sorter {
    ooc_pool *pool;
    bool wide;
    uint32_t max_slices;
    /* Of the sort that runs. */
    ooc_entries from, to;
    uint64_t n;
    uint32_t n_slices;
    uint64_t min;
    int shift, digit_bits;
    struct slice {
        uint64_t min, max;
        bool sorted;
    } * slice;
    uint64_t *counts; /* [n_slices][MAX_BUCKETS] */
};

uint64_t ooc_sorter_memory(uint32_t n_threads)
{
    return sizeof(ooc_sorter) +
           (uint64_t)n_threads * (sizeof(struct slice) + MAX_BUCKETS * sizeof(uint64_t));
}

ooc_sorter *ooc_sorter_new(ooc_pool *pool, bool wide)
{
    ooc_sorter *s = ooc_calloc(1, sizeof *s);

    if (!s)
        return NULL;
    s->pool = pool;
    s->wide = wide;
    s->max_slices = ooc_pool_threads(pool);
    s->slice = ooc_calloc(s->max_slices, sizeof *s->slice);
    s->counts = ooc_calloc((size_t)s->max_slices * MAX_BUCKETS, sizeof *s->counts);
    if (!s->slice || !s->counts) {
        ooc_sorter_free(s);
        return NULL;
    }
    return s;
}

void ooc_sorter_free(ooc_sorter *s)
{
    if (!s)
        return;
    ooc_free(s->slice);
    ooc_free(s->counts);
    ooc_free(s);
}

static uint64_t slice_start(const ooc_sorter *s, uint32_t slice)
{
    return s->n / s->n_slices * slice + (slice < s->n % s->n_slices ? slice : s->n % s->n_slices);
}

static void survey_slice(void *ctx, uint32_t task, uint32_t thread)
{
    ooc_sorter *s = ctx;
    uint64_t first = slice_start(s, task), end = slice_start(s, task + 1);
    const uint64_t *key = s->from.key;
    uint64_t min = key[first], max = key[first];
    uint64_t before = first ? key[first - 1] : 0;
    uint64_t descents = 0;

    (void)thread;
    for (uint64_t i = first; i < end; i++) {
        uint64_t k = key[i];

        min = k < min ? k : min;
        max = k > max ? k : max;
        descents += k < before;
        before = k;
    }
    s->slice[task] = (struct slice){min, max, !descents};
}

static void count_slice(void *ctx, uint32_t task, uint32_t thread)
{
    ooc_sorter *s = ctx;
    uint64_t end = slice_start(s, task + 1);
    uint64_t *count = s->counts + (size_t)task * MAX_BUCKETS;
    uint64_t mask = ((uint64_t)1 << s->digit_bits) - 1;

    (void)thread;
    memset(count, 0, MAX_BUCKETS * sizeof *count);
    for (uint64_t i = slice_start(s, task); i < end; i++)
        count[((s->from.key[i] - s->min) >> s->shift) & mask]++;
}

/* `wide` is a constant at each call, so that the compiler makes two loops of this. */
static inline void scatter(ooc_sorter *s, uint32_t task, bool wide)
{
    uint64_t end = slice_start(s, task + 1);
    uint64_t *next = s->counts + (size_t)task * MAX_BUCKETS;
    uint64_t mask = ((uint64_t)1 << s->digit_bits) - 1;
    uint64_t min = s->min;
    int shift = s->shift;
    const uint64_t *key = s->from.key;
    uint64_t *to_key = s->to.key;

    for (uint64_t i = slice_start(s, task); i < end; i++) {
        uint64_t place = next[((key[i] - min) >> shift) & mask]++;

        to_key[place] = key[i];
        if (wide)
            ((uint64_t *)s->to.val)[place] = ((const uint64_t *)s->from.val)[i];
        else
            ((uint32_t *)s->to.val)[place] = ((const uint32_t *)s->from.val)[i];
    }
}

static void scatter_slice(void *ctx, uint32_t task, uint32_t thread)
{
    ooc_sorter *s = ctx;

    (void)thread;
    if (s->wide)
        scatter(s, task, true);
    else
        scatter(s, task, false);
}

/* Turn counts into places: bucket by bucket, within a bucket slice by slice. False where one bucket
 * holds everything: nothing would move. */
static bool place_buckets(ooc_sorter *s)
{
    uint64_t place = 0;

    for (uint32_t b = 0; b < 1u << s->digit_bits; b++) {
        uint64_t start = place;

        for (uint32_t t = 0; t < s->n_slices; t++) {
            uint64_t *count = &s->counts[(size_t)t * MAX_BUCKETS + b];
            uint64_t n = *count;

            *count = place;
            place += n;
        }
        if (place - start == s->n)
            return false;
    }
    return true;
}

static bool survey(ooc_sorter *s, uint64_t *max)
{
    bool sorted = true;

    ooc_parallel_for(s->pool, s->n_slices, survey_slice, s);
    s->min = s->slice[0].min;
    *max = s->slice[0].max;
    for (uint32_t t = 0; t < s->n_slices; t++) {
        s->min = s->slice[t].min < s->min ? s->slice[t].min : s->min;
        *max = s->slice[t].max > *max ? s->slice[t].max : *max;
        sorted = sorted && s->slice[t].sorted;
    }
    return sorted;
}

void ooc_sorter_sort(ooc_sorter *s, ooc_entries *a, ooc_entries *b, uint64_t n)
{
    uint64_t max, n_slices = n / SLICE_MIN;
    int bits, n_passes;

    if (n < 2)
        return;
    s->n_slices = n_slices < 1 ? 1 : n_slices > s->max_slices ? s->max_slices : (uint32_t)n_slices;
    s->from = *a;
    s->to = *b;
    s->n = n;
    if (survey(s, &max))
        return;
    bits = 64 - __builtin_clzll(max - s->min); /* not sorted, so they differ */
    n_passes = (bits + MAX_DIGIT_BITS - 1) / MAX_DIGIT_BITS;
    s->digit_bits = (bits + n_passes - 1) / n_passes;
    for (s->shift = 0; s->shift < bits; s->shift += s->digit_bits) {
        ooc_entries old = s->from;

        ooc_parallel_for(s->pool, s->n_slices, count_slice, s);
        if (!place_buckets(s))
            continue;
        ooc_parallel_for(s->pool, s->n_slices, scatter_slice, s);
        s->from = s->to;
        s->to = old;
    }
    *a = s->from;
    *b = s->to;
}
