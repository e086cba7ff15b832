#include "kernels/cpu/split.h"

#define BINS 256u /* a panel is cut at the borders of this many equal column ranges */

static uint32_t panel_entries(const ooc_tile_view *t, uint32_t p)
{
    return t->ent_off[(p + 1) * t->n.n_chunks] - t->ent_off[p * t->n.n_chunks];
}

static uint32_t chunk_entries(const ooc_tile_view *t, uint32_t c)
{
    uint32_t sum = 0;

    for (uint32_t p = 0; p < t->n.n_panels; p++) {
        const uint32_t run = p * t->n.n_chunks + c;

        sum += t->ent_off[run + 1] - t->ent_off[run];
    }
    return sum;
}

uint32_t ooc_split_forward(const ooc_tile_view *t, uint32_t want, ooc_forward_part *parts)
{
    const uint64_t total = t->n.n_entries;
    uint64_t done = 0;
    uint32_t n = 0, first = 0;

    for (uint32_t c = 0; c < t->n.n_chunks; c++) {
        done += chunk_entries(t, c);
        if (c + 1 < t->n.n_chunks && (n + 1 == want || done * want < total * (n + 1)))
            continue;
        parts[n++] = (ooc_forward_part){first, c + 1};
        first = c + 1;
    }
    return n;
}

/* Count a sample of the panel's columns into BINS equal ranges of `width` columns. */
static void sample_columns(const ooc_tile_view *t, uint32_t p, uint32_t width, uint32_t bins[BINS])
{
    const uint32_t begin = t->ent_off[p * t->n.n_chunks], count = panel_entries(t, p);
    const uint32_t step = count / 16384 + 1;
    uint32_t random = 1;

    for (uint32_t i = 0; i < BINS; i++)
        bins[i] = 0;
    /* A random place in each step: a constant stride could fall in step with the rows. */
    for (uint32_t k = 0; k < count / step; k++) {
        random = random * 1664525u + 1013904223u;
        bins[t->col[begin + k * step + (random >> 8) % step] / width]++;
    }
}

/* Cut panel p into at most `pieces` column ranges; returns how many. */
static uint32_t cut_panel(const ooc_tile_view *t, uint32_t p, uint32_t n_cols, uint32_t pieces,
                          ooc_adjoint_part *parts)
{
    const uint32_t width = (n_cols + BINS - 1) / BINS, n_bins = (n_cols + width - 1) / width;
    uint64_t total = 0, done = 0;
    uint32_t bins[BINS], n = 0, first = 0;

    sample_columns(t, p, width, bins);
    for (uint32_t i = 0; i < n_bins; i++)
        total += bins[i];
    for (uint32_t i = 0; i < n_bins; i++) {
        done += bins[i];
        if (i + 1 < n_bins && (n + 1 == pieces || done * pieces < total * (n + 1)))
            continue;
        parts[n++] = (ooc_adjoint_part){p, p + 1, first * width,
                                        i + 1 < n_bins ? (i + 1) * width : t->n.panel_columns};
        first = i + 1;
    }
    return n;
}

/* Parts of about `share` entries; 0 if there would be more than `want`. */
static uint32_t split_by_share(const ooc_tile_view *t, uint64_t n_cols, uint64_t share,
                               uint32_t want, ooc_adjoint_part *parts)
{
    const uint32_t width = t->n.panel_columns;
    uint64_t acc = 0; /* entries in the open part */
    uint32_t n = 0, p0 = 0;

    for (uint32_t p = 0; p < t->n.n_panels; p++) {
        const uint64_t entries = panel_entries(t, p);
        const uint64_t first_col = (uint64_t)t->panel_id[p] * width;
        uint64_t pieces = entries / share;

        if (p > p0 && acc + entries > share) {
            if (n == want)
                return 0;
            parts[n++] = (ooc_adjoint_part){p0, p, 0, width};
            p0 = p;
            acc = 0;
        }
        acc += entries;
        if (pieces >= 2) { /* here p == p0 */
            if (pieces > want - n)
                return 0;
            n +=
                cut_panel(t, p, (uint32_t)(n_cols - first_col < width ? n_cols - first_col : width),
                          (uint32_t)pieces, parts + n);
            p0 = p + 1;
            acc = 0;
        }
    }
    if (p0 < t->n.n_panels) {
        if (n == want)
            return 0;
        parts[n++] = (ooc_adjoint_part){p0, t->n.n_panels, 0, width};
    }
    return n;
}

uint32_t ooc_split_adjoint(const ooc_tile_view *t, uint64_t n_cols, uint32_t want,
                           ooc_adjoint_part *parts)
{
    uint64_t share = t->n.n_entries / want + 1;
    uint32_t n;

    if (!t->n.n_panels)
        return 0;
    /* Ends: with a share above all entries there is one part. */
    while ((n = split_by_share(t, n_cols, share, want, parts)) == 0)
        share += share / 4 + 1;
    return n;
}
