#include "tools/stream_train_opts.h"

/* What the table points to; options of other types than the trainer's are copied afterwards. */
typedef struct {
    int model, loss, optimizer, rate, io, pass;
    uint64_t channels[OOC_MODEL_MAX_LEVELS], hidden[OOC_MODEL_MAX_HIDDEN];
    uint32_t n_channels, n_hidden;
    bool channels_given, hidden_given, momentum_given;
    uint64_t batch;
} raw;

static const char *const models[] = {"unet", "mlp", "pixels", NULL};
static const char *const losses[] = {"mse", "l1", "huber", "poisson", NULL};
static const char *const optimizers[] = {"adam", "sgd", NULL};
static const char *const rates[] = {"constant", "cosine", NULL};
static const char *const ios[] = {"auto", "uring", "pread", NULL};
static const char *const passes[] = {"auto", "fused", "two", NULL};

#define FILE_OPT(option, field, text)                                                              \
    {                                                                                              \
        .name = option, .kind = OOC_OPT_STRING, .out = &o->field, .value = "FILE", .help = text    \
    }
#define SIZE_OPT(option, field, text)                                                              \
    {                                                                                              \
        .name = option, .kind = OOC_OPT_SIZE, .out = &o->field, .value = "SIZE", .min = 1,         \
        .help = text                                                                               \
    }
#define CHOICE_OPT(option, field, list, text)                                                      \
    {                                                                                              \
        .name = option, .kind = OOC_OPT_CHOICE, .out = &r.field, .choices = list, .help = text     \
    }
#define COUNT_OPT(option, field, least, text)                                                      \
    {                                                                                              \
        .name = option, .kind = OOC_OPT_U64, .out = &o->field, .value = "N", .min = least,         \
        .help = text                                                                               \
    }
#define NUMBER_OPT(option, field, least, most, text)                                               \
    {                                                                                              \
        .name = option, .kind = OOC_OPT_DOUBLE, .out = &o->field, .value = "X", .low = least,      \
        .high = most, .help = text                                                                 \
    }

static bool copy_raw(const ooc_cli *cli, ooc_train_opts *o, const raw *r, int *code)
{
    const bool unet = r->model == OOC_MODEL_UNET, mlp = r->model == OOC_MODEL_MLP;

    if (!o->matrix || !o->data) {
        *code = ooc_cli_usage(cli, "%s is needed; see --help", o->matrix ? "--data" : "--matrix");
        return false;
    }
    if ((r->channels_given && !unet) || (r->hidden_given && !mlp)) {
        *code = ooc_cli_usage(cli, "%s",
                              r->channels_given && !unet ? "--channels belongs to --model unet"
                                                         : "--hidden belongs to --model mlp");
        return false;
    }
    if (r->momentum_given && r->optimizer != OOC_OPTIM_SGD) {
        *code = ooc_cli_usage(cli, "--momentum belongs to --optimizer sgd");
        return false;
    }
    o->model = (ooc_model_kind)r->model;
    o->loss = (ooc_loss_kind)r->loss;
    o->optimizer.kind = (ooc_optim_kind)r->optimizer;
    o->optimizer.rate = (ooc_rate_kind)r->rate;
    o->io = (ooc_io)r->io;
    o->pass = (ooc_pass)r->pass;
    o->batch = (uint32_t)r->batch;
    o->widths_given = unet ? r->channels_given : r->hidden_given;
    o->n_widths = unet ? r->n_channels : r->n_hidden;
    for (uint32_t i = 0; i < o->n_widths; i++)
        o->widths[i] = unet ? r->channels[i] : r->hidden[i];
    o->n_threads = (uint32_t)cli->threads;
    return true;
}

