#include "src/model/dense_ops.h"
#include "base/parse.h"

#include <string.h>

ooc_status ooc_dense_open(ooc_dense **out, const char *device, ooc_pool *pool, ooc_err *err)
{
    uint64_t ordinal = 0;

    *out = NULL;
    if (!device || strcmp(device, "auto") == 0 || strcmp(device, "cpu") == 0)
        return ooc_dense_cpu_open(out, pool, err);
    if (strncmp(device, "cuda", 4) || (device[4] && device[4] != ':') ||
        (device[4] && (!ooc_parse_u64(device + 5, &ordinal) || ordinal > 1023)))
        return ooc_fail(err, OOC_E_ARG, "--model-device %s: expected auto, cpu, cuda or cuda:N",
                        device);
#if OOC_HAVE_CUDA
    {
        ooc_status st = ooc_dense_cuda_open(out, (int)ordinal, err);

        return st ? ooc_fail_wrap(err, st, "--model-device") : OOC_OK;
    }
#else
    return ooc_fail(err, OOC_E_NO_DEVICE,
                    "--model-device %s: this build has no CUDA; build where nvcc is found, or use "
                    "cpu",
                    device);
#endif
}

void ooc_dense_close(ooc_dense *d)
{
    if (d)
        d->ops->close(d);
}
