/* Kernel-form arrays from a file, checked so that a kernel can trust them. */
#include "io/checksum.h"
#include "io/store_internal.h"
#include "io/tile_emit.h"

static const char *check_panels(const ooc_tile_view *v, uint64_t n_cols)
{
    uint64_t lens = 0, n_chunks = v->n.n_chunks;

    for (uint32_t p = 0; p < v->n.n_panels; p++) {
        uint64_t r0 = p * n_chunks, r1 = r0 + n_chunks;

        if ((p && v->panel_id[p] <= v->panel_id[p - 1]) ||
            (uint64_t)v->panel_id[p] * v->n.panel_columns >= n_cols)
            return "its panels do not ascend, or lie outside the matrix";
        if (v->ent_off[r1] <= v->ent_off[r0])
            return "a panel without entries";
        if (v->len_base[p] == OOC_PAIR_PANEL)
            continue;
        if (v->len_base[p] != lens)
            return "the segment lengths of a panel are not where they should be";
        lens += v->seg_off[r1] - v->seg_off[r0];
    }
    return lens == v->n.n_lens ? NULL : "the number of segment lengths does not add up";
}

static const char *check_offsets(const ooc_tile_view *v)
{
    uint64_t n_runs = (uint64_t)v->n.n_panels * v->n.n_chunks;

    if (v->seg_off[0] || v->ent_off[0] || v->seg_off[n_runs] != v->n.n_segments ||
        v->ent_off[n_runs] != v->n.n_entries)
        return "its runs do not add up to its entries";
    for (uint32_t p = 0, i = 0; p < v->n.n_panels; p++) {
        bool pairs = v->len_base[p] == OOC_PAIR_PANEL;

        for (uint32_t c = 0; c < v->n.n_chunks; c++, i++) {
            uint64_t segs = (uint64_t)v->seg_off[i + 1] - v->seg_off[i];
            uint64_t ents = (uint64_t)v->ent_off[i + 1] - v->ent_off[i];

            if (v->seg_off[i + 1] < v->seg_off[i] || v->ent_off[i + 1] < v->ent_off[i])
                return "its runs do not ascend";
            if (segs > ents || ents > segs * OOC_MAX_SEGMENT || (pairs && segs != ents))
                return "a run whose segments cannot hold its entries";
        }
    }
    return NULL;
}

const char *ooc_check_head(const ooc_tile_view *v, uint64_t n_cols)
{
    const char *what;

    if (v->chunk_row[0] || v->chunk_row[v->n.n_chunks] != v->n.n_rows)
        return "its chunks do not cover its rows";
    for (uint32_t c = 0; c < v->n.n_chunks; c++)
        if (v->chunk_row[c + 1] <= v->chunk_row[c])
            return "its chunks do not ascend";
    what = check_offsets(v); /* first: the others index by what it checks */
    return what ? what : check_panels(v, n_cols);
}

/* Columns of a segment panel may fall only where a segment of another row begins. The loops over
 * entries are vectors and the one over segments has no branch that depends on the data, because
 * there may be a segment every other entry. */
static bool segments_ascend(const ooc_emit_ops *ops, const uint16_t *row, const uint16_t *len,
                            uint32_t n_segs, const uint16_t *col, uint32_t n)
{
    bool splits = ops->count_not_above(row, n_segs) > 0; /* rows of several segments: rare */
    uint32_t descents = 0;

    for (uint32_t s = 1, at = len[0]; s < n_segs; at += len[s++]) {
        bool falls = col[at] <= col[at - 1];

        descents += falls;
        if (splits && falls && row[s] == row[s - 1])
            return false;
    }
    return descents == ops->count_not_above(col, n);
}

