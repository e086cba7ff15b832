#include "src/arena.h"
#include "base/alloc.h"
#include "base/checked.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static uint64_t rounded(uint64_t bytes)
{
    if (bytes > UINT64_MAX - OOC_ARENA_ALIGN)
        return UINT64_MAX;
    return ooc_round_up(bytes, OOC_ARENA_ALIGN);
}

void ooc_plan_add(ooc_plan *plan, const char *what, uint64_t count, uint64_t size)
{
    uint64_t bytes, total;
    uint32_t i;

    if (!ooc_mul_u64(count, size, &bytes))
        bytes = UINT64_MAX;
    bytes = rounded(bytes);
    for (i = 0; i < plan->n_parts && strcmp(plan->part[i].what, what) != 0; i++)
        ;
    if (i == OOC_PLAN_MAX) /* the last part then gathers the rest: the total stays right */
        i = OOC_PLAN_MAX - 1;
    if (i == plan->n_parts) {
        plan->n_parts++;
        snprintf(plan->part[i].what, sizeof plan->part[i].what, "%s", what);
        plan->part[i].bytes = 0;
    }
    plan->part[i].bytes = ooc_add_u64(plan->part[i].bytes, bytes, &total) ? total : UINT64_MAX;
    plan->total = ooc_add_u64(plan->total, bytes, &total) ? total : UINT64_MAX;
}

ooc_status ooc_plan_refuse(const ooc_plan *plan, const char *option, uint64_t budget,
                           const char *hint, ooc_err *err)
{
    char parts[800];
    size_t n = 0;

    parts[0] = 0;
    for (uint32_t i = 0; i < plan->n_parts && n < sizeof parts; i++)
        n += (size_t)snprintf(parts + n, sizeof parts - n, "%s%s %" PRIu64, i ? ", " : "",
                              plan->part[i].what, plan->part[i].bytes);
    return ooc_fail(err, OOC_E_BUDGET,
                    "%s %" PRIu64 " is too small: at least %" PRIu64 " bytes are needed (%s); %s",
                    option, budget, plan->total, parts, hint);
}

struct ooc_arena {
    char name[40];
    char *base;
    uint64_t size, used, peak;
    int owned;
};

ooc_status ooc_arena_open_at(ooc_arena **out, const char *name, void *base, uint64_t bytes,
                             ooc_err *err)
{
    ooc_arena *a = ooc_calloc(1, sizeof *a);

    *out = a;
    if (!a)
        return ooc_fail(err, OOC_E_NOMEM, "no memory for the account of %s", name);
    snprintf(a->name, sizeof a->name, "%s", name);
    a->base = base;
    a->size = bytes;
    return OOC_OK;
}

ooc_status ooc_arena_open_host(ooc_arena **out, const char *name, uint64_t bytes, ooc_err *err)
{
    void *base = NULL;
    ooc_status st;

    *out = NULL;
    if (bytes <= SIZE_MAX)
        base = ooc_pages_alloc((size_t)bytes);
    if (!base)
        return ooc_fail(err, OOC_E_NOMEM, "%s: the system does not give %" PRIu64 " bytes", name,
                        bytes);
    st = ooc_arena_open_at(out, name, base, bytes, err);
    if (st) {
        ooc_pages_free(base, (size_t)bytes);
        return st;
    }
    (*out)->owned = 1;
    return OOC_OK;
}

void ooc_arena_close(ooc_arena *a)
{
    if (!a)
        return;
    if (a->owned)
        ooc_pages_free(a->base, (size_t)a->size);
    ooc_free(a);
}

ooc_status ooc_arena_take(ooc_arena *a, const char *what, uint64_t bytes, void **out, ooc_err *err)
{
    uint64_t need = rounded(bytes);

    *out = NULL;
    if (need > a->size - a->used)
        return ooc_fail(err, OOC_E_BUDGET,
                        "%s: %s needs %" PRIu64 " bytes, %" PRIu64 " of %" PRIu64 " are left",
                        a->name, what, need, a->size - a->used, a->size);
    *out = a->base + a->used;
    a->used += need;
    if (a->used > a->peak)
        a->peak = a->used;
    return OOC_OK;
}

uint64_t ooc_arena_mark(const ooc_arena *a)
{
    return a->used;
}

void ooc_arena_release(ooc_arena *a, uint64_t mark)
{
    a->used = mark;
}

uint64_t ooc_arena_size(const ooc_arena *a)
{
    return a->size;
}

uint64_t ooc_arena_used(const ooc_arena *a)
{
    return a->used;
}

uint64_t ooc_arena_peak(const ooc_arena *a)
{
    return a->peak;
}

uint64_t ooc_arena_free(const ooc_arena *a)
{
    return a->size - a->used;
}
