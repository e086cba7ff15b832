#include "src/cuda_check.h"

#include <stdio.h>

/* Errors of one call, after which the context goes on. */
static bool passing(cudaError_t e)
{
    return e == cudaErrorMemoryAllocation || e == cudaErrorInvalidValue ||
           e == cudaErrorInvalidConfiguration || e == cudaErrorInvalidDevice ||
           e == cudaErrorInvalidResourceHandle || e == cudaErrorHostMemoryAlreadyRegistered ||
           e == cudaErrorHostMemoryNotRegistered;
}

ooc_status ooc_cuda_usable(const ooc_cuda_state *d, ooc_err *err)
{
    if (d->broken == cudaSuccess)
        return OOC_OK;
    return ooc_fail(err, OOC_E_DEVICE, "%s can't be used any more: %s reported %s (%s)", d->name,
                    d->broken_at, cudaGetErrorName(d->broken), cudaGetErrorString(d->broken));
}

ooc_status ooc_cuda_result(ooc_cuda_state *d, ooc_err *err, const char *call, cudaError_t e)
{
    if (e == cudaSuccess)
        return OOC_OK;
    (void)cudaGetLastError();
    if (!passing(e)) {
        d->broken = e;
        snprintf(d->broken_at, sizeof d->broken_at, "%s", call);
    }
    return ooc_fail(err, e == cudaErrorMemoryAllocation ? OOC_E_NOMEM : OOC_E_DEVICE,
                    "%s: %s: %s (%s)", d->name, call, cudaGetErrorName(e), cudaGetErrorString(e));
}
