/* A ROWS chunk: checksum, byte planes, then entries into their panels. */
#include "io/checksum.h"
#include "io/piece_codec.h"
#include "io/store_internal.h"
#include "io/tile_emit.h"

/* Items of seg_row that are written at once, so far behind the last one too. */
#define ROWS_AT_ONCE 8u

static uint64_t part(uint64_t *end, uint64_t bytes)
{
    uint64_t at = *end;

    *end = (at + bytes + 63) & ~(uint64_t)63;
    return at;
}

ooc_scratch_layout ooc_scratch_layout_of(const ooc_tile_record *r)
{
    uint32_t n_pieces = ooc_n_pieces(r->info.n.vtype);
    ooc_scratch_layout l = {.dctx_bytes = ooc_piece_dctx_bytes()};

    l.dctx = part(&l.total, l.dctx_bytes);
    for (uint32_t i = 0; i < n_pieces; i++)
        l.piece[i] = part(&l.total, ooc_piece_items(i, r->max_chunk_rows, r->max_chunk_segments,
                                                    r->max_chunk_entries) +
                                        (uint64_t)OOC_OVERREAD);
    l.seg_row = part(&l.total, ((uint64_t)r->max_chunk_segments + ROWS_AT_ONCE) * 2);
    l.seg_panel = part(&l.total, (uint64_t)r->max_chunk_segments * 2);
    l.seg_len = part(&l.total, (uint64_t)r->max_chunk_segments * 2);
    l.col = part(&l.total, (uint64_t)r->max_chunk_entries * 2 + OOC_OVERREAD);
    l.dropped = part(&l.total, 2);
    l.cursors = part(&l.total, (uint64_t)r->info.n.n_panels * sizeof(ooc_panel_cursor));
    return l;
}

/* One chunk on its way: its record's fields and the thread's memory. */
struct chunk {
    const ooc_stored_tile *t;
    const uint8_t *rec;
    uint32_t number, n_rows, n_segments, n_entries, stored_bytes;
    uint64_t off; /* in the tile */
    ooc_scratch_layout l;
    uint8_t *scratch;
    const uint8_t *plane[OOC_MAX_PIECES];
};

static ooc_status decode_pieces(struct chunk *c, ooc_err *err)
{
    uint32_t n_pieces = ooc_n_pieces(c->t->info.n.vtype);
    uint64_t off = c->off;
    void *dctx = c->scratch + c->l.dctx;

    ooc_piece_dctx_init(dctx);
    for (uint32_t i = 0; i < n_pieces; i++) {
        uint32_t bytes = ooc_get_u32(c->rec + OOC_CHK_PIECE_BYTES + 4 * i);
        uint32_t codec = c->rec[OOC_CHK_PIECE_CODEC + i];
        uint32_t n = ooc_piece_items(i, c->n_rows, c->n_segments, c->n_entries);
        uint8_t *room = c->scratch + c->l.piece[i];
        const uint8_t *plane = ooc_piece_decode(dctx, codec, c->t->stored + off, bytes, room, n);

        if (!plane)
            return ooc_tile_fail(c->t, err, off, "chunk %u, piece %u does not decode to %u bytes",
                                 c->number, i, n);
        /* Vectors may read behind a plane that is used in place, but not behind the tile. */
        if (plane != room && off + bytes + OOC_OVERREAD > c->t->info.stored_bytes) {
            memcpy(room, plane, n);
            plane = room;
        }
        c->plane[i] = plane;
        off += bytes;
    }
    return OOC_OK;
}

/* The row of each segment, from the number of segments of each row; false if they do not add up.
 * Most rows have few segments, so that as many are written at once and the next row begins where
 * this one ends: that has no branch to mispredict. */
