/* png_gray.h - write a grey picture of an array. */
#ifndef OOC_SRC_TRAIN_PNG_GRAY_H
#define OOC_SRC_TRAIN_PNG_GRAY_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

/* 8-bit PNG, height x width, replacing an existing file. The smallest value is black and the
 * largest white; `symmetric`: 0 is the middle grey and the largest absolute value black or white.
 * The range stands in the file's text chunks "minimum" and "maximum". Not-finite values are black.
 */
ooc_status ooc_png_gray_write(const char *path, const float *values, uint64_t height,
                              uint64_t width, bool symmetric, ooc_err *err);
#endif