bool stream_train_parse(ooc_cli *cli, ooc_train_opts *o, int argc, char **argv, int *exit_code)
{
    raw r = {.batch = 1};
    const ooc_opt opts[] = {
        FILE_OPT("matrix", matrix, "the tile store of A (tile-convert makes it)"),
        {.name = "data",
         .kind = OOC_OPT_STRING,
         .out = &o->data,
         .value = "FILE",
         .help = "samples: a .npy array (n, ...) with an entry for each row of A;\n"
                 "f32, f64, u8 or u16; may be larger than memory"},
        FILE_OPT("target", target, "what A*f(x) is compared with (default: the sample itself)"),
        FILE_OPT("weights", weights,
                 "(M,) or (n, M): multiplies the loss of each row; 0 leaves it out\n"
                 "(the sample may then hold NaN there)"),
        FILE_OPT("val", val, "samples for the validation loss, after each epoch"),
        FILE_OPT("val-target", val_target, "as --target, for --val"),
        FILE_OPT("val-weights", val_weights, "(n, M) weights for --val"),
        CHOICE_OPT("model", model, models, "what f is (default unet)"),
        {.name = "channels",
         .kind = OOC_OPT_LIST,
         .out = r.channels,
         .n_items = &r.n_channels,
         .max_items = OOC_MODEL_MAX_LEVELS,
         .given = &r.channels_given,
         .min = 1,
         .value = "C,C,...",
         .help = "unet: channels of each level (default 16,32,64)"},
        {.name = "hidden",
         .kind = OOC_OPT_LIST,
         .out = r.hidden,
         .n_items = &r.n_hidden,
         .max_items = OOC_MODEL_MAX_HIDDEN,
         .given = &r.hidden_given,
         .min = 1,
         .value = "W,W,...",
         .help = "mlp: widths of the hidden layers (default 256,256)"},
        {.name = "input-shape",
         .kind = OOC_OPT_SHAPE,
         .out = o->in_shape,
         .value = "HxW",
         .help = "of a sample (default: its array's, or a square)"},
        {.name = "output-shape",
         .kind = OOC_OPT_SHAPE,
         .out = o->out_shape,
         .value = "HxW",
         .help = "of X, a column of A each (default: a square)"},
        FILE_OPT("init", init, "initial weights from a safetensors file"),
        CHOICE_OPT("loss", loss, losses, "(default mse)"),
        CHOICE_OPT("optimizer", optimizer, optimizers, "(default adam)"),
        NUMBER_OPT("lr", optimizer.lr, 1e-30, 1e30, "learning rate (default 1e-4, pixels 0.03)"),
        {.name = "momentum",
         .kind = OOC_OPT_DOUBLE,
         .out = &o->optimizer.momentum,
         .value = "X",
         .low = 0,
         .high = 1,
         .given = &r.momentum_given,
         .help = "sgd: momentum (default 0)"},
        NUMBER_OPT("weight-decay", optimizer.weight_decay, 0, 1e30,
                   "L2 penalty, added to the gradients (default 0)"),
        NUMBER_OPT("clip-norm", optimizer.clip_norm, 0, 1e30,
                   "scale gradients down to this norm (default 0: don't)"),
        CHOICE_OPT("schedule", rate, rates, "of the learning rate (default constant)"),
        COUNT_OPT("warmup-steps", optimizer.warmup_steps, 0,
                  "steps in which the rate rises to --lr (default 0)"),
        COUNT_OPT("epochs", epochs, 0, "passes over the data (default 1, unless --steps is given)"),
        COUNT_OPT("steps", steps, 0, "steps in all, also those before --resume; 0: no training"),
        {.name = "batch-size",
         .kind = OOC_OPT_U64,
         .out = &r.batch,
         .value = "N",
         .min = 1,
         .max = OOC_MODEL_MAX_BATCH,
         .help = "samples a step (default 1)"},
        COUNT_OPT("seed", seed, 0, "of the initial weights and the order of samples (default 0)"),
        {.name = "recompute",
         .kind = OOC_OPT_FLAG,
         .out = &o->recompute,
         .help = "keep fewer activations and compute them again: less memory, the same\n"
                 "gradients"},
        SIZE_OPT("vram-budget", vram_budget,
                 "bytes that a device may hold: tiles, model, optimizer, arrays (default\n"
                 "80 % of a GPU's free memory, 2G on the CPU)"),
        SIZE_OPT("model-budget", model_budget, "bytes for the model, apart from --vram-budget"),
        SIZE_OPT("ram-budget", ram_budget,
                 "bytes for resident tiles in RAM, I/O and sample slots (default 1G)"),
        {.name = "matrix-device",
         .kind = OOC_OPT_STRING,
         .out = &o->matrix_device,
         .value = "DEVICE",
         .help = "where A is multiplied: auto, cpu, cuda:0, ... (default auto)"},
        {.name = "model-device",
         .kind = OOC_OPT_STRING,
         .out = &o->model_device,
         .value = "DEVICE",
         .help = "where the model is: auto, cpu (default auto)"},
        CHOICE_OPT("pass", pass, passes, "loss and gradient in one visit of each tile, or in two"),
        CHOICE_OPT("io", io, ios,
                   "how tiles are read (default auto: io_uring where it is allowed)"),
        FILE_OPT("save", save, "checkpoint: weights, optimizer and position, as safetensors"),
        COUNT_OPT("checkpoint-every", checkpoint_every, 1, "steps (default: only at the end)"),
        FILE_OPT("resume", resume, "go on from a checkpoint, bit for bit; give the same options"),
        FILE_OPT("predict", predict, "write f(x) of each sample of --data: a .npy array (n, N)"),
        FILE_OPT("log", log, "a JSON line for each step, and a summary"),
        {.name = "preview",
         .kind = OOC_OPT_STRING,
         .out = &o->preview,
         .value = "DIR",
         .help = "pictures of input, output, A*output and residual, at checkpoints and\n"
                 "at the end"},
        {.name = "memory-report",
         .kind = OOC_OPT_FLAG,
         .out = &o->memory_report,
         .help = "bytes on each device before and after each part of a step"},
        FILE_OPT("dump-gradients", dump_gradients,
                 "gradients of the first step, before clipping, as safetensors"),
        {0}};

    o->epochs = o->steps = OOC_NO_LIMIT;
    *cli = (ooc_cli){
        .prog = "stream-train",
        .usage = "[options] --matrix FILE.tiles --data DATA.npy",
        .about = "Train a network f through a fixed sparse matrix A that streams from disk:\n"
                 "the loss compares A*f(x) with x, or with --target. The memory taken on the\n"
                 "device and in RAM is what the budgets say.\n",
        .examples =
            "  stream-train --matrix ct.tiles --data measured.npy --epochs 20 --save "
            "net.safetensors\n"
            "  stream-train --matrix ct.tiles --data measured.npy --model pixels --steps 500 \\\n"
            "      --predict image.npy\n"
            "  stream-train --matrix ct.tiles --data new.npy --init net.safetensors --steps 0 \\\n"
            "      --predict images.npy\n",
        .opts = opts};
    if (!ooc_cli_parse(cli, argc, argv, exit_code))
        return false;
    cli->opts = NULL; /* the table goes */
    return copy_raw(cli, o, &r, exit_code);
}
