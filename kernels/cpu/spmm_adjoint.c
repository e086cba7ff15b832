/* The adjoint product of a tile: panel by panel into cache-sized accumulators, which are then added
 * to G.
 *
 * Sums of sums keep the error of DESIGN section 9 also for like-signed numbers: a column's entries
 * of one tile are summed apart from the other tiles' sums. Inside a tile a column may still have
 * tens of thousands of entries (a "hub": a dense column, a popular node of a graph). Where
 * accumulators are no wider than the dense type, hubs are found by counting the columns of one row
 * in 16, and are added to G after every 256 rows of the tile. All of this depends on the tile
 * alone, never on how the work is split. */
#include "kernels/cpu/row_set.h"
#include "kernels/cpu/spmm_batch.h"

#define HUB_ROWS   256u /* rows between two folds of the hubs */
#define HUB_SAMPLE 16u  /* one row in so many is counted */
#define HUB_COUNT  12u  /* this often in the sample: about 192 entries */
#define MAX_PLAIN  512u /* entries of a column that may be summed plainly */

typedef struct {
    const ooc_tile_view *t;
    uint32_t p;
    const ooc_spmm_type_ops *ops;
    ooc_dtype dense;
    uint32_t elem;
    const char *R;
    uint64_t ldr;
    char *G; /* row of panel p's column 0 */
    uint64_t ldg;
    ooc_scratch *s;
} adjoint_call;

/* The columns first .. end-1 and b0 .. b0+n_b-1 that one walk over the panel's entries serves. */
typedef struct {
    uint32_t col0, col1, b0, n_b;
    bool wide; /* accumulators are double, the dense type is f32 */
    uint32_t lda;
    bool sparse;     /* touched columns are listed, not a range */
    uint32_t lo, hi; /* touched columns where not sparse */
    bool look_for_hubs;
    uint32_t n_hubs;
} block;

