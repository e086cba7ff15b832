#include "tiler/convert.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/parse.h"
#include "tiler/builder.h"
#include "tiler/planner.h"

#include <limits.h>
#include <string.h>
#include <unistd.h>

/* Everything that a conversion holds; closing it takes half-built ones. */
typedef struct {
    const ooc_convert_opts *opts;
    ooc_pool *pool;
    ooc_source *source;
    ooc_tile_writer_opts writer_opts;
    ooc_memory_plan plan;
    ooc_tile_writer *writer;
    ooc_builder *builder;
    ooc_order *order;
    ooc_batch *batch;
    void *batch_block;
    char tmp_dir[PATH_MAX];
} conversion;

static void close_all(conversion *c)
{
    ooc_order_close(c->order);
    ooc_builder_close(c->builder);
    ooc_tile_writer_close(c->writer);
    ooc_source_close(c->source);
    ooc_pages_free(c->batch_block, c->plan.batch_bytes);
    ooc_free(c->batch);
    ooc_pool_free(c->pool);
}

static void report(const conversion *c, const char *what, double done)
{
    if (c->opts->progress)
        c->opts->progress(c->opts->ctx, what, done, ooc_order_entries(c->order),
                          ooc_tile_writer_bytes(c->writer));
}

static void merge_progress(void *ctx, double done)
{
    report(ctx, "merging", done);
}

static bool interrupted(void *ctx)
{
    const conversion *c = ctx;

    return c->opts->interrupted && c->opts->interrupted(c->opts->ctx);
}

static ooc_status check_part(const conversion *c, ooc_err *err)
{
    const ooc_source_info *info = &c->source->info;

    if (info->is_complex && c->opts->part == OOC_PART_NONE)
        return ooc_fail(err, OOC_E_ARG,
                        "%s: holds complex values; choose what becomes of them with --part "
                        "real|imag|abs|stack (stack: [Re -Im; Im Re], twice the rows and columns)",
                        c->opts->input);
    if (!info->is_complex && c->opts->part != OOC_PART_NONE)
        return ooc_fail(err, OOC_E_ARG, "%s: holds no complex values; leave out --part",
                        c->opts->input);
    return OOC_OK;
}

static ooc_status find_tmp_dir(conversion *c, ooc_err *err)
{
    const char *slash = strrchr(c->opts->output, '/');
    const char *dir = c->opts->tmp_dir ? c->opts->tmp_dir : c->opts->output;
    size_t n = c->opts->tmp_dir ? strlen(dir) : slash ? (size_t)(slash - dir) : 0;

    if (n >= sizeof c->tmp_dir)
        return ooc_fail(err, OOC_E_ARG, "%s: name too long", dir);
    if (!n) {
        dir = slash ? "/" : ".";
        n = 1;
    }
    memcpy(c->tmp_dir, dir, n);
    c->tmp_dir[n] = 0;
    if (c->opts->tmp_dir && access(c->tmp_dir, W_OK | X_OK) != 0)
        return ooc_fail_errno(err, OOC_E_ARG, "--tmp %s: cannot be used", c->tmp_dir);
    return OOC_OK;
}

/* Sizes, once the source has said what it is. */
static ooc_status make_plan(conversion *c, ooc_order_opts *order, ooc_err *err)
{
    const ooc_convert_opts *opts = c->opts;
    const ooc_source_info *info = &c->source->info;
    bool streams = opts->part != OOC_PART_STACK &&
                   info->settles == (opts->transpose ? OOC_SETTLES_COLS : OOC_SETTLES_ROWS);
    ooc_planner_request request = {.writer = &c->writer_opts,
                                   .tile_bytes = opts->tile_bytes,
                                   .ram_budget = opts->ram_budget,
                                   .source_bytes = info->memory_bytes,
                                   .max_entries = info->max_entries,
                                   .streams = streams,
                                   .min_batch = info->min_batch,
                                   .n_threads = ooc_pool_threads(c->pool),
                                   .expand = opts->part == OOC_PART_STACK ? 4 : 1,
                                   .wide = order->wide,
                                   .is_complex = info->is_complex};
    uint64_t bytes;
    ooc_status st;

    c->writer_opts = (ooc_tile_writer_opts){.vtype = opts->vtype,
                                            .panel_columns = opts->panel_columns,
                                            .codec = opts->codec,
                                            .level = opts->level,
                                            .force = opts->force};
    if (!ooc_order_shape(order, &c->writer_opts.n_rows, &c->writer_opts.n_cols) ||
        c->writer_opts.n_cols > UINT32_MAX)
        return ooc_fail(err, OOC_E_UNSUPPORTED,
                        "%s: a matrix of %llu x %llu has too many columns: 2^32 - 1 at most%s",
                        opts->input, (unsigned long long)c->writer_opts.n_rows,
                        (unsigned long long)c->writer_opts.n_cols,
                        opts->transpose ? "" : "; --transpose exchanges rows and columns");
    st = ooc_memory_plan_make(&c->plan, &request, err);
    if (st || !c->plan.may_spill || streams || info->max_entries == OOC_ENTRIES_UNKNOWN)
        return st;
    if (!ooc_mul_u64(info->max_entries, request.expand * (8 + ooc_value_bytes(order->wide)),
                     &bytes))
        bytes = UINT64_MAX;
    return ooc_spill_check_space(c->tmp_dir, bytes, err);
}

