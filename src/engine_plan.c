/* What the engine needs of both budgets, and what it does with the rest. */
#include "src/engine_private.h"
#include "src/residency.h"
#include "base/alloc.h"
#include "base/checked.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Reads in flight beyond what is needed to overlap: more bytes keep a disk busy, and more than this
 * gave nothing (docs/benchmarks.md). */
#define IN_FLIGHT_BYTES (64u << 20)
#define MAX_AUTO_SLOTS  16u
#define ALIGN_IN_TIER   64u

/* Bytes of each part; 0: not needed. */
struct sizes {
    uint32_t n_lanes, n_io, n_staging;
    uint64_t tile_slot, rows_block, n_rows_blocks, R_all, X, work; /* of the device */
    uint64_t io_slot, staging, scratch;                            /* of the host */
};

static uint32_t at_most_tiles(const ooc_engine *e, uint32_t n)
{
    return (uint32_t)ooc_max_u64(1, ooc_min_u64(n, e->info->n_tiles));
}

/* max_batch columns of `rows` rows; UINT64_MAX where that overflows, so that the plan refuses. */
static uint64_t dense_block(const ooc_engine *e, uint64_t rows)
{
    uint64_t bytes;

    return ooc_mul_u64(rows, (uint64_t)e->opts.max_batch * e->dense_bytes, &bytes) ? bytes
                                                                                   : UINT64_MAX;
}

static struct sizes sizes_of(const ooc_engine *e)
{
    const ooc_store_info *in = e->info;
    const ooc_work_shape shape = {.max_tile_rows = in->max_tile_rows,
                                  .max_tile_chunks = in->max_tile_chunks,
                                  .panel_columns = in->panel_columns,
                                  .max_kernel_bytes = in->max_kernel_bytes,
                                  .n_cols = in->n_cols,
                                  .max_batch = e->opts.max_batch,
                                  .dense = e->opts.dense};
    bool in_place = e->device->props.host_visible;
    uint32_t n_slots = e->opts.n_slots ? e->opts.n_slots : 2;
    struct sizes s = {0};

    s.n_lanes = in_place ? 1 : at_most_tiles(e, n_slots < OOC_MAX_LANES ? n_slots : OOC_MAX_LANES);
    s.n_io = at_most_tiles(e, n_slots);
    s.tile_slot = in_place ? e->max_decoded_bytes : in->max_kernel_bytes;
    s.rows_block = dense_block(e, in->max_tile_rows);
    s.n_rows_blocks = in_place ? 1 : 4; /* R; else Y, R, T, W */
    s.R_all = e->opts.pass == OOC_PASS_TWO ? dense_block(e, in->n_rows) : 0;
    s.X = in_place || e->opts.arrays_on_device ? 0 : dense_block(e, in->n_cols);
    s.work = ooc_round_up(e->device->ops->work_bytes(e->device, &shape), 64) + sizeof(double);
    s.io_slot = in->max_stored_bytes;
    s.n_staging = !in_place && e->max_decoded_bytes ? s.n_lanes : 0;
    s.staging = ooc_round_up(e->max_decoded_bytes, OOC_ARENA_ALIGN);
    s.scratch = ooc_round_up(in->max_scratch_bytes, 64) * ooc_pool_threads(e->pool);
    return s;
}

void ooc_engine_plan(const ooc_engine *e, ooc_plan *vram, ooc_plan *ram)
{
    const struct sizes s = sizes_of(e);

    for (uint32_t i = 0; i < s.n_lanes; i++) {
        if (s.tile_slot)
            ooc_plan_add(vram, "tile slots", 1, s.tile_slot);
        for (uint64_t b = 0; b < s.n_rows_blocks; b++)
            ooc_plan_add(vram, "Y and R blocks", 1, s.rows_block);
    }
    if (s.R_all)
        ooc_plan_add(vram, "R of all rows", 1, s.R_all);
    if (s.X) {
        ooc_plan_add(vram, "X", 1, s.X);
        ooc_plan_add(vram, "G", 1, s.X);
    }
    ooc_plan_add(vram, "kernel scratch", 1, s.work);
    ooc_plan_add(ram, "I/O slots", s.n_io, s.io_slot);
    if (s.n_staging)
        ooc_plan_add(ram, "staging slots", s.n_staging, s.staging);
    if (s.scratch)
        ooc_plan_add(ram, "decoding scratch", 1, s.scratch);
}

