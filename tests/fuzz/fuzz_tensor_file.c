/* The safetensors reader: whatever it accepts, it can read to the last tensor. */
#include "src/train/tensor_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static ooc_status drop(void *ctx, void *to, const void *from, uint64_t bytes, ooc_err *err)
{
    uint8_t *sum = ctx;

    (void)to;
    (void)err;
    for (uint64_t i = 0; i < bytes; i++)
        *sum ^= ((const uint8_t *)from)[i];
    return OOC_OK;
}

/* By name, as a model would ask, in a shape that is likely wrong. */
static void ask(const ooc_tensor_file *f, const char *name, void *buffer)
{
    ooc_tensor_entry e = {.n_dims = 1, .shape = {2}, .n = 2, .at = buffer};
    uint8_t sum = 0;
    ooc_err err = {0};

    snprintf(e.name, sizeof e.name, "%s", name);
    if (ooc_tensor_file_read(f, &e, drop, &sum, buffer, &err) && !err.text[0])
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static uint8_t buffer[OOC_TENSOR_BUFFER];
    static int fd = -1;
    char path[64];
    ooc_tensor_file *f;
    ooc_err err = {0};

    if (fd < 0)
        fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, 0) || pwrite(fd, data, bytes, 0) != (ssize_t)bytes)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (ooc_tensor_file_open(&f, path, &err)) {
        if (f || !err.text[0])
            abort();
        return 0;
    }
    for (uint32_t i = 0; i < ooc_tensor_file_count(f); i++)
        ask(f, ooc_tensor_file_name(f, i), buffer);
    ooc_tensor_file_text(f, "step");
    ooc_tensor_file_close(f);
    return 0;
}
