#include "src/residency.h"

uint64_t ooc_residency_choose(const uint64_t *size, uint64_t n, uint64_t capacity, uint8_t *keep)
{
    long double total = 0, due = 0; /* due: bytes that an even spread would hold by now */
    uint64_t used = 0;

    for (uint64_t k = 0; k < n; k++)
        total += (long double)size[k];
    if (total == 0)
        return 0;
    for (uint64_t k = 0; k < n; k++) {
        due += (long double)size[k] / total * (long double)capacity;
        if (size[k] && size[k] <= capacity - used &&
            (total <= (long double)capacity ||
             (long double)used + (long double)size[k] / 2 <= due)) {
            keep[k] = 1;
            used += size[k];
        }
    }
    /* What rounding left: the first tiles that still fit. */
    for (uint64_t k = 0; k < n; k++)
        if (size[k] && !keep[k] && size[k] <= capacity - used) {
            keep[k] = 1;
            used += size[k];
        }
    return used;
}
