#include "io/tile_plan.h"
#include "base/alloc.h"
#include "base/checked.h"

#define MAX_GROUPS 128

/* What one group of rows found in the first sweep. */
struct group {
    const char *bad;
    uint32_t bad_row;
    bool all_equal; /* its values are one and the same */
    bool any;
};

struct sweep {
    ooc_tile_plan *p;
    const ooc_csr_rows *rows;
    uint32_t n_groups;
    struct group group[MAX_GROUPS];
};

ooc_status ooc_tile_plan_init(ooc_tile_plan *p, const ooc_tile_writer_opts *o, ooc_err *err)
{
    *p = (ooc_tile_plan){.n_cols = o->n_cols, .panel_columns = o->panel_columns, .vtype = o->vtype};
    p->n_all_panels = (uint32_t)((o->n_cols + o->panel_columns - 1) / o->panel_columns);
    p->row_segs = ooc_calloc(OOC_MAX_TILE_ROWS, sizeof *p->row_segs);
    p->panel_index = ooc_calloc(p->n_all_panels, sizeof *p->panel_index);
    if (p->row_segs && p->panel_index)
        return OOC_OK;
    ooc_tile_plan_free(p);
    return ooc_fail(err, OOC_E_NOMEM, "no memory to plan tiles");
}

void ooc_tile_plan_free(ooc_tile_plan *p)
{
    ooc_free(p->row_segs);
    ooc_free(p->panel_index);
    ooc_free(p->head);
    *p = (ooc_tile_plan){0};
}

uint64_t ooc_tile_plan_fixed_bytes(const ooc_tile_writer_opts *o)
{
    return sizeof(struct sweep) + 4ull * OOC_MAX_TILE_ROWS +
           4 * ((o->n_cols + o->panel_columns - 1) / o->panel_columns);
}

static uint32_t first_row(const struct sweep *s, uint32_t group)
{
    return (uint32_t)((uint64_t)s->rows->n_rows * group / s->n_groups);
}

static const char *check_row(const ooc_tile_plan *p, const ooc_csr_rows *rows, uint32_t r)
{
    const uint32_t *col = rows->col + (rows->row_off[r] - rows->row_off[0]);
    uint64_t n = rows->row_off[r + 1] - rows->row_off[r];
    unsigned bad = 0;

    for (uint64_t i = 1; i < n; i++)
        bad |= col[i] <= col[i - 1];
    if (bad)
        return "columns that do not ascend";
    return n && col[n - 1] >= p->n_cols ? "a column outside the matrix" : NULL;
}

static void sweep_rows(void *ctx, uint32_t task, uint32_t thread)
{
    struct sweep *s = ctx;
    ooc_tile_plan *p = s->p;
    struct group *g = &s->group[task];
    uint32_t r0 = first_row(s, task), r1 = first_row(s, task + 1);
    uint32_t width = ooc_dtype_bytes(p->vtype);
    const uint64_t *off = s->rows->row_off;
    const uint8_t *val = (const uint8_t *)s->rows->val + (off[r0] - off[0]) * width;
    uint64_t n = off[r1] - off[r0];

    (void)thread;
    g->any = n > 0;
    g->all_equal = n < 2 || memcmp(val, val + width, (n - 1) * width) == 0;
    for (uint32_t r = r0; r < r1 && !g->bad; r++) {
        ooc_row_parts parts = ooc_row_parts_of(s->rows, r, p->panel_columns);
        uint32_t segs = 0;

        g->bad = check_row(p, s->rows, r);
        g->bad_row = r;
        if (g->bad)
            break;
        while (ooc_row_parts_next(&parts)) {
            segs += (parts.end - parts.begin - 1) / OOC_MAX_SEGMENT + 1;
            __atomic_store_n(&p->panel_index[parts.panel], 1, __ATOMIC_RELAXED);
        }
        p->row_segs[r] = segs;
    }
}