void ooc_engine_advice(const ooc_engine *e, char *out, size_t bytes)
{
    ooc_tile_info t, big = {0};
    uint64_t k_big = 0;

    for (uint64_t k = 0; k < e->info->n_tiles; k++) {
        ooc_store_get_tile(e->store, k, &t);
        if (!k || t.kernel_bytes > big.kernel_bytes) {
            big = t;
            k_big = k;
        }
    }
    if (big.n.n_rows == 1)
        snprintf(
            out, bytes,
            "row %" PRIu64 " alone makes a tile of %" PRIu64 " bytes (%" PRIu32
            " entries), which sets the size of the slots; a row cannot be cut; a smaller batch "
            "or fewer threads need less",
            big.first_row, big.kernel_bytes, big.n.n_entries);
    else
        snprintf(out, bytes,
                 "try a smaller batch, fewer threads, or a smaller tile-convert --tile-size (the "
                 "largest tile, number %" PRIu64 ", has %" PRIu64 " bytes)",
                 k_big, big.kernel_bytes);
}

/* The first arena_take that fails decides; later ones are skipped. */
static void take(ooc_arena *a, const char *what, uint64_t bytes, void *out, ooc_status *st,
                 ooc_err *err)
{
    void *p = NULL;

    if (!*st && bytes)
        *st = ooc_arena_take(a, what, bytes, &p, err);
    memcpy(out, &p, sizeof p);
}

static ooc_status take_device(ooc_engine *e, const struct sizes *s, ooc_err *err)
{
    ooc_status st = OOC_OK;

    e->n_lanes = s->n_lanes;
    for (uint32_t i = 0; i < s->n_lanes; i++) {
        ooc_lane *l = &e->lane[i];

        take(e->vram, "tile slots", s->tile_slot, &l->tile, &st, err);
        take(e->vram, "R block", s->rows_block, &l->R, &st, err);
        if (s->n_rows_blocks > 1) {
            take(e->vram, "Y block", s->rows_block, &l->Y, &st, err);
            take(e->vram, "T block", s->rows_block, &l->T, &st, err);
            take(e->vram, "W block", s->rows_block, &l->W, &st, err);
        }
    }
    take(e->vram, "R of all rows", s->R_all, &e->R_all, &st, err);
    take(e->vram, "X", s->X, &e->X, &st, err);
    take(e->vram, "G", s->X, &e->G, &st, err);
    take(e->vram, "kernel scratch", s->work, &e->work, &st, err);
    if (!st)
        e->loss = (double *)((char *)e->work + s->work - sizeof(double));
    return st;
}

/* Candidates of a tier: tiles that no tier has yet. Frees nothing; NULL: no memory. */
static uint64_t *tier_sizes(const ooc_engine *e, ooc_tier tier, uint64_t *total)
{
    uint64_t *size = ooc_calloc(e->info->n_tiles, sizeof *size);

    *total = 0;
    for (uint64_t k = 0; size && k < e->info->n_tiles; k++) {
        ooc_tile_info t;

        ooc_store_get_tile(e->store, k, &t);
        if (e->place[k].tier == OOC_TIER_DISK)
            size[k] =
                tier == OOC_TIER_RAM ? t.stored_bytes : ooc_round_up(t.kernel_bytes, ALIGN_IN_TIER);
        *total += size[k];
    }
    return size;
}

