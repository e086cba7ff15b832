#include "io/tile_encode.h"
#include "io/checksum.h"
#include "base/checked.h"

uint64_t ooc_chunk_stream_bytes(uint32_t rows, uint32_t segments, uint32_t entries, ooc_dtype vtype)
{
    return 4ull * rows + 4ull * segments + (2ull + ooc_dtype_bytes(vtype)) * entries;
}

/* The planes of a chunk, filled row by row. */
struct planes {
    uint8_t *piece[OOC_MAX_PIECES];
    uint32_t n_segments, n_entries; /* filled so far */
    uint16_t prev_col;
};

static void set_planes(struct planes *s, uint8_t *memory, uint32_t rows, uint32_t segments,
                       uint32_t entries, uint32_t n_pieces)
{
    *s = (struct planes){.n_segments = 0};
    for (uint32_t i = 0; i < n_pieces; i++) {
        s->piece[i] = memory;
        memory += ooc_piece_items(i, rows, segments, entries);
    }
}

static void put_segment(struct planes *s, uint32_t panel, uint32_t len)
{
    uint8_t **p = s->piece;
    uint32_t at = s->n_segments++;

    p[OOC_PIECE_SEG_PANEL][at] = (uint8_t)panel;
    p[OOC_PIECE_SEG_PANEL + 1][at] = (uint8_t)(panel >> 8);
    p[OOC_PIECE_SEG_LEN][at] = (uint8_t)(len - 1);
    p[OOC_PIECE_SEG_LEN + 1][at] = (uint8_t)((len - 1) >> 8);
}

/* Segments of one part: one an entry in a pair panel, else as few as can be. */
static uint32_t put_segments(struct planes *s, uint32_t panel, uint32_t n, bool pairs)
{
    uint32_t most = pairs ? 1 : OOC_MAX_SEGMENT, n_segs = 0;

    for (; n; n_segs++) {
        uint32_t len = n < most ? n : most;

        put_segment(s, panel, len);
        n -= len;
    }
    return n_segs;
}

static void put_columns(struct planes *s, const uint32_t *col, uint32_t n, uint32_t base)
{
    uint8_t *lo = s->piece[OOC_PIECE_COL] + s->n_entries;
    uint8_t *hi = s->piece[OOC_PIECE_COL + 1] + s->n_entries;

    for (uint32_t i = 0; i < n; i++) {
        uint16_t c = (uint16_t)(col[i] - base);
        uint16_t delta = (uint16_t)(c - s->prev_col);

        lo[i] = (uint8_t)delta;
        hi[i] = (uint8_t)(delta >> 8);
        s->prev_col = c;
    }
    s->n_entries += n;
}

static void put_values(struct planes *s, const uint8_t *val, uint32_t n, uint32_t width)
{
    for (uint32_t b = 0; b < width; b++) {
        uint8_t *out = s->piece[OOC_PIECE_VAL + b];

        for (uint32_t i = 0; i < n; i++)
            out[i] = val[(uint64_t)i * width + b];
    }
}

static void fill_planes(struct planes *s, const ooc_tile_plan *p, const ooc_csr_rows *rows,
                        uint32_t chunk)
{
    uint32_t r0 = p->chunk_row[chunk], r1 = p->chunk_row[chunk + 1];
    uint32_t width = ooc_dtype_bytes(p->n.vtype);
    const uint8_t *val = rows->val;

    for (uint32_t r = r0; r < r1; r++) {
        ooc_row_parts parts = ooc_row_parts_of(rows, r, p->panel_columns);
        uint32_t n_segs = 0;

        while (ooc_row_parts_next(&parts)) {
            uint32_t panel = p->panel_index[parts.panel], n = parts.end - parts.begin;

            n_segs += put_segments(s, panel, n, p->len_base[panel] == OOC_PAIR_PANEL);
            put_columns(s, parts.col + parts.begin, n, parts.panel * p->panel_columns);
        }
        for (uint32_t b = 0; b < 4; b++)
            s->piece[OOC_PIECE_ROW_SEGS + b][r - r0] = (uint8_t)(n_segs >> (8 * b));
    }
    if (width)
        put_values(s, val + (rows->row_off[r0] - rows->row_off[0]) * width,
                   (uint32_t)(rows->row_off[r1] - rows->row_off[r0]), width);
}

