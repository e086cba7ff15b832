/* phantom.h - test images made of ellipses, on the square [-1, 1] x [-1, 1].
 *
 * Pixel (row, column) of a size x size image is sampled at its centre, x to the right and y
 * upwards; a pixel's value is the sum of the ellipses that hold its centre, at least 0. */
#ifndef OOC_TOOLS_PHANTOM_H
#define OOC_TOOLS_PHANTOM_H

#include <stdint.h>

/* The Shepp-Logan head in Toft's modified contrast (values 0 to 1), the version that most CT
 * papers show. `image`: size * size floats, overwritten. */
void phantom_shepp_logan(float *image, uint32_t size);

/* Image number `index` of the random training set `seed`: 10 to 40 ellipses. Depends on nothing
 * else, so a longer set begins with the shorter one. `image`: size * size floats, overwritten. */
void phantom_ellipses(float *image, uint32_t size, uint64_t seed, uint64_t index);
#endif