static double half_to_double(uint16_t h)
{
    int exponent = h >> 10 & 31, fraction = h & 1023;
    double v = exponent ? (1024 + fraction) * (1.0 / 1024) : fraction * (1.0 / 512);

    /* Scaling by powers of two is exact. The caller has no infinities and no NaN. */
    for (int e = exponent; e > 15; e--)
        v *= 2;
    for (int e = exponent; e < 15; e++)
        v *= 0.5;
    return h >> 15 ? -v : v;
}

/* The value at `val` as f64, exactly; false for NaN and infinities, which stay stored values. */
static bool to_double(const uint8_t *val, ooc_dtype vtype, double *out)
{
    uint16_t h;
    uint32_t bits;
    float f;

    switch (vtype) {
    case OOC_F64:
        memcpy(out, val, 8);
        break;
    case OOC_F32:
        memcpy(&f, val, 4);
        *out = (double)f;
        break;
    case OOC_F16:
        memcpy(&h, val, 2);
        if ((h & 0x7c00) == 0x7c00)
            return false;
        *out = half_to_double(h);
        break;
    case OOC_BF16:
        memcpy(&h, val, 2);
        bits = (uint32_t)h << 16;
        memcpy(&f, &bits, 4);
        *out = (double)f;
        break;
    case OOC_CONST:
        return false;
    }
    return *out - *out == 0;
}

/* All values of the tile equal? Groups were compared inside; here across. */
static void find_constant(ooc_tile_plan *p, const struct sweep *s)
{
    uint32_t width = ooc_dtype_bytes(p->vtype);
    const uint8_t *first = s->rows->val;

    p->n.vtype = p->vtype;
    p->constant = 0;
    if (s->rows->row_off[s->rows->n_rows] == s->rows->row_off[0])
        return;
    for (uint32_t g = 0; g < s->n_groups; g++) {
        uint64_t at = s->rows->row_off[first_row(s, g)] - s->rows->row_off[0];

        if (s->group[g].any &&
            (!s->group[g].all_equal || memcmp(first, first + at * width, width) != 0))
            return;
    }
    if (to_double(first, p->vtype, &p->constant))
        p->n.vtype = OOC_CONST;
    else
        p->constant = 0;
}

static uint64_t row_bytes(const ooc_tile_plan *p, const ooc_csr_rows *rows, uint32_t r)
{
    return (rows->row_off[r + 1] - rows->row_off[r]) * (2 + ooc_dtype_bytes(p->n.vtype)) +
           4ull * p->row_segs[r];
}

/* The number of chunks of about `target` bytes. Writes their first rows where `out` is given. */
static uint32_t cut_chunks(ooc_tile_plan *p, const ooc_csr_rows *rows, uint64_t target,
                           uint32_t *out)
{
    uint64_t bytes = 0, entries = 0;
    uint32_t n_chunks = 0;

    for (uint32_t r = 0; r < rows->n_rows; r++) {
        uint64_t b = row_bytes(p, rows, r), n = rows->row_off[r + 1] - rows->row_off[r];

        if (!r || bytes + b > target || (p->rows_possible && entries + n > OOC_ENCODE_ENTRIES)) {
            if (out)
                out[n_chunks] = r;
            n_chunks++;
            bytes = entries = 0;
        }
        bytes += b;
        entries += n;
    }
    if (out)
        out[n_chunks] = rows->n_rows;
    return n_chunks;
}

/* Small tiles still give several threads something to do; tiles with many panels get few chunks, so
 * that the run offsets (8 bytes a panel and chunk) stay a small part of them. */
static uint64_t chunk_target(uint64_t tile_bytes, uint64_t n_panels)
{
    uint64_t target = ooc_max_u64(tile_bytes / 8, OOC_MIN_CHUNK_BYTES);

    return ooc_max_u64(ooc_min_u64(target, OOC_CHUNK_BYTES), 64 * n_panels);
}