uint64_t ooc_encode_rows_chunk(const ooc_tile_plan *p, const ooc_csr_rows *rows, uint32_t chunk,
                               ooc_piece_encoder *enc, uint8_t *memory, uint8_t *out, uint8_t *rec)
{
    uint32_t r0 = p->chunk_row[chunk], r1 = p->chunk_row[chunk + 1];
    uint32_t n_entries = (uint32_t)(rows->row_off[r1] - rows->row_off[r0]);
    uint32_t n_segments = ooc_tile_plan_chunk_segments(p, chunk);
    uint32_t n_pieces = ooc_n_pieces(p->n.vtype);
    uint64_t bytes = 0;
    struct planes s;

    memset(rec, 0, OOC_CHK_SIZE);
    if (n_entries) {
        set_planes(&s, memory, r1 - r0, n_segments, n_entries, n_pieces);
        fill_planes(&s, p, rows, chunk);
    }
    for (uint32_t i = 0; i < n_pieces && n_entries; i++) {
        ooc_piece_codec codec;
        uint32_t n = ooc_piece_items(i, r1 - r0, n_segments, n_entries);
        size_t stored = ooc_piece_encode(enc, s.piece[i], n, out + bytes, &codec);

        if (!stored)
            return UINT64_MAX;
        ooc_put_u32(rec + OOC_CHK_PIECE_BYTES + 4 * i, (uint32_t)stored);
        rec[OOC_CHK_PIECE_CODEC + i] = (uint8_t)codec;
        bytes += stored;
    }
    ooc_put_u64(rec + OOC_CHK_HASH, ooc_checksum(out, bytes));
    ooc_put_u32(rec + OOC_CHK_STORED_BYTES, (uint32_t)bytes);
    ooc_put_u32(rec + OOC_CHK_ENTRIES, n_entries);
    ooc_put_u32(rec + OOC_CHK_SEGMENTS, n_segments);
    return bytes;
}

/* Row and lengths of one part's segments, where they belong. */
static void scatter_segments(const ooc_tile_plan *p, uint32_t panel, uint32_t *seg, uint32_t row,
                             uint32_t n, uint16_t *seg_row, uint16_t *seg_len)
{
    bool pairs = p->len_base[panel] == OOC_PAIR_PANEL;
    uint32_t most = pairs ? 1 : OOC_MAX_SEGMENT;
    uint32_t first = p->seg_off[(uint64_t)panel * p->n.n_chunks];

    for (uint32_t len; n; n -= len, ++*seg) {
        len = n < most ? n : most;
        seg_row[*seg] = (uint16_t)row;
        if (!pairs)
            seg_len[p->len_base[panel] + (*seg - first)] = (uint16_t)len;
    }
}

void ooc_scatter_chunk(const ooc_tile_plan *p, const ooc_csr_rows *rows, uint32_t chunk,
                       uint32_t *cursors, uint8_t *body)
{
    const ooc_tile_layout l = ooc_tile_layout_of(&p->n);
    uint32_t width = ooc_dtype_bytes(p->n.vtype), *ent = cursors, *seg = cursors + p->n.n_panels;
    uint16_t *out_col = (uint16_t *)(body + (l.col - l.seg_row));
    const uint8_t *val = rows->val;

    for (uint64_t q = 0, run = chunk; q < p->n.n_panels; q++, run += p->n.n_chunks) {
        ent[q] = p->ent_off[run];
        seg[q] = p->seg_off[run];
    }
    for (uint32_t r = p->chunk_row[chunk]; r < p->chunk_row[chunk + 1]; r++) {
        ooc_row_parts parts = ooc_row_parts_of(rows, r, p->panel_columns);
        const uint8_t *row_val = val + (rows->row_off[r] - rows->row_off[0]) * width;

        while (ooc_row_parts_next(&parts)) {
            uint32_t panel = p->panel_index[parts.panel], n = parts.end - parts.begin;
            uint32_t base = parts.panel * p->panel_columns;

            scatter_segments(p, panel, &seg[panel], r, n, (uint16_t *)body,
                             (uint16_t *)(body + (l.seg_len - l.seg_row)));
            for (uint32_t i = 0; i < n; i++)
                out_col[ent[panel] + i] = (uint16_t)(parts.col[parts.begin + i] - base);
            if (width)
                memcpy(body + (l.val - l.seg_row) + (uint64_t)ent[panel] * width,
                       row_val + (uint64_t)parts.begin * width, (uint64_t)n * width);
            ent[panel] += n;
        }
    }
}
