#include "src/model/rng.h"

static uint64_t splitmix(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

void ooc_rng_seed(ooc_rng *r, uint64_t seed, uint64_t stream)
{
    uint64_t state = stream;

    state = splitmix(&state) ^ seed;
    for (int i = 0; i < 4; i++)
        r->s[i] = splitmix(&state);
}

static uint64_t rotated(uint64_t x, int by)
{
    return (x << by) | (x >> (64 - by));
}

uint64_t ooc_rng_next(ooc_rng *r)
{
    const uint64_t result = rotated(r->s[1] * 5, 7) * 9, t = r->s[1] << 17;

    r->s[2] ^= r->s[0];
    r->s[3] ^= r->s[1];
    r->s[1] ^= r->s[2];
    r->s[0] ^= r->s[3];
    r->s[2] ^= t;
    r->s[3] = rotated(r->s[3], 45);
    return result;
}

float ooc_rng_uniform(ooc_rng *r)
{
    return (float)(ooc_rng_next(r) >> 40) * 0x1p-24f;
}

/* The high half of the 128-bit product; its bias is below bound / 2^64. */
uint64_t ooc_rng_below(ooc_rng *r, uint64_t bound)
{
    return (uint64_t)(((unsigned __int128)ooc_rng_next(r) * bound) >> 64);
}

void ooc_rng_shuffle(ooc_rng *r, uint32_t *order, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        order[i] = i;
    for (uint32_t i = n; i > 1; i--) {
        const uint32_t j = (uint32_t)ooc_rng_below(r, i);
        const uint32_t t = order[i - 1];

        order[i - 1] = order[j];
        order[j] = t;
    }
}
