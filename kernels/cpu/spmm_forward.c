/* The forward product of a tile: panel by panel, so that the panel of X stays in the cache while
 * all rows of the call use it. */
#include "kernels/cpu/row_set.h"

#include <assert.h>

/* A row takes one addition from each panel, block of a panel, or piece. Where there may be more
 * than GROUP of them they are summed in groups first: a plain sum of thousands of like-signed
 * numbers drifts. */
#define GROUP 256u

#define BLOCK_WORTH 4.0f /* entries of a segment in each block of columns from which blocks pay */

typedef struct {
    const ooc_tile_view *t;
    const ooc_spmm_type_ops *type;
    ooc_dtype dense;
    uint32_t elem; /* bytes of the dense type */
    uint64_t n_cols;
    const char *X;
    uint64_t ldx;
    ooc_scratch *s;
    uint32_t copy_bytes; /* of s->block, for copies of X */
} forward_call;

/* What one panel is multiplied by and where it goes. */
typedef struct {
    uint32_t p, c0, c1; /* panel, chunks */
    uint32_t b0, n_b;   /* columns of X */
    void *out;
    uint64_t ld_out;
    ooc_row_set *touched; /* takes the rows that got something; NULL: not wanted */
} forward_job;

static uint32_t min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static uint32_t run_entries(const ooc_tile_view *t, uint32_t p, uint32_t c0, uint32_t c1)
{
    return t->ent_off[p * t->n.n_chunks + c1] - t->ent_off[p * t->n.n_chunks + c0];
}

/* Multiply what is left of the walk. */
static void run(const forward_call *f, const forward_job *j, const ooc_dense *d, ooc_walk *w)
{
    while (ooc_walk_next(w)) {
        if (j->touched)
            for (uint32_t i = 0; i < w->work.n; i++)
                ooc_row_set_add(j->touched, w->work.piece ? w->work.piece[i].row : w->work.row[i]);
        f->type->forward(&w->work, d);
    }
}

/* How many columns of n_b elements fit the room for copies. */
static uint32_t block_columns(const forward_call *f, uint32_t n_b)
{
    return f->copy_bytes / ooc_panel_layout_of(n_b, f->elem).row_bytes;
}

/* Short segments cut into blocks leave nothing of a segment. */
static bool blocks_pay(const ooc_tile_view *t, uint32_t p, uint32_t room)
{
    const uint32_t blocks = (t->n.panel_columns + room - 1) / room;

    return ooc_panel_mean_segment(t, p) >= BLOCK_WORTH * (float)blocks;
}

/* X is used where it is, or copied block by block into scratch, whose layout suits the caches and
 * whose rows are whole vectors. Copying must pay: a column should be used at least twice a call.
 * The blocks of a panel that does not fit at once are sums of their own, so there the choice
 * depends on the whole panel, not on the call's share of it. */
static void forward_panel(const forward_call *f, const forward_job *j)
{
    const ooc_tile_view *t = f->t;
    const uint64_t first_col = (uint64_t)t->panel_id[j->p] * t->n.panel_columns;
    const uint32_t width =
        (uint32_t)(f->n_cols - first_col < t->n.panel_columns ? f->n_cols - first_col
                                                              : t->n.panel_columns);
    const char *X = f->X + (first_col * f->ldx + j->b0) * f->elem;
    const uint64_t reach = width * f->ldx * f->elem;
    const uint32_t room = block_columns(f, j->n_b);
    const uint32_t entries =
        width <= room ? run_entries(t, j->p, j->c0, j->c1) : run_entries(t, j->p, 0, t->n.n_chunks);
    ooc_dense d = {.in = X, .out = j->out, .ld_out = j->ld_out, .B = j->n_b};
    ooc_walk w;

    const bool copy = entries / 2 >= width && (width <= room || blocks_pay(t, j->p, room));

    if (!copy && reach < INT32_MAX) {
        ooc_walk_open(&w, t, j->p, j->c0, j->c1, &f->s->list);
        w.work.col0 = 0;
        w.work.l = (ooc_panel_layout){(uint32_t)(f->ldx * f->elem), 31};
        run(f, j, &d, &w);
        return;
    }
    d.in = f->s->block;
    for (uint32_t c = 0; c < width; c += room) {
        const uint32_t n = min_u32(room, width - c);

        ooc_walk_open(&w, t, j->p, j->c0, j->c1, &f->s->list);
        w.work.col0 = c;
        w.work.l = ooc_panel_layout_of(j->n_b, f->elem);
        if (n < width) {
            w.col0 = c;
            w.col1 = c + n;
        }
        f->type->copy_in(f->s->block, w.work.l, X + c * f->ldx * f->elem, f->ldx, n, j->n_b);
        run(f, j, &d, &w);
    }
}

