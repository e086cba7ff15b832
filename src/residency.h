/* residency.h - which tiles a tier keeps: a fixed set, spread evenly over the sweep.
 *
 * A sweep is cyclic, so a cache that replaces (LRU) would hit nothing. And a set at one end of the
 * sweep would leave the disk idle while those tiles are computed; spread evenly, reading and
 * computing overlap all along. The choice depends on sizes and capacity only. */
#ifndef OOC_SRC_RESIDENCY_H
#define OOC_SRC_RESIDENCY_H

#include <stdint.h>

/* Choose among `n` tiles those to keep in `capacity` bytes. size[k] is what tile k would take; 0:
 * not a candidate. Sets keep[k] to 1 for the chosen ones (others stay as they are); returns the
 * bytes they take. */
uint64_t ooc_residency_choose(const uint64_t *size, uint64_t n, uint64_t capacity, uint8_t *keep);
#endif