static const char *check_run(const ooc_tile_view *v, const ooc_emit_ops *ops, uint64_t run,
                             uint32_t limit)
{
    uint32_t p = (uint32_t)(run / v->n.n_chunks), c = (uint32_t)(run % v->n.n_chunks);
    uint32_t s0 = v->seg_off[run], n_segs = v->seg_off[run + 1] - s0;
    const uint16_t *row = v->seg_row + s0, *len;
    const uint16_t *col = v->col + v->ent_off[run];
    uint32_t n = v->ent_off[run + 1] - v->ent_off[run];

    if (!n_segs)
        return NULL;
    if (ops->count_below(row, n_segs))
        return "rows that do not ascend";
    if (row[0] < v->chunk_row[c] || row[n_segs - 1] >= v->chunk_row[c + 1])
        return "a row outside its chunk";
    if (ops->highest(col, n) >= limit)
        return "a column outside its panel";
    if (v->len_base[p] == OOC_PAIR_PANEL)
        return ops->count_pairs_not_above(row, col, n) ? "columns that do not ascend" : NULL;
    len = v->seg_len + v->len_base[p] + (s0 - v->seg_off[(uint64_t)p * v->n.n_chunks]);
    if (ops->sum_lengths(len, n_segs) != n)
        return "segment lengths that do not add up";
    return segments_ascend(ops, row, len, n_segs, col, n) ? NULL : "columns that do not ascend";
}

const char *ooc_check_runs(const ooc_tile_view *v, uint64_t n_cols, uint64_t r0, uint64_t r1)
{
    const ooc_emit_ops *ops = ooc_emit_ops_get();

    for (uint64_t r = r0; r < r1; r++) {
        uint32_t p = (uint32_t)(r / v->n.n_chunks);
        const char *what = check_run(v, ops, r, ooc_panel_limit(v, n_cols, p));

        if (what)
            return what;
    }
    return NULL;
}

/* The first run that begins at entry `e` or later. */
static uint64_t run_at(const ooc_tile_view *v, uint64_t n_runs, uint64_t e)
{
    uint64_t lo = 0, hi = n_runs;

    while (lo < hi) {
        uint64_t mid = lo + (hi - lo) / 2;

        if (v->ent_off[mid] < e)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Task `task` verifies the checksum of one block, and the arrays of its share of the runs, which
 * may stand in other blocks: all is well only when all tasks are done, and that is what callers
 * wait for. */
ooc_status ooc_decode_kernel_block(const ooc_stored_tile *t, uint32_t task, void *block,
                                   ooc_err *err)
{
    const uint8_t *form = t->stored + t->dir_[OOC_DIR_HEAD];
    const ooc_tile_view v = ooc_tile_view_of(&t->info.n, t->info.constant, form);
    uint64_t n_runs = (uint64_t)v.n.n_panels * v.n.n_chunks, n = v.n.n_entries;
    uint64_t head = ooc_head_bytes(&v.n), off = head + (uint64_t)task * OOC_KERNEL_BLOCK;
    uint64_t end = off + OOC_KERNEL_BLOCK, r0, r1;
    const char *what;

    if (end > t->info.kernel_bytes)
        end = t->info.kernel_bytes;
    if (end > off && ooc_checksum(form + off, end - off) !=
                         ooc_get_u64(t->stored + t->dir_[OOC_DIR_CHUNKS] + (uint64_t)task * 8))
        return ooc_tile_fail(t, err, t->dir_[OOC_DIR_HEAD] + off,
                             "the checksum of block %u does not match", task);
    r0 = task ? run_at(&v, n_runs, n * task / t->n_tasks) : 0;
    r1 = task + 1 < t->n_tasks ? run_at(&v, n_runs, n * (task + 1) / t->n_tasks) : n_runs;
    what = ooc_check_runs(&v, t->store->info.n_cols, r0, r1);
    if (what)
        return ooc_tile_fail(t, err, t->dir_[OOC_DIR_HEAD], "%s", what);
    if (block) {
        if (!task)
            memcpy(block, form, head);
        memcpy((uint8_t *)block + off, form + off, end - off);
    }
    return OOC_OK;
}
