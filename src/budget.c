#include "src/budget.h"
#include "base/checked.h"
#include "src/arena.h"

#define DEFAULT_CPU_BUDGET ((uint64_t)2 << 30)
#define DEFAULT_RAM_BUDGET ((uint64_t)1 << 30)
/* More I/O slots than planned never take more than this many bytes. */
#define MAX_SLOT_BYTES ((uint64_t)512 << 20)

uint64_t ooc_budget_default_vram(const ooc_device *d)
{
    return !d || d->props.host_visible ? DEFAULT_CPU_BUDGET : d->props.free_bytes / 5 * 4;
}

uint64_t ooc_budget_default_ram(void)
{
    return DEFAULT_RAM_BUDGET;
}

static uint64_t useful(uint64_t budget, uint64_t planned, uint64_t more)
{
    uint64_t sum;

    return ooc_add_u64(planned, more, &sum) ? ooc_min_u64(budget, sum) : budget;
}

uint64_t ooc_budget_useful_vram(uint64_t budget, uint64_t planned, const ooc_matrix_shape *shape)
{
    return useful(budget, planned, shape->kernel_bytes + (shape->n_tiles + 1) * OOC_ARENA_ALIGN);
}

uint64_t ooc_budget_useful_ram(uint64_t budget, uint64_t planned, const ooc_matrix_shape *shape)
{
    return useful(budget, planned, shape->stored_bytes + MAX_SLOT_BYTES);
}
