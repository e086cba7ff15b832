/* tile-convert - turn a matrix of another format into a tile store. */
#include "base/clock.h"
#include "base/parse.h"
#include "tiler/convert.h"
#include "tiler/export.h"
#include "tools/cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_RAM_BUDGET ((uint64_t)1 << 30)

typedef struct {
    ooc_progress line;
    const ooc_cli *cli;
    const char *what; /* of the phase that is shown */
} progress;

static void show(void *ctx, const char *what, double done, uint64_t entries, uint64_t bytes)
{
    enum { STEPS = 1000000 };
    progress *p = ctx;
    char note[64];

    if (what != p->what) {
        if (p->what)
            ooc_progress_end(&p->line);
        ooc_progress_begin(&p->line, p->cli, what, STEPS);
        p->what = what;
    }
    snprintf(note, sizeof note, "%.1f million entries", (double)entries / 1e6);
    ooc_progress_update(&p->line, (uint64_t)(done * STEPS), bytes, note);
}

static bool interrupted(void *ctx)
{
    (void)ctx;
    return ooc_cli_interrupted();
}

/* "auto", "raw", "zstd" or "zstd:LEVEL". */
static bool parse_codec(const char *text, ooc_codec *codec, int *level)
{
    uint64_t number;

    *level = 0;
    if (strcmp(text, "auto") == 0)
        *codec = OOC_CODEC_AUTO;
    else if (strcmp(text, "raw") == 0)
        *codec = OOC_CODEC_RAW;
    else if (strncmp(text, "zstd", 4) == 0 && (!text[4] || text[4] == ':')) {
        *codec = OOC_CODEC_ZSTD;
        if (text[4] && (!ooc_parse_u64(text + 5, &number) || number < 1 || number > 19))
            return false;
        *level = text[4] ? (int)number : 0;
    } else
        return false;
    return true;
}

static void print_result(const ooc_cli *cli, const ooc_convert_result *r, double seconds)
{
    char size[32];

    if (cli->json) {
        printf("{\"rows\": %llu, \"columns\": %llu, \"entries\": %llu, \"tiles\": %llu, "
               "\"file_bytes\": %llu, \"bytes_per_entry\": %.4f, \"tile_bytes\": %llu, "
               "\"panel_columns\": %u, \"duplicates\": %llu, \"zeros_dropped\": %llu, "
               "\"temporary_bytes\": %llu, \"longest_row\": %llu, \"longest_row_entries\": %llu, "
               "\"seconds\": %.3f}\n",
               (unsigned long long)r->n_rows, (unsigned long long)r->n_cols,
               (unsigned long long)r->n_entries, (unsigned long long)r->n_tiles,
               (unsigned long long)r->file_bytes,
               r->n_entries ? (double)r->file_bytes / (double)r->n_entries : 0,
               (unsigned long long)r->tile_bytes, r->panel_columns,
               (unsigned long long)r->n_duplicates, (unsigned long long)r->n_dropped,
               (unsigned long long)r->spilled_bytes, (unsigned long long)r->longest_row,
               (unsigned long long)r->longest_row_entries, seconds);
        return;
    }
    if (cli->quiet)
        return;
    printf("%s: %llu x %llu, %llu entries, %llu tiles, %s", cli->args[1],
           (unsigned long long)r->n_rows, (unsigned long long)r->n_cols,
           (unsigned long long)r->n_entries, (unsigned long long)r->n_tiles,
           ooc_format_size(r->file_bytes, size));
    if (r->n_entries)
        printf(" (%.3f bytes an entry)", (double)r->file_bytes / (double)r->n_entries);
    printf(", %.1f s\n", seconds);
    if (r->n_duplicates)
        printf("%llu values were added to others of the same place\n",
               (unsigned long long)r->n_duplicates);
    if (r->n_dropped)
        printf("%llu zeros were dropped\n", (unsigned long long)r->n_dropped);
}

/* The formats, for --help. */
static const char *about(void)
{
    static char text[2000];
    size_t n = (size_t)snprintf(
        text, sizeof text,
        "Convert a sparse matrix into a tile store, or a tile store into SciPy's .npz or "
        "Matrix\nMarket text. The format of INPUT is "
        "found by its\ncontent, then by its name. Formats (--from NAME):\n");

    for (size_t i = 0; ooc_format_at(i) && n < sizeof text; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "  %-7s %s\n", ooc_format_at(i)->name,
                              ooc_format_at(i)->what);
    return text;
}

