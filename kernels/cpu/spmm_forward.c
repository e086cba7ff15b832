/* The forward product of a tile: panel by panel, so that the panel of X stays in the cache while
 * all rows of the call use it. */
#include "kernels/cpu/row_set.h"
#include "kernels/cpu/spmm_batch.h"

/* A row takes one addition a panel (or piece). Where there may be more than GROUP of them, they are
 * summed in groups first: a plain sum of thousands of like-signed numbers drifts. */
#define GROUP 256u

typedef struct {
    const ooc_tile_view *t;
    const ooc_spmm_type_ops *ops;
    ooc_dtype dense;
    uint32_t elem; /* bytes of the dense type */
    const char *X;
    uint64_t ldx;
    uint32_t B;
} forward_call;

/* out[r, 0..n_b) += (panel p of A) * X[.., b0..b0+n_b) for the rows of chunks c0 .. c1-1. Rows that
 * took something are added to `touched` (NULL: not wanted). */
static void forward_panel(const forward_call *f, uint32_t p, uint32_t c0, uint32_t c1, uint32_t b0,
                          uint32_t n_b, void *out, uint64_t ld_out, ooc_row_set *touched)
{
    const uint64_t first_col = (uint64_t)f->t->panel_id[p] * f->t->n.panel_columns;
    const ooc_dense_view d = {.in = f->X + (first_col * f->ldx + b0) * f->elem,
                              .ld_in = f->ldx,
                              .out = out,
                              .ld_out = ld_out,
                              .B = n_b};
    ooc_batch b;

    ooc_batch_open(&b, f->t, p, c0, c1, 0, f->t->n.panel_columns, f->dense);
    while (ooc_batch_next(&b, UINT32_MAX)) {
        if (touched)
            ooc_row_set_add_rows(touched, &b.view);
        f->ops->forward(&b.view, &d);
    }
}

static uint32_t min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* One chunk of a tile with many panels. The strip of B is as wide as scratch has room for. */
static void forward_chunk_in_groups(const forward_call *f, uint32_t c, char *Y, uint64_t ldy,
                                    ooc_scratch *s)
{
    const uint32_t row0 = f->t->chunk_row[c], rows = f->t->chunk_row[c + 1] - row0;
    const uint32_t strip =
        min_u32(OOC_STRIP_BYTES / f->elem, OOC_SCRATCH_ACC_BYTES / (rows * f->elem));
    const uint32_t n_panels = f->t->n.n_panels;

    for (uint32_t b0 = 0; b0 < f->B; b0 += strip) {
        const uint32_t n_b = min_u32(strip, f->B - b0);

        ooc_fill_neg_zero(f->dense, s->acc, (uint64_t)rows * n_b);
        ooc_row_set_clear(&s->touched);
        for (uint32_t p = 0; p < n_panels; p++) {
            forward_panel(f, p, c, c + 1, b0, n_b,
                          ooc_shift(s->acc, -(int64_t)row0 * n_b * f->elem), n_b, &s->touched);
            if ((p + 1) % GROUP == 0 || p + 1 == n_panels)
                ooc_row_set_fold(&s->touched, f->ops->fold, Y + (uint64_t)b0 * f->elem, ldy, s->acc,
                                 n_b, row0, n_b);
        }
    }
}

void ooc_spmm_forward_cpu(const ooc_tile_view *t, uint32_t c0, uint32_t c1, const void *X,
                          uint64_t ldx, void *Y, uint64_t ldy, uint32_t B, ooc_dtype dense,
                          void *scratch)
{
    const ooc_spmm_ops *ops = ooc_spmm_ops_get();
    const forward_call f = {.t = t,
                            .ops = dense == OOC_F64 ? &ops->f64 : &ops->f32,
                            .dense = dense,
                            .elem = ooc_dtype_bytes(dense),
                            .X = X,
                            .ldx = ldx,
                            .B = B};

    const uint32_t strip = OOC_STRIP_BYTES / f.elem;

    if (t->n.n_panels > GROUP) {
        for (uint32_t c = c0; c < c1; c++)
            forward_chunk_in_groups(&f, c, Y, ldy, scratch);
        return;
    }
    for (uint32_t p = 0; p < t->n.n_panels; p++)
        for (uint32_t b0 = 0; b0 < B; b0 += strip)
            forward_panel(&f, p, c0, c1, b0, min_u32(strip, B - b0),
                          (char *)Y + (uint64_t)b0 * f.elem, ldy, NULL);
}
