#include "src/train/run_log.h"
#include "io/sys.h"
#include "src/train/text.h"

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* VmRSS and VmHWM: getrusage's maximum would count the parent's memory before exec, too. */
uint64_t ooc_process_bytes(bool peak)
{
    const char *key = peak ? "VmHWM:" : "VmRSS:";
    unsigned long kib = 0;
    char line[128];
    FILE *f = fopen("/proc/self/status", "re");

    if (!f)
        return 0;
    while (!kib && fgets(line, sizeof line, f))
        if (strncmp(line, key, strlen(key)) == 0)
            kib = strtoul(line + strlen(key), NULL, 10);
    fclose(f);
    return (uint64_t)kib * 1024;
}

ooc_status ooc_run_log_open(ooc_run_log *log, const char *path, bool go_on, ooc_err *err)
{
    ooc_status st = ooc_sys_open(&log->fd, path, O_WRONLY | O_CREAT | (go_on ? 0 : O_TRUNC), err);

    log->path = path;
    log->off = 0;
    if (st) {
        log->fd = -1;
        return ooc_fail_wrap(err, st, "--log");
    }
    return ooc_sys_size(log->fd, path, &log->off, err);
}

void ooc_run_log_close(ooc_run_log *log)
{
    ooc_sys_close(log->fd);
    log->fd = -1;
}

static ooc_status put(ooc_run_log *log, const char *line, size_t n, ooc_err *err)
{
    ooc_status st;

    if (log->fd < 0)
        return OOC_OK;
    st = ooc_sys_pwrite(log->fd, log->path, line, n, log->off, err);
    log->off += n;
    return st;
}

ooc_status ooc_run_log_step(ooc_run_log *log, const ooc_step_info *i, ooc_err *err)
{
    char line[800];
    ooc_text t = {line, sizeof line, 0};

    ooc_text_append(&t, "{\"step\": %" PRIu64, i->step);
    ooc_text_count(&t, "epoch", i->epoch);
    ooc_text_number(&t, "loss", i->loss);
    ooc_text_number(&t, "lr", i->lr);
    ooc_text_number(&t, "seconds", i->seconds);
    ooc_text_count(&t, "read_bytes", i->read_bytes);
    ooc_text_count(&t, "decoded_bytes", i->decoded_bytes);
    ooc_text_number(&t, "read_seconds", i->read_seconds);
    ooc_text_count(&t, "tiles_read", i->tiles_read);
    ooc_text_count(&t, "tiles_resident", i->tiles_resident);
    ooc_text_count(&t, "device_peak_bytes", i->device_peak_bytes);
    ooc_text_count(&t, "host_peak_bytes", i->host_peak_bytes);
    if (!isnan(i->val_loss))
        ooc_text_number(&t, "val_loss", i->val_loss);
    ooc_text_append(&t, "}\n");
    return put(log, line, t.n, err);
}

static void append_use(ooc_text *t, const char *key, const ooc_memory_use *u)
{
    ooc_text_append(t,
                    "%s\"%s\": {\"matrix_device\": %" PRIu64 ", \"model_device\": %" PRIu64
                    ", \"host\": %" PRIu64 ", \"process\": %" PRIu64 "}",
                    key[0] == 'b' ? "" : ", ", key, u->matrix_device, u->model_device, u->host,
                    u->process);
}

static void append_memory(ooc_text *t, const ooc_memory_report *r)
{
    static const char *const phases[OOC_N_PHASES] = {"forward", "loss", "backward", "optimizer"};

    ooc_text_append(t, ", \"memory\": {");
    for (int p = 0; p < OOC_N_PHASES; p++) {
        ooc_text_append(t, "%s\"%s\": {", p ? ", " : "", phases[p]);
        append_use(t, "before", &r->before[p]);
        append_use(t, "after", &r->after[p]);
        append_use(t, "highest", &r->highest[p]);
        ooc_text_append(t, "}");
    }
    ooc_text_append(t, "}");
}

static void append_matrix(ooc_text *t, const ooc_train_opts *opts, const ooc_train_summary *s)
{
    const ooc_matrix_stats *st = &s->stats;
    static const char *const io[] = {"none", "uring", "pread"};

    ooc_text_string(t, "matrix", opts->matrix);
    ooc_text_count(t, "rows", s->matrix.n_rows);
    ooc_text_count(t, "columns", s->matrix.n_cols);
    ooc_text_count(t, "entries", s->matrix.n_entries);
    ooc_text_count(t, "tiles", s->matrix.n_tiles);
    ooc_text_count(t, "stored_bytes", s->matrix.stored_bytes);
    ooc_text_count(t, "kernel_bytes", s->matrix.kernel_bytes);
    ooc_text_count(t, "tiles_resident_device", st->tiles_resident_device);
    ooc_text_count(t, "tiles_resident_ram", st->tiles_resident_ram);
    ooc_text_string(t, "io", io[st->io]);
    ooc_text_string(t, "isa", st->isa ? st->isa : "none");
    ooc_text_string(t, "device", st->device ? st->device : "none");
    ooc_text_count(t, "threads", st->n_threads);
}

size_t ooc_summary_json(const ooc_train_opts *opts, const ooc_train_summary *s, char *out,
                        size_t size)
{
    ooc_text t = {out, size, 0};

    ooc_text_append(&t, "{\"summary\": true");
    ooc_text_string(&t, "model", ooc_model_kind_name(opts->model));
    ooc_text_count(&t, "parameters", s->n_parameters);
    ooc_text_count(&t, "samples", s->n_samples);
    ooc_text_count(&t, "first_step", s->first_step);
    ooc_text_count(&t, "steps", s->n_steps);
    ooc_text_number(&t, "first_loss", s->first_loss);
    ooc_text_number(&t, "last_loss", s->last_loss);
    ooc_text_number(&t, "val_loss", s->val_loss);
    ooc_text_number(&t, "seconds", s->seconds);
    ooc_text_number(&t, "seconds_per_step", s->seconds_per_step);
    ooc_text_count(&t, "tiles_read", s->tiles_read);
    ooc_text_count(&t, "read_bytes", s->read_bytes);
    ooc_text_count(&t, "decoded_bytes", s->decoded_bytes);
    ooc_text_count(&t, "device_budget", s->device_budget);
    ooc_text_count(&t, "device_peak_bytes", s->device_peak_bytes);
    if (s->model_budget) {
        ooc_text_count(&t, "model_budget", s->model_budget);
        ooc_text_count(&t, "model_peak_bytes", s->model_peak_bytes);
    }
    ooc_text_count(&t, "host_budget", s->host_budget);
    ooc_text_count(&t, "host_peak_bytes", s->host_peak_bytes);
    ooc_text_count(&t, "process_peak_bytes", s->process_peak_bytes);
    append_matrix(&t, opts, s);
    if (opts->memory_report)
        append_memory(&t, &s->memory);
    ooc_text_append(&t, ", \"interrupted\": %s}", s->interrupted ? "true" : "false");
    return t.n;
}

ooc_status ooc_run_log_summary(ooc_run_log *log, const ooc_train_opts *opts,
                               const ooc_train_summary *s, ooc_err *err)
{
    char line[16384];
    size_t n = ooc_summary_json(opts, s, line, sizeof line - 1);

    if (n >= sizeof line - 1)
        return ooc_fail(err, OOC_E_ARG, "--log: the matrix file's name is too long for its line");
    line[n] = '\n';
    return put(log, line, n + 1, err);
}
