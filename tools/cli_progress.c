#include "tools/cli.h"

#include "base/clock.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t interrupted;
static void (*wake_fn)(void *ctx);
static void *wake_ctx;

static void on_signal(int number)
{
    (void)number;
    interrupted = 1;
    if (wake_fn)
        wake_fn(wake_ctx);
}

void ooc_cli_catch_signals(void (*wake)(void *ctx), void *ctx)
{
    /* SA_RESETHAND: whoever insists gets the usual end. No SA_RESTART: waits must return. */
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};

    wake_ctx = ctx;
    wake_fn = wake;
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

bool ooc_cli_interrupted(void)
{
    return interrupted != 0;
}

void ooc_progress_begin(ooc_progress *p, const ooc_cli *cli, const char *what, uint64_t total)
{
    *p = (ooc_progress){.what = what, .total = total, .begin_ns = ooc_now_ns()};
    p->lines = !isatty(STDERR_FILENO);
    p->on = cli->progress || (!cli->quiet && !cli->json && !p->lines);
}

void ooc_progress_update(ooc_progress *p, uint64_t done, uint64_t bytes, const char *note)
{
    uint64_t now;
    double seconds;

    if (!p->on)
        return;
    now = ooc_now_ns();
    if (now - p->last_ns < 100000000u)
        return;
    p->last_ns = now;
    seconds = (double)(now - p->begin_ns + 1) * 1e-9;
    fprintf(stderr, "%s%s", p->lines ? "" : "\r\033[K", p->what);
    if (p->total)
        fprintf(stderr, "  %3.0f %%", 100.0 * (double)done / (double)p->total);
    if (bytes)
        fprintf(stderr, "  %.2f GB/s", (double)bytes * 1e-9 / seconds);
    else
        fprintf(stderr, "  %.1f/s", (double)done / seconds);
    if (p->total && done && done <= p->total) {
        double left = seconds * (double)(p->total - done) / (double)done;

        fprintf(stderr, "  ETA %.0f:%02.0f", (double)(uint64_t)(left / 60),
                (double)((uint64_t)left % 60));
    }
    if (note)
        fprintf(stderr, "  %s", note);
    if (p->lines)
        fputc('\n', stderr);
    fflush(stderr);
}

void ooc_progress_end(ooc_progress *p)
{
    if (p->on && p->last_ns && !p->lines)
        fputs("\r\033[K", stderr);
    p->on = false;
}
