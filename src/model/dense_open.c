#include "src/model/dense_ops.h"

#include <string.h>

ooc_status ooc_dense_open(ooc_dense **out, const char *device, ooc_pool *pool, ooc_err *err)
{
    *out = NULL;
    if (!device || strcmp(device, "auto") == 0 || strcmp(device, "cpu") == 0)
        return ooc_dense_cpu_open(out, pool, err);
    if (strncmp(device, "cuda:", 5) == 0)
        return ooc_fail(err, OOC_E_UNSUPPORTED,
                        "--model-device %s: models run on the CPU in this build; give cpu", device);
    return ooc_fail(err, OOC_E_ARG, "--model-device %s: expected auto or cpu", device);
}

void ooc_dense_close(ooc_dense *d)
{
    if (d)
        d->ops->close(d);
}