static bool set_rows(const struct chunk *c, uint32_t row0)
{
    const uint8_t *const *p = c->plane + OOC_PIECE_ROW_SEGS;
    uint16_t *out = (uint16_t *)(c->scratch + c->l.seg_row);
    uint64_t left = c->n_segments;

    if (!p[0] || !p[1] || !p[2] || !p[3]) /* not possible, but clang-tidy cannot know */
        return false;
    for (uint32_t i = 0; i < c->n_rows; i++) {
        uint32_t n = (uint32_t)p[0][i] | (uint32_t)p[1][i] << 8 | (uint32_t)p[2][i] << 16 |
                     (uint32_t)p[3][i] << 24;

        if (n > left)
            return false;
        for (uint32_t at = 0; at == 0 || at < n; at += ROWS_AT_ONCE)
            for (uint32_t k = 0; k < ROWS_AT_ONCE; k++)
                out[at + k] = (uint16_t)(row0 + i);
        out += n;
        left -= n;
    }
    return left == 0;
}

/* Segment items; false if they do not fit the chunk's counts. */
static bool set_segments(const struct chunk *c, const ooc_emit_ops *ops, uint32_t n_panels)
{
    uint16_t *panel = (uint16_t *)(c->scratch + c->l.seg_panel);
    uint16_t *len = (uint16_t *)(c->scratch + c->l.seg_len);
    uint64_t entries = c->n_segments;

    ops->join2(panel, c->plane[OOC_PIECE_SEG_PANEL], c->plane[OOC_PIECE_SEG_PANEL + 1],
               c->n_segments);
    ops->join2(len, c->plane[OOC_PIECE_SEG_LEN], c->plane[OOC_PIECE_SEG_LEN + 1], c->n_segments);
    for (uint32_t i = 0; i < c->n_segments; i++)
        entries += len[i];
    return entries == c->n_entries && ops->highest(panel, c->n_segments) < n_panels;
}

/* Cursors at the beginning of the chunk's runs. False if the runs' sizes are not the chunk's. */
static bool set_cursors(const struct chunk *c, const ooc_tile_view *v, uint8_t *block)
{
    const ooc_tile_layout l = ooc_tile_layout_of(&v->n);
    ooc_panel_cursor *k = (ooc_panel_cursor *)(c->scratch + c->l.cursors);
    uint16_t *dropped = (uint16_t *)(c->scratch + c->l.dropped);
    uint64_t entries = 0, segments = 0, width = ooc_dtype_bytes(v->n.vtype);

    for (uint32_t p = 0; p < v->n.n_panels; p++, k++) {
        uint64_t first = (uint64_t)p * v->n.n_chunks, run = first + c->number;
        uint64_t ent = v->ent_off[run], seg = v->seg_off[run];
        bool pairs = v->len_base[p] == OOC_PAIR_PANEL;
        uint16_t *lens = (uint16_t *)(block + l.seg_len);

        k->seg_row = (uint16_t *)(block + l.seg_row) + seg;
        k->seg_len = pairs ? dropped : lens + v->len_base[p] + (seg - v->seg_off[first]);
        k->col = (uint16_t *)(block + l.col) + ent;
        k->val = block + l.val + ent * width;
        k->ent_left = (uint32_t)(v->ent_off[run + 1] - ent);
        k->seg_left = (uint32_t)(v->seg_off[run + 1] - seg);
        k->longest = pairs ? 1 : OOC_MAX_SEGMENT;
        k->len_step = pairs ? 0 : 1;
        k->limit = ooc_panel_limit(v, c->t->store->info.n_cols, p);
        entries += k->ent_left;
        segments += k->seg_left;
    }
    return entries == c->n_entries && segments == c->n_segments;
}

static const char *emit(const struct chunk *c, const ooc_emit_ops *ops)
{
    uint32_t width = ooc_dtype_bytes(c->t->info.n.vtype);
    uint16_t *col = (uint16_t *)(c->scratch + c->l.col);
    ooc_emit_job j = {
        .n_segments = c->n_segments,
        .seg_row = (const uint16_t *)(c->scratch + c->l.seg_row),
        .seg_panel = (const uint16_t *)(c->scratch + c->l.seg_panel),
        .seg_len = (const uint16_t *)(c->scratch + c->l.seg_len),
        .col = col,
        .cursor = (ooc_panel_cursor *)(c->scratch + c->l.cursors),
    };

    j.n_descents =
        ops->join2_prefix(col, c->plane[OOC_PIECE_COL], c->plane[OOC_PIECE_COL + 1], c->n_entries);
    for (uint32_t i = 0; i < width; i++)
        j.val_plane[i] = c->plane[OOC_PIECE_VAL + i];
    return width == 4   ? ops->emit4(&j)
           : width == 8 ? ops->emit8(&j)
           : width == 2 ? ops->emit2(&j)
                        : ops->emit0(&j);
}

