/* stream-train - train a network through a matrix that streams from a tile store. */
#include "tools/cli.h"
#include "tools/stream_train_opts.h"

#include "base/parse.h"
#include "src/train/run_log.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct {
    ooc_cli *cli;
    ooc_progress progress;
    bool begun;
    uint64_t bytes;
} display;

static void on_warn(void *ctx, const char *line)
{
    display *d = ctx;

    ooc_cli_warn(d->cli, line);
}

static void on_step(void *ctx, const ooc_step_info *info, uint64_t n_steps)
{
    display *d = ctx;
    char note[96];

    if (!d->begun)
        ooc_progress_begin(&d->progress, d->cli, "stream-train", n_steps);
    d->begun = true;
    d->bytes += info->read_bytes;
    snprintf(note, sizeof note, "epoch %" PRIu64 ", loss %.6g", info->epoch, info->loss);
    ooc_progress_update(&d->progress, info->step, d->bytes, note);
}

static void wake(void *ctx)
{
    ooc_trainer_interrupt(ctx);
}

static void print_memory(const ooc_memory_report *r)
{
    static const char *const phases[OOC_N_PHASES] = {"forward", "loss", "backward", "optimizer"};

    printf("bytes              matrix device    model device             RAM         process\n");
    for (int p = 0; p < OOC_N_PHASES; p++) {
        const ooc_memory_use *const rows[3] = {&r->before[p], &r->after[p], &r->highest[p]};
        static const char *const names[3] = {"before", "after", "highest"};

        for (int i = 0; i < 3; i++)
            printf("%-9s %-7s %14" PRIu64 "  %14" PRIu64 "  %14" PRIu64 "  %14" PRIu64 "\n",
                   phases[p], names[i], rows[i]->matrix_device, rows[i]->model_device,
                   rows[i]->host, rows[i]->process);
    }
}

static void print_summary(const ooc_train_opts *o, const ooc_train_summary *s)
{
    char size[4][32];

    if (s->n_steps > s->first_step)
        printf("steps %" PRIu64 " to %" PRIu64 ": loss %.6g -> %.6g, %.3f s a step\n",
               s->first_step + 1, s->n_steps, s->first_loss, s->last_loss,
               isnan(s->seconds_per_step) ? s->seconds : s->seconds_per_step);
    if (!isnan(s->val_loss))
        printf("validation loss %.6g\n", s->val_loss);
    printf("tiles read %" PRIu64 " (%s)\n", s->tiles_read, ooc_format_size(s->read_bytes, size[0]));
    printf("memory: device %s of %s, RAM tier and I/O %s of %s, process %" PRIu64 " bytes\n",
           ooc_format_size(s->device_peak_bytes, size[0]),
           ooc_format_size(s->device_budget, size[1]), ooc_format_size(s->host_peak_bytes, size[2]),
           ooc_format_size(s->host_budget, size[3]), s->process_peak_bytes);
    if (o->memory_report)
        print_memory(&s->memory);
}

static void print_result(const ooc_cli *cli, const ooc_train_opts *o, const ooc_train_summary *s)
{
    static char line[16384];

    if (cli->json) {
        ooc_summary_json(o, s, line, sizeof line);
        puts(line);
    } else if (!cli->quiet) {
        print_summary(o, s);
    }
}

int main(int argc, char **argv)
{
    static ooc_train_opts opts;
    static ooc_train_summary summary;
    ooc_cli cli = {0};
    display d = {.cli = &cli};
    ooc_trainer *trainer = NULL;
    ooc_err err = {0};
    ooc_status st;
    int code;

    if (!stream_train_parse(&cli, &opts, argc, argv, &code))
        return code;
    opts.warn = on_warn;
    opts.on_step = on_step;
    opts.ctx = &d;
    st = ooc_trainer_open(&trainer, &opts, &err);
    if (st)
        return ooc_cli_fail(&cli, &err);
    ooc_cli_catch_signals(wake, trainer);
    st = ooc_trainer_run(trainer, &summary, &err);
    ooc_cli_catch_signals(NULL, NULL); /* the trainer is going */
    if (d.begun)
        ooc_progress_end(&d.progress);
    if (!st || st == OOC_E_INTERRUPTED)
        print_result(&cli, &opts, &summary);
    ooc_trainer_close(trainer);
    return st ? ooc_cli_fail(&cli, &err) : ooc_cli_finish(&cli, 0);
}
