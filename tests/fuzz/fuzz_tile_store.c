/* A tile store of any bytes: opened, its tiles decoded, and what the decoder calls sound is handed
 * to the kernels, which don't check anything. Checksums are made right first (but for inputs that
 * end with an odd byte), or nothing behind them would ever be reached. */
#include "base/alloc.h"
#include "io/tile_format.h"
#include "io/tile_store.h"
#include "kernels/cpu/spmm_cpu.h"
#include "tests/support/store_repair.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAX_BYTES ((uint64_t)64 << 20) /* of a tile in kernel form, of scratch, of X */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void multiply(const ooc_tile_view *v, uint64_t n_cols)
{
    float *x = ooc_calloc(n_cols, sizeof *x), *y = ooc_calloc(v->n.n_rows, sizeof *y);
    void *scratch = ooc_pages_alloc(OOC_SPMM_SCRATCH_BYTES);

    if (x && y && scratch) {
        ooc_spmm_forward_cpu(v, 0, v->n.n_chunks, n_cols, x, 1, y, 1, 1, OOC_F32, scratch);
        ooc_spmm_adjoint_cpu(v, 0, v->n.n_panels, 0, v->n.panel_columns, n_cols, y, 1, x, 1, 1,
                             OOC_F32, scratch);
    }
    ooc_pages_free(scratch, OOC_SPMM_SCRATCH_BYTES);
    ooc_free(x);
    ooc_free(y);
}

static void check_tile(const ooc_store *s, uint64_t k, const store_image *m, void *scratch)
{
    ooc_tile_info info;
    ooc_stored_tile tile;
    uint8_t *stored, *block;
    ooc_err err;
    ooc_status st;

    ooc_store_get_tile(s, k, &info);
    if (info.kernel_bytes > MAX_BYTES)
        return;
    if (info.file_off > m->bytes || info.stored_bytes > m->bytes - info.file_off)
        abort(); /* the index must have been checked against the file */
    stored = aligned_alloc(64, info.stored_bytes);
    block = aligned_alloc(64, info.kernel_bytes + 64);
    if (!stored || !block)
        abort();
    memcpy(stored, m->p + info.file_off, info.stored_bytes);
    st = ooc_stored_tile_open(&tile, s, k, stored, &err);
    for (uint32_t i = 0; !st && i < tile.n_tasks; i++)
        st = ooc_stored_tile_decode(&tile, i, block, scratch, &err);
    if (!st) {
        const ooc_tile_view v = ooc_tile_view_of(&info.n, info.constant, block);

        multiply(&v, ooc_store_get_info(s)->n_cols);
    }
    free(stored);
    free(block);
}

static void check_store(const store_image *m, const char *path)
{
    ooc_store *s;
    ooc_err err;

    if (!ooc_store_open(&s, path, &err)) {
        const ooc_store_info *info = ooc_store_get_info(s);
        uint64_t room = (info->max_scratch_bytes + 127) & ~(uint64_t)63;

        if (room <= MAX_BYTES && info->n_cols <= MAX_BYTES / 4) {
            void *scratch = aligned_alloc(64, room);

            for (uint64_t k = 0; scratch && k < info->n_tiles; k++)
                check_tile(s, k, m, scratch);
            free(scratch);
        }
    }
    ooc_store_close(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    store_image m = {.p = malloc(bytes ? bytes : 1), .bytes = bytes};
    int fd = memfd_create("store", MFD_CLOEXEC);
    char path[64];

    if (!m.p || fd < 0)
        abort();
    memcpy(m.p, data, bytes);
    if (bytes >= OOC_STORE_PAGE && !(data[bytes - 1] & 1))
        store_repair(&m);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (write(fd, m.p, bytes) != (ssize_t)bytes)
        abort();
    check_store(&m, path);
    close(fd);
    free(m.p);
    return 0;
}