/* The head is copied in shares, one a task; the first also clears the gaps between the arrays, so
 * that a decoded block is, byte for byte, what a KERNEL tile has on disk. */
static void copy_head(const ooc_stored_tile *t, uint32_t task, uint8_t *block)
{
    const ooc_tile_counts *n = &t->info.n;
    const ooc_tile_layout l = ooc_tile_layout_of(n);
    const uint8_t *head = t->stored + t->dir_[OOC_DIR_HEAD];
    uint64_t lines = l.seg_row / 64;
    uint64_t from = lines * task / t->n_tasks * 64, to = lines * (task + 1) / t->n_tasks * 64;

    memcpy(block + from, head + from, to - from);
    if (task)
        return;
    memset(block + l.seg_row + 2 * (uint64_t)n->n_segments, 0,
           l.seg_len - l.seg_row - 2 * (uint64_t)n->n_segments);
    memset(block + l.seg_len + 2 * (uint64_t)n->n_lens, 0,
           l.col - l.seg_len - 2 * (uint64_t)n->n_lens);
    memset(block + l.col + 2 * (uint64_t)n->n_entries, 0,
           l.val - l.col - 2 * (uint64_t)n->n_entries);
    to = l.val + (uint64_t)n->n_entries * ooc_dtype_bytes(n->vtype);
    memset(block + to, 0, l.total - to);
}

ooc_status ooc_decode_rows_chunk(const ooc_stored_tile *t, uint32_t chunk, void *block,
                                 void *scratch, ooc_err *err)
{
    const ooc_emit_ops *ops = ooc_emit_ops_get();
    const uint8_t *rec = t->stored + t->dir_[OOC_DIR_CHUNKS] + (uint64_t)chunk * OOC_CHK_SIZE;
    const ooc_tile_view head =
        ooc_tile_view_of(&t->info.n, t->info.constant, t->stored + t->dir_[OOC_DIR_HEAD]);
    struct chunk c = {
        .t = t,
        .rec = rec,
        .number = chunk,
        .n_rows = head.chunk_row[chunk + 1] - head.chunk_row[chunk],
        .n_segments = ooc_get_u32(rec + OOC_CHK_SEGMENTS),
        .n_entries = ooc_get_u32(rec + OOC_CHK_ENTRIES),
        .stored_bytes = ooc_get_u32(rec + OOC_CHK_STORED_BYTES),
        .off = ooc_get_u64(rec + OOC_CHK_OFF),
        .l = ooc_scratch_layout_of(&t->store->tiles[t->k]),
        .scratch = scratch,
    };
    const char *what;
    ooc_status st;

    if (ooc_checksum(t->stored + c.off, c.stored_bytes) != ooc_get_u64(rec + OOC_CHK_HASH))
        return ooc_tile_fail(t, err, c.off, "the checksum of chunk %u does not match", chunk);
    copy_head(t, chunk, block);
    if (!c.n_entries) /* only empty rows: nothing else is stored that matters */
        return set_cursors(&c, &head, block) && !c.stored_bytes
                   ? OOC_OK
                   : ooc_tile_fail(t, err, c.off, "chunk %u has bytes but no entries", chunk);
    st = decode_pieces(&c, err);
    if (st)
        return st;
    if (!set_rows(&c, head.chunk_row[chunk]) || !set_segments(&c, ops, head.n.n_panels) ||
        !set_cursors(&c, &head, block))
        return ooc_tile_fail(t, err, c.off, "chunk %u: its rows and segments do not add up", chunk);
    what = emit(&c, ops);
    return what ? ooc_tile_fail(t, err, c.off, "chunk %u: %s", chunk, what) : OOC_OK;
}
