/* One tile's stored bytes: the directory is checked here, what it points to when decoding. */
#include "io/checksum.h"
#include "io/store_internal.h"
#include "base/checked.h"

#include <stdarg.h>
#include <stdio.h>

ooc_status ooc_tile_fail(const ooc_stored_tile *t, ooc_err *err, uint64_t off, const char *fmt, ...)
{
    char what[256];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    return ooc_fail_at(err, OOC_E_FORMAT, t->info.file_off + off, (int64_t)t->k,
                       "%s: damaged: tile %llu, byte %llu: %s", t->store->path,
                       (unsigned long long)t->k, (unsigned long long)(t->info.file_off + off),
                       what);
}

static ooc_status check_zero(const ooc_stored_tile *t, uint64_t from, uint64_t to,
                             const char *where, ooc_err *err)
{
    for (uint64_t i = from; i < to; i++)
        if (t->stored[i])
            return ooc_tile_fail(t, err, i, "the padding behind %s is not zero", where);
    return OOC_OK;
}

/* Piece sizes and codecs of one chunk; its bytes go to *sum. */
static ooc_status check_pieces(const ooc_stored_tile *t, const uint8_t *rec, uint64_t off,
                               uint64_t *sum, ooc_err *err)
{
    uint32_t n = ooc_n_pieces(t->info.n.vtype);

    *sum = 0;
    for (uint32_t i = 0; i < OOC_MAX_PIECES; i++) {
        uint32_t bytes = ooc_get_u32(rec + OOC_CHK_PIECE_BYTES + 4 * i);
        uint32_t codec = rec[OOC_CHK_PIECE_CODEC + i];

        if (codec >= OOC_N_PIECE_CODECS)
            return ooc_fail_at(err, OOC_E_UNSUPPORTED, t->info.file_off + off, (int64_t)t->k,
                               "%s: tile %llu uses codec %u, not known here", t->store->path,
                               (unsigned long long)t->k, codec);
        if ((i >= n && bytes) || (!bytes && codec))
            return ooc_tile_fail(t, err, off, "piece %u has a size or a codec without the other",
                                 i);
        *sum += bytes;
    }
    for (uint32_t i = OOC_CHK_RESERVED_END; i < OOC_CHK_SIZE; i++)
        if (rec[i])
            return ooc_tile_fail(t, err, off + i, "a reserved field is not zero");
    if (ooc_get_u32(rec + OOC_CHK_RESERVED))
        return ooc_tile_fail(t, err, off, "a reserved field is not zero");
    return OOC_OK;
}

static ooc_status check_chunks(const ooc_stored_tile *t, const ooc_tile_record *r, ooc_err *err)
{
    const uint32_t *chunk_row = (const uint32_t *)(t->stored + t->dir_[OOC_DIR_HEAD]);
    uint64_t end = r->dir_bytes, entries = 0, off = t->dir_[OOC_DIR_CHUNKS];

    for (uint32_t c = 0; c < t->info.n.n_chunks; c++, off += OOC_CHK_SIZE) {
        const uint8_t *rec = t->stored + off;
        uint32_t n = ooc_get_u32(rec + OOC_CHK_ENTRIES);
        uint32_t segs = ooc_get_u32(rec + OOC_CHK_SEGMENTS);
        uint32_t bytes = ooc_get_u32(rec + OOC_CHK_STORED_BYTES);
        uint64_t sum;
        ooc_status st = check_pieces(t, rec, off, &sum, err);

        if (st)
            return st;
        if (ooc_get_u64(rec + OOC_CHK_OFF) != end || sum != bytes ||
            !ooc_range_within(end, bytes, t->info.stored_bytes))
            return ooc_tile_fail(t, err, off, "chunk %u is not where the one before it ends", c);
        if (n > r->max_chunk_entries || segs > r->max_chunk_segments || segs > n ||
            (segs > 0) != (n > 0) || chunk_row[c + 1] - chunk_row[c] > r->max_chunk_rows)
            return ooc_tile_fail(t, err, off, "chunk %u is larger than the index allows", c);
        end += bytes;
        entries += n;
    }
    if (entries != t->info.n.n_entries || ooc_round_up(end, OOC_STORE_PAGE) != t->info.stored_bytes)
        return ooc_tile_fail(t, err, 0, "the chunks do not add up to the tile");
    return check_zero(t, end, t->info.stored_bytes, "the tile", err);
}

ooc_status ooc_stored_tile_open(ooc_stored_tile *out, const ooc_store *s, uint64_t k,
                                const void *stored, ooc_err *err)
{
    const ooc_tile_record *r = &s->tiles[k];
    const ooc_tile_counts *n = &r->info.n;
    ooc_tile_view head;
    const char *what;
    uint64_t front = ooc_dir_front_bytes(n, r->info.raw), used, blocks;
    ooc_status st;

    *out = (ooc_stored_tile){.store = s, .k = k, .stored = stored, .info = r->info};
    out->dir_[OOC_DIR_CHUNKS] = 0;
    out->dir_[OOC_DIR_HEAD] = front;
    if (ooc_checksum(stored, r->dir_bytes) != r->dir_hash)
        return ooc_tile_fail(out, err, 0, "the checksum of the directory does not match");
    head = ooc_tile_view_of(n, r->info.constant, out->stored + front);
    what = ooc_check_head(&head, s->info.n_cols);
    if (what)
        return ooc_tile_fail(out, err, front, "%s", what);
    if (!r->info.raw) {
        out->n_tasks = n->n_chunks;
        used = (uint64_t)n->n_chunks * OOC_CHK_SIZE;
        st = check_zero(out, used, front, "the directory", err);
        return st ? st : check_chunks(out, r, err);
    }
    blocks = ooc_kernel_blocks(n);
    out->n_tasks = blocks ? (uint32_t)blocks : 1;
    used = front + r->info.kernel_bytes;
    st = check_zero(out, blocks * 8, front, "the directory", err);
    return st ? st : check_zero(out, used, r->info.stored_bytes, "the tile", err);
}

ooc_status ooc_stored_tile_decode(const ooc_stored_tile *t, uint32_t task, void *block,
                                  void *scratch, ooc_err *err)
{
    return t->info.raw ? ooc_decode_kernel_block(t, task, block, err)
                       : ooc_decode_rows_chunk(t, task, block, scratch, err);
}

ooc_tile_view ooc_stored_tile_early_view(const ooc_stored_tile *t, const void *block)
{
    ooc_tile_view v = ooc_tile_view_of(&t->info.n, t->info.constant, block);
    const ooc_tile_view head =
        ooc_tile_view_of(&t->info.n, t->info.constant, t->stored + t->dir_[OOC_DIR_HEAD]);

    v.chunk_row = head.chunk_row;
    v.panel_id = head.panel_id;
    v.len_base = head.len_base;
    v.seg_off = head.seg_off;
    v.ent_off = head.ent_off;
    return v;
}

const void *ooc_stored_tile_kernel_form(const ooc_stored_tile *t)
{
    return t->info.raw ? t->stored + t->dir_[OOC_DIR_HEAD] : NULL;
}
