/* trainer.h - train a model f through A: loss(A * f(x), target), step by step, within the budgets.
 *
 *     ooc_trainer_open(&t, &opts, err);   everything checked, planned, taken and loaded
 *     ooc_trainer_run(t, &summary, err);  the steps, the outputs
 *     ooc_trainer_close(t);
 *
 * A step: a batch from the loader, X = f(x), loss and G = dLoss/dX from one sweep over A's tiles,
 * gradients of the weights from G, the optimizer. No step allocates.
 * Memory:  one arena for the device (matrix and model, unless model_budget sets the model's apart)
 *          and one for RAM. Threads: the caller's one; the loader's and the engine's own. */
#ifndef OOC_SRC_TRAIN_TRAINER_H
#define OOC_SRC_TRAIN_TRAINER_H

#include "src/model/model.h"
#include "src/streamtrain.h"
#include "src/train/optimizer.h"

#define OOC_NO_LIMIT UINT64_MAX

/* What a step has to tell: a line of the JSONL log. */
typedef struct {
    uint64_t step;  /* from 1 */
    uint64_t epoch; /* from 1 */
    double loss, lr, seconds;
    double val_loss; /* NaN: no validation behind this step */
    uint64_t read_bytes, decoded_bytes, tiles_read, tiles_resident;
    double read_seconds; /* waited for the disk */
    uint64_t device_peak_bytes, host_peak_bytes;
} ooc_step_info;

/* Bytes in use around one part of a step. */
typedef struct {
    uint64_t matrix_device, model_device, host, process;
} ooc_memory_use;

enum { OOC_PHASE_FORWARD, OOC_PHASE_LOSS, OOC_PHASE_BACKWARD, OOC_PHASE_OPTIMIZER, OOC_N_PHASES };

typedef struct {
    ooc_memory_use before[OOC_N_PHASES], after[OOC_N_PHASES]; /* of the first step */
    ooc_memory_use highest[OOC_N_PHASES];                     /* after it, of all steps */
} ooc_memory_report;

typedef struct {
    /* files; NULL: not given */
    const char *matrix, *data, *val, *target, *val_target, *weights, *val_weights;
    const char *init, *resume, *save, *predict, *log, *preview, *dump_gradients;
    uint64_t checkpoint_every; /* steps; 0: only at the end */
    /* the model; shapes of zeros and no widths: found from the data, defaults */
    ooc_model_kind model;
    bool widths_given;
    uint32_t n_widths;
    uint64_t widths[OOC_MODEL_MAX_HIDDEN];
    uint64_t in_shape[2], out_shape[2];
    bool recompute;
    /* training; lr 0: the model's default; total_steps is filled in */
    ooc_loss_kind loss;
    ooc_optimizer_opts optimizer;
    uint64_t epochs, steps; /* OOC_NO_LIMIT: not given; neither given: one epoch */
    uint32_t batch;
    uint64_t seed;
    /* where and how; zero or NULL: the default */
    const char *matrix_device, *model_device;
    uint64_t vram_budget, model_budget, ram_budget;
    uint32_t n_threads;
    ooc_io io;
    ooc_pass pass;
    bool memory_report;
    /* may be NULL */
    void (*warn)(void *ctx, const char *line);
    void (*on_step)(void *ctx, const ooc_step_info *info, uint64_t n_steps);
    void *ctx;
} ooc_train_opts;

typedef struct {
    uint64_t first_step, n_steps; /* done before this run; done after it */
    uint64_t n_samples, n_parameters;
    double first_loss, last_loss, val_loss; /* NaN: none */
    double seconds, seconds_per_step;       /* the mean step without the first */
    uint64_t read_bytes, decoded_bytes, tiles_read;
    uint64_t device_budget, device_peak_bytes, model_budget, model_peak_bytes; /* model: if apart */
    uint64_t host_budget, host_peak_bytes;
    uint64_t process_peak_bytes; /* what the system says of this process */
    bool interrupted;
    ooc_matrix_shape matrix;
    ooc_matrix_stats stats; /* of the last step; its strings live as long as the trainer */
    ooc_memory_report memory;
} ooc_train_summary;

typedef struct ooc_trainer ooc_trainer;

/* opts (and its strings) must outlive the trainer. OOC_E_ARG and OOC_E_BUDGET say what would be
 * right. On failure *out is NULL and no output file was touched. */
ooc_status ooc_trainer_open(ooc_trainer **out, const ooc_train_opts *opts, ooc_err *err);
/* Run all steps, then write the outputs. OOC_E_INTERRUPTED: stopped between two steps (the one
 * under way was dropped) and, with opts.save, a checkpoint was written. *summary is filled also
 * then. */
ooc_status ooc_trainer_run(ooc_trainer *t, ooc_train_summary *summary, ooc_err *err);
/* Stop soon; safe from a signal handler. */
void ooc_trainer_interrupt(ooc_trainer *t);
void ooc_trainer_close(ooc_trainer *t); /* NULL is allowed */
#endif
