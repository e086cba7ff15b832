/* tile-info - what a tile store holds, what its bytes are spent on, and whether all are sound. */
#include "tools/cli.h"

#include "base/parallel.h"
#include "base/parse.h"
#include "io/tile_usage.h"
#include "io/tile_verify.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdio.h>

typedef struct {
    bool tiles, verify;
    const ooc_store *store;
    const ooc_store_info *info;
    ooc_store_usage usage;
    uint64_t largest; /* number of the tile that is largest in kernel form */
    ooc_cli *cli;
    ooc_progress progress;
} report;

static const char *const type_names[] = {"f32", "f64", "f16", "bf16", "constant"};
static const char *const use_names[OOC_N_USES] = {"segments", "columns", "values"};
static const char *const codec_names[OOC_N_PIECE_CODECS] = {"constant", "raw", "zstd", "lz4"};

static double per(uint64_t part, uint64_t whole)
{
    return whole ? (double)part / (double)whole : 0;
}

static ooc_status collect(report *r, ooc_err *err)
{
    ooc_status st = OOC_OK;
    uint64_t most = 0;

    for (uint64_t k = 0; !st && k < r->info->n_tiles; k++) {
        ooc_tile_info t;

        ooc_store_get_tile(r->store, k, &t);
        if (t.kernel_bytes > most) {
            most = t.kernel_bytes;
            r->largest = k;
        }
        st = ooc_store_add_usage(r->store, k, &r->usage, err);
    }
    return st;
}

static void print_shape(const report *r)
{
    const ooc_store_info *i = r->info;
    char size[32], other[32];

    printf("%s: tile store, format %u.%u, %s\n", ooc_store_path(r->store), i->version_major,
           i->version_minor, ooc_format_size(i->file_bytes, size));
    printf("matrix        %" PRIu64 " x %" PRIu64 ", %" PRIu64 " entries (%.4g %%), values %s\n",
           i->n_rows, i->n_cols, i->n_entries,
           100 * per(i->n_entries, i->n_rows) / (double)(i->n_cols ? i->n_cols : 1),
           type_names[i->vtype]);
    printf("on disk       %.3f bytes an entry\n", per(i->file_bytes, i->n_entries));
    printf("kernel form   %.3f bytes an entry, %s\n", per(i->kernel_bytes, i->n_entries),
           ooc_format_size(i->kernel_bytes, size));
    printf("PyTorch COO   20 bytes an entry, %s\n", ooc_format_size(i->n_entries * 20, size));
    printf("tiles         %" PRIu64 " (%" PRIu64 " in kernel form), panels of %u columns\n",
           i->n_tiles, r->usage.kernel_tiles, i->panel_columns);
    printf("a slot needs  %s in kernel form, %s on disk\n",
           ooc_format_size(i->max_kernel_bytes, size), ooc_format_size(i->max_stored_bytes, other));
}

/* A tile of one row is what no smaller tile size can make smaller: whoever looks for room in a
 * budget must know it. */
static void print_largest(const report *r)
{
    ooc_tile_info t;
    char size[32];

    if (!r->info->n_tiles)
        return;
    ooc_store_get_tile(r->store, r->largest, &t);
    printf("largest tile  %" PRIu64 ": rows %" PRIu64 " to %" PRIu64 ", %u entries, %s%s\n",
           r->largest, t.first_row, t.first_row + t.n.n_rows - 1, t.n.n_entries,
           ooc_format_size(t.kernel_bytes, size),
           t.n.n_rows == 1 && r->info->n_tiles > 1 ? " (a row longer than the tile size)" : "");
}

