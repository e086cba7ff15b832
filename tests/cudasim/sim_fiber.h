/* sim_fiber.h - threads of a simulated block: small stacks and a switch between them.
 *
 * Threads:  one OS thread runs all fibers of a block (sim_block.cpp holds the simulator's lock).
 * Memory:   stacks are mapped once, a guard page below each, and used again by every block.
 * The address sanitizer is told of every switch, so stack checks work inside kernels. */
#ifndef OOC_SIM_FIBER_H
#define OOC_SIM_FIBER_H

#include <stddef.h>

struct sim_fiber;

/* A fiber whose next switch enters fn(arg); fn must never return, it ends with sim_fiber_exit(). */
struct sim_fiber *sim_fiber_new(void);
void sim_fiber_start(struct sim_fiber *f, void (*fn)(void *arg), void *arg);
/* From the scheduler: run `f` until it yields or exits. */
void sim_fiber_enter(struct sim_fiber *f);
/* From inside the running fiber: back to the scheduler. */
void sim_fiber_yield(struct sim_fiber *self);
[[noreturn]] void sim_fiber_exit(struct sim_fiber *self);

#endif
