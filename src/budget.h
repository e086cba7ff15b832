/* budget.h - how much of a budget becomes an arena. */
#ifndef OOC_SRC_BUDGET_H
#define OOC_SRC_BUDGET_H

#include "src/device.h"
#include "src/streamtrain.h"

/* Where no budget was given: 80 % of what is free on a GPU, 2 GiB on the CPU (d NULL, too); 1 GiB
 * of RAM. */
uint64_t ooc_budget_default_vram(const ooc_device *d);
uint64_t ooc_budget_default_ram(void);

/* Of a budget no more than can be used: what is planned, and all tiles. */
uint64_t ooc_budget_useful_vram(uint64_t budget, uint64_t planned, const ooc_matrix_shape *shape);
uint64_t ooc_budget_useful_ram(uint64_t budget, uint64_t planned, const ooc_matrix_shape *shape);
#endif