static ooc_status make_batch(conversion *c, ooc_err *err)
{
    size_t n = c->plan.batch_entries;

    c->batch = ooc_calloc(1, sizeof *c->batch);
    c->batch_block = ooc_pages_alloc(c->plan.batch_bytes);
    if (!c->batch || !c->batch_block)
        return ooc_fail(err, OOC_E_NOMEM, "no memory for a batch of %zu entries", n);
    c->batch->capacity = c->plan.batch_entries;
    c->batch->row = c->batch_block;
    c->batch->col = c->batch->row + n;
    c->batch->val = (double *)(c->batch->col + n);
    c->batch->imag = c->source->info.is_complex ? c->batch->val + n : NULL;
    return OOC_OK;
}

static ooc_status open_stages(conversion *c, ooc_err *err)
{
    const ooc_convert_opts *opts = c->opts;
    const ooc_source_info *info = &c->source->info;
    ooc_order_opts order = {.source = info,
                            .transpose = opts->transpose,
                            .part = opts->part,
                            .wide = info->wide || opts->part == OOC_PART_ABS,
                            .allow_nonfinite = opts->allow_nonfinite,
                            .tmp_dir = c->tmp_dir,
                            .name = opts->input,
                            .sink = ooc_builder_push,
                            .watch = {interrupted, merge_progress, c}};
    ooc_builder_opts builder = {.n_threads = ooc_pool_threads(c->pool),
                                .wide = order.wide,
                                .transposed = opts->transpose,
                                .exact = info->integer,
                                .allow_nonfinite = opts->allow_nonfinite,
                                .drop_zeros = opts->drop_zeros,
                                .refuse_duplicates = opts->part == OOC_PART_ABS,
                                .name = opts->input};
    ooc_status st = make_plan(c, &order, err);

    if (!st)
        st = make_batch(c, err);
    if (!st)
        st = ooc_tile_writer_open(&c->writer, opts->output, &c->writer_opts, c->pool, err);
    if (st)
        return st;
    builder.writer = c->writer_opts;
    builder.tile_bytes = c->plan.tile_bytes;
    builder.memory_bytes = c->plan.tile_memory;
    builder.other_bytes =
        opts->ram_budget > c->plan.tile_memory ? opts->ram_budget - c->plan.tile_memory : 0;
    builder.col_bits = ooc_order_col_bits(c->writer_opts.n_cols);
    st = ooc_builder_open(&c->builder, &builder, c->writer, err);
    if (st)
        return st;
    order.area_bytes = c->plan.area_bytes;
    order.sink_ctx = c->builder;
    return ooc_order_open(&c->order, &order, c->pool, err);
}

static ooc_status read_all(conversion *c, ooc_err *err)
{
    ooc_status st = OOC_OK;

    do {
        if (interrupted(c))
            return ooc_fail(err, OOC_E_INTERRUPTED, "interrupted; %s was not written",
                            c->opts->output);
        c->batch->n_pieces = 0;
        c->batch->settled = 0;
        c->batch->end = false;
        st = c->source->next(c->source, c->batch, c->pool, err);
        if (!st && c->batch->n_pieces)
            st = ooc_order_push(c->order, c->batch, err);
        report(c, "reading", c->source->done);
    } while (!st && !c->batch->end);
    return st;
}

static ooc_status run(conversion *c, ooc_convert_result *result, ooc_err *err)
{
    ooc_builder_stats stats;
    ooc_status st = read_all(c, err);

    if (st)
        return st;
    /* The batch is not needed for the merge. */
    ooc_pages_free(c->batch_block, c->plan.batch_bytes);
    c->batch_block = NULL;
    st = ooc_order_finish(c->order, err);
    if (!st)
        st = ooc_builder_finish(c->builder, err);
    if (!st && interrupted(c))
        st = ooc_fail(err, OOC_E_INTERRUPTED, "interrupted; %s was not written", c->opts->output);
    if (!st)
        st = ooc_tile_writer_commit(c->writer, err);
    if (st)
        return st;
    ooc_builder_get_stats(c->builder, &stats);
    *result = (ooc_convert_result){.n_rows = c->writer_opts.n_rows,
                                   .n_cols = c->writer_opts.n_cols,
                                   .n_entries = stats.n_entries,
                                   .n_tiles = stats.n_tiles,
                                   .file_bytes = ooc_tile_writer_bytes(c->writer),
                                   .n_duplicates = stats.n_duplicates,
                                   .n_dropped = stats.n_dropped,
                                   .spilled_bytes = ooc_order_spilled_bytes(c->order),
                                   .tile_bytes = c->plan.tile_bytes,
                                   .longest_row = stats.longest_row,
                                   .longest_row_entries = stats.longest_row_entries,
                                   .panel_columns = c->writer_opts.panel_columns};
    return OOC_OK;
}

ooc_status ooc_convert(const ooc_convert_opts *opts, ooc_convert_result *result, ooc_err *err)
{
    conversion c = {.opts = opts};
    ooc_source_request request = {
        .path = opts->input, .key = opts->key, .memory_bytes = opts->ram_budget / 8};
    ooc_status st;

    c.pool = ooc_pool_new(opts->n_threads);
    if (!c.pool)
        return ooc_fail(err, OOC_E_NOMEM, "no memory for threads");
    request.n_threads = ooc_pool_threads(c.pool);
    st = find_tmp_dir(&c, err);
    if (!st)
        st = ooc_source_open(&c.source, opts->from, &request, err);
    if (!st)
        st = check_part(&c, err);
    if (!st)
        st = open_stages(&c, err);
    if (!st)
        st = run(&c, result, err);
    close_all(&c);
    return st;
}