static void print_usage(const report *r)
{
    const ooc_store_usage *u = &r->usage;
    uint64_t n = r->info->n_entries, data = 0;

    printf("\n%-12s %12s %10s", "bytes", "on disk", "an entry");
    for (int c = 0; c < OOC_N_PIECE_CODECS; c++)
        printf(" %9s", codec_names[c]);
    printf("\n");
    for (int i = 0; i < OOC_N_USES; i++) {
        uint64_t sum = 0;

        for (int c = 0; c < OOC_N_PIECE_CODECS; c++)
            sum += u->stored[i][c];
        printf("%-12s %12" PRIu64 " %10.4f", use_names[i], sum, per(sum, n));
        for (int c = 0; c < OOC_N_PIECE_CODECS; c++)
            printf(" %8.1f%%", 100 * per(u->stored[i][c], sum));
        printf("\n");
        data += sum;
    }
    printf("%-12s %12" PRIu64 " %10.4f\n", "directories", u->directories, per(u->directories, n));
    data += u->directories;
    printf("%-12s %12" PRIu64 " %10.4f\n", "other", r->info->file_bytes - data,
           per(r->info->file_bytes - data, n));
}

static void print_tiles(const report *r)
{
    printf("\n%8s %12s %8s %12s %12s %12s %7s %7s %s\n", "tile", "first row", "rows", "entries",
           "on disk", "kernel form", "panels", "chunks", "layout");
    for (uint64_t k = 0; k < r->info->n_tiles; k++) {
        ooc_tile_info t;

        ooc_store_get_tile(r->store, k, &t);
        printf("%8" PRIu64 " %12" PRIu64 " %8u %12u %12" PRIu64 " %12" PRIu64 " %7u %7u %s%s\n", k,
               t.first_row, t.n.n_rows, t.n.n_entries, t.stored_bytes, t.kernel_bytes, t.n.n_panels,
               t.n.n_chunks, t.raw ? "kernel" : "rows", t.n.vtype == OOC_CONST ? ", constant" : "");
    }
}

/* Whole numbers up to 2^53 are exact; the larger ones of a hostile file are not worth more. */
static void add_number(cJSON *to, const char *name, uint64_t value)
{
    cJSON_AddNumberToObject(to, name, (double)value);
}

static void add_tiles(cJSON *to, const report *r)
{
    cJSON *list = cJSON_AddArrayToObject(to, "tile_list");

    for (uint64_t k = 0; list && k < r->info->n_tiles; k++) {
        cJSON *item = cJSON_CreateObject();
        ooc_tile_info t;

        ooc_store_get_tile(r->store, k, &t);
        add_number(item, "first_row", t.first_row);
        add_number(item, "rows", t.n.n_rows);
        add_number(item, "entries", t.n.n_entries);
        add_number(item, "panels", t.n.n_panels);
        add_number(item, "chunks", t.n.n_chunks);
        add_number(item, "offset", t.file_off);
        add_number(item, "stored_bytes", t.stored_bytes);
        add_number(item, "kernel_bytes", t.kernel_bytes);
        cJSON_AddStringToObject(item, "layout", t.raw ? "kernel" : "rows");
        cJSON_AddStringToObject(item, "values", type_names[t.n.vtype]);
        cJSON_AddItemToArray(list, item);
    }
}

static void add_usage(cJSON *to, const report *r)
{
    cJSON *usage = cJSON_AddObjectToObject(to, "bytes");

    for (int i = 0; i < OOC_N_USES; i++) {
        cJSON *use = cJSON_AddObjectToObject(usage, use_names[i]);

        add_number(use, "plain", r->usage.plain[i]);
        for (int c = 0; c < OOC_N_PIECE_CODECS; c++)
            add_number(use, codec_names[c], r->usage.stored[i][c]);
    }
    add_number(usage, "directories", r->usage.directories);
    add_number(usage, "padding", r->usage.padding);
}

