/* cuda_check.h - for .cu files of src/: every call is checked, and an error names call and device.
 *
 *     OOC_CUDA(d, err, cudaMemsetAsync, p, 0, n, s)     an ooc_status
 *     ooc_cuda_result(d, err, "launch of ...", e)       the same of an error that is there already
 *
 * After an error that the context does not survive (a fault in a kernel, a lost card) every later
 * check on that device fails with it, without calling anything. */
#ifndef OOC_SRC_CUDA_CHECK_H
#define OOC_SRC_CUDA_CHECK_H

#include "base/err.h"
#include "base/fault.h"

#include <cuda_runtime.h>

/* What checks know of a device. */
struct ooc_cuda_state {
    char name[32]; /* "cuda:0" */
    int ordinal;
    cudaError_t broken; /* the error that ended it, or cudaSuccess */
    char broken_at[48]; /* the call that reported it */
};

/* OOC_OK, or OOC_E_DEVICE (OOC_E_NOMEM: out of device memory) with the text filled in. Takes a
 * passing error off the runtime's record, so that the next launch is not blamed for it. */
ooc_status ooc_cuda_result(ooc_cuda_state *d, ooc_err *err, const char *call, cudaError_t e);
/* Fails where the device is broken; else OOC_OK. */
ooc_status ooc_cuda_usable(const ooc_cuda_state *d, ooc_err *err);

#define OOC_CUDA(d, err, f, ...)                                                                   \
    (ooc_cuda_usable(d, err)                                                                       \
         ? OOC_E_DEVICE                                                                            \
         : ooc_cuda_result(d, err, #f,                                                             \
                           ooc_fault_hit(OOC_FAULT_DEVICE) ? cudaErrorUnknown : f(__VA_ARGS__)))

/* Makes a device current for the calls of one scope, and then the caller's again: PyTorch and
 * others in this thread have one of their own. */
class ooc_cuda_scope
{
    int before, now;

  public:
    explicit ooc_cuda_scope(int ordinal) : before(ordinal), now(ordinal)
    {
        (void)cudaGetDevice(&before);
        if (before != now)
            (void)cudaSetDevice(now);
    }
    ~ooc_cuda_scope()
    {
        if (before != now)
            (void)cudaSetDevice(before);
    }
    ooc_cuda_scope(const ooc_cuda_scope &) = delete;
    ooc_cuda_scope &operator=(const ooc_cuda_scope &) = delete;
};

#endif
