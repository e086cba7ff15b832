/* sim_device.h - what kernel code sees: its place in the grid, shared memory, synchronisation,
 * warp exchanges, atomics.
 *
 * Stricter than a card where the language is: a barrier must be reached by all threads of the
 * block, a warp exchange by all 32 lanes with the same operation and the full mask; anything else
 * aborts with a message. Code between two synchronisations runs thread by thread, in an order that
 * the seed chooses. */
#ifndef OOC_SIM_DEVICE_H
#define OOC_SIM_DEVICE_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __restrict__ __restrict

struct uint3 {
    unsigned x, y, z;
};

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
};

struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(16) double2 {
    double x, y;
};

static inline float4 make_float4(float x, float y, float z, float w)
{
    return {x, y, z, w};
}

/* The running thread; valid inside kernels only. */
struct sim_place {
    uint3 thread;
    unsigned linear, lane, warp;
};
extern const sim_place *sim_here;
extern uint3 sim_block_idx;
extern dim3 sim_block_dim, sim_grid_dim;

#define threadIdx (sim_here->thread)
#define blockIdx  (sim_block_idx)
#define blockDim  (sim_block_dim)
#define gridDim   (sim_grid_dim)
#define warpSize  32

enum sim_collective { SIM_SYNC, SIM_SHUFFLE, SIM_BALLOT, SIM_REDUCE, SIM_MATCH };

void sim_syncthreads();
/* Waits for all 32 lanes; gives what each of them brought. */
const uint64_t *sim_warp_exchange(sim_collective what, unsigned mask, uint64_t mine);
/* Shared memory of the running block: dynamic, and static by the address of a tag. */
void *sim_dynamic_shared();
void *sim_static_shared(const void *tag, size_t bytes);

#define __syncthreads() sim_syncthreads()

static inline void __syncwarp(unsigned mask = 0xffffffffu)
{
    sim_warp_exchange(SIM_SYNC, mask, 0);
}

static inline void __threadfence()
{
}

template <class T> static inline uint64_t sim_bits(T v)
{
    uint64_t b = 0;

    static_assert(sizeof v <= sizeof b, "an exchange carries at most 8 bytes");
    memcpy(&b, &v, sizeof v);
    return b;
}

template <class T> static inline T sim_value(uint64_t b)
{
    T v;

    memcpy(&v, &b, sizeof v);
    return v;
}

template <class T> static inline T __shfl_sync(unsigned mask, T v, int src, int width = 32)
{
    const uint64_t *all = sim_warp_exchange(SIM_SHUFFLE, mask, sim_bits(v));
    unsigned base = sim_here->lane & ~static_cast<unsigned>(width - 1);

    return sim_value<T>(
        all[base + (static_cast<unsigned>(src) & static_cast<unsigned>(width - 1))]);
}

template <class T> static inline T __shfl_xor_sync(unsigned mask, T v, int lanes, int width = 32)
{
    unsigned src = sim_here->lane ^ static_cast<unsigned>(lanes);

    (void)width;
    return sim_value<T>(sim_warp_exchange(SIM_SHUFFLE, mask, sim_bits(v))[src & 31u]);
}

template <class T> static inline T __shfl_up_sync(unsigned mask, T v, unsigned by, int width = 32)
{
    const uint64_t *all = sim_warp_exchange(SIM_SHUFFLE, mask, sim_bits(v));
    unsigned at = sim_here->lane & static_cast<unsigned>(width - 1);

    return at < by ? v : sim_value<T>(all[sim_here->lane - by]);
}

template <class T> static inline T __shfl_down_sync(unsigned mask, T v, unsigned by, int width = 32)
{
    const uint64_t *all = sim_warp_exchange(SIM_SHUFFLE, mask, sim_bits(v));
    unsigned at = sim_here->lane & static_cast<unsigned>(width - 1);

    return at + by >= static_cast<unsigned>(width) ? v : sim_value<T>(all[sim_here->lane + by]);
}

static inline unsigned __ballot_sync(unsigned mask, int pred)
{
    const uint64_t *all = sim_warp_exchange(SIM_BALLOT, mask, pred != 0);
    unsigned bits = 0;

    for (unsigned i = 0; i < 32; i++)
        bits |= static_cast<unsigned>(all[i]) << i;
    return bits;
}

static inline int __any_sync(unsigned mask, int pred)
{
    return __ballot_sync(mask, pred) != 0;
}

static inline int __all_sync(unsigned mask, int pred)
{
    return __ballot_sync(mask, pred) == 0xffffffffu;
}

static inline unsigned __reduce_add_sync(unsigned mask, unsigned v)
{
    const uint64_t *all = sim_warp_exchange(SIM_REDUCE, mask, v);
    unsigned sum = 0;

    for (unsigned i = 0; i < 32; i++)
        sum += static_cast<unsigned>(all[i]);
    return sum;
}

static inline unsigned __match_any_sync(unsigned mask, unsigned v)
{
    const uint64_t *all = sim_warp_exchange(SIM_MATCH, mask, v);
    unsigned bits = 0;

    for (unsigned i = 0; i < 32; i++)
        bits |= static_cast<unsigned>(all[i] == v) << i;
    return bits;
}

static inline int __popc(unsigned v)
{
    return __builtin_popcount(v);
}

static inline int __ffs(int v)
{
    return __builtin_ffs(v);
}

static inline int __clz(int v)
{
    return v ? __builtin_clz(static_cast<unsigned>(v)) : 32;
}

template <class T> static inline T __ldg(const T *p)
{
    return *p;
}

/* One OS thread runs a block, so a plain addition is as good as an atomic one. */
template <class T> static inline T atomicAdd(T *p, T v)
{
    T old = *p;

    *p = old + v;
    return old;
}

template <class T> static inline T atomicMax(T *p, T v)
{
    T old = *p;

    *p = old < v ? v : old;
    return old;
}

template <class T> static inline T min(T a, T b)
{
    return b < a ? b : a;
}

template <class T> static inline T max(T a, T b)
{
    return a < b ? b : a;
}

static inline float __uint_as_float(unsigned v)
{
    return sim_value<float>(v);
}

static inline unsigned __float_as_uint(float v)
{
    return static_cast<unsigned>(sim_bits(v));
}

#endif
