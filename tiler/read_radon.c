/* radon:VIEWSxDETECTORS:IMAGE - the parallel-beam CT matrix by Joseph's method; its geometry is in
 * docs/architecture.md. Rays are made in row order, each sorted, by all threads. */
#include "tiler/reader.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/parse.h"

#include <math.h>
#include <string.h>

#define MAX_IMAGE 65535u /* so that a column fits 32 bits */

typedef struct {
    ooc_source base;
    uint32_t views, detectors, image;
    uint64_t n_rays;
    uint64_t next_ray, end_ray; /* of the batch that is being made */
    uint32_t rays_per_piece;
    ooc_batch *batch; /* of the next() that runs */
    struct crossing {
        int32_t cell;  /* the lower of the two pixels on the other axis */
        double weight; /* of the upper one */
    } * crossings;     /* [n_threads][image] */
} radon;

static bool starts(const char *path)
{
    return strncmp(path, "radon:", 6) == 0;
}

static bool parse(const char *path, uint64_t *views, uint64_t *detectors, uint64_t *image)
{
    char shape[64];
    const char *colon;

    if (!starts(path))
        return false;
    path += 6;
    colon = strchr(path, ':');
    if (!colon || (size_t)(colon - path) >= sizeof shape)
        return false;
    memcpy(shape, path, (size_t)(colon - path));
    shape[colon - path] = 0;
    return ooc_parse_shape(shape, views, detectors) && ooc_parse_u64(colon + 1, image) && *image;
}

typedef struct {
    uint64_t *row, *col;
    double *val;
    uint32_t n;
    uint64_t ray;
    double length;
} ray_out;

static inline void put(ray_out *o, uint64_t col, double weight)
{
    float value = (float)(weight * o->length);

    if (value == 0)
        return;
    o->row[o->n] = o->ray;
    o->col[o->n] = col;
    o->val[o->n] = (double)value;
    o->n++;
}

/* The ray crosses every image row once: two neighbouring pixels in each. */
static void along_rows(const radon *r, ray_out *o, double cos_t, double sin_t, double t)
{
    double centre = ((double)r->image - 1) / 2;
    int64_t S = r->image;

    for (int64_t i = 0; i < S; i++) {
        double place = (t - ((double)i - centre) * sin_t) / cos_t + centre;
        double cell = floor(place);
        double upper = place - cell;

        if (!(cell >= -1 && cell < (double)S))
            continue;
        if (cell >= 0)
            put(o, (uint64_t)(i * S + (int64_t)cell), 1 - upper);
        if (cell + 1 < (double)S)
            put(o, (uint64_t)(i * S + (int64_t)cell + 1), upper);
    }
}

/* Entries of image row `row`, from columns first, first + step, ... : those whose lower pixel is in
 * the row, or (`upper`) whose upper pixel is. */
static void put_row(const radon *r, ray_out *o, const struct crossing *c, int64_t first,
                    int64_t end, int64_t row, bool upper)
{
    if (row < 0 || row >= (int64_t)r->image)
        return;
    for (int64_t j = first; j < end; j++)
        put(o, (uint64_t)(row * (int64_t)r->image + j), upper ? c[j].weight : 1 - c[j].weight);
}

/* The ray crosses every image column once. The crossings' cells are monotone in the column, so they
 * fall into groups of equal cell; an image row takes the lower pixels of its own group and the
 * upper pixels of the group of the cell before. Walked by ascending cell, this is the sorted
 * order: of the two groups that meet in a row the one with the smaller columns comes first. */
static void along_columns(const radon *r, ray_out *o, struct crossing *c, double cos_t,
                          double sin_t, double t)
{
    double centre = ((double)r->image - 1) / 2;
    int64_t S = r->image, before_first = 0, before_end = 0, before_cell = INT64_MIN;
    bool falls;
    int64_t at;

    for (int64_t j = 0; j < S; j++) {
        double place = (t - ((double)j - centre) * cos_t) / sin_t + centre;
        double cell = floor(place);

        c[j].weight = place - cell;
        c[j].cell = cell < -1 ? -2 : cell >= (double)S ? (int32_t)S : (int32_t)cell;
    }
    falls = c[S - 1].cell < c[0].cell;
    at = falls ? S - 1 : 0;
    while (at >= 0 && at < S) {
        int64_t cell = c[at].cell, first = at, end = at + 1;
        bool adjacent;

        if (falls) {
            while (first > 0 && c[first - 1].cell == cell)
                first--;
            at = first - 1;
        } else {
            while (end < S && c[end].cell == cell)
                end++;
            at = end;
        }
        if (cell < -1 || cell >= S)
            continue;
        adjacent = before_cell == cell - 1;
        if (before_cell != INT64_MIN && !adjacent) /* the row above the last group stands alone */
            put_row(r, o, c, before_first, before_end, before_cell + 1, true);
        if (adjacent && !falls)
            put_row(r, o, c, before_first, before_end, cell, true);
        put_row(r, o, c, first, end, cell, false);
        if (adjacent && falls)
            put_row(r, o, c, before_first, before_end, cell, true);
        before_first = first;
        before_end = end;
        before_cell = cell;
    }
    if (before_cell != INT64_MIN)
        put_row(r, o, c, before_first, before_end, before_cell + 1, true);
}

