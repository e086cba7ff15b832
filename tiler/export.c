#include "tiler/export.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "io/tile_store.h"

#include <string.h>

#define BATCH_ENTRIES 65536u
#define AREA_BYTES    ((uint64_t)64 << 20)

static const ooc_export_form *form_of(const char *output)
{
    return ooc_path_ends(output, ".npz")   ? &ooc_export_npz
           : ooc_path_ends(output, ".mtx") ? &ooc_export_mtx
                                           : NULL;
}

bool ooc_export_fits(const char *output)
{
    return form_of(output) != NULL;
}

typedef struct {
    const ooc_convert_opts *opts;
    const ooc_export_form *form;
    ooc_pool *pool;
    ooc_source *source;
    ooc_order *order;
    void *out;
    ooc_batch batch;
    void *block;
    ooc_export_shape shape;
    uint64_t n_tiles, written;
    char *tmp_dir; /* of the output, or NULL */
} export;

static void close_all(export *x)
{
    ooc_order_close(x->order);
    if (x->out)
        x->form->close(x->out);
    ooc_source_close(x->source);
    ooc_free(x->block);
    ooc_free(x->tmp_dir);
    ooc_pool_free(x->pool);
}

static bool interrupted(void *ctx)
{
    const export *x = ctx;

    return x->opts->interrupted && x->opts->interrupted(x->opts->ctx);
}

static void report(export *x, const char *what, double done)
{
    if (x->opts->progress)
        x->opts->progress(x->opts->ctx, what, done, x->written, 0);
}

static void merge_progress(void *ctx, double done)
{
    report(ctx, "merging", done);
}

static ooc_status write_entries(void *ctx, const ooc_entries *e, uint64_t n, ooc_err *err)
{
    export *x = ctx;

    x->written += n;
    return x->form->write(x->out, e, n, err);
}

static ooc_status look_at_store(export *x, ooc_err *err)
{
    const ooc_store_info *info;
    ooc_store *s;
    ooc_status st = ooc_store_open(&s, x->opts->input, err);

    if (st)
        return st;
    info = ooc_store_get_info(s);
    x->shape = (ooc_export_shape){.n_rows = x->opts->transpose ? info->n_cols : info->n_rows,
                                  .n_cols = x->opts->transpose ? info->n_rows : info->n_cols,
                                  .n_entries = info->n_entries,
                                  .vtype = info->vtype,
                                  .wide = info->vtype == OOC_F64,
                                  .force = x->opts->force,
                                  .pool = x->pool};
    x->shape.col_bits = ooc_order_col_bits(x->shape.n_cols);
    x->n_tiles = info->n_tiles;
    ooc_store_close(s);
    return OOC_OK;
}

static ooc_status open_order(export *x, ooc_err *err)
{
    const char *slash = strrchr(x->opts->output, '/');
    uint64_t held = x->source->info.memory_bytes + BATCH_ENTRIES * 24u;
    uint64_t left = x->opts->ram_budget > held ? x->opts->ram_budget - held : 0;
    ooc_order_opts order = {.source = &x->source->info,
                            .transpose = x->opts->transpose,
                            .wide = x->shape.wide,
                            .allow_nonfinite = true,
                            .area_bytes = ooc_min_u64(left / 2, AREA_BYTES),
                            .name = x->opts->input,
                            .sink = write_entries,
                            .sink_ctx = x,
                            .watch = {interrupted, merge_progress, x}};
    char *dir = NULL;
    ooc_status st;

    if (order.area_bytes < BATCH_ENTRIES * ooc_order_entry_bytes(x->shape.wide))
        return ooc_fail(
            err, OOC_E_BUDGET, "--ram-budget %llu is too small: %llu bytes are needed",
            (unsigned long long)x->opts->ram_budget,
            (unsigned long long)(held + 2 * BATCH_ENTRIES * ooc_order_entry_bytes(x->shape.wide)));
    if (!x->opts->tmp_dir && slash) {
        dir = ooc_strdup(x->opts->output);
        if (!dir)
            return ooc_fail(err, OOC_E_NOMEM, "no memory for a name");
        dir[slash - x->opts->output + (slash == x->opts->output)] = 0;
    }
    order.tmp_dir = x->opts->tmp_dir ? x->opts->tmp_dir : dir ? dir : ".";
    x->tmp_dir = dir;
    st = ooc_order_open(&x->order, &order, x->pool, err);
    return st;
}

static ooc_status read_all(export *x, ooc_err *err)
{
    uint64_t *block = x->block = ooc_malloc(BATCH_ENTRIES * 24u);
    ooc_status st = OOC_OK;

    if (!block)
        return ooc_fail(err, OOC_E_NOMEM, "no memory for a batch");
    x->batch = (ooc_batch){.row = block,
                           .col = block + BATCH_ENTRIES,
                           .val = (double *)(block + 2 * BATCH_ENTRIES),
                           .capacity = BATCH_ENTRIES};
    do {
        if (interrupted(x))
            return ooc_fail(err, OOC_E_INTERRUPTED, "interrupted; %s was not written",
                            x->opts->output);
        x->batch.n_pieces = 0;
        x->batch.settled = 0;
        st = x->source->next(x->source, &x->batch, x->pool, err);
        if (!st)
            st = ooc_order_push(x->order, &x->batch, err);
        report(x, "reading", x->source->done);
    } while (!st && !x->batch.end);
    return st ? st : ooc_order_finish(x->order, err);
}

static ooc_status check_request(const ooc_convert_opts *o, ooc_err *err)
{
    if (o->tile_bytes || o->panel_columns || o->vtype != OOC_F32 || o->codec != OOC_CODEC_AUTO ||
        o->part != OOC_PART_NONE || o->drop_zeros || o->key)
        return ooc_fail(err, OOC_E_ARG,
                        "%s: --values, --tile-size, --panel-columns, --codec, --part, --key and "
                        "--drop-zeros do not apply to this kind of output",
                        o->output);
    return OOC_OK;
}

ooc_status ooc_export(const ooc_convert_opts *opts, ooc_convert_result *result, ooc_err *err)
{
    export x = {.opts = opts, .form = form_of(opts->output)};
    ooc_source_request request = {.path = opts->input, .memory_bytes = opts->ram_budget / 8};
    ooc_status st = check_request(opts, err);

    if (st)
        return st;
    x.pool = ooc_pool_new(opts->n_threads);
    if (!x.pool)
        return ooc_fail(err, OOC_E_NOMEM, "no memory for threads");
    request.n_threads = ooc_pool_threads(x.pool);
    st = look_at_store(&x, err);
    if (!st)
        st = ooc_source_open(&x.source, "tiles", &request, err);
    if (!st)
        st = open_order(&x, err);
    if (!st)
        st = x.form->open(&x.out, opts->output, &x.shape, err);
    if (!st)
        st = read_all(&x, err);
    *result = (ooc_convert_result){.n_rows = x.shape.n_rows,
                                   .n_cols = x.shape.n_cols,
                                   .n_entries = x.shape.n_entries,
                                   .n_tiles = x.n_tiles};
    if (!st)
        st = x.form->commit(x.out, &result->file_bytes, err);
    close_all(&x);
    return st;
}