static ooc_status set_head(ooc_tile_plan *p, ooc_err *err)
{
    const ooc_tile_layout l = ooc_tile_layout_of(&p->n);

    if (l.seg_row > p->head_room) {
        ooc_free(p->head);
        p->head_room = 0;
        p->head = ooc_malloc(l.seg_row);
        if (!p->head)
            return ooc_fail(err, OOC_E_NOMEM, "no memory for a tile of %u panels", p->n.n_panels);
        p->head_room = l.seg_row;
    }
    memset(p->head, 0, l.seg_row);
    p->chunk_row = (const uint32_t *)(p->head + l.chunk_row);
    p->panel_id = (const uint32_t *)(p->head + l.panel_id);
    p->len_base = (const uint32_t *)(p->head + l.len_base);
    p->seg_off = (const uint32_t *)(p->head + l.seg_off);
    p->ent_off = (const uint32_t *)(p->head + l.ent_off);
    return OOC_OK;
}

/* Entries and segments of each run of one chunk, counted where their offsets will stand. */
static void count_runs(void *ctx, uint32_t chunk, uint32_t thread)
{
    const struct sweep *s = ctx;
    ooc_tile_plan *p = s->p;
    uint32_t *ents = (uint32_t *)p->ent_off + 1, *segs = (uint32_t *)p->seg_off + 1;

    (void)thread;
    for (uint32_t r = p->chunk_row[chunk]; r < p->chunk_row[chunk + 1]; r++) {
        ooc_row_parts parts = ooc_row_parts_of(s->rows, r, p->panel_columns);

        while (ooc_row_parts_next(&parts)) {
            uint64_t run = (uint64_t)p->panel_index[parts.panel] * p->n.n_chunks + chunk;

            ents[run] += parts.end - parts.begin;
            segs[run] += (parts.end - parts.begin - 1) / OOC_MAX_SEGMENT + 1;
        }
    }
}

/* Choose pairs where they are smaller (4 bytes an entry against 2 an entry and 4 a segment), then
 * turn counts into offsets. */
static void set_offsets(ooc_tile_plan *p)
{
    uint32_t *ents = (uint32_t *)p->ent_off + 1, *segs = (uint32_t *)p->seg_off + 1;
    uint32_t *len_base = (uint32_t *)p->len_base, n_chunks = p->n.n_chunks;
    uint32_t n_ents = 0, n_segs = 0;

    p->n.n_lens = 0;
    for (uint32_t q = 0; q < p->n.n_panels; q++, ents += n_chunks, segs += n_chunks) {
        uint64_t e = 0, s = 0;
        bool pairs;

        for (uint32_t c = 0; c < n_chunks; c++) {
            e += ents[c];
            s += segs[c];
        }
        pairs = e < 2 * s;
        len_base[q] = pairs ? OOC_PAIR_PANEL : p->n.n_lens;
        p->n.n_lens += pairs ? 0 : (uint32_t)s;
        for (uint32_t c = 0; c < n_chunks; c++) {
            n_segs += pairs ? ents[c] : segs[c];
            n_ents += ents[c];
            segs[c] = n_segs;
            ents[c] = n_ents;
        }
    }
    p->n.n_segments = n_segs;
}

static void find_largest_chunk(ooc_tile_plan *p, const ooc_csr_rows *rows)
{
    p->max_chunk_entries = p->max_chunk_segments = p->max_chunk_rows = 0;
    for (uint32_t c = 0; c < p->n.n_chunks; c++) {
        uint32_t r0 = p->chunk_row[c], r1 = p->chunk_row[c + 1], segs;
        uint64_t n = rows->row_off[r1] - rows->row_off[r0];

        segs = ooc_tile_plan_chunk_segments(p, c);
        p->max_chunk_entries = (uint32_t)ooc_max_u64(p->max_chunk_entries, n);
        p->max_chunk_segments = (uint32_t)ooc_max_u64(p->max_chunk_segments, segs);
        p->max_chunk_rows = (uint32_t)ooc_max_u64(p->max_chunk_rows, r1 - r0);
    }
    if (p->max_chunk_entries > OOC_ENCODE_ENTRIES || p->n.n_panels > OOC_MAX_ROWS_PANELS)
        p->rows_possible = false;
}

