#include "tools/cli.h"

#include "base/parse.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define MAX_OPTS 96 /* of one command, the common ones included */

/* Options that every command has; `out` is set per call. */
enum {
    COMMON_HELP,
    COMMON_VERSION,
    COMMON_QUIET,
    COMMON_JSON,
    COMMON_PROGRESS,
    COMMON_THREADS,
    N_COMMON
};

typedef struct {
    ooc_opt common[N_COMMON];
    bool help, version;
    bool seen[MAX_OPTS];
} parser;

static void parser_init(parser *p, ooc_cli *cli)
{
    memset(p, 0, sizeof *p);
    p->common[COMMON_HELP] =
        (ooc_opt){.name = "help", .kind = OOC_OPT_FLAG, .out = &p->help, .help = "show this text"};
    p->common[COMMON_VERSION] = (ooc_opt){
        .name = "version", .kind = OOC_OPT_FLAG, .out = &p->version, .help = "show the version"};
    p->common[COMMON_QUIET] = (ooc_opt){
        .name = "quiet", .kind = OOC_OPT_FLAG, .out = &cli->quiet, .help = "print errors only"};
    p->common[COMMON_JSON] = (ooc_opt){.name = "json",
                                       .kind = OOC_OPT_FLAG,
                                       .out = &cli->json,
                                       .help = "print the result as JSON on stdout"};
    p->common[COMMON_PROGRESS] =
        (ooc_opt){.name = "progress",
                  .kind = OOC_OPT_FLAG,
                  .out = &cli->progress,
                  .help = "progress on stderr always, in lines if it is no terminal"};
    p->common[COMMON_THREADS] = (ooc_opt){.name = "threads",
                                          .kind = OOC_OPT_U64,
                                          .out = &cli->threads,
                                          .value = "N",
                                          .min = 1,
                                          .max = 4096,
                                          .help = "compute threads (default: all processors)"};
}

static const ooc_opt *find_option(const ooc_cli *cli, const parser *p, const char *name,
                                  size_t length, uint32_t *place)
{
    uint32_t i = 0;

    for (const ooc_opt *o = cli->opts; o && o->name; o++, i++) {
        *place = i;
        if (strlen(o->name) == length && memcmp(o->name, name, length) == 0)
            return o;
    }
    for (uint32_t k = 0; k < N_COMMON; k++, i++) {
        *place = i;
        if (strlen(p->common[k].name) == length && memcmp(p->common[k].name, name, length) == 0)
            return &p->common[k];
    }
    return NULL;
}

static void print_choices(FILE *f, const char *const *choices)
{
    for (int i = 0; choices[i]; i++)
        fprintf(f, "%s%s", i ? "|" : "", choices[i]);
}

/* What a good value looks like, for the message about a bad one. */
static int bad_value(const ooc_cli *cli, const ooc_opt *o, const char *text)
{
    fprintf(stderr, "%s: --%s %s: ", cli->prog, o->name, *text ? text : "''");
    switch (o->kind) {
    case OOC_OPT_SIZE:
        fputs("expected a size such as 512M or 1.5G", stderr);
        break;
    case OOC_OPT_U64:
        fputs("expected a whole number", stderr);
        break;
    case OOC_OPT_DOUBLE:
        fputs("expected a number", stderr);
        break;
    case OOC_OPT_LIST:
        fprintf(stderr, "expected 1 to %u whole numbers such as 16,32,64", o->max_items);
        break;
    case OOC_OPT_SHAPE:
        fputs("expected HEIGHTxWIDTH such as 700x384", stderr);
        break;
    case OOC_OPT_CHOICE:
        fputs("expected ", stderr);
        print_choices(stderr, o->choices);
        break;
    case OOC_OPT_FLAG:
    case OOC_OPT_STRING:
        fputs("expected some text", stderr);
        break;
    }
    if (o->kind == OOC_OPT_SIZE || o->kind == OOC_OPT_U64 || o->kind == OOC_OPT_LIST) {
        if (o->min)
            fprintf(stderr, ", at least %llu", (unsigned long long)o->min);
        if (o->max)
            fprintf(stderr, ", at most %llu", (unsigned long long)o->max);
    }
    if (o->kind == OOC_OPT_DOUBLE && (o->low != 0 || o->high != 0))
        fprintf(stderr, " from %g to %g", o->low, o->high);
    fputc('\n', stderr);
    return 2;
}

