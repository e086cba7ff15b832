/* Requests that are refused before anything is opened or computed, and names that cannot be
 * written. */
#include "src/train/trainer_private.h"
#include "io/sys.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>

#define MAX_PICTURE_SIDE 1000000 /* libpng's limit */

typedef struct {
    const char *option, *path;
} named_file;

/* An output that is also an input, or another output, would destroy it. A checkpoint may replace
 * the one that the run began with: that one has been read by then. */
static ooc_status check_names(const ooc_train_opts *o, ooc_err *err)
{
    const named_file files[] = {{"--matrix", o->matrix},
                                {"--data", o->data},
                                {"--target", o->target},
                                {"--weights", o->weights},
                                {"--val", o->val},
                                {"--val-target", o->val_target},
                                {"--val-weights", o->val_weights},
                                {"--init", o->init},
                                {"--resume", o->resume},
                                {"--save", o->save},
                                {"--predict", o->predict},
                                {"--dump-gradients", o->dump_gradients},
                                {"--log", o->log}};
    enum { INIT = 7, RESUME = 8, SAVE = 9, N_FILES = sizeof files / sizeof *files };

    for (size_t out = SAVE; out < N_FILES; out++) {
        for (size_t i = 0; i < out; i++) {
            const named_file *a = &files[out], *b = &files[i];

            if (!a->path || !b->path || (out == SAVE && (i == INIT || i == RESUME)))
                continue;
            if (ooc_sys_same_file(a->path, b->path))
                return ooc_fail(err, OOC_E_ARG, "%s %s: is the file of %s too; give another name",
                                a->option, a->path, b->option);
        }
    }
    return OOC_OK;
}

ooc_status ooc_trainer_check_opts(const ooc_train_opts *o, ooc_err *err)
{
    if (o->init && o->resume)
        return ooc_fail(err, OOC_E_ARG,
                        "--init and --resume exclude each other: a resumed run "
                        "takes its weights from the checkpoint");
    if (o->checkpoint_every && !o->save)
        return ooc_fail(err, OOC_E_ARG, "--checkpoint-every needs --save");
    if (o->batch < 1 || o->batch > OOC_MODEL_MAX_BATCH)
        return ooc_fail(err, OOC_E_ARG, "--batch-size %u is not within 1 to %d", o->batch,
                        OOC_MODEL_MAX_BATCH);
    return check_names(o, err);
}

/* A name that cannot be written is better known now than after hours of training. */
static ooc_status check_writable(const char *option, const char *path, ooc_err *err)
{
    ooc_new_file f = {.fd = -1};
    ooc_status st = path ? ooc_new_file_open(&f, path, true, err) : OOC_OK;

    ooc_new_file_discard(&f);
    return st ? ooc_fail_wrap(err, st, "%s", option) : OOC_OK;
}

/* Without a shape the picture of n entries is one line of n. */
static ooc_status check_picture(const char *option, const uint64_t shape[2], uint64_t n,
                                ooc_err *err)
{
    const uint64_t height = shape[0] ? shape[0] : 1, width = shape[0] ? shape[1] : n;

    if (height <= MAX_PICTURE_SIDE && width >= 1 && width <= MAX_PICTURE_SIDE)
        return OOC_OK;
    return ooc_fail(err, OOC_E_ARG,
                    "--preview: a picture of %" PRIu64 " x %" PRIu64
                    " cannot be written, 1 to %d are possible; try %s",
                    height, width, MAX_PICTURE_SIDE, option);
}

static ooc_status check_preview(const ooc_trainer *t, ooc_err *err)
{
    const ooc_train_opts *o = &t->opts;
    char path[4096];
    int length;
    ooc_status st = check_picture("--input-shape", o->in_shape, t->M, err);

    if (!st)
        st = check_picture("--output-shape", o->out_shape, t->N, err);
    if (st)
        return st;
    if (mkdir(o->preview, 0777) != 0 && errno != EEXIST)
        return ooc_fail_errno(err, OOC_E_IO, "--preview %s", o->preview);
    length = snprintf(path, sizeof path, "%s/step.png", o->preview);
    if (length < 0 || (size_t)length >= sizeof path)
        return ooc_fail(err, OOC_E_ARG, "--preview: its name is too long");
    return check_writable("--preview", path, err);
}

ooc_status ooc_trainer_check_outputs(const ooc_trainer *t, ooc_err *err)
{
    const ooc_train_opts *o = &t->opts;
    ooc_status st = check_writable("--save", o->save, err);

    if (!st)
        st = check_writable("--predict", o->predict, err);
    if (!st)
        st = check_writable("--dump-gradients", o->dump_gradients, err);
    return !st && o->preview ? check_preview(t, err) : st;
}
