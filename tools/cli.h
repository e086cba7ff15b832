/* cli.h - what every command shares: options, help, errors, signals, progress.
 *
 * A command declares a table of options and calls ooc_cli_parse(); values arrive checked where the
 * table points. Options are long only, "--name VALUE" or "--name=VALUE", never abbreviated (a
 * script must not change its meaning when an option is added); "--" ends them. An unknown, repeated
 * or unparsable option is an error that names it: exit code 2. */
#ifndef OOC_TOOLS_CLI_H
#define OOC_TOOLS_CLI_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum {
    OOC_OPT_FLAG,   /* bool: no value */
    OOC_OPT_SIZE,   /* uint64_t: bytes, K/M/G/T binary */
    OOC_OPT_U64,    /* uint64_t */
    OOC_OPT_DOUBLE, /* double */
    OOC_OPT_STRING, /* const char *: points into argv */
    OOC_OPT_CHOICE, /* int: the place in `choices` */
    OOC_OPT_LIST,   /* uint64_t[max_items], their number goes to *n_items */
    OOC_OPT_SHAPE   /* uint64_t[2]: HEIGHTxWIDTH */
} ooc_opt_kind;

typedef struct {
    const char *name; /* without the dashes; NULL ends the table */
    ooc_opt_kind kind;
    void *out;         /* written only when the option is given: preset it with the default */
    const char *value; /* how --help calls the value: "SIZE"; for choices NULL: "a|b|c" */
    const char *help;  /* one line or several ('\n'); names the default */
    bool *given;       /* NULL, or set to true when the option is given */
    uint64_t min, max; /* SIZE, U64, and each item of a LIST; max 0: no bound */
    const char *const *choices; /* CHOICE: ends with NULL */
    uint32_t max_items;         /* LIST */
    uint32_t *n_items;          /* LIST */
    double low, high;           /* DOUBLE: inclusive; both 0: any finite number */
} ooc_opt;

typedef struct {
    const char *prog;       /* "tile-info" */
    const char *usage;      /* what stands behind the name: "[options] FILE.tiles" */
    const char *about;      /* some lines for --help, each ended by '\n' */
    const char *examples;   /* lines for --help, each ended by '\n' */
    const ooc_opt *opts;    /* the command's own options, ended by a NULL name */
    int min_args, max_args; /* how many operands there must be */
    /* results */
    char **args; /* the operands, in their order */
    int n_args;
    bool quiet, json, progress;
    uint64_t threads; /* 0: not given */
} ooc_cli;

/* True: go on. False: return *exit_code from main (after --help and --version it is 0). */
bool ooc_cli_parse(ooc_cli *cli, int argc, char **argv, int *exit_code);

/* Print "prog: err->text" to stderr; returns the exit code for err->code. */
int ooc_cli_fail(const ooc_cli *cli, const ooc_err *err);
/* The same for a wrong request found by the command itself; returns 2. */
int ooc_cli_usage(const ooc_cli *cli, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* One line "prog: text" to stderr unless --quiet; fits ooc_matrix_opts.warn (ctx: the ooc_cli). */
void ooc_cli_warn(void *cli, const char *line);
/* Flush stdout; a result that could not be written makes 0 into 1, with a message. */
int ooc_cli_finish(const ooc_cli *cli, int exit_code);

/* From here on SIGINT and SIGTERM set a flag and call `wake(ctx)` (NULL: nothing; it must be
 * async-signal-safe, as ooc_matrix_interrupt is). A second one kills the process as usual. */
void ooc_cli_catch_signals(void (*wake)(void *ctx), void *ctx);
bool ooc_cli_interrupted(void);

/* A line "what  37 %  1.2 GB/s  ETA 0:42" on stderr; nothing unless stderr is a terminal and
 * neither --quiet nor --json was given, or --progress was. */
typedef struct {
    const char *what;
    uint64_t total, begin_ns, last_ns;
    bool on, lines; /* lines: stderr is no terminal, so they follow each other */
} ooc_progress;

/* total 0: not known. */
void ooc_progress_begin(ooc_progress *p, const ooc_cli *cli, const char *what, uint64_t total);
/* `done` of `total` units; `bytes` moved so far for the rate (0: show units a second); `note` (may
 * be NULL) is put behind. Draws at most ten times a second, so it is cheap to call. */
void ooc_progress_update(ooc_progress *p, uint64_t done, uint64_t bytes, const char *note);
void ooc_progress_end(ooc_progress *p); /* wipes the line */
#endif
