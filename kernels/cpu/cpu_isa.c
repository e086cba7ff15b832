/* Which instruction set the products use: the best that the processor has, or OOC_CPU_ISA. */
#include "kernels/cpu/spmm_ops.h"

#if OOC_X86_64
#include <cpuid.h>
#endif
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define UNDECIDED (-2)

/* Racing first calls decide the same. */
static atomic_int chosen = UNDECIDED;

#if OOC_X86_64
/* __builtin_cpu_supports of clang 14 does not know it. */
static int has_f16c(void)
{
    unsigned a, b, c, d;

    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

static int has_isa(ooc_isa isa)
{
    switch (isa) {
    case OOC_ISA_SCALAR:
        return 1;
#if OOC_X86_64
    case OOC_ISA_AVX2:
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
    case OOC_ISA_AVX512:
        return has_isa(OOC_ISA_AVX2) && __builtin_cpu_supports("avx512f") &&
               __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512vl");
#endif
    default:
        return 0;
    }
}

static ooc_isa best_isa(void)
{
    return has_isa(OOC_ISA_AVX512) ? OOC_ISA_AVX512
           : has_isa(OOC_ISA_AVX2) ? OOC_ISA_AVX2
                                   : OOC_ISA_SCALAR;
}

/* OOC_CPU_ISA, or the best; -1 and *why if that asks for what is not there. */
static int decide(const char **why)
{
    const char *name = getenv("OOC_CPU_ISA");

    if (!name || !*name)
        return (int)best_isa();
    for (int i = OOC_ISA_SCALAR; i <= OOC_ISA_AVX512; i++) {
        if (strcmp(name, ooc_isa_name((ooc_isa)i)) != 0)
            continue;
        if (has_isa((ooc_isa)i))
            return i;
        *why = "OOC_CPU_ISA asks for instructions that this processor does not have";
        return -1;
    }
    *why = "OOC_CPU_ISA must be avx512, avx2 or scalar";
    return -1;
}

int ooc_cpu_isa(const char **why)
{
    const char *reason = NULL;
    int isa = atomic_load(&chosen);

    if (isa == UNDECIDED) {
        isa = decide(&reason);
        if (isa >= 0)
            atomic_store(&chosen, isa);
    }
    if (why)
        *why = reason;
    return isa;
}

int ooc_cpu_isa_set(ooc_isa isa)
{
    if (!has_isa(isa))
        return -1;
    atomic_store(&chosen, (int)isa);
    return 0;
}

const char *ooc_isa_name(ooc_isa isa)
{
    return isa == OOC_ISA_AVX512 ? "avx512" : isa == OOC_ISA_AVX2 ? "avx2" : "scalar";
}

const ooc_spmm_ops *ooc_spmm_ops_get(void)
{
    switch (ooc_cpu_isa(NULL)) {
#if OOC_X86_64
    case OOC_ISA_AVX512:
        return &ooc_spmm_avx512;
    case OOC_ISA_AVX2:
        return &ooc_spmm_avx2;
#endif
    default:
        return &ooc_spmm_scalar;
    }
}
