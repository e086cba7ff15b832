/* ooc_matrix: an engine with both budgets to itself. */
#include "src/engine.h"
#include "src/budget.h"
#include "src/device.h"
#include "base/alloc.h"

#include <string.h>

struct ooc_matrix {
    ooc_engine *engine;
    ooc_arena *vram, *ram;
    void *block; /* of the device, under vram */
    uint64_t block_bytes;
    uint64_t vram_budget, ram_budget;
};

static ooc_status take_memory(ooc_matrix *m, ooc_err *err)
{
    ooc_device *d = ooc_engine_device(m->engine);
    ooc_plan vram = {0}, ram = {0};
    ooc_matrix_shape shape = {.size = sizeof shape};
    char advice[300];
    ooc_status st;

    ooc_engine_plan(m->engine, &vram, &ram);
    ooc_engine_advice(m->engine, advice, sizeof advice);
    if (vram.total > m->vram_budget)
        return ooc_plan_refuse(&vram, "--vram-budget", m->vram_budget, advice, err);
    if (ram.total > m->ram_budget)
        return ooc_plan_refuse(&ram, "--ram-budget", m->ram_budget, advice, err);
    ooc_engine_get_shape(m->engine, &shape);
    m->block_bytes = ooc_budget_useful_vram(m->vram_budget, vram.total, &shape);
    st = d->ops->block_alloc(d, m->block_bytes, &m->block, err);
    if (!st)
        st = ooc_arena_open_at(&m->vram, d->props.name, m->block, m->block_bytes, err);
    if (!st)
        st = ooc_arena_open_host(&m->ram, "RAM tier and I/O slots",
                                 ooc_budget_useful_ram(m->ram_budget, ram.total, &shape), err);
    return st ? st : ooc_engine_start(m->engine, m->vram, m->ram, err);
}

ooc_status ooc_matrix_open(ooc_matrix **out, const char *path, const ooc_matrix_opts *opts,
                           ooc_err *err)
{
    ooc_matrix *m;
    ooc_status st;

    if (!out)
        return ooc_fail(err, OOC_E_ARG, "ooc_matrix_open: out is NULL");
    *out = NULL;
    if (!path)
        return ooc_fail(err, OOC_E_ARG, "ooc_matrix_open: path is NULL");
    m = ooc_calloc(1, sizeof *m);
    if (!m)
        return ooc_fail(err, OOC_E_NOMEM, "%s: no memory for a matrix", path);
    st = ooc_engine_open(&m->engine, path, opts, err);
    if (!st) {
        const ooc_matrix_opts *o = ooc_engine_opts(m->engine);

        m->vram_budget =
            o->vram_budget ? o->vram_budget : ooc_budget_default_vram(ooc_engine_device(m->engine));
        m->ram_budget = o->ram_budget ? o->ram_budget : ooc_budget_default_ram();
        st = take_memory(m, err);
    }
    if (st) {
        ooc_matrix_close(m);
        return st;
    }
    *out = m;
    return OOC_OK;
}

void ooc_matrix_close(ooc_matrix *m)
{
    ooc_device *d;

    if (!m)
        return;
    d = m->engine ? ooc_engine_device(m->engine) : NULL;
    /* The engine owns the device, and the block must go before it. */
    if (m->engine)
        ooc_engine_stop(m->engine);
    ooc_arena_close(m->vram);
    ooc_arena_close(m->ram);
    if (d && m->block)
        d->ops->block_free(d, m->block, m->block_bytes);
    ooc_engine_close(m->engine);
    ooc_free(m);
}

static ooc_status no_handle(ooc_err *err)
{
    return ooc_fail(err, OOC_E_ARG, "the matrix handle is NULL");
}

ooc_status ooc_matrix_forward(ooc_matrix *m, uint32_t B, const ooc_array *X, const ooc_array *Y,
                              ooc_err *err)
{
    return m ? ooc_engine_forward(m->engine, B, X, Y, err) : no_handle(err);
}

ooc_status ooc_matrix_adjoint(ooc_matrix *m, uint32_t B, const ooc_array *R, const ooc_array *G,
                              ooc_err *err)
{
    return m ? ooc_engine_adjoint(m->engine, B, R, G, err) : no_handle(err);
}

ooc_status ooc_matrix_step(ooc_matrix *m, uint32_t B, const ooc_array *X, const ooc_array *T,
                           const ooc_loss_opts *loss, const ooc_array *Y, const ooc_array *G,
                           double *loss_out, ooc_err *err)
{
    return m ? ooc_engine_step(m->engine, B, X, T, loss, Y, G, loss_out, err) : no_handle(err);
}

void ooc_matrix_get_shape(const ooc_matrix *m, ooc_matrix_shape *out)
{
    ooc_engine_get_shape(m->engine, out);
}

void ooc_matrix_get_stats(const ooc_matrix *m, ooc_matrix_stats *out)
{
    ooc_engine_get_stats(m->engine, out);
    /* The arenas may be smaller: no more than can be used is taken. */
    if (out->size >= offsetof(ooc_matrix_stats, device_budget) + sizeof out->device_budget)
        out->device_budget = m->vram_budget;
    if (out->size >= offsetof(ooc_matrix_stats, host_budget) + sizeof out->host_budget)
        out->host_budget = m->ram_budget;
}

void ooc_matrix_reset_stats(ooc_matrix *m)
{
    ooc_engine_reset_stats(m->engine);
}

void ooc_matrix_interrupt(ooc_matrix *m)
{
    ooc_engine_interrupt(m->engine);
}
