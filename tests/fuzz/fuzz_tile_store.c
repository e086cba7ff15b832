/* A tile store of any bytes: opened, its tiles decoded, and what the decoder calls sound is handed
 * to the kernels, which don't check anything. Checksums are made right first (but for inputs that
 * end with an odd byte), or nothing behind them would ever be reached. */
#include "base/alloc.h"
#include "io/tile_format.h"
#include "io/tile_store.h"
#include "kernels/cpu/spmm_cpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <xxhash.h>

#define MAX_BYTES ((uint64_t)64 << 20) /* of a tile in kernel form, of scratch, of X */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

typedef struct {
    uint8_t *p;
    uint64_t bytes;
} image;

/* The hash of [off, off + n) goes to `to`, where all of that is inside. */
static void hash_to(const image *m, uint64_t to, uint64_t off, uint64_t n)
{
    if (to <= m->bytes - 8 && off <= m->bytes && n <= m->bytes - off)
        ooc_put_u64(m->p + to, XXH3_64bits(m->p + off, n));
}

static void repair_chunks(const image *m, uint64_t tile, uint32_t n_chunks)
{
    uint64_t rec = tile;

    for (uint32_t c = 0; c < n_chunks && rec + OOC_CHK_SIZE <= m->bytes; c++, rec += OOC_CHK_SIZE) {
        uint64_t off = ooc_get_u64(m->p + rec + OOC_CHK_OFF);

        if (off <= m->bytes)
            hash_to(m, rec + OOC_CHK_HASH, tile + off,
                    ooc_get_u32(m->p + rec + OOC_CHK_STORED_BYTES));
    }
}

static void repair_blocks(const image *m, uint64_t tile, const uint8_t *rec)
{
    const ooc_tile_counts n = {.n_rows = ooc_get_u32(rec + OOC_REC_ROWS),
                               .n_chunks = ooc_get_u32(rec + OOC_REC_CHUNKS),
                               .n_panels = ooc_get_u32(rec + OOC_REC_PANELS),
                               .n_entries = ooc_get_u32(rec + OOC_REC_ENTRIES),
                               .n_segments = ooc_get_u32(rec + OOC_REC_SEGMENTS),
                               .n_lens = ooc_get_u32(rec + OOC_REC_LENS),
                               .vtype = rec[OOC_REC_VTYPE] % 5};
    const ooc_tile_layout l = ooc_tile_layout_of(&n);
    uint64_t body = l.total - l.seg_row, blocks, front;

    if (body > m->bytes) /* also where the sizes are nonsense */
        return;
    blocks = (body + OOC_KERNEL_BLOCK - 1) / OOC_KERNEL_BLOCK;
    front = (blocks * 8 + 63) & ~(uint64_t)63;
    for (uint64_t b = 0; b < blocks; b++) {
        uint64_t off = b * OOC_KERNEL_BLOCK;

        hash_to(m, tile + b * 8, tile + front + l.seg_row + off,
                body - off < OOC_KERNEL_BLOCK ? body - off : OOC_KERNEL_BLOCK);
    }
}

/* From the inside out: chunks, directories, index, header. */
static void repair(const image *m)
{
    uint64_t index = ooc_get_u64(m->p + OOC_HDR_INDEX_OFF);
    uint64_t rec = index;

    if (index >= m->bytes)
        return;
    for (uint64_t k = 0; k < ooc_get_u64(m->p + OOC_HDR_TILES); k++, rec += OOC_REC_SIZE) {
        uint64_t tile;

        if (m->bytes - rec < OOC_REC_SIZE)
            break;
        tile = ooc_get_u64(m->p + rec + OOC_REC_FILE_OFF);
        if (tile >= m->bytes)
            continue;
        if (m->p[rec + OOC_REC_LAYOUT] == OOC_LAYOUT_KERNEL)
            repair_blocks(m, tile, m->p + rec);
        else
            repair_chunks(m, tile, ooc_get_u32(m->p + rec + OOC_REC_CHUNKS));
        hash_to(m, rec + OOC_REC_DIR_HASH, tile, ooc_get_u64(m->p + rec + OOC_REC_DIR_BYTES));
    }
    hash_to(m, OOC_HDR_INDEX_HASH, index, ooc_get_u64(m->p + OOC_HDR_INDEX_BYTES));
    hash_to(m, OOC_HDR_HASH, 0, OOC_HDR_HASH);
}

static void multiply(const ooc_tile_view *v, uint64_t n_cols)
{
    float *x = ooc_calloc(n_cols, sizeof *x), *y = ooc_calloc(v->n.n_rows, sizeof *y);
    void *scratch = ooc_pages_alloc(OOC_SPMM_SCRATCH_BYTES);

    if (x && y && scratch) {
        ooc_spmm_forward_cpu(v, 0, v->n.n_chunks, x, 1, y, 1, 1, OOC_F32, scratch);
        ooc_spmm_adjoint_cpu(v, 0, v->n.n_panels, 0, v->n.panel_columns, y, 1, x, 1, 1, OOC_F32,
                             scratch);
    }
    ooc_pages_free(scratch, OOC_SPMM_SCRATCH_BYTES);
    ooc_free(x);
    ooc_free(y);
}

static void check_tile(const ooc_store *s, uint64_t k, const image *m, void *scratch)
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

static void check_store(const image *m, const char *path)
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
    image m = {.p = malloc(bytes ? bytes : 1), .bytes = bytes};
    int fd = memfd_create("store", MFD_CLOEXEC);
    char path[64];

    if (!m.p || fd < 0)
        abort();
    memcpy(m.p, data, bytes);
    if (bytes >= OOC_STORE_PAGE && !(data[bytes - 1] & 1))
        repair(&m);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (write(fd, m.p, bytes) != (ssize_t)bytes)
        abort();
    check_store(&m, path);
    close(fd);
    free(m.p);
    return 0;
}
