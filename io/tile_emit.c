/* Which form of the inner loops of decoding to use: the instruction set that the kernels use. */
#include "io/tile_emit.h"
#include "kernels/cpu/spmm_cpu.h"

const ooc_emit_ops *ooc_emit_ops_get(void)
{
    switch (ooc_cpu_isa(NULL)) {
#if OOC_X86_64
    case OOC_ISA_AVX512:
        return &ooc_emit_avx512;
    case OOC_ISA_AVX2:
        return &ooc_emit_avx2;
#endif
    default:
        return &ooc_emit_scalar;
    }
}