static bool in_range(const ooc_opt *o, uint64_t value)
{
    return value >= o->min && (!o->max || value <= o->max);
}

static bool set_u64(const ooc_opt *o, const char *text)
{
    uint64_t value;
    bool ok = o->kind == OOC_OPT_SIZE ? ooc_parse_size(text, &value) : ooc_parse_u64(text, &value);

    if (!ok || !in_range(o, value))
        return false;
    *(uint64_t *)o->out = value;
    return true;
}

static bool set_double(const ooc_opt *o, const char *text)
{
    double value;

    if (!ooc_parse_double(text, &value))
        return false;
    if ((o->low != 0 || o->high != 0) && !(value >= o->low && value <= o->high))
        return false;
    *(double *)o->out = value;
    return true;
}

static bool set_choice(const ooc_opt *o, const char *text)
{
    for (int i = 0; o->choices[i]; i++) {
        if (strcmp(o->choices[i], text) == 0) {
            *(int *)o->out = i;
            return true;
        }
    }
    return false;
}

static bool set_list(const ooc_opt *o, const char *text)
{
    uint32_t n;

    if (!ooc_parse_u64_list(text, o->out, o->max_items, &n))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        if (!in_range(o, ((const uint64_t *)o->out)[i]))
            return false;
    }
    *o->n_items = n;
    return true;
}

static bool set_value(const ooc_opt *o, const char *text)
{
    switch (o->kind) {
    case OOC_OPT_FLAG:
        *(bool *)o->out = true;
        return true;
    case OOC_OPT_SIZE:
    case OOC_OPT_U64:
        return set_u64(o, text);
    case OOC_OPT_DOUBLE:
        return set_double(o, text);
    case OOC_OPT_STRING:
        *(const char **)o->out = text;
        return *text != 0;
    case OOC_OPT_CHOICE:
        return set_choice(o, text);
    case OOC_OPT_LIST:
        return set_list(o, text);
    case OOC_OPT_SHAPE:
        return ooc_parse_shape(text, o->out, (uint64_t *)o->out + 1);
    }
    return false;
}

/* argv[*i] is an option; takes its value too. Returns 0 or an exit code. */
static int take_option(ooc_cli *cli, parser *p, int argc, char **argv, int *i)
{
    const char *name = argv[*i] + 2;
    const char *value = strchr(name, '=');
    size_t length = value ? (size_t)(value - name) : strlen(name);
    uint32_t place;
    const ooc_opt *o = find_option(cli, p, name, length, &place);

    if (!o)
        return ooc_cli_usage(cli, "unknown option --%.*s; see --help", (int)length, name);
    assert(place < MAX_OPTS);
    if (p->seen[place])
        return ooc_cli_usage(cli, "--%s is given twice", o->name);
    p->seen[place] = true;
    if (o->given)
        *o->given = true;
    if (o->kind == OOC_OPT_FLAG) {
        if (value)
            return ooc_cli_usage(cli, "--%s takes no value", o->name);
        return set_value(o, "") ? 0 : 2;
    }
    if (value) {
        value++;
    } else {
        if (*i + 1 >= argc || strncmp(argv[*i + 1], "--", 2) == 0)
            return ooc_cli_usage(cli, "--%s needs a value", o->name);
        value = argv[++*i];
    }
    return set_value(o, value) ? 0 : bad_value(cli, o, value);
}

