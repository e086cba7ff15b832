/* run_log.h - a run as JSON: a line a step, and the summary object. */
#ifndef OOC_SRC_TRAIN_RUN_LOG_H
#define OOC_SRC_TRAIN_RUN_LOG_H

#include "src/train/trainer.h"

typedef struct {
    int fd; /* -1: no log */
    const char *path;
    uint64_t off;
} ooc_run_log;

/* `go_on`: append to what is there (a resumed run), else begin anew. */
ooc_status ooc_run_log_open(ooc_run_log *log, const char *path, bool go_on, ooc_err *err);
void ooc_run_log_close(ooc_run_log *log);
ooc_status ooc_run_log_step(ooc_run_log *log, const ooc_step_info *info, ooc_err *err);
ooc_status ooc_run_log_summary(ooc_run_log *log, const ooc_train_opts *opts,
                               const ooc_train_summary *s, ooc_err *err);

/* The summary as one line of JSON into `out`; the bytes it has (also where they don't fit). */
size_t ooc_summary_json(const ooc_train_opts *opts, const ooc_train_summary *s, char *out,
                        size_t size);
/* The system's figures of this process: resident now, and at most so far. */
uint64_t ooc_process_bytes(bool peak);
#endif
