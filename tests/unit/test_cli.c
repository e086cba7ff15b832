/* The options every command shares. */
#include "tools/cli.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MAX_WORDS 32

typedef struct {
    bool flag, given;
    uint64_t size, count, list[4], shape[2];
    uint32_t n_list;
    double rate;
    const char *text;
    int choice;
} settings;

static const char *const colours[] = {"red", "green", NULL};

/* Runs the parser over `line` (words divided by one space). */
static bool parse(const char *line, settings *s, ooc_cli *cli, int *exit_code)
{
    static char copy[512];
    static char *words[MAX_WORDS];
    int n = 0;
    const ooc_opt opts[] = {
        {.name = "flag", .kind = OOC_OPT_FLAG, .out = &s->flag, .help = "f"},
        {.name = "size", .kind = OOC_OPT_SIZE, .out = &s->size, .help = "s", .value = "SIZE"},
        {.name = "count", .kind = OOC_OPT_U64, .out = &s->count, .help = "c", .min = 2, .max = 9},
        {.name = "rate",
         .kind = OOC_OPT_DOUBLE,
         .out = &s->rate,
         .help = "r",
         .given = &s->given,
         .low = 0,
         .high = 1},
        {.name = "text", .kind = OOC_OPT_STRING, .out = &s->text, .help = "t"},
        {.name = "colour", .kind = OOC_OPT_CHOICE, .out = &s->choice, .choices = colours},
        {.name = "list",
         .kind = OOC_OPT_LIST,
         .out = s->list,
         .max_items = 4,
         .n_items = &s->n_list,
         .min = 1},
        {.name = "shape", .kind = OOC_OPT_SHAPE, .out = s->shape},
        {0}};

    *s = (settings){.choice = 7};
    *cli = (ooc_cli){.prog = "t", .usage = "", .opts = opts, .min_args = 0, .max_args = 2};
    snprintf(copy, sizeof copy, "%s", line);
    for (char *w = strtok(copy, " "); w && n < MAX_WORDS; w = strtok(NULL, " "))
        words[n++] = w;
    return ooc_cli_parse(cli, n, words, exit_code);
}

static void good_values(void **state)
{
    settings s;
    ooc_cli cli;
    int code;

    (void)state;
    assert_true(parse("t a --flag --size 64M --count=9 --rate 0.25 --text x=y b --colour green "
                      "--list 16,32 --shape=700x384 --json",
                      &s, &cli, &code));
    assert_int_equal(code, 0);
    assert_true(s.flag && s.given && cli.json && !cli.quiet);
    assert_int_equal(s.size, 64u << 20);
    assert_int_equal(s.count, 9);
    assert_true(s.rate == 0.25);
    assert_string_equal(s.text, "x=y");
    assert_int_equal(s.choice, 1);
    assert_int_equal(s.n_list, 2);
    assert_int_equal(s.list[1], 32);
    assert_int_equal(s.shape[0], 700);
    assert_int_equal(s.shape[1], 384);
    assert_int_equal(cli.n_args, 2);
    assert_string_equal(cli.args[0], "a");
    assert_string_equal(cli.args[1], "b");
}

static void defaults_stay_and_dashes_end_options(void **state)
{
    settings s;
    ooc_cli cli;
    int code;

    (void)state;
    assert_true(parse("t -- --flag -x", &s, &cli, &code));
    assert_false(s.flag || s.given || s.text);
    assert_int_equal(s.choice, 7);
    assert_int_equal(cli.n_args, 2);
    assert_string_equal(cli.args[0], "--flag");
}

static void bad_requests_end_with_2(void **state)
{
    static const char *const lines[] = {"t --unknown",     "t --fla",         "t -x",
                                        "t --flag=1",      "t --flag --flag", "t --size",
                                        "t --size --flag", "t --size=",       "t --size 12Q",
                                        "t --count 1",     "t --count 10",    "t --count -3",
                                        "t --count 3x",    "t --rate 1.5",    "t --rate nan",
                                        "t --text=",       "t --colour blue", "t --list 1,2,3,4,5",
                                        "t --list 1,0",    "t --shape 7",     "t --shape 0x4",
                                        "t --threads 0",   "t a b c"};
    settings s;
    ooc_cli cli;
    int code;

    (void)state;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        bool go_on = parse(lines[i], &s, &cli, &code);

        if (go_on || code != 2)
            print_error("case '%s': got %d, code %d\n", lines[i], go_on, code);
        assert_false(go_on);
        assert_int_equal(code, 2);
    }
}

static void help_and_version_end_with_0(void **state)
{
    settings s;
    ooc_cli cli;
    int code = 7;

    (void)state;
    assert_false(parse("t --version", &s, &cli, &code));
    assert_int_equal(code, 0);
}

static void failing_gives_the_exit_code(void **state)
{
    ooc_cli cli = {.prog = "t"};
    ooc_err err = {.code = OOC_E_FORMAT, .text = "x"};

    (void)state;
    assert_int_equal(ooc_cli_fail(&cli, &err), 1);
    err.code = OOC_E_BUDGET;
    assert_int_equal(ooc_cli_fail(&cli, &err), 2);
    err.code = OOC_E_INTERRUPTED;
    assert_int_equal(ooc_cli_fail(&cli, &err), 130);
    assert_int_equal(ooc_cli_finish(&cli, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_values),
        cmocka_unit_test(defaults_stay_and_dashes_end_options),
        cmocka_unit_test(bad_requests_end_with_2),
        cmocka_unit_test(help_and_version_end_with_0),
        cmocka_unit_test(failing_gives_the_exit_code),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
