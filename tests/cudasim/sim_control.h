/* sim_control.h - how a test drives the CUDA stand-in. Plain C.
 *
 * Commands are driven by the environment, read at the first CUDA call:
 *     CUDASIM_DEVICES=2  CUDASIM_BYTES=268435456  CUDASIM_CONTEXT=1048576  CUDASIM_PEER=0
 *     CUDASIM_SEED=7     CUDASIM_DRIVER=0         CUDASIM_FAIL=copy:3[+]   CUDASIM_SKIP=4
 *     CUDASIM_REPORT=FILE  (peaks, calls and call sites are appended at exit) */
#ifndef OOC_SIM_CONTROL_H
#define OOC_SIM_CONTROL_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How streams are ordered against each other. Seed 0: every operation at once. Seed 1: nothing
 * before somebody waits for it. Others: each stream draws one of eager, lazy and random, again and
 * again; kernels run their blocks and threads in an order drawn from the seed. */
typedef struct {
    int n_devices;          /* 0: one */
    uint64_t device_bytes;  /* of each; 0: 256 MiB */
    uint64_t context_bytes; /* gone from the free memory as soon as a device is used */
    bool no_peer;           /* devices can't reach each other's memory */
    bool open_memory; /* don't protect device memory from the host (faster where it is large) */
    uint64_t seed;
    int driver; /* version, 13000 for 13.0; 0: 12000; -1: no driver; -2: no card */
} cudasim_config;

/* Start afresh. Memory, streams and events of the time before are gone; pending work is dropped. */
void cudasim_reset(const cudasim_config *config);

/* Kinds of calls that can be made to fail. */
typedef enum {
    CUDASIM_ANY,
    CUDASIM_MALLOC,
    CUDASIM_REGISTER,
    CUDASIM_COPY,
    CUDASIM_MEMSET,
    CUDASIM_LAUNCH,
    CUDASIM_STREAM, /* create */
    CUDASIM_EVENT,  /* create */
    CUDASIM_RECORD,
    CUDASIM_WAIT,
    CUDASIM_SYNC,      /* stream, event and device synchronization, queries */
    CUDASIM_LIBRARY,   /* cuBLAS, cuSPARSE */
    CUDASIM_OTHER,     /* versions, attributes, peer access, ... */
    CUDASIM_RELEASE,   /* free, destroy, unregister */
    CUDASIM_EXECUTION, /* not a call: an operation that fails when it runs, seen at a later call */
    CUDASIM_N_KINDS
} cudasim_kind;

/* Call number `nth` (from 1; 0: none) of `kind` fails. `sticky`: so does every later call of any
 * kind. Counts begin anew. */
void cudasim_fail(cudasim_kind kind, uint64_t nth, bool sticky);
uint64_t cudasim_calls(cudasim_kind kind); /* since the last cudasim_fail or reset */

/* Mutations: call sites of event record, event wait and stream or event synchronization are
 * numbered from 0 in the order of their first visit; site `n` (-1: none) is skipped: it does
 * nothing and reports success. A site is the place of the call and of its caller. */
void cudasim_skip_site(int n);
int cudasim_n_sites(void);
/* "event wait at copy_in < pass_run"; static until the next reset. */
const char *cudasim_site_name(int n);
/* Visits of a site since the last reset. */
uint64_t cudasim_site_visits(int n);

uint64_t cudasim_used_bytes(int device); /* without the context */
uint64_t cudasim_peak_bytes(int device);
/* Blocks, streams, events, registrations and library handles that nobody gave back. */
uint64_t cudasim_n_live(void);
/* Asynchronous copies that touched host memory which was not registered. */
uint64_t cudasim_n_pageable(void);
uint64_t cudasim_bus_bytes(void); /* host to device, since the last reset */

/* Memory of a device, for tests that play a caller with arrays of its own: copies now, running
 * nothing that is queued. */
void cudasim_peek(void *host, const void *device, uint64_t bytes);
void cudasim_poke(void *device, const void *host, uint64_t bytes);

#ifdef __cplusplus
}
#endif
#endif