/* How many blocks a full panel is multiplied in, if X is copied. */
static uint32_t panel_blocks(const forward_call *f, uint32_t n_b)
{
    const uint32_t room = block_columns(f, n_b);

    return (f->t->n.panel_columns + room - 1) / room;
}

/* One chunk of a tile with many panels: half of scratch for sums, the other for copies of X. */
static void forward_chunk_in_groups(forward_call *f, uint32_t c, char *Y, uint64_t ldy, uint32_t B)
{
    const uint32_t row0 = f->t->chunk_row[c], rows = f->t->chunk_row[c + 1] - row0;
    char *sums = f->s->block + sizeof f->s->block / 2;
    const uint32_t strip =
        min_u32(OOC_STRIP_BYTES / f->elem, (uint32_t)sizeof f->s->block / 2 / (rows * f->elem));
    uint32_t n_b;

    for (uint32_t b0 = 0; b0 < B; b0 += n_b) {
        const ooc_panel_layout l = {f->elem * (n_b = min_u32(strip, B - b0)), 31};
        forward_job j = {.c0 = c,
                         .c1 = c + 1,
                         .b0 = b0,
                         .n_b = n_b,
                         .out = ooc_shift(sums, -(int64_t)row0 * l.row_bytes),
                         .ld_out = n_b,
                         .touched = &f->s->touched};
        const uint32_t group = GROUP / panel_blocks(f, n_b); /* panels */

        ooc_fill_neg_zero(f->dense, sums, (uint64_t)rows * l.row_bytes);
        ooc_row_set_clear(&f->s->touched);
        for (j.p = 0; j.p < f->t->n.n_panels; j.p++) {
            forward_panel(f, &j);
            if ((j.p + 1) % group == 0 || j.p + 1 == f->t->n.n_panels)
                ooc_row_set_fold(&f->s->touched, f->type->fold, Y + (uint64_t)b0 * f->elem, ldy,
                                 sums, l, row0, n_b);
        }
    }
}

void ooc_spmm_forward_cpu(const ooc_tile_view *t, uint32_t c0, uint32_t c1, uint64_t n_cols,
                          const void *X, uint64_t ldx, void *Y, uint64_t ldy, uint32_t B,
                          ooc_dtype dense, void *scratch)
{
    const ooc_spmm_ops *ops = ooc_spmm_ops_get();
    forward_call f = {.t = t,
                      .type = dense == OOC_F64 ? &ops->f64 : &ops->f32,
                      .dense = dense,
                      .elem = ooc_dtype_bytes(dense),
                      .n_cols = n_cols,
                      .X = X,
                      .ldx = ldx,
                      .s = scratch,
                      .copy_bytes = OOC_SCRATCH_BLOCK};
    uint32_t strip;

    assert(B >= 1 && f.elem); /* dense is F32 or F64 */
    strip = OOC_STRIP_BYTES / f.elem;
    if (t->n.n_panels * panel_blocks(&f, min_u32(strip, B)) > GROUP) {
        f.copy_bytes /= 2;
        for (uint32_t c = c0; c < c1; c++)
            forward_chunk_in_groups(&f, c, Y, ldy, B);
        return;
    }
    for (uint32_t p = 0; p < t->n.n_panels; p++)
        for (uint32_t b0 = 0; b0 < B; b0 += strip) {
            const forward_job j = {.p = p,
                                   .c0 = c0,
                                   .c1 = c1,
                                   .b0 = b0,
                                   .n_b = min_u32(strip, B - b0),
                                   .out = (char *)Y + (uint64_t)b0 * f.elem,
                                   .ld_out = ldy};

            forward_panel(&f, &j);
        }
}
