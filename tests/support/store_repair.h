/* store_repair.h - for tests: make the checksums of a changed tile store right again, so that what
 * stands behind them is reached. */
#ifndef OOC_TESTS_STORE_REPAIR_H
#define OOC_TESTS_STORE_REPAIR_H

#include <stdint.h>

typedef struct {
    uint8_t *p;
    uint64_t bytes; /* at least a page */
} store_image;

/* As far as the sizes and offsets in the image make sense. */
void store_repair(const store_image *m);
#endif
