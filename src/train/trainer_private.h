/* trainer_private.h - what the files trainer_*.c share. */
#ifndef OOC_SRC_TRAIN_TRAINER_PRIVATE_H
#define OOC_SRC_TRAIN_TRAINER_PRIVATE_H

#include "src/engine.h"
#include "src/train/batch_place.h"
#include "src/train/checkpoint.h"
#include "src/train/run_log.h"
#include "src/train/trainer.h"

#include <signal.h>

/* The files that samples come from, and what belongs together. */
typedef struct {
    ooc_sample_file data, target, weight; /* fd -1: not given */
    ooc_sample_set set;                   /* with pointers to the three */
} ooc_sample_source;

struct ooc_trainer {
    ooc_train_opts opts; /* with the defaults filled in */
    volatile sig_atomic_t stop;
    ooc_engine *engine;
    ooc_matrix_shape shape;
    uint64_t M, N;
    ooc_pool *pool; /* the engine's */
    ooc_sample_source train, val;
    ooc_sample_file row_weight_file;  /* --weights of shape (M,); fd -1: not given */
    ooc_loader *loader, *eval_loader; /* eval: validation, prediction, preview; may be NULL */
    ooc_dense *dense;
    ooc_model *model;
    ooc_optimizer optimizer;
    bool training, uses_engine;
    /* arenas: model_arena is vram_arena unless the model has its own budget or device */
    ooc_arena *vram_arena, *ram_arena, *own_model_arena, *model_arena;
    void *vram_block; /* of the matrix device, under vram_arena */
    uint64_t vram_block_bytes;
    void *model_block; /* of the model's device, under own_model_arena, where it is a GPU */
    /* device arrays; see batch_place.h for the letters */
    float *input, *X, *G, *T, *W, *row_weights;
    float *samples; /* of the input, on the host; NULL: it can write to `input` itself */
    float *picture; /* of one X, on the host; NULL: it can read X itself */
    float *Y;       /* M: the preview's projection */
    void *buffer;   /* RAM: OOC_TENSOR_BUFFER bytes */
    ooc_run_log log;
    /* the run */
    uint64_t step, total_steps; /* done; to be done in all */
    ooc_train_summary sum;
    double step_seconds; /* without the first */
};

/* trainer_check.c: what is refused at once; that each output can be written, and --preview's
 * folder. */
ooc_status ooc_trainer_check_opts(const ooc_train_opts *o, ooc_err *err);
ooc_status ooc_trainer_check_outputs(const ooc_trainer *t, ooc_err *err);
/* trainer_plan.c: budgets, arenas, what is taken from them. */
ooc_status ooc_trainer_take_memory(ooc_trainer *t, ooc_err *err);
void ooc_trainer_give_memory_back(ooc_trainer *t); /* and end what owns it: dense backend, engine */
/* trainer_step.c */
ooc_status ooc_trainer_step(ooc_trainer *t, ooc_step_info *info, ooc_err *err);
ooc_status ooc_trainer_validate(ooc_trainer *t, double *loss, ooc_err *err);
/* trainer_output.c; the checkpoint goes to opts.save. */
ooc_status ooc_trainer_checkpoint(ooc_trainer *t, ooc_err *err);
ooc_status ooc_trainer_predict(ooc_trainer *t, ooc_err *err);
ooc_status ooc_trainer_preview(ooc_trainer *t, ooc_err *err);

/* Samples of a batch, the input on the model's device. */
ooc_status ooc_trainer_place(ooc_trainer *t, const ooc_batch_arrays *wanted, const ooc_batch *batch,
                             ooc_err *err);
/* T, W and Y, which are always on the host, as the engine takes them. */
ooc_array ooc_trainer_host_array(float *data, uint64_t ld);
/* A device array of the model's (X, G) as the engine takes it. */
ooc_array ooc_trainer_array(const ooc_trainer *t, float *data, uint64_t ld);
#endif
