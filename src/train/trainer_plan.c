/* The budgets: who needs what, whether it fits, and taking it. */
#include "src/train/trainer_private.h"
#include "base/checked.h"
#include "src/budget.h"
#include "src/device.h"

#include <stdio.h>
#include <string.h>

/* The arrays of a step. A list, so that plan and start cannot differ. Those that the host writes or
 * reads are in RAM where it can't reach the model's device; the engine copies their rows. */
typedef struct {
    const char *what;
    uint64_t floats; /* 0: not needed */
    float **at;
    bool by_host;
} array_need;

enum { N_ARRAYS = 9 };

static void list_arrays(ooc_trainer *t, array_need list[N_ARRAYS])
{
    const uint64_t B = t->opts.batch, M = t->M, N = t->N;
    const bool looks = t->opts.model != OOC_MODEL_PIXELS;
    const bool evaluates = t->training || t->opts.val || t->opts.preview;
    const bool own_weights = t->train.weight.fd >= 0 || t->val.weight.fd >= 0;
    const bool apart = !t->dense->host_visible;
    const array_need all[N_ARRAYS] = {
        {"batch input", looks ? B * M : 0, &t->input, false},
        {"samples to upload", looks && apart ? B * M : 0, &t->samples, apart},
        {"X", B * N, &t->X, false},
        {"G", t->training ? B * N : 0, &t->G, false},
        {"targets", evaluates ? B * M : 0, &t->T, apart},
        {"sample weights", evaluates && own_weights ? B * M : 0, &t->W, apart},
        {"row weights", t->row_weight_file.fd >= 0 ? M : 0, &t->row_weights, apart},
        {"preview", t->opts.preview ? M : 0, &t->Y, apart},
        {"preview of X", t->opts.preview && apart ? N : 0, &t->picture, apart}};

    memcpy(list, all, sizeof all);
}

/* Row weights pass through the buffer once, at the start. */
static uint64_t buffer_bytes(const ooc_trainer *t)
{
    return ooc_max_u64(OOC_TENSOR_BUFFER,
                       t->row_weight_file.fd >= 0 ? t->row_weight_file.sample_bytes : 0);
}

static void plan_arrays(ooc_trainer *t, bool by_host, ooc_plan *plan)
{
    array_need list[N_ARRAYS];

    list_arrays(t, list);
    for (int i = 0; i < N_ARRAYS; i++)
        if (list[i].floats && list[i].by_host == by_host)
            ooc_plan_add(plan, list[i].what, list[i].floats, sizeof(float));
}

static ooc_status take_arrays(ooc_trainer *t, bool by_host, ooc_arena *arena, ooc_err *err)
{
    array_need list[N_ARRAYS];
    ooc_status st = OOC_OK;

    list_arrays(t, list);
    for (int i = 0; !st && i < N_ARRAYS; i++) {
        const uint64_t bytes = list[i].floats * sizeof(float);
        void *p = NULL;

        if (!bytes || list[i].by_host != by_host)
            continue;
        st = ooc_arena_take(arena, list[i].what, bytes, &p, err);
        *list[i].at = p;
        if (!st && by_host)
            memset(p, 0, bytes);
        else if (!st)
            st = t->dense->ops->zero(t->dense, p, list[i].floats, err);
    }
    return st;
}

static void plan_model(ooc_trainer *t, ooc_plan *plan)
{
    ooc_model_plan(t->model, plan);
    if (t->training)
        ooc_optimizer_plan(&t->optimizer, plan);
    plan_arrays(t, false, plan);
}

static void plan_ram(ooc_trainer *t, ooc_plan *plan)
{
    plan_arrays(t, true, plan);
    ooc_plan_add(plan, "transfer buffer", buffer_bytes(t), 1);
    if (t->loader)
        ooc_loader_plan(t->loader, plan);
    if (t->eval_loader)
        ooc_loader_plan(t->eval_loader, plan);
}

static ooc_status take_model(ooc_trainer *t, ooc_err *err)
{
    ooc_status st = ooc_model_start(t->model, t->model_arena, err);

    if (!st && t->training)
        st = ooc_optimizer_start(&t->optimizer, t->model, t->model_arena, err);
    return st ? st : take_arrays(t, false, t->model_arena, err);
}

static ooc_status take_ram(ooc_trainer *t, ooc_err *err)
{
    ooc_status st =
        ooc_arena_take(t->ram_arena, "transfer buffer", buffer_bytes(t), &t->buffer, err);

    if (!st)
        st = take_arrays(t, true, t->ram_arena, err);
    if (!st && t->loader)
        st = ooc_loader_start(t->loader, t->ram_arena, err);
    if (!st && t->eval_loader)
        st = ooc_loader_start(t->eval_loader, t->ram_arena, err);
    return st;
}