static void make_piece(void *ctx, uint32_t piece, uint32_t thread)
{
    radon *r = ctx;
    ooc_batch *b = r->batch;
    uint32_t first = b->piece[piece].first;
    uint64_t ray = r->next_ray + (uint64_t)piece * r->rays_per_piece;
    uint64_t end = ooc_min_u64(ray + r->rays_per_piece, r->end_ray);
    ray_out o = {.row = b->row + first, .col = b->col + first, .val = b->val + first};

    for (; ray < end; ray++) {
        uint64_t view = ray / r->detectors, detector = ray % r->detectors;
        double theta = M_PI * (double)view / r->views;
        double cos_t = cos(theta), sin_t = sin(theta);
        double t = ((double)detector - ((double)r->detectors - 1) / 2) * r->image / r->detectors;

        o.ray = ray;
        if (fabs(cos_t) >= fabs(sin_t)) {
            o.length = 1 / fabs(cos_t);
            along_rows(r, &o, cos_t, sin_t, t);
        } else {
            o.length = 1 / fabs(sin_t);
            along_columns(r, &o, r->crossings + (size_t)thread * r->image, cos_t, sin_t, t);
        }
    }
    b->piece[piece].n = o.n;
}

static ooc_status next(ooc_source *s, ooc_batch *b, ooc_pool *pool, ooc_err *err)
{
    radon *r = (radon *)s;
    uint32_t ray_entries = 2 * r->image;
    uint64_t fit = b->capacity / ray_entries; /* rays */
    uint64_t rays = ooc_min_u64(fit, r->n_rays - r->next_ray);

    (void)err;
    r->rays_per_piece = (uint32_t)((rays + OOC_BATCH_PIECES - 1) / OOC_BATCH_PIECES);
    if (rays) {
        b->n_pieces = (uint32_t)((rays + r->rays_per_piece - 1) / r->rays_per_piece);
        for (uint32_t p = 0; p < b->n_pieces; p++)
            b->piece[p].first = p * r->rays_per_piece * ray_entries;
        r->batch = b;
        r->end_ray = r->next_ray + rays;
        ooc_parallel_for(pool, b->n_pieces, make_piece, r);
    }
    r->next_ray += rays;
    b->settled = r->next_ray;
    b->end = r->next_ray == r->n_rays;
    s->done = (double)r->next_ray / (double)r->n_rays;
    return OOC_OK;
}

static void close_radon(ooc_source *s)
{
    radon *r = (radon *)s;

    ooc_free(r->crossings);
    ooc_free(r);
}

static ooc_status open_radon(ooc_source **out, const ooc_source_request *request, ooc_err *err)
{
    uint64_t views, detectors, image;
    radon *r;

    if (!parse(request->path, &views, &detectors, &image) || views > UINT32_MAX ||
        detectors > UINT32_MAX || image > MAX_IMAGE)
        return ooc_fail(err, OOC_E_ARG,
                        "%s: expected radon:VIEWSxDETECTORS:IMAGE such as radon:700x384:640, with "
                        "IMAGE at most %u",
                        request->path, MAX_IMAGE);
    r = ooc_calloc(1, sizeof *r);
    if (r)
        r->crossings = ooc_calloc((size_t)request->n_threads * image, sizeof *r->crossings);
    if (!r || !r->crossings) {
        ooc_free(r);
        return ooc_fail(err, OOC_E_NOMEM, "%s: no memory", request->path);
    }
    r->views = (uint32_t)views;
    r->detectors = (uint32_t)detectors;
    r->image = (uint32_t)image;
    r->n_rays = views * detectors;
    r->base = (ooc_source){
        .info = {.n_rows = r->n_rays,
                 .n_cols = image * image,
                 .max_entries = r->n_rays > UINT64_MAX / (2 * image) ? OOC_ENTRIES_UNKNOWN
                                                                     : r->n_rays * 2 * image,
                 .settles = OOC_SETTLES_ROWS,
                 .value_type = "float32",
                 .min_batch = (uint32_t)(2 * image),
                 .memory_bytes = (uint64_t)request->n_threads * image * sizeof *r->crossings},
        .next = next,
        .close = close_radon};
    *out = &r->base;
    return OOC_OK;
}

const ooc_format ooc_format_radon = {.name = "radon",
                                     .what = "radon:VIEWSxDETECTORS:IMAGE, a CT matrix made on the "
                                             "way (Joseph's interpolation)",
                                     .fits_name = starts,
                                     .no_file = true,
                                     .open = open_radon};