static void print_help_line(const ooc_opt *o)
{
    const char *line = o->help;
    int column = printf("  --%s", o->name);

    if (o->kind == OOC_OPT_CHOICE && !o->value) {
        column += printf(" ");
        for (int i = 0; o->choices[i]; i++)
            column += printf("%s%s", i ? "|" : "", o->choices[i]);
    } else if (o->value) {
        column += printf(" %s", o->value);
    }
    if (column > 27) {
        printf("\n");
        column = 0;
    }
    while (line) {
        const char *end = strchr(line, '\n');

        printf("%*s%.*s\n", 29 - column, "", end ? (int)(end - line) : (int)strlen(line), line);
        line = end ? end + 1 : NULL;
        column = 0;
    }
}

static void print_help(const ooc_cli *cli, const parser *p)
{
    printf("usage: %s %s\n\n%s\noptions:\n", cli->prog, cli->usage, cli->about);
    for (const ooc_opt *o = cli->opts; o && o->name; o++)
        print_help_line(o);
    for (uint32_t k = 0; k < N_COMMON; k++)
        print_help_line(&p->common[k]);
    printf("\nSizes take K, M, G, T (binary: 1K = 1024).\n"
           "Exit codes: 0 done, 1 failed while running, 2 wrong or impossible request, "
           "130 interrupted.\n\nexamples:\n%s",
           cli->examples);
}

static int check_count(const ooc_cli *cli)
{
    if (cli->n_args < cli->min_args)
        return ooc_cli_usage(cli, "%s: usage: %s %s; see --help",
                             cli->n_args ? "too few operands" : "nothing to do", cli->prog,
                             cli->usage);
    if (cli->n_args > cli->max_args)
        return ooc_cli_usage(cli, "unexpected operand %s; see --help", cli->args[cli->max_args]);
    return 0;
}

bool ooc_cli_parse(ooc_cli *cli, int argc, char **argv, int *exit_code)
{
    parser p;
    bool options = true;

    parser_init(&p, cli);
    signal(SIGXFSZ, SIG_IGN); /* a file beyond `ulimit -f` is an error of write, with its line */
    *exit_code = 0;
    cli->args = argv + 1; /* operands move to the front of argv */
    cli->n_args = 0;
    for (int i = 1; i < argc && !*exit_code; i++) {
        if (options && strcmp(argv[i], "--") == 0)
            options = false;
        else if (options && strcmp(argv[i], "-h") == 0)
            p.help = true;
        else if (options && strncmp(argv[i], "--", 2) == 0)
            *exit_code = take_option(cli, &p, argc, argv, &i);
        else if (options && argv[i][0] == '-' && argv[i][1])
            *exit_code = ooc_cli_usage(cli, "unknown option %s; see --help", argv[i]);
        else
            cli->args[cli->n_args++] = argv[i];
    }
    if (*exit_code)
        return false;
    if (p.help)
        print_help(cli, &p);
    else if (p.version)
        printf("%s %s\n", cli->prog, OOC_VERSION);
    else
        *exit_code = check_count(cli);
    if (p.help || p.version)
        *exit_code = ooc_cli_finish(cli, 0);
    return !p.help && !p.version && !*exit_code;
}

int ooc_cli_fail(const ooc_cli *cli, const ooc_err *err)
{
    fprintf(stderr, "%s: %s\n", cli->prog, err->text);
    return ooc_exit_code(err->code);
}

int ooc_cli_usage(const ooc_cli *cli, const char *fmt, ...)
{
    va_list args;

    fprintf(stderr, "%s: ", cli->prog);
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fputc('\n', stderr);
    return 2;
}

void ooc_cli_warn(void *ctx, const char *line)
{
    const ooc_cli *cli = ctx;

    if (!cli->quiet)
        fprintf(stderr, "%s: %s\n", cli->prog, line);
}

int ooc_cli_finish(const ooc_cli *cli, int exit_code)
{
    errno = 0;
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "%s: cannot write the result to stdout: %s\n", cli->prog,
                strerror(errno ? errno : EIO));
        return exit_code ? exit_code : 1;
    }
    return exit_code;
}
