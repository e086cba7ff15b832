/* The adjoint product of a tile: panel by panel into cache-sized accumulators, which are then added
 * to G.
 *
 * Sums of sums keep the error of DESIGN section 9 also for like-signed numbers: a column's entries
 * of one tile are summed apart from the other tiles' sums. Inside a tile a column may still have
 * tens of thousands of entries (a "hub": a dense column, a popular node of a graph). Where
 * accumulators are no wider than the dense type, hubs are found by counting the columns of one row
 * in 16, and are added to G after every 256 segments or so. All of this depends on the tile
 * alone, never on how the work is split. */
#include "kernels/cpu/row_set.h"
#include "kernels/cpu/spmm_batch.h"

#include <string.h>

#define HUB_EVERY  256u /* segments (or pairs) at least between two folds of the hubs */
#define HUB_SAMPLE 16u  /* one row in so many is counted */
#define HUB_COUNT  12u  /* this often in the sample: about 192 entries */
#define SORT_MIN_B 1u
#define MAX_PLAIN  512u /* entries of a column that may be summed plainly */

typedef struct {
    const ooc_tile_view *t;
    uint32_t p;
    const ooc_spmm_ops *ops;
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

/* Count the columns of sampled rows; those that reach HUB_COUNT become hubs. */
static void sample_hubs(block *k, ooc_scratch *s, const ooc_batch *b)
{
    const ooc_batch_view *v = &b->view;

    for (uint32_t i = 0; i < v->n; i++) {
        const uint32_t row = v->piece ? v->piece[i].row : v->row[i];
        const uint16_t *col = b->t->col + b->ent[i];
        const uint32_t n = v->piece ? v->piece[i].len : 1;

        if (row * 2654435761u >= UINT32_MAX / HUB_SAMPLE)
            continue;
        for (uint32_t e = 0; e < n; e++) {
            const uint16_t c = col[e];

            if (s->sample[c] < HUB_COUNT && ++s->sample[c] == HUB_COUNT)
                s->hub[k->n_hubs++] = c;
        }
    }
}

/* Note which columns the batch touches; the accumulators of new ones begin here. */
static void note_columns(const block *k, ooc_scratch *s, const ooc_batch *b)
{
    const ooc_batch_view *v = &b->view;

    for (uint32_t i = 0; i < v->n; i++) {
        const uint16_t *col = b->t->col + b->ent[i];
        const uint32_t *at = v->at + (v->piece ? v->piece[i].at : i);
        const uint32_t n = v->piece ? v->piece[i].len : 1;

        for (uint32_t e = 0; e < n; e++)
            if (ooc_row_set_add(&s->touched, col[e]))
                ooc_fill_neg_zero(k->acc_type, s->block + at[e], k->l.row_bytes);
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

/* One walk over the entries of the panel. */
static void adjoint_block(const adjoint_call *a, block *k)
{
    const bool wide = k->acc_type != a->dense;
    const ooc_batch_fn run = wide ? a->type->adjoint_wide : a->type->adjoint;
    const ooc_fold_fn fold = wide ? a->type->fold_wide : a->type->fold;
    const ooc_dense_view d = {
        .in = a->R + (uint64_t)k->b0 * a->elem, .ld_in = a->ldr, .out = a->s->block, .B = k->n_b};
    char *G = a->G + (uint64_t)k->b0 * a->elem;
    uint32_t folded = 0;
    ooc_batch b;

    begin_block(a, k);
    ooc_batch_open(&b, a->ops, a->t, a->p, 0, a->t->n.n_chunks, a->dense, k->l, &a->s->list);
    ooc_batch_columns(&b, k->col0, k->col1);
    if (k->n_b >= SORT_MIN_B)
        ooc_batch_sort(&b);
    while (ooc_batch_next(&b)) {
        if (k->sparse)
            note_columns(k, a->s, &b);
        if (k->look_for_hubs)
            sample_hubs(k, a->s, &b);
        run(&b.view, &d);
        if (b.taken - folded < HUB_EVERY)
            continue;
        folded = b.taken; /* hubs or not: when a hub is folded must not depend on the others */
        if (k->n_hubs)
            fold(G, a->ldg, a->s->block, k->l, a->s->hub, k->n_hubs, k->col0, k->n_b);
    }
    if (k->sparse)
        ooc_row_set_fold(&a->s->touched, fold, G, a->ldg, a->s->block, k->l, k->col0, k->n_b);
    else
        fold(G + k->col0 * a->ldg * a->elem, a->ldg, a->s->block, k->l, NULL, k->col1 - k->col0, 0,
             k->n_b);
}

/* Columns col0 .. col1-1 of the panel, in blocks whose accumulators fit scratch. */
static void adjoint_panel(const adjoint_call *a, uint32_t col0, uint32_t col1, uint32_t B)
{
    const uint32_t entries = panel_entries(a->t, a->p), strip = OOC_STRIP_BYTES / a->elem;

    for (uint32_t b0 = 0; b0 < B; b0 += strip) {
        const uint32_t n_b = min_u32(strip, B - b0);
        const bool wide = n_b <= a->type->wide_max_b;
        const ooc_panel_layout l = ooc_panel_layout_of(n_b, wide ? sizeof(double) : a->elem);
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
                      .ops = ops,
                      .type = dense == OOC_F64 ? &ops->f64 : &ops->f32,
                      .dense = dense,
                      .elem = ooc_dtype_bytes(dense),
                      .R = R,
                      .ldr = ldr,
                      .ldg = ldg,
                      .s = scratch};

    for (uint32_t p = p0; p < p1; p++) {
        const uint64_t first_col = (uint64_t)t->panel_id[p] * t->n.panel_columns;
        const uint64_t width = n_cols - first_col;

        a.p = p;
        a.G = (char *)G + first_col * ldg * a.elem;
        adjoint_panel(&a, col0, width < col1 ? (uint32_t)width : min_u32(col1, t->n.panel_columns),
                      B);
    }
}
