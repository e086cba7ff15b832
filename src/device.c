/* The only file that asks which backends were built in. */
#include "src/device.h"
#include "base/parse.h"

#include <stdio.h>
#include <string.h>

#if !OOC_HAVE_CUDA
ooc_status ooc_device_cuda_open(ooc_device **out, int ordinal, ooc_pool *pool, ooc_err *err)
{
    (void)pool;
    *out = NULL;
    return ooc_fail(err, OOC_E_NO_DEVICE,
                    "cuda:%d: this build has no CUDA; build where nvcc is found, or use cpu",
                    ordinal);
}
#endif

/* "cuda" and "cuda:N". */
static bool cuda_ordinal(const char *name, int *ordinal)
{
    uint64_t n = 0;

    if (strncmp(name, "cuda", 4) != 0 || (name[4] && name[4] != ':'))
        return false;
    if (name[4] && (!ooc_parse_u64(name + 5, &n) || n > 1023))
        return false;
    *ordinal = (int)n;
    return true;
}

static ooc_status open_auto(ooc_device **out, ooc_pool *pool,
                            void (*warn)(void *ctx, const char *line), void *warn_ctx, ooc_err *err)
{
    ooc_err why;

    if (!OOC_HAVE_CUDA)
        return ooc_device_cpu_open(out, pool, err);
    switch (ooc_device_cuda_open(out, 0, pool, &why)) {
    case OOC_OK:
        return OOC_OK;
    case OOC_E_NO_DEVICE:
        if (warn) {
            char line[sizeof why.text + 40];

            snprintf(line, sizeof line, "%s; the CPU is used", why.text);
            warn(warn_ctx, line);
        }
        return ooc_device_cpu_open(out, pool, err);
    default: /* an old driver, a card that fails: never silently on the CPU */
        if (err)
            *err = why;
        return why.code;
    }
}

ooc_status ooc_device_open(ooc_device **out, const char *name, ooc_pool *pool,
                           void (*warn)(void *ctx, const char *line), void *warn_ctx, ooc_err *err)
{
    int ordinal;

    *out = NULL;
    if (!name || !strcmp(name, "auto"))
        return open_auto(out, pool, warn, warn_ctx, err);
    if (!strcmp(name, "cpu"))
        return ooc_device_cpu_open(out, pool, err);
    if (cuda_ordinal(name, &ordinal))
        return ooc_device_cuda_open(out, ordinal, pool, err);
    return ooc_fail(err, OOC_E_ARG, "'%s' is no device: expected auto, cpu, cuda or cuda:N", name);
}

void ooc_device_close(ooc_device *d)
{
    if (d)
        d->ops->close(d);
}
