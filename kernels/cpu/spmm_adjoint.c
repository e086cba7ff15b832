/* The adjoint product of a tile: panel by panel into cache-sized accumulators, which are then added
 * to G.
 *
 * Sums of sums keep the error of DESIGN section 9 also for like-signed numbers: a column's entries
 * of one tile are summed apart from the other tiles' sums. Inside a tile a column may still have
 * tens of thousands of entries (a "hub": a dense column, a popular node of a graph). Where
 * accumulators are no wider than the dense type, hubs are found by counting the columns of one row
 * in 16, and are added to G after every slice of a list. All of this depends on the tile
 * alone, never on how the work is split. */
#include "kernels/cpu/row_set.h"

#include <string.h>

#define HUB_SAMPLE  16u  /* one row in so many is counted */
#define HUB_COUNT   12u  /* this often in the sample: about 192 entries */
#define SORT_MIN_B  8u   /* columns of R from which sorting pays: below, L1 holds enough */
#define BLOCK_WORTH 4.0f /* entries of a segment in each block of columns from which blocks pay */
#define MAX_PLAIN   512u /* entries of a column that may be summed plainly */

typedef struct {
    const ooc_tile_view *t;
    uint32_t p, width; /* panel, its columns */
    const ooc_spmm_type_ops *type;
    ooc_dtype dense;
    uint32_t elem;
    const char *R;
    uint64_t ldr;
    char *G; /* row of panel p's column 0 */
    uint64_t ldg;
    ooc_scratch *s;
} adjoint_call;

/* The columns col0 .. col1-1 and b0 .. b0+n_b-1 that one walk over the panel's entries serves. */
typedef struct {
    uint32_t col0, col1, b0, n_b;
    ooc_dtype acc_type;
    ooc_panel_layout l;
    bool sparse; /* few columns are touched: they are listed, the others left alone */
    bool look_for_hubs;
    uint32_t n_hubs;
} block;

static uint32_t min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static uint32_t panel_entries(const ooc_tile_view *t, uint32_t p)
{
    return t->ent_off[(p + 1) * t->n.n_chunks] - t->ent_off[p * t->n.n_chunks];
}

/* Item i of some work: its first entry, row and number of entries. */
static inline ooc_piece item(const ooc_work *w, uint32_t i)
{
    return w->piece ? w->piece[i] : (ooc_piece){w->ent + i, w->row[i], 1};
}

/* Count the columns of sampled rows; those that reach HUB_COUNT become hubs. */
static void sample_hubs(block *k, ooc_scratch *s, const ooc_work *w)
{
    for (uint32_t i = 0; i < w->n; i++) {
        const ooc_piece p = item(w, i);

        if (p.row * 2654435761u >= UINT32_MAX / HUB_SAMPLE)
            continue;
        for (uint32_t e = p.ent; e < p.ent + p.len; e++) {
            const uint16_t c = w->col[e];

            if (s->sample[c] < HUB_COUNT && ++s->sample[c] == HUB_COUNT)
                s->hub[k->n_hubs++] = c;
        }
    }
}

/* Note which columns the work touches; the accumulators of new ones begin here. */
static void note_columns(const block *k, ooc_scratch *s, const ooc_work *w)
{
    for (uint32_t i = 0; i < w->n; i++) {
        const ooc_piece p = item(w, i);

        for (uint32_t e = p.ent; e < p.ent + p.len; e++)
            if (ooc_row_set_add(&s->touched, w->col[e]))
                ooc_fill_neg_zero(k->acc_type, s->block + ooc_panel_at(k->l, w->col[e] - k->col0),
                                  k->l.row_bytes);
    }
}

static void begin_block(const adjoint_call *a, block *k)
{
    const uint32_t columns = k->col1 - k->col0;

    if (k->sparse)
        ooc_row_set_clear(&a->s->touched);
    else
        ooc_fill_neg_zero(k->acc_type, a->s->block, ooc_panel_at(k->l, columns));
    k->n_hubs = 0;
    if (k->look_for_hubs)
        memset(a->s->sample + k->col0, 0, columns);
}

/* One slice of a walk. */
static void run_slice(const adjoint_call *a, block *k, const ooc_work *w, const ooc_dense *d)
{
    const bool wide = k->acc_type != a->dense;

    if (k->sparse)
        note_columns(k, a->s, w);
    if (k->look_for_hubs)
        sample_hubs(k, a->s, w);
    (wide ? a->type->adjoint_wide : a->type->adjoint)(w, d);
    if (k->n_hubs) /* never with wide */
        a->type->fold(a->G + (uint64_t)k->b0 * a->elem, a->ldg, a->s->block, k->l, a->s->hub,
                      k->n_hubs, k->col0, k->n_b);
}

/* The slices of a list; all at once where nothing happens between them. */
static void run_list(const adjoint_call *a, block *k, const ooc_work *list, const ooc_dense *d)
{
    ooc_work w = *list;
    uint32_t first = 0;

    if (!list->piece || !k->look_for_hubs) {
        run_slice(a, k, list, d);
        return;
    }
    for (uint32_t s = 0; s < a->s->list.n_slices; s++) {
        w.piece = list->piece + first;
        w.n = a->s->list.slice_end[s] - first;
        run_slice(a, k, &w, d);
        first = a->s->list.slice_end[s];
    }
}

