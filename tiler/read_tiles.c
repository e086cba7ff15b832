/* A tile store: for other tile sizes, panels, codecs, value types, or the transpose. */
#include "tiler/reader.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "io/sys.h"
#include "io/tile_store.h"
#include "tiler/value_convert.h"

#include <string.h>

typedef struct {
    ooc_source base;
    ooc_store *store;
    const ooc_store_info *info;
    uint64_t tile; /* the one that is in memory; n_tiles at the end */
    bool loaded;
    uint8_t *stored, *block, *scratch;
    uint64_t scratch_bytes; /* all threads' */
    uint32_t n_threads;
    ooc_tile_info tile_info;
    ooc_tile_view view;
    uint32_t chunk, panel; /* next run */
    uint32_t run_at;       /* entries of it that were given */
    uint32_t segment, segment_at;
    uint64_t given;
    /* of the decoding that runs */
    ooc_stored_tile job;
    ooc_status *st;
    ooc_err *errs;
} tiles;

static void decode_task(void *ctx, uint32_t task, uint32_t thread)
{
    tiles *t = ctx;
    ooc_status st;

    if (t->st[thread])
        return;
    st = ooc_stored_tile_decode(&t->job, task, t->block,
                                t->scratch + (size_t)thread * t->info->max_scratch_bytes,
                                &t->errs[thread]);
    t->st[thread] = st;
}

static ooc_status load(tiles *t, ooc_pool *pool, ooc_err *err)
{
    ooc_status st;

    ooc_store_get_tile(t->store, t->tile, &t->tile_info);
    st = ooc_sys_pread(ooc_store_fd(t->store), ooc_store_path(t->store), t->stored,
                       t->tile_info.stored_bytes, t->tile_info.file_off, err);
    if (!st)
        st = ooc_stored_tile_open(&t->job, t->store, t->tile, t->stored, err);
    if (st)
        return st;
    memset(t->st, 0, t->n_threads * sizeof *t->st);
    ooc_parallel_for(pool, t->job.n_tasks, decode_task, t);
    for (uint32_t i = 0; i < t->n_threads; i++)
        if (t->st[i]) {
            if (err)
                *err = t->errs[i];
            return t->st[i];
        }
    t->view = ooc_tile_view_of(&t->tile_info.n, t->tile_info.constant, t->block);
    t->chunk = t->panel = t->run_at = 0;
    t->loaded = true;
    return OOC_OK;
}

static double value_at(const ooc_tile_view *v, uint64_t e)
{
    switch (v->n.vtype) {
    case OOC_F32:
        return (double)((const float *)v->val)[e];
    case OOC_F64:
        return ((const double *)v->val)[e];
    case OOC_F16:
        return ooc_small_to_double(((const uint16_t *)v->val)[e], 10, 15);
    case OOC_BF16:
        return ooc_small_to_double(((const uint16_t *)v->val)[e], 7, 127);
    case OOC_CONST:
        break;
    }
    return v->constant;
}

/* Give entries of the current run until it or the batch is at its end; returns how many. */
static uint32_t give_run(tiles *t, ooc_batch *b, uint32_t at)
{
    const ooc_tile_view *v = &t->view;
    uint64_t run = (uint64_t)t->panel * v->n.n_chunks + t->chunk;
    uint32_t first = v->ent_off[run], n_run = v->ent_off[run + 1] - first;
    uint64_t first_col = (uint64_t)v->panel_id[t->panel] * v->n.panel_columns;
    bool pairs = v->len_base[t->panel] == OOC_PAIR_PANEL;
    uint64_t first_segment = v->seg_off[(uint64_t)t->panel * v->n.n_chunks];
    uint32_t n = n_run - t->run_at;

    if (n > b->capacity - at)
        n = b->capacity - at;
    if (!t->run_at) {
        t->segment = v->seg_off[run];
        t->segment_at = 0;
    }
    for (uint32_t i = 0; i < n; i++) {
        uint64_t e = (uint64_t)first + t->run_at + i;
        uint32_t length =
            pairs ? 1 : v->seg_len[v->len_base[t->panel] + (t->segment - first_segment)];

        b->row[at + i] = t->tile_info.first_row + v->seg_row[t->segment];
        b->col[at + i] = first_col + v->col[e];
        b->val[at + i] = value_at(v, e);
        if (++t->segment_at == length) {
            t->segment++;
            t->segment_at = 0;
        }
    }
    t->run_at += n;
    if (t->run_at == n_run) {
        t->run_at = 0;
        if (++t->panel == v->n.n_panels) {
            t->panel = 0;
            t->chunk++;
        }
    }
    return n;
}

