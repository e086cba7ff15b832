/* The .npy header parser, on a whole stream and on one that is fed piece by piece. */
#include "io/npy.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check(const ooc_npy *npy, uint64_t total_bytes)
{
    uint64_t items = 1;

    if (npy->n_dims > OOC_NPY_MAX_DIMS || !npy->item_bytes || npy->data_off > total_bytes)
        abort();
    for (uint32_t i = 0; i < npy->n_dims; i++)
        items *= npy->shape[i];
    if (items != npy->n_items || npy->n_items > (total_bytes - npy->data_off) / npy->item_bytes)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    ooc_npy npy;
    ooc_err err;
    bool need_more = false;

    if (!ooc_npy_parse(&npy, data, bytes, bytes, "whole", &need_more, &err))
        check(&npy, bytes);
    for (size_t n = 0; n < bytes; n += 13) {
        ooc_status st = ooc_npy_parse(&npy, data, n, UINT64_MAX, "part", &need_more, &err);

        if (st && !err.text[0])
            abort();
        if (!need_more)
            break;
    }
    return 0;
}
