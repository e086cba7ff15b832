#include "store_repair.h"
#include "io/tile_format.h"

#include <xxhash.h>

/* The hash of [off, off + n) goes to `to`, where all of that is inside. */
static void hash_to(const store_image *m, uint64_t to, uint64_t off, uint64_t n)
{
    if (to <= m->bytes - 8 && off <= m->bytes && n <= m->bytes - off)
        ooc_put_u64(m->p + to, XXH3_64bits(m->p + off, n));
}

static void repair_chunks(const store_image *m, uint64_t tile, uint32_t n_chunks)
{
    uint64_t rec = tile;

    for (uint32_t c = 0; c < n_chunks && rec + OOC_CHK_SIZE <= m->bytes; c++, rec += OOC_CHK_SIZE) {
        uint64_t off = ooc_get_u64(m->p + rec + OOC_CHK_OFF);

        if (off <= m->bytes)
            hash_to(m, rec + OOC_CHK_HASH, tile + off,
                    ooc_get_u32(m->p + rec + OOC_CHK_STORED_BYTES));
    }
}

static void repair_blocks(const store_image *m, uint64_t tile, const uint8_t *rec)
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
void store_repair(const store_image *m)
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