static ooc_status next(ooc_source *s, ooc_batch *b, ooc_pool *pool, ooc_err *err)
{
    tiles *t = (tiles *)s;
    uint32_t n = 0;

    while (n < b->capacity && t->tile < t->info->n_tiles) {
        if (!t->loaded) {
            ooc_status st = load(t, pool, err);

            if (st)
                return st;
        }
        if (t->view.n.n_panels && t->chunk < t->view.n.n_chunks)
            n += give_run(t, b, n);
        if (!t->view.n.n_panels || t->chunk == t->view.n.n_chunks) {
            t->loaded = false;
            t->tile++;
        }
    }
    b->settled = !t->loaded ? t->tile_info.first_row + t->tile_info.n.n_rows
                            : t->tile_info.first_row + t->view.chunk_row[t->chunk];
    b->piece[0].first = 0;
    b->piece[0].n = n;
    b->n_pieces = n ? 1 : 0;
    t->given += n;
    b->end = t->tile == t->info->n_tiles;
    s->done = t->info->n_entries ? (double)t->given / (double)t->info->n_entries : 1;
    return OOC_OK;
}

static void close_tiles(ooc_source *s)
{
    tiles *t = (tiles *)s;

    if (t->info) {
        ooc_pages_free(t->stored, t->info->max_stored_bytes);
        ooc_pages_free(t->block, t->info->max_kernel_bytes);
        ooc_pages_free(t->scratch, t->scratch_bytes);
    }
    ooc_free(t->st);
    ooc_free(t->errs);
    ooc_store_close(t->store);
    ooc_free(t);
}

static ooc_status take_memory(tiles *t, uint32_t n_threads, ooc_err *err)
{
    const ooc_store_info *info = t->info = ooc_store_get_info(t->store);

    t->n_threads = n_threads;
    t->scratch_bytes = (uint64_t)n_threads * info->max_scratch_bytes;
    t->stored = ooc_pages_alloc(info->max_stored_bytes);
    t->block = ooc_pages_alloc(info->max_kernel_bytes);
    t->scratch = ooc_pages_alloc(t->scratch_bytes);
    t->st = ooc_calloc(n_threads, sizeof *t->st);
    t->errs = ooc_calloc(n_threads, sizeof *t->errs);
    if (!t->stored || !t->block || !t->scratch || !t->st || !t->errs)
        return ooc_fail(err, OOC_E_NOMEM, "%s: no memory for a tile", ooc_store_path(t->store));
    t->base.info =
        (ooc_source_info){.n_rows = info->n_rows,
                          .n_cols = info->n_cols,
                          .max_entries = info->n_entries,
                          .settles = OOC_SETTLES_ROWS,
                          .value_type = ooc_value_type_name(info->vtype),
                          .wide = info->vtype == OOC_F64,
                          .memory_bytes = info->max_stored_bytes + info->max_kernel_bytes +
                                          t->scratch_bytes + info->n_tiles * 128};
    return OOC_OK;
}

static ooc_status open_tiles(ooc_source **out, const ooc_source_request *request, ooc_err *err)
{
    tiles *t = ooc_calloc(1, sizeof *t);
    ooc_status st;

    *out = NULL;
    if (!t)
        return ooc_fail(err, OOC_E_NOMEM, "%s: no memory to read it", request->path);
    t->base.next = next;
    t->base.close = close_tiles;
    st = ooc_store_open(&t->store, request->path, err);
    if (!st)
        st = take_memory(t, request->n_threads, err);
    if (st) {
        close_tiles(&t->base);
        return st;
    }
    *out = &t->base;
    return OOC_OK;
}

static bool fits_name(const char *path)
{
    return ooc_path_ends(path, ".tiles");
}

const ooc_format ooc_format_tiles = {.name = "tiles",
                                     .what = "a tile store, FILE.tiles (to change its tiles)",
                                     .fits_name = fits_name,
                                     .open = open_tiles};
