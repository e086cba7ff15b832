/* checksum.h - XXH3, 64 bits, seed 0, in the widest vectors that the processor has. */
#ifndef OOC_IO_CHECKSUM_H
#define OOC_IO_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

uint64_t ooc_checksum(const void *data, size_t bytes);

/* The forms behind it; all give the same result. */
uint64_t ooc_checksum_portable(const void *data, size_t bytes);
uint64_t ooc_checksum_avx2(const void *data, size_t bytes);
uint64_t ooc_checksum_avx512(const void *data, size_t bytes);
#endif
