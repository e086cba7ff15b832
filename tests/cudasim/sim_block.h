/* sim_block.h - run one kernel, block by block, on this OS thread.
 *
 * The caller holds the simulator's lock. Shared memory is filled with 0xFF before every block.
 * A block that can't go on (a barrier that not all reach) ends the process with a message. */
#ifndef OOC_SIM_BLOCK_H
#define OOC_SIM_BLOCK_H

#include "sim_device.h"

#include <functional>

#define SIM_MAX_THREADS 1024u

void sim_run_kernel(const char *name, dim3 grid, dim3 block, size_t shared_bytes, uint64_t seed,
                    const std::function<void()> &body);
/* Shared bytes (static and dynamic) of the last kernel, threads run so far: for reports. */
uint64_t sim_threads_run();

#endif