/* One walk over the entries of the panel. */
static void adjoint_block(const adjoint_call *a, block *k)
{
    const ooc_fold_fn fold = k->acc_type != a->dense ? a->type->fold_wide : a->type->fold;
    const ooc_dense d = {
        .in = a->R + (uint64_t)k->b0 * a->elem, .ld_in = a->ldr, .out = a->s->block, .B = k->n_b};
    char *G = a->G + (uint64_t)k->b0 * a->elem;
    ooc_walk w;

    begin_block(a, k);
    ooc_walk_open(&w, a->t, a->p, 0, a->t->n.n_chunks, &a->s->list);
    w.col0 = k->col0;
    w.col1 = k->col1 < a->width ? k->col1 : a->t->n.panel_columns;
    w.sort = k->n_b >= SORT_MIN_B && ooc_walk_sorting_pays(&w);
    w.work.l = k->l;
    w.work.col0 = k->col0;
    while (ooc_walk_next(&w))
        run_list(a, k, &w.work, &d);
    if (k->sparse)
        ooc_row_set_fold(&a->s->touched, fold, G, a->ldg, a->s->block, k->l, k->col0, k->n_b);
    else
        fold(G + k->col0 * a->ldg * a->elem, a->ldg, a->s->block, k->l, NULL, k->col1 - k->col0, 0,
             k->n_b);
}

static bool is_wide(const adjoint_call *a, uint32_t n_b)
{
    return n_b <= a->type->wide_max_b;
}

static ooc_panel_layout layout_of(const adjoint_call *a, uint32_t n_b)
{
    return ooc_panel_layout_of(n_b, is_wide(a, n_b) ? sizeof(double) : a->elem);
}

/* How many columns of R one walk serves. Where a panel does not fit scratch with a full strip, its
 * columns are cut into blocks; but short segments cut into blocks leave nothing of a segment, and
 * narrow strips for all columns are faster. Depends on the panel only, as the sums' bits do on it.
 */
static uint32_t strip_of(const adjoint_call *a, uint32_t B)
{
    const uint32_t width = a->t->n.panel_columns;
    uint32_t strip = min_u32(B, OOC_STRIP_BYTES / a->elem);
    const uint32_t blocks = width / (OOC_SCRATCH_BLOCK / layout_of(a, strip).row_bytes) + 1;

    if (ooc_panel_mean_segment(a->t, a->p) >= BLOCK_WORTH * (float)blocks)
        return strip;
    while (strip > 1 && (uint64_t)width * layout_of(a, strip).row_bytes > OOC_SCRATCH_BLOCK)
        strip /= 2;
    return strip;
}

/* Columns col0 .. col1-1 of the panel, in blocks whose accumulators fit scratch. */
static void adjoint_panel(const adjoint_call *a, uint32_t col0, uint32_t col1, uint32_t B)
{
    const uint32_t entries = panel_entries(a->t, a->p), strip = strip_of(a, B);

    for (uint32_t b0 = 0; b0 < B; b0 += strip) {
        const uint32_t n_b = min_u32(strip, B - b0);
        const bool wide = is_wide(a, n_b);
        const ooc_panel_layout l = layout_of(a, n_b);
        const uint32_t room = OOC_SCRATCH_BLOCK / l.row_bytes;

        for (uint32_t c = col0; c < col1; c += room) {
            block k = {.col0 = c,
                       .col1 = min_u32(col1, c + room),
                       .b0 = b0,
                       .n_b = n_b,
                       .acc_type = wide ? OOC_F64 : a->dense,
                       .l = l,
                       .sparse = entries < a->t->n.panel_columns / 8,
                       .look_for_hubs = !wide && entries > MAX_PLAIN && a->t->n.n_rows > MAX_PLAIN};

            adjoint_block(a, &k);
        }
    }
}

void ooc_spmm_adjoint_cpu(const ooc_tile_view *t, uint32_t p0, uint32_t p1, uint32_t col0,
                          uint32_t col1, uint64_t n_cols, const void *R, uint64_t ldr, void *G,
                          uint64_t ldg, uint32_t B, ooc_dtype dense, void *scratch)
{
    const ooc_spmm_ops *ops = ooc_spmm_ops_get();
    adjoint_call a = {.t = t,
                      .type = dense == OOC_F64 ? &ops->f64 : &ops->f32,
                      .dense = dense,
                      .elem = ooc_dtype_bytes(dense),
                      .R = R,
                      .ldr = ldr,
                      .ldg = ldg,
                      .s = scratch};

    for (uint32_t p = p0; p < p1; p++) {
        const uint64_t first_col = (uint64_t)t->panel_id[p] * t->n.panel_columns;
        const uint64_t cols_left = n_cols - first_col;

        a.p = p;
        a.width = cols_left < t->n.panel_columns ? (uint32_t)cols_left : t->n.panel_columns;
        a.G = (char *)G + first_col * ldg * a.elem;
        adjoint_panel(&a, col0, min_u32(col1, a.width), B);
    }
}
