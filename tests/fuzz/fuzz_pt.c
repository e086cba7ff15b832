#include "fuzz_source.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    return fuzz_source(&ooc_format_pt, data, bytes);
}