static uint32_t min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static uint32_t max_u32(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static uint32_t panel_entries(const ooc_tile_view *t, uint32_t p)
{
    return t->ent_off[(p + 1) * t->n.n_chunks] - t->ent_off[p * t->n.n_chunks];
}

/* The entries of item i of a batch: first index and how many. */
static inline uint32_t item_entries(const ooc_batch_view *v, uint32_t i, uint32_t *first)
{
    *first = v->piece ? v->piece[i].off : i;
    return v->piece ? v->piece[i].len : 1;
}

/* Count the columns of sampled rows; those that reach HUB_COUNT become hubs. */
static void sample_hubs(block *k, ooc_scratch *s, const ooc_batch_view *v)
{
    for (uint32_t i = 0; i < v->n; i++) {
        const uint32_t row = v->piece ? v->piece[i].row : v->row[i];
        uint32_t first, n;

        if (row * 2654435761u >= UINT32_MAX / HUB_SAMPLE)
            continue;
        n = item_entries(v, i, &first);
        for (uint32_t e = first; e < first + n; e++) {
            const uint16_t c = v->col[e];

            if (s->sample[c] < HUB_COUNT && ++s->sample[c] == HUB_COUNT)
                s->hub[k->n_hubs++] = c;
        }
    }
}

/* Note which columns the batch touches; in sparse mode their accumulators begin here. */
static void note_columns(block *k, ooc_scratch *s, const ooc_batch_view *v, ooc_dtype acc_type)
{
    const uint32_t row_bytes = k->lda * ooc_dtype_bytes(acc_type);

    for (uint32_t i = 0; i < v->n; i++) {
        uint32_t first;
        const uint32_t n = item_entries(v, i, &first);

        if (!k->sparse) {
            k->lo = min_u32(k->lo, v->col[first]);
            k->hi = max_u32(k->hi, v->col[first + n - 1] + 1u);
            continue;
        }
        for (uint32_t e = first; e < first + n; e++)
            if (ooc_row_set_add(&s->touched, v->col[e]))
                ooc_fill_neg_zero(acc_type, s->acc + (v->col[e] - k->col0) * row_bytes, k->lda);
    }
}

static void fold_all(const adjoint_call *a, block *k, ooc_fold_fn fold, char *G)
{
    if (k->sparse)
        ooc_row_set_fold(&a->s->touched, fold, G, a->ldg, a->s->acc, k->lda, k->col0, k->n_b);
    else if (k->lo < k->hi)
        fold(G + (uint64_t)k->lo * a->ldg * a->elem, a->ldg,
             a->s->acc + (k->lo - k->col0) * k->lda * (k->wide ? 8 : a->elem), k->lda, NULL,
             k->hi - k->lo, 0, k->n_b);
}

/* One walk over the entries of the panel. */
static void adjoint_block(const adjoint_call *a, block *k)
{
    const ooc_dtype acc_type = k->wide ? OOC_F64 : a->dense;
    const ooc_batch_fn run = k->wide ? a->ops->adjoint_wide : a->ops->adjoint;
    const ooc_fold_fn fold = k->wide ? a->ops->fold_wide : a->ops->fold;
    const ooc_dense_view d = {.in = a->R + (uint64_t)k->b0 * a->elem,
                              .ld_in = a->ldr,
                              .out = a->s->acc,
                              .ld_out = k->lda,
                              .col0 = k->col0,
                              .B = k->n_b};
    char *G = a->G + (uint64_t)k->b0 * a->elem;
    ooc_batch b;

    if (k->sparse)
        ooc_row_set_clear(&a->s->touched);
    else
        ooc_fill_neg_zero(acc_type, a->s->acc, (uint64_t)(k->col1 - k->col0) * k->lda);
    k->lo = UINT32_MAX;
    k->hi = 0;
    k->n_hubs = 0;
    if (k->look_for_hubs)
        for (uint32_t c = k->col0; c < k->col1; c++)
            a->s->sample[c] = 0;
    ooc_batch_open(&b, a->t, a->p, 0, a->t->n.n_chunks, k->col0, k->col1, a->dense);
    while (ooc_batch_row(&b) != UINT32_MAX) {
        const uint32_t row_stop =
            k->look_for_hubs ? (ooc_batch_row(&b) / HUB_ROWS + 1) * HUB_ROWS : UINT32_MAX;

        while (ooc_batch_next(&b, row_stop)) {
            note_columns(k, a->s, &b.view, acc_type);
            if (k->look_for_hubs)
                sample_hubs(k, a->s, &b.view);
            run(&b.view, &d);
        }
        if (k->n_hubs)
            fold(G, a->ldg, a->s->acc, k->lda, a->s->hub, k->n_hubs, k->col0, k->n_b);
    }
    fold_all(a, k, fold, G);
}

/* The first and last + 1 column of the panel that holds an entry. */
static void column_extent(const ooc_tile_view *t, uint32_t p, uint32_t *lo, uint32_t *hi)
{
    const uint32_t run = p * t->n.n_chunks, n_chunks = t->n.n_chunks;
    const uint16_t *len = t->seg_len + t->len_base[p];
    uint32_t e = t->ent_off[run];

    *lo = UINT32_MAX;
    *hi = 0;
    for (uint32_t s = t->seg_off[run]; s < t->seg_off[run + n_chunks]; s++) {
        const uint32_t n = t->len_base[p] == OOC_PAIR_PANEL ? 1 : *len++;

        *lo = min_u32(*lo, t->col[e]);
        *hi = max_u32(*hi, t->col[e + n - 1] + 1u);
        e += n;
    }
}

static uint32_t power_of_two_from(uint32_t n)
{
    uint32_t p = 1;

    while (p < n)
        p *= 2;
    return p;
}

/* Columns col0 .. col1-1 of the panel, in blocks whose accumulators fit scratch. */
static void adjoint_panel(const adjoint_call *a, uint32_t col0, uint32_t col1, uint32_t B)
{
    const uint32_t entries = panel_entries(a->t, a->p), strip = OOC_STRIP_BYTES / a->elem;

    for (uint32_t b0 = 0; b0 < B; b0 += strip) {
        const uint32_t n_b = min_u32(strip, B - b0);
        const bool wide = n_b <= a->ops->wide_max_b;
        const uint32_t lda = power_of_two_from(n_b);
        const uint32_t room = OOC_SCRATCH_ACC_BYTES / (lda * (wide ? 8 : a->elem));

        if (b0 == 0 && col1 - col0 > room) {
            uint32_t lo, hi;

            column_extent(a->t, a->p, &lo, &hi);
            col0 = max_u32(col0, lo);
            col1 = min_u32(col1, hi);
        }
        for (uint32_t c = col0; c < col1; c += room) {
            block k = {.col0 = c,
                       .col1 = min_u32(col1, c + room),
                       .b0 = b0,
                       .n_b = n_b,
                       .wide = wide,
                       .lda = lda,
                       .sparse = entries < a->t->n.panel_columns / 8,
                       .look_for_hubs = !wide && entries > MAX_PLAIN && a->t->n.n_rows > MAX_PLAIN};

            adjoint_block(a, &k);
        }
    }
}

void ooc_spmm_adjoint_cpu(const ooc_tile_view *t, uint32_t p0, uint32_t p1, uint32_t col0,
                          uint32_t col1, const void *R, uint64_t ldr, void *G, uint64_t ldg,
                          uint32_t B, ooc_dtype dense, void *scratch)
{
    const ooc_spmm_ops *ops = ooc_spmm_ops_get();
    adjoint_call a = {.t = t,
                      .ops = dense == OOC_F64 ? &ops->f64 : &ops->f32,
                      .dense = dense,
                      .elem = ooc_dtype_bytes(dense),
                      .R = R,
                      .ldr = ldr,
                      .ldg = ldg,
                      .s = scratch};

    for (uint32_t p = p0; p < p1; p++) {
        const uint64_t first_col = (uint64_t)t->panel_id[p] * t->n.panel_columns;

        a.p = p;
        a.G = (char *)G + first_col * ldg * a.elem;
        adjoint_panel(&a, col0, min_u32(col1, t->n.panel_columns), B);
    }
}
