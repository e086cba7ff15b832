/* rng.h - the random numbers of a run: initial weights and the order of samples.
 *
 * xoshiro256** (Blackman and Vigna), its four words drawn from splitmix64 of the seed. Written down
 * in docs/model.md, so that a run can be repeated elsewhere. */
#ifndef OOC_SRC_MODEL_RNG_H
#define OOC_SRC_MODEL_RNG_H

#include <stdint.h>

typedef struct {
    uint64_t s[4];
} ooc_rng;

/* Different streams of one seed are unrelated. */
void ooc_rng_seed(ooc_rng *r, uint64_t seed, uint64_t stream);
uint64_t ooc_rng_next(ooc_rng *r);
float ooc_rng_uniform(ooc_rng *r);                  /* [0, 1), a multiple of 2^-24 */
uint64_t ooc_rng_below(ooc_rng *r, uint64_t bound); /* [0, bound) */
/* order[0..n) = a random permutation of 0..n-1. */
void ooc_rng_shuffle(ooc_rng *r, uint32_t *order, uint32_t n);
#endif