/* What would make the plan smaller; models don't matter to the RAM budget. */
static ooc_status refuse(const ooc_trainer *t, const ooc_plan *plan, const char *option,
                         uint64_t budget, bool model, ooc_err *err)
{
    const bool unet = t->opts.model == OOC_MODEL_UNET, mlp = t->opts.model == OOC_MODEL_MLP;
    char tiles[300] = "a smaller --batch-size", hint[400];

    if (t->uses_engine)
        ooc_engine_advice(t->engine, tiles, sizeof tiles);
    snprintf(hint, sizeof hint, "%s%s%s",
             model && unet && !t->opts.recompute ? "--recompute would help; " : "",
             model && unet  ? "fewer --channels would help; "
             : model && mlp ? "fewer --hidden would help; "
                            : "",
             tiles);
    return ooc_plan_refuse(plan, option, budget, hint, err);
}

typedef struct {
    ooc_plan vram, model, ram; /* model: only where it is apart */
} plans;

static bool model_is_apart(const ooc_trainer *t)
{
    const ooc_device *d = ooc_engine_device(t->engine);

    return t->opts.model_budget > 0 || t->dense->ordinal != d->props.ordinal;
}

/* Every plan against its budget. */
static ooc_status check_budgets(ooc_trainer *t, plans *p, ooc_err *err)
{
    const bool apart = model_is_apart(t);

    if (t->uses_engine)
        ooc_engine_plan(t->engine, &p->vram, &p->ram);
    plan_model(t, apart ? &p->model : &p->vram);
    plan_ram(t, &p->ram);
    if (p->vram.total > t->opts.vram_budget)
        return refuse(t, &p->vram, "--vram-budget", t->opts.vram_budget, !apart, err);
    if (apart && p->model.total > t->opts.model_budget)
        return refuse(t, &p->model, "--model-budget", t->opts.model_budget, true, err);
    if (p->ram.total > t->opts.ram_budget)
        return refuse(t, &p->ram, "--ram-budget", t->opts.ram_budget, false, err);
    return OOC_OK;
}

static void fill_in_budgets(ooc_trainer *t)
{
    ooc_train_opts *o = &t->opts;
    const uint64_t given = o->vram_budget;

    if (!given)
        o->vram_budget = ooc_budget_default_vram(ooc_engine_device(t->engine));
    if (!o->ram_budget)
        o->ram_budget = ooc_budget_default_ram();
    /* --vram-budget bounds each device */
    if (!o->model_budget && model_is_apart(t))
        o->model_budget = given ? given : ooc_budget_default_vram(NULL);
}

static ooc_status open_arenas(ooc_trainer *t, const plans *p, ooc_err *err)
{
    ooc_device *d = ooc_engine_device(t->engine);
    ooc_status st = OOC_OK;

    t->vram_block_bytes =
        t->uses_engine ? ooc_budget_useful_vram(t->opts.vram_budget, p->vram.total, &t->shape)
                       : ooc_max_u64(p->vram.total, OOC_ARENA_ALIGN);
    st = d->ops->block_alloc(d, t->vram_block_bytes, &t->vram_block, err);
    if (!st)
        st = ooc_arena_open_at(&t->vram_arena, d->props.name, t->vram_block, t->vram_block_bytes,
                               err);
    if (!st)
        st = ooc_arena_open_host(&t->ram_arena, "RAM tier and I/O slots",
                                 ooc_budget_useful_ram(t->opts.ram_budget, p->ram.total, &t->shape),
                                 err);
    if (!st && model_is_apart(t) && !t->dense->ops->block_alloc) {
        st = ooc_arena_open_host(&t->own_model_arena, "model", p->model.total, err);
    } else if (!st && model_is_apart(t)) {
        st = t->dense->ops->block_alloc(t->dense, p->model.total, &t->model_block, err);
        if (!st)
            st = ooc_arena_open_at(&t->own_model_arena, "model", t->model_block, p->model.total,
                                   err);
    }
    t->model_arena = t->own_model_arena ? t->own_model_arena : t->vram_arena;
    return st;
}

/* The engine comes last: it keeps what is left for slots and resident tiles. */
ooc_status ooc_trainer_take_memory(ooc_trainer *t, ooc_err *err)
{
    plans p = {0};
    ooc_status st;

    fill_in_budgets(t);
    st = check_budgets(t, &p, err);
    if (!st)
        st = open_arenas(t, &p, err);
    if (!st)
        st = take_model(t, err);
    if (!st)
        st = take_ram(t, err);
    if (!st && t->row_weights)
        st = ooc_row_weights_read(&t->row_weight_file, t->buffer, t->row_weights, err);
    if (!st && t->uses_engine)
        st = ooc_engine_start(t->engine, t->vram_arena, t->ram_arena, err);
    return st;
}

void ooc_trainer_give_memory_back(ooc_trainer *t)
{
    ooc_device *d = t->engine ? ooc_engine_device(t->engine) : NULL;

    ooc_engine_stop(t->engine);
    ooc_arena_close(t->own_model_arena);
    ooc_arena_close(t->vram_arena);
    ooc_arena_close(t->ram_arena);
    if (t->model_block)
        t->dense->ops->block_free(t->dense, t->model_block);
    ooc_dense_close(t->dense); /* after its block */
    if (d && t->vram_block)
        d->ops->block_free(d, t->vram_block, t->vram_block_bytes);
    ooc_engine_close(t->engine);
}