typedef struct {
    const ooc_cli *cli;
    uint32_t n;
} list_state;

/* JSON wants quotes, backslashes and control characters escaped. */
static void print_json_text(const char *text)
{
    putchar('"');
    for (const unsigned char *c = (const unsigned char *)text; *c; c++)
        if (*c < ' ' || *c == '"' || *c == '\\')
            printf("\\u%04x", *c);
        else
            putchar(*c);
    putchar('"');
}

static void print_listed(void *ctx, const char *format, const char *name,
                         const ooc_source_info *info, const char *problem)
{
    list_state *l = ctx;
    bool known = info && info->max_entries != OOC_ENTRIES_UNKNOWN;

    if (l->cli->json) {
        printf("%s{\"format\": \"%s\", \"name\": ", l->n++ ? ",\n " : "[", format);
        print_json_text(name);
        if (info)
            printf(", \"rows\": %llu, \"columns\": %llu, \"type\": \"%s\"",
                   (unsigned long long)info->n_rows, (unsigned long long)info->n_cols,
                   info->value_type);
        if (known)
            printf(", \"max_entries\": %llu", (unsigned long long)info->max_entries);
        if (!info) {
            printf(", \"problem\": ");
            print_json_text(problem);
        }
        putchar('}');
        return;
    }
    l->n++;
    printf("%s%s%s: ", format, *name ? " " : "", name);
    if (!info) {
        printf("%s\n", problem);
        return;
    }
    printf("%llu x %llu, %s", (unsigned long long)info->n_rows, (unsigned long long)info->n_cols,
           info->value_type);
    if (known)
        printf(", at most %llu entries", (unsigned long long)info->max_entries);
    putchar('\n');
}

static int list_input(const ooc_cli *cli, const ooc_convert_opts *o)
{
    ooc_source_request request = {
        .path = cli->args[0], .memory_bytes = o->ram_budget / 8, .n_threads = 1};
    list_state l = {.cli = cli};
    ooc_err err = {0};

    if (ooc_source_list(o->from, &request, print_listed, &l, &err))
        return ooc_cli_fail(cli, &err);
    if (cli->json)
        printf("%s]\n", l.n ? "" : "[");
    else if (!l.n)
        printf("no matrices\n");
    return ooc_cli_finish(cli, 0);
}

/* The places are those of ooc_part. */
static const char *const parts[] = {"none", "real", "imag", "abs", "stack", NULL};
static const char *const values[] = {"f32", "f64", "f16", "bf16", NULL};