static bool print_json(const report *r)
{
    const ooc_store_info *i = r->info;
    cJSON *o = cJSON_CreateObject();
    char version[32], *text;

    snprintf(version, sizeof version, "%u.%u", i->version_major, i->version_minor);
    cJSON_AddStringToObject(o, "file", ooc_store_path(r->store));
    cJSON_AddStringToObject(o, "format", version);
    add_number(o, "rows", i->n_rows);
    add_number(o, "columns", i->n_cols);
    add_number(o, "entries", i->n_entries);
    cJSON_AddStringToObject(o, "values", type_names[i->vtype]);
    add_number(o, "tiles", i->n_tiles);
    add_number(o, "kernel_tiles", r->usage.kernel_tiles);
    add_number(o, "panel_columns", i->panel_columns);
    add_number(o, "file_bytes", i->file_bytes);
    add_number(o, "kernel_bytes", i->kernel_bytes);
    add_number(o, "max_stored_bytes", i->max_stored_bytes);
    add_number(o, "max_kernel_bytes", i->max_kernel_bytes);
    add_number(o, "max_scratch_bytes", i->max_scratch_bytes);
    add_number(o, "largest_tile", r->largest);
    cJSON_AddNumberToObject(o, "bytes_per_entry", per(i->file_bytes, i->n_entries));
    add_usage(o, r);
    if (r->tiles)
        add_tiles(o, r);
    if (r->verify)
        cJSON_AddBoolToObject(o, "verified", true);
    text = cJSON_Print(o);
    if (text)
        puts(text);
    cJSON_free(text);
    cJSON_Delete(o);
    return text != NULL;
}

static bool show_progress(void *ctx, uint64_t tiles, uint64_t bytes)
{
    report *r = ctx;

    ooc_progress_update(&r->progress, tiles, bytes, NULL);
    return !ooc_cli_interrupted();
}

static ooc_status verify(report *r, ooc_err *err)
{
    ooc_pool *pool = ooc_pool_new((uint32_t)r->cli->threads);
    ooc_status st;

    if (!pool)
        return ooc_fail(err, OOC_E_NOMEM, "no memory for threads");
    ooc_cli_catch_signals(NULL, NULL);
    ooc_progress_begin(&r->progress, r->cli, "verify", r->info->n_tiles);
    st = ooc_store_verify(r->store, pool, show_progress, r, err);
    ooc_progress_end(&r->progress);
    ooc_pool_free(pool);
    return st;
}

static int print_report(report *r, ooc_err *err)
{
    ooc_status st = collect(r, err);

    if (!st && r->verify)
        st = verify(r, err);
    if (!st && r->cli->json && !print_json(r))
        st = ooc_fail(err, OOC_E_NOMEM, "no memory for the result");
    if (st)
        return ooc_cli_fail(r->cli, err);
    if (r->cli->json)
        return 0;
    print_shape(r);
    print_largest(r);
    print_usage(r);
    if (r->tiles)
        print_tiles(r);
    if (r->verify)
        printf("\nverified      all %" PRIu64 " bytes\n", r->info->file_bytes);
    return 0;
}

int main(int argc, char **argv)
{
    report r = {0};
    const ooc_opt opts[] = {
        {.name = "tiles", .kind = OOC_OPT_FLAG, .out = &r.tiles, .help = "also list every tile"},
        {.name = "verify",
         .kind = OOC_OPT_FLAG,
         .out = &r.verify,
         .help = "read and check every byte: checksums, decoding, padding;\n"
                 "exit code 1 and the place if one is damaged"},
        {0}};
    ooc_cli cli = {.prog = "tile-info",
                   .usage = "[options] FILE.tiles",
                   .about =
                       "Show the shape of the matrix in a tile store, how large it is on disk\n"
                       "and in memory, and how its bytes are stored.\n",
                   .examples = "  tile-info ct.tiles\n"
                               "  tile-info --verify --json ct.tiles\n",
                   .opts = opts,
                   .min_args = 1,
                   .max_args = 1};
    ooc_store *store;
    ooc_err err = {0};
    int code;

    if (!ooc_cli_parse(&cli, argc, argv, &code))
        return code;
    if (ooc_store_open(&store, cli.args[0], &err))
        return ooc_cli_fail(&cli, &err);
    r.cli = &cli;
    r.store = store;
    r.info = ooc_store_get_info(store);
    code = print_report(&r, &err);
    ooc_store_close(store);
    return ooc_cli_finish(&cli, code);
}
