/* fuzz_source.h - what the fuzz targets of the readers share: the input as a file, read to its end.
 */
#ifndef OOC_TESTS_FUZZ_SOURCE_H
#define OOC_TESTS_FUZZ_SOURCE_H

#include "tiler/reader.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* Open the bytes as a file of this format and read batches: nothing may be out of bounds, every
 * error has a text, and no more than the batch's room is filled. Always 0. */
int fuzz_source(const ooc_format *format, const uint8_t *data, size_t bytes);
#endif