uint32_t ooc_tile_plan_chunk_segments(const ooc_tile_plan *p, uint32_t chunk)
{
    uint32_t n = 0;

    for (uint64_t q = 0, run = chunk; q < p->n.n_panels; q++, run += p->n.n_chunks)
        n += p->seg_off[run + 1] - p->seg_off[run];
    return n;
}

static ooc_status check_shape(const ooc_csr_rows *rows, ooc_err *err)
{
    if (!rows->n_rows || rows->n_rows > OOC_MAX_TILE_ROWS)
        return ooc_fail(err, OOC_E_ARG, "a tile of %u rows (1 to %u are possible)", rows->n_rows,
                        OOC_MAX_TILE_ROWS);
    for (uint32_t r = 0; r < rows->n_rows; r++)
        if (rows->row_off[r + 1] < rows->row_off[r])
            return ooc_fail(err, OOC_E_ARG, "row %u of a tile has less than no entries", r);
    if (rows->row_off[rows->n_rows] - rows->row_off[0] > INT32_MAX)
        return ooc_fail(err, OOC_E_ARG, "a tile of more than 2^31 - 1 entries");
    return OOC_OK;
}

ooc_status ooc_tile_plan_make(ooc_tile_plan *p, const ooc_csr_rows *rows, ooc_pool *pool,
                              ooc_err *err)
{
    struct sweep s = {.p = p, .rows = rows};
    uint64_t bytes = 0, target;
    uint32_t *panel_id;
    ooc_status st = check_shape(rows, err);

    if (st)
        return st;
    memset(p->panel_index, 0, 4ull * p->n_all_panels);
    s.n_groups = (uint32_t)ooc_min_u64(rows->n_rows, MAX_GROUPS);
    ooc_parallel_for(pool, s.n_groups, sweep_rows, &s);
    for (uint32_t g = 0; g < s.n_groups; g++)
        if (s.group[g].bad)
            return ooc_fail(err, OOC_E_ARG, "row %u of a tile has %s", s.group[g].bad_row,
                            s.group[g].bad);
    p->n = (ooc_tile_counts){.n_rows = rows->n_rows, .panel_columns = p->panel_columns};
    p->n.n_entries = (uint32_t)(rows->row_off[rows->n_rows] - rows->row_off[0]);
    find_constant(p, &s);
    for (uint32_t q = 0; q < p->n_all_panels; q++)
        p->n.n_panels += p->panel_index[q];
    for (uint32_t r = 0; r < rows->n_rows; r++)
        bytes += row_bytes(p, rows, r);
    target = chunk_target(bytes, p->n.n_panels);
    p->rows_possible = p->n.n_entries > 0 && target / 4 <= OOC_ENCODE_ENTRIES;
    p->n.n_chunks = cut_chunks(p, rows, target, NULL);
    st = set_head(p, err);
    if (st)
        return st;
    cut_chunks(p, rows, target, (uint32_t *)p->chunk_row);
    panel_id = (uint32_t *)p->panel_id;
    for (uint32_t q = 0, i = 0; q < p->n_all_panels; q++)
        if (p->panel_index[q]) {
            panel_id[i] = q;
            p->panel_index[q] = i++;
        }
    ooc_parallel_for(pool, p->n.n_chunks, count_runs, &s);
    set_offsets(p);
    find_largest_chunk(p, rows);
    return OOC_OK;
}

ooc_tile_counts ooc_tile_plan_bound(const ooc_tile_writer_opts *o, uint32_t n_rows,
                                    uint64_t n_entries, uint64_t n_segments)
{
    uint64_t panels = (o->n_cols + o->panel_columns - 1) / o->panel_columns;
    uint64_t bytes = n_entries * (2 + ooc_dtype_bytes(o->vtype)) + 4 * n_segments;
    ooc_tile_counts n = {.n_rows = n_rows};

    n.n_panels = (uint32_t)ooc_min_u64(panels, n_segments);
    /* Two neighbours never fit one chunk together. */
    n.n_chunks = (uint32_t)ooc_min_u64(n_rows, 2 * bytes / chunk_target(bytes, n.n_panels) +
                                                   2 * n_entries / OOC_ENCODE_ENTRIES + 2);
    return n;
}
