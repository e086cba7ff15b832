/* tile-dump FILE.tiles OUT - all entries of a store, for tests: per entry row (uint64), column
 * (uint64), value (double). Uses the store and the kernel form only, nothing of tiler/. */
#include "io/sys.h"
#include "io/tile_store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    uint64_t row, col;
    double val;
} entry;

static double small(uint16_t bits, int mantissa_bits, int bias)
{
    int exponent = (bits & 0x7fff) >> mantissa_bits;
    double m = (double)(bits & ((1 << mantissa_bits) - 1)) / (double)(1 << mantissa_bits);
    double v;

    if (exponent == 2 * bias + 1)
        v = m > 0 ? strtod("nan", NULL) : strtod("inf", NULL);
    else
        v = exponent ? 1 + m : 2 * m;
    for (int e = bias; e < exponent && exponent <= 2 * bias; e++)
        v *= 2;
    for (int e = exponent; e < bias; e++)
        v /= 2;
    return bits >> 15 ? -v : v;
}

static double value(const ooc_tile_view *v, uint64_t e)
{
    switch (v->n.vtype) {
    case OOC_F32:
        return (double)((const float *)v->val)[e];
    case OOC_F64:
        return ((const double *)v->val)[e];
    case OOC_F16:
        return small(((const uint16_t *)v->val)[e], 10, 15);
    case OOC_BF16:
        return small(((const uint16_t *)v->val)[e], 7, 127);
    case OOC_CONST:
        break;
    }
    return v->constant;
}

static void dump_panel(const ooc_tile_view *v, uint64_t first_row, uint32_t p, FILE *out)
{
    uint64_t first_run = (uint64_t)p * v->n.n_chunks, e = v->ent_off[first_run];

    for (uint64_t s = v->seg_off[first_run]; s < v->seg_off[first_run + v->n.n_chunks]; s++) {
        uint32_t n = v->len_base[p] == OOC_PAIR_PANEL
                         ? 1
                         : v->seg_len[v->len_base[p] + s - v->seg_off[first_run]];

        for (uint32_t i = 0; i < n; i++, e++) {
            entry t = {first_row + v->seg_row[s],
                       (uint64_t)v->panel_id[p] * v->n.panel_columns + v->col[e], value(v, e)};

            fwrite(&t, sizeof t, 1, out);
        }
    }
    if (e != v->ent_off[first_run + v->n.n_chunks])
        abort();
}

static ooc_status dump(const ooc_store *s, FILE *out, ooc_err *err)
{
    const ooc_store_info *info = ooc_store_get_info(s);
    void *stored = aligned_alloc(4096, info->max_stored_bytes + 4096);
    void *block = aligned_alloc(4096, (info->max_kernel_bytes + 8191) / 4096 * 4096);
    void *scratch = aligned_alloc(4096, (info->max_scratch_bytes + 8191) / 4096 * 4096);
    ooc_status st = OOC_OK;

    for (uint64_t k = 0; !st && k < info->n_tiles; k++) {
        ooc_stored_tile t;
        ooc_tile_info tile;
        ooc_tile_view v;

        ooc_store_get_tile(s, k, &tile);
        st = ooc_sys_pread(ooc_store_fd(s), "store", stored, tile.stored_bytes, tile.file_off, err);
        if (!st)
            st = ooc_stored_tile_open(&t, s, k, stored, err);
        for (uint32_t i = 0; !st && i < t.n_tasks; i++)
            st = ooc_stored_tile_decode(&t, i, block, scratch, err);
        if (st)
            break;
        v = ooc_tile_view_of(&tile.n, tile.constant, block);
        for (uint32_t p = 0; p < v.n.n_panels; p++)
            dump_panel(&v, tile.first_row, p, out);
    }
    free(stored);
    free(block);
    free(scratch);
    return st;
}

int main(int argc, char **argv)
{
    ooc_store *s = NULL;
    ooc_err err = {0};
    FILE *out;
    ooc_status st;

    if (argc != 3)
        return 2;
    out = fopen(argv[2], "wb");
    if (!out)
        return 2;
    st = ooc_store_open(&s, argv[1], &err);
    if (!st) {
        const ooc_store_info *info = ooc_store_get_info(s);

        printf("{\"rows\": %llu, \"columns\": %llu, \"entries\": %llu, \"tiles\": %llu, "
               "\"panel_columns\": %u, \"vtype\": %d, \"max_kernel_bytes\": %llu}\n",
               (unsigned long long)info->n_rows, (unsigned long long)info->n_cols,
               (unsigned long long)info->n_entries, (unsigned long long)info->n_tiles,
               info->panel_columns, (int)info->vtype, (unsigned long long)info->max_kernel_bytes);
        st = dump(s, out, &err);
    }
    if (st)
        fprintf(stderr, "tile-dump: %s\n", err.text);
    ooc_store_close(s);
    return fclose(out) != 0 || st;
}
