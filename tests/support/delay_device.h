/* delay_device.h - a device with memory of its own whose streams run late, early or in between, as
 * far as the recorded events allow: a missing wait then computes with wrong data.
 *
 * Work given to a stream is queued. At every call a seeded coin decides whether some of it runs;
 * what a synchronization asks for runs then at the latest. The work itself is the CPU backend's. */
#ifndef OOC_TESTS_DELAY_DEVICE_H
#define OOC_TESTS_DELAY_DEVICE_H

#include "src/device.h"

typedef struct {
    uint64_t seed;
    uint32_t eager; /* of 256: how often queued work runs before it must */
    uint32_t only;  /* bits of the streams (in the order opened) that run early; 0: all */
    uint64_t skip;  /* number (from 1) of the event call or synchronization to leave out; 0: none */
    uint64_t n_calls; /* result: how many of those there were */
} delay_opts;

/* `opts` must outlive the device. Close with ooc_device_close(). */
ooc_status delay_device_open(ooc_device **out, ooc_pool *pool, delay_opts *opts, ooc_err *err);
#endif
