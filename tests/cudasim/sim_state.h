/* sim_state.h - what the files of the stand-in share: one lock, one state. Not for tests. */
#ifndef OOC_SIM_STATE_H
#define OOC_SIM_STATE_H

#include "cuda_runtime.h"
#include "sim_control.h"

#include <deque>
#include <memory>
#include <mutex>
#include <stdint.h>
#include <string>
#include <vector>

extern std::recursive_mutex sim_lock;
extern cudasim_config sim_config;
extern thread_local int sim_device_now;

/* Count a call of `kind`; the error it must report, or cudaSuccess. Also remembers it as the last
 * error. Every entry point begins with SIM_ENTER. */
cudaError_t sim_enter(cudasim_kind kind);
cudaError_t sim_leave(cudaError_t e); /* remembers e as the last error; gives it back */
#define SIM_ENTER(kind)                                                                            \
    std::lock_guard<std::recursive_mutex> held_(sim_lock);                                         \
    cudaError_t injected_ = sim_enter(kind);                                                       \
    if (injected_ != cudaSuccess)                                                                  \
    return sim_leave(injected_)

/* Giving back is done even where the call reports a failure, so that what is still alive at the end
 * is what nobody gave back. */
#define SIM_ENTER_RELEASE()                                                                        \
    std::lock_guard<std::recursive_mutex> held_(sim_lock);                                         \
    cudaError_t injected_ = sim_enter(CUDASIM_RELEASE)

/* Number of the call site that called the entry point, and whether it is to be skipped. */
bool sim_site_skipped(const char *what);
void sim_live(int change);
uint64_t sim_random(); /* seeded */
[[noreturn]] void sim_broken(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* sim_memory.cpp */
int sim_memory_owner(const void *p, size_t bytes); /* device, or -1: not (wholly) device memory */
bool sim_memory_overlaps(const void *p, size_t bytes);
bool sim_host_registered(const void *p, size_t bytes);
bool sim_can_reach(int device, int owner);
/* While an operation of `device` runs, its memory and that of reachable peers is accessible. */
void sim_memory_open(int device, bool all);
void sim_memory_close();
void sim_memory_reset();
void sim_enable_peer(int device, int peer);
bool sim_peer_enabled(int device, int peer);

/* sim_stream.cpp */
struct sim_stream_data;
void sim_streams_reset();
void sim_run_all(int device); /* -1: of every device */
/* Queue work. `host`/`bytes`: registered host memory that it touches, for checks. */
void sim_enqueue(cudaStream_t s, const char *what, std::function<void()> run, const void *host,
                 size_t host_bytes);
void sim_force(cudaStream_t s); /* run all of a stream, and what it waits for */
bool sim_host_pending(const void *p, size_t bytes);
int sim_stream_device(cudaStream_t s); /* -1: no such stream */
void sim_progress();                   /* let streams run on, as the seed wishes */
cudaError_t sim_take_async_error();
void sim_note_bus(uint64_t bytes);
void sim_note_pageable();

#endif
