#include "io/tile_usage.h"
#include "io/checksum.h"
#include "io/store_internal.h"
#include "io/sys.h"
#include "base/alloc.h"

static ooc_use use_of_piece(uint32_t piece)
{
    return piece < OOC_PIECE_COL   ? OOC_USE_SEGMENTS
           : piece < OOC_PIECE_VAL ? OOC_USE_COLUMNS
                                   : OOC_USE_VALUES;
}

static uint64_t add_kernel_tile(const ooc_tile_record *r, ooc_store_usage *u)
{
    const ooc_tile_layout l = ooc_tile_layout_of(&r->info.n);
    const uint64_t bytes[OOC_N_USES] = {l.col - l.seg_row, l.val - l.col, l.total - l.val};

    for (int i = 0; i < OOC_N_USES; i++) {
        u->stored[i][OOC_PIECE_RAW] += bytes[i];
        u->plain[i] += bytes[i];
    }
    u->kernel_tiles++;
    return l.total - l.seg_row;
}

/* Sizes come from records that may be wrong: they are only added up, never used. */
static uint64_t add_rows_tile(const ooc_tile_record *r, const uint8_t *dir, ooc_store_usage *u)
{
    const uint32_t *chunk_row =
        (const uint32_t *)(dir + ooc_dir_front_bytes(&r->info.n, r->info.raw));
    uint64_t sum = 0;

    for (uint32_t c = 0; c < r->info.n.n_chunks; c++) {
        const uint8_t *rec = dir + (uint64_t)c * OOC_CHK_SIZE;
        uint32_t n_entries = ooc_get_u32(rec + OOC_CHK_ENTRIES);

        for (uint32_t i = 0; n_entries && i < ooc_n_pieces(r->info.n.vtype); i++) {
            uint32_t codec = rec[OOC_CHK_PIECE_CODEC + i];
            uint32_t bytes = ooc_get_u32(rec + OOC_CHK_PIECE_BYTES + 4 * i);

            if (codec >= OOC_N_PIECE_CODECS)
                continue;
            u->stored[use_of_piece(i)][codec] += bytes;
            u->plain[use_of_piece(i)] += ooc_piece_items(
                i, chunk_row[c + 1] - chunk_row[c], ooc_get_u32(rec + OOC_CHK_SEGMENTS), n_entries);
            sum += bytes;
        }
    }
    return sum;
}

ooc_status ooc_store_add_usage(const ooc_store *s, uint64_t k, ooc_store_usage *u, ooc_err *err)
{
    const ooc_tile_record *r = &s->tiles[k];
    uint8_t *dir = ooc_malloc(r->dir_bytes);
    uint64_t data;
    ooc_status st;

    if (!dir)
        return ooc_fail(err, OOC_E_NOMEM, "%s: no memory for a directory of %llu bytes", s->path,
                        (unsigned long long)r->dir_bytes);
    st = ooc_sys_pread(s->fd, s->path, dir, r->dir_bytes, r->info.file_off, err);
    if (!st && ooc_checksum(dir, r->dir_bytes) != r->dir_hash)
        st = ooc_fail_at(err, OOC_E_FORMAT, r->info.file_off, (int64_t)k,
                         "%s: damaged: tile %llu: the checksum of the directory does not match",
                         s->path, (unsigned long long)k);
    if (!st) {
        data = r->info.raw ? add_kernel_tile(r, u) : add_rows_tile(r, dir, u);
        u->directories += r->dir_bytes;
        u->padding += r->info.stored_bytes - r->dir_bytes - data;
    }
    ooc_free(dir);
    return st;
}
