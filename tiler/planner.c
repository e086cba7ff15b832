#include "tiler/planner.h"

#include "base/checked.h"
#include "base/parse.h"
#include "tiler/builder.h"
#include "tiler/order.h"

/* Tiles: large enough for the disk (compressed ones are a quarter of this), small enough that slots
 * for several fit a small device; about 64 of them, so that a matrix can stream. */
#define TILE_BYTES_MIN ((uint64_t)256 << 10)
#define TILE_BYTES_MAX ((uint64_t)16 << 20)
#define TILES_WANTED   64

/* Panels: an X panel of 8,192 columns is 1 MiB at B = 32 in f32, half of a usual L2 cache. Where a
 * row has less than two entries in such a panel, wider ones save more than the cache gives. */
#define PANEL_COLUMNS  8192u
#define SEGMENT_WANTED 2

#define BATCH_ENTRIES_MAX ((uint64_t)1 << 20)
#define AREA_BYTES_MIN    ((uint64_t)1 << 20)
#define STREAM_AREA_MAX   ((uint64_t)128 << 20)

static uint32_t choose_panel(const ooc_planner_request *r)
{
    uint64_t n_cols = ooc_max_u64(r->writer->n_cols, 1);
    uint64_t rows = ooc_max_u64(r->writer->n_rows, 1);
    uint64_t panel = PANEL_COLUMNS;

    if (r->max_entries != OOC_ENTRIES_UNKNOWN) {
        double row_entries = (double)r->max_entries * r->expand / (double)rows;

        while (panel < OOC_MAX_PANEL_COLUMNS &&
               row_entries * (double)panel < SEGMENT_WANTED * (double)n_cols)
            panel *= 2;
    }
    return (uint32_t)ooc_min_u64(panel, n_cols);
}

static uint64_t choose_tile_bytes(const ooc_planner_request *r)
{
    uint64_t limit = ooc_min_u64(TILE_BYTES_MAX, r->ram_budget / 16);
    uint64_t bytes = TILE_BYTES_MIN, total;

    if (r->max_entries == OOC_ENTRIES_UNKNOWN)
        return ooc_max_u64(ooc_min_u64(limit, TILE_BYTES_MAX / 2), TILE_BYTES_MIN);
    if (!ooc_mul_u64(r->max_entries, r->expand * (2 + ooc_dtype_bytes(r->writer->vtype)), &total))
        total = UINT64_MAX;
    while (2 * bytes <= limit && bytes < total / TILES_WANTED)
        bytes *= 2;
    return bytes;
}

static uint64_t batch_entry_bytes(const ooc_planner_request *r)
{
    return 2 * sizeof(uint64_t) + (r->is_complex ? 2 : 1) * sizeof(double);
}

/* The area in which all entries fit, 0 if their number is not known. */
static uint64_t whole_area(const ooc_planner_request *r)
{
    uint64_t bytes;

    if (r->max_entries == OOC_ENTRIES_UNKNOWN ||
        !ooc_mul_u64(r->max_entries, r->expand * ooc_order_entry_bytes(r->wide), &bytes))
        return 0;
    return bytes + ooc_order_entry_bytes(r->wide);
}

static ooc_status refuse(const ooc_planner_request *r, uint64_t tile_bytes, uint64_t needed,
                         ooc_err *err)
{
    char need[32], tile[32];

    /* Rounded up, so that the number printed is enough. */
    needed = ooc_round_up(needed, (uint64_t)1 << 20);
    return ooc_fail(err, OOC_E_BUDGET,
                    "--ram-budget %llu is too small: %llu bytes (%s) are needed for tiles of %s, "
                    "the buffers of the reader and an area to sort in%s",
                    (unsigned long long)r->ram_budget, (unsigned long long)needed,
                    ooc_format_size(needed, need), ooc_format_size(tile_bytes, tile),
                    r->tile_bytes ? "; a smaller --tile-size needs less" : "");
}

ooc_status ooc_memory_plan_make(ooc_memory_plan *out, const ooc_planner_request *r, ooc_err *err)
{
    uint64_t index = r->writer->n_rows / OOC_MAX_TILE_ROWS * 128; /* of the store, at least */
    uint64_t min_entries = ooc_max_u64(OOC_BATCH_MIN, r->min_batch);
    uint64_t fixed, batch_min, area_min, left, fit, whole = whole_area(r);

    *out = (ooc_memory_plan){0};
    if (!r->writer->panel_columns)
        r->writer->panel_columns = choose_panel(r);
    out->tile_bytes = r->tile_bytes ? r->tile_bytes : choose_tile_bytes(r);
    out->tile_memory = ooc_builder_memory(r->writer, out->tile_bytes, r->n_threads);
    batch_min = min_entries * batch_entry_bytes(r);
    area_min =
        ooc_max_u64(AREA_BYTES_MIN, min_entries * r->expand * ooc_order_entry_bytes(r->wide));
    fixed = out->tile_memory + r->source_bytes + ooc_sorter_memory(r->n_threads) + index;
    if (fixed + batch_min + area_min > r->ram_budget)
        return refuse(r, out->tile_bytes, fixed + batch_min + area_min, err);
    left = r->ram_budget - fixed;
    /* A tenth of what is left for the batch, a half (where rows stream, less) for the area unless
     * everything fits it, the rest for rows that are longer than a tile. */
    out->batch_entries = (uint32_t)ooc_max_u64(
        ooc_min_u64(left / 10 / batch_entry_bytes(r), BATCH_ENTRIES_MAX), min_entries);
    out->batch_bytes = out->batch_entries * batch_entry_bytes(r);
    left -= out->batch_bytes;
    if (r->streams)
        out->area_bytes = ooc_max_u64(ooc_min_u64(left / 4, STREAM_AREA_MAX), area_min);
    else if (whole && whole <= left)
        out->area_bytes = ooc_max_u64(whole, area_min);
    else
        out->area_bytes = ooc_max_u64(left / 2, area_min);
    out->may_spill = !whole || whole > out->area_bytes;
    /* A batch must always fit an empty area. */
    fit = out->area_bytes / ooc_order_entry_bytes(r->wide) / r->expand;
    out->batch_entries = (uint32_t)ooc_max_u64(ooc_min_u64(out->batch_entries, fit), min_entries);
    out->tile_memory += left > out->area_bytes ? left - out->area_bytes : 0;
    return OOC_OK;
}
