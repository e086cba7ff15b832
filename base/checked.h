/* checked.h - arithmetic on sizes that come from files or users: false on overflow. */
#ifndef OOC_BASE_CHECKED_H
#define OOC_BASE_CHECKED_H

#include <stdbool.h>
#include <stdint.h>

static inline bool ooc_add_u64(uint64_t a, uint64_t b, uint64_t *sum)
{
    return !__builtin_add_overflow(a, b, sum);
}

static inline bool ooc_mul_u64(uint64_t a, uint64_t b, uint64_t *product)
{
    return !__builtin_mul_overflow(a, b, product);
}

/* True if the `len` bytes from `off` lie within `total` bytes. */
static inline bool ooc_range_within(uint64_t off, uint64_t len, uint64_t total)
{
    return off <= total && len <= total - off;
}

/* Round up to a multiple of `align`, a power of two. The caller has checked that it cannot wrap. */
static inline uint64_t ooc_round_up(uint64_t n, uint64_t align)
{
    return (n + (align - 1)) & ~(align - 1);
}

static inline uint64_t ooc_min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t ooc_max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}
#endif