int main(int argc, char **argv)
{
    ooc_convert_opts o = {.ram_budget = DEFAULT_RAM_BUDGET};
    const char *codec = "auto";
    int vtype = OOC_F32; /* the places in values[] are those of ooc_dtype */
    bool list = false;
    int part = OOC_PART_NONE;
    uint64_t panel_columns = 0;
    const ooc_opt opts[] = {
        {.name = "from",
         .kind = OOC_OPT_STRING,
         .out = &o.from,
         .value = "FORMAT",
         .help = "what INPUT is (default: found)"},
        {.name = "values",
         .kind = OOC_OPT_CHOICE,
         .out = &vtype,
         .choices = values,
         .help = "type that values are stored in (default f32); f16 and bf16 round"},
        {.name = "key",
         .kind = OOC_OPT_STRING,
         .out = &o.key,
         .value = "NAME",
         .help = "the matrix inside INPUT, where there are several"},
        {.name = "part",
         .kind = OOC_OPT_CHOICE,
         .out = &part,
         .choices = parts,
         .help = "what becomes of complex values; stack: [Re -Im; Im Re]"},
        {.name = "list",
         .kind = OOC_OPT_FLAG,
         .out = &list,
         .help = "only show what INPUT holds: names, shapes, types, entries"},
        {.name = "transpose",
         .kind = OOC_OPT_FLAG,
         .out = &o.transpose,
         .help = "convert the transpose"},
        {.name = "tile-size",
         .kind = OOC_OPT_SIZE,
         .out = &o.tile_bytes,
         .value = "SIZE",
         .min = 4096,
         .max = (uint64_t)1 << 34,
         .help =
             "bytes of a tile in kernel form (default: about a 64th of the matrix,\n256K to 16M)"},
        {.name = "panel-columns",
         .kind = OOC_OPT_U64,
         .out = &panel_columns,
         .value = "N",
         .min = 1,
         .max = OOC_MAX_PANEL_COLUMNS,
         .help = "columns of a panel (default 8192; up to 65536 where rows have few entries)"},
        {.name = "codec",
         .kind = OOC_OPT_STRING,
         .out = &codec,
         .value = "CODEC",
         .help = "auto|raw|zstd[:LEVEL] (default auto)"},
        {.name = "ram-budget",
         .kind = OOC_OPT_SIZE,
         .out = &o.ram_budget,
         .value = "SIZE",
         .min = 1,
         .help = "the most memory that the conversion takes (default 1G)"},
        {.name = "tmp",
         .kind = OOC_OPT_STRING,
         .out = &o.tmp_dir,
         .value = "DIR",
         .help = "for entries that do not fit the budget (default: OUTPUT's folder)"},
        {.name = "allow-nonfinite",
         .kind = OOC_OPT_FLAG,
         .out = &o.allow_nonfinite,
         .help = "keep NaN and infinities; without it they are refused"},
        {.name = "drop-zeros",
         .kind = OOC_OPT_FLAG,
         .out = &o.drop_zeros,
         .help = "leave out entries whose value is zero"},
        {.name = "force",
         .kind = OOC_OPT_FLAG,
         .out = &o.force,
         .help = "replace OUTPUT if it exists"},
        {0}};
    ooc_cli cli = {
        .prog = "tile-convert",
        .usage = "[options] INPUT OUTPUT.tiles | FILE.tiles OUTPUT.npz|OUTPUT.mtx | --list INPUT",
        .about = about(),
        .examples = "  tile-convert system.mtx.gz system.tiles\n"
                    "  tile-convert cells.h5ad:layers/counts cells.tiles\n"
                    "  tile-convert --transpose system.tiles transposed.npz\n"
                    "  tile-convert radon:700x384:640 ct640.tiles\n"
                    "  tile-convert --ram-budget 256M --tmp /scratch big.npz big.tiles\n"
                    "  tile-convert --tile-size 4M --codec raw ct640.tiles raw.tiles\n",
        .opts = opts,
        .min_args = 1,
        .max_args = 2};
    ooc_convert_result result;
    progress p = {.cli = &cli};
    uint64_t start_ns = ooc_now_ns();
    ooc_err err = {0};
    ooc_status st;
    int code;

    if (!ooc_cli_parse(&cli, argc, argv, &code))
        return code;
    if (!parse_codec(codec, &o.codec, &o.level))
        return ooc_cli_usage(&cli,
                             "--codec %s: expected auto, raw, zstd or zstd:LEVEL with LEVEL "
                             "from 1 to 19",
                             codec);
    if (list && cli.n_args == 1)
        return list_input(&cli, &o);
    if (list || cli.n_args != 2)
        return ooc_cli_usage(&cli, "expected %s; see --help",
                             list ? "--list INPUT" : "INPUT and OUTPUT");
    o.input = cli.args[0];
    o.output = cli.args[1];
    o.vtype = (ooc_dtype)vtype;
    o.part = (ooc_part)part;
    o.panel_columns = (uint32_t)panel_columns;
    o.n_threads = (uint32_t)cli.threads;
    o.progress = show;
    o.interrupted = interrupted;
    o.ctx = &p;
    ooc_cli_catch_signals(NULL, NULL);
    st = ooc_export_fits(o.output) ? ooc_export(&o, &result, &err) : ooc_convert(&o, &result, &err);
    if (p.what)
        ooc_progress_end(&p.line);
    if (st)
        return ooc_cli_fail(&cli, &err);
    print_result(&cli, &result, (double)(ooc_now_ns() - start_ns) / 1e9);
    return ooc_cli_finish(&cli, 0);
}