/* Give tiles places in what is left of an arena. */
static ooc_status fill_tier(ooc_engine *e, ooc_tier tier, ooc_arena *arena, ooc_err *err)
{
    uint64_t n = e->info->n_tiles, total, used;
    uint64_t *size = tier_sizes(e, tier, &total);
    uint8_t *keep = ooc_calloc(n, 1);
    ooc_status st = OOC_OK;
    void *base = NULL;

    if (!size || !keep) {
        st = ooc_fail(err, OOC_E_NOMEM, "no memory to plan resident tiles");
        goto out;
    }
    /* Whole pages, so that the take below cannot round up to more than there is. */
    used = ooc_residency_choose(size, n, ooc_arena_free(arena) & ~(uint64_t)(OOC_ARENA_ALIGN - 1),
                                keep);
    if (!used)
        goto out;
    st = ooc_arena_take(arena, "resident tiles", used, &base, err);
    if (st)
        goto out;
    for (uint64_t k = 0; k < n; k++)
        if (keep[k]) {
            e->place[k].tier = (uint8_t)tier;
            e->place[k].addr = base;
            base = (char *)base + size[k];
        }
out:
    ooc_free(size);
    ooc_free(keep);
    return st;
}

/* More slots than needed pay while tiles come from the disk; else the tier takes the room. */
static ooc_status count_slots(ooc_engine *e, struct sizes *s, ooc_err *err)
{
    uint64_t total, want, slots_need, left = ooc_arena_free(e->ram);
    uint64_t *size = tier_sizes(e, OOC_TIER_RAM, &total);

    if (!size)
        return ooc_fail(err, OOC_E_NOMEM, "no memory to plan resident tiles");
    ooc_free(size);
    left -= ooc_min_u64(left, ooc_round_up(s->scratch, OOC_ARENA_ALIGN));
    slots_need = s->io_slot * s->n_io + s->staging * s->n_staging;
    if (e->opts.n_slots || !s->io_slot || slots_need > left ||
        (!e->opts.no_resident && total <= left - slots_need))
        return OOC_OK;
    want = 1 + (IN_FLIGHT_BYTES + s->io_slot - 1) / s->io_slot;
    want = ooc_min_u64(at_most_tiles(e, MAX_AUTO_SLOTS), want);
    want = ooc_min_u64(want, s->n_io + (left - slots_need) / 2 / s->io_slot);
    s->n_io = (uint32_t)ooc_max_u64(s->n_io, want);
    return OOC_OK;
}

static ooc_status take_host(ooc_engine *e, struct sizes *s, ooc_err *err)
{
    ooc_status st = count_slots(e, s, err);
    char *io, *staging;

    e->scratch_bytes = ooc_round_up(e->info->max_scratch_bytes, 64);
    e->io_bytes = s->io_slot;
    take(e->ram, "decoding scratch", s->scratch, &e->scratch, &st, err);
    take(e->ram, "I/O slots", s->io_slot * s->n_io, &io, &st, err);
    take(e->ram, "staging slots", s->staging * s->n_staging, &staging, &st, err);
    if (st)
        return st;
    e->n_io = s->n_io;
    for (uint32_t i = 0; i < s->n_io; i++)
        e->io[i].bytes = io + i * s->io_slot;
    e->n_staging = s->n_staging;
    for (uint32_t i = 0; i < s->n_staging; i++)
        e->staging[i].bytes = staging + i * s->staging;
    return OOC_OK;
}

ooc_status ooc_engine_take(ooc_engine *e, ooc_err *err)
{
    struct sizes s = sizes_of(e);
    uint64_t before = ooc_arena_used(e->ram);
    ooc_status st = take_device(e, &s, err);

    if (!st && !e->opts.no_resident)
        st = fill_tier(e, OOC_TIER_DEVICE, e->vram, err);
    if (!st)
        st = take_host(e, &s, err);
    if (!st && !e->opts.no_resident)
        st = fill_tier(e, OOC_TIER_RAM, e->ram, err);
    e->host_base = e->io[0].bytes;
    if (!st && e->host_base)
        e->host_bytes = ooc_arena_used(e->ram) - before - ooc_round_up(s.scratch, OOC_ARENA_ALIGN);
    return st;
}
