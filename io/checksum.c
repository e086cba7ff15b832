#include "io/checksum.h"
#include "kernels/cpu/spmm_cpu.h"

#define XXH_INLINE_ALL /* compiled here, because the shared library uses narrow vectors only */
#include <xxhash.h>

uint64_t ooc_checksum_portable(const void *data, size_t bytes)
{
    return XXH3_64bits(data, bytes);
}

uint64_t ooc_checksum(const void *data, size_t bytes)
{
    switch (ooc_cpu_isa(NULL)) {
#if OOC_X86_64
    case OOC_ISA_AVX512:
        return ooc_checksum_avx512(data, bytes);
    case OOC_ISA_AVX2:
        return ooc_checksum_avx2(data, bytes);
#endif
    default:
        return ooc_checksum_portable(data, bytes);
    }
}
