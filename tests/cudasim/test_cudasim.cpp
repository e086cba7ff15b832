/* The CUDA stand-in itself: a block's threads, adversarial streams, devices, failing calls. */
#include "kernels/cuda/launch.h"
#include "sim_control.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <vector>

extern "C" {
#include <cmocka.h>
}

#define CHECK(call) assert_int_equal(call, cudaSuccess)

static void start(uint64_t seed, int n_devices, bool no_peer)
{
    cudasim_config c = {};

    c.n_devices = n_devices;
    c.device_bytes = 16u << 20;
    c.no_peer = no_peer;
    c.seed = seed;
    cudasim_reset(&c);
}

/* Sums 256 numbers a block by shuffles, shared memory and one barrier. */
static __global__ void block_sum(const int *in, int *out)
{
    OOC_SHARED(int, part, 8);
    int v = in[blockIdx.x * blockDim.x + threadIdx.x];

    for (int d = 16; d; d >>= 1)
        v += __shfl_xor_sync(0xffffffffu, v, d);
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = v;
    __syncthreads();
    if (threadIdx.x == 0) {
        v = 0;
        for (int w = 0; w < 8; w++)
            v += part[w];
        out[blockIdx.x] = v;
    }
}

/* Turns 64 numbers round through dynamic shared memory; needs its barrier. */
template <class T> static __global__ void reverse(T *x)
{
    OOC_DYNAMIC_SHARED(T, s);

    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = s[63 - threadIdx.x];
}

static __global__ void warp_facts(unsigned *out)
{
    unsigned lane = threadIdx.x;
    unsigned odd = __ballot_sync(0xffffffffu, lane & 1);
    unsigned sum = __reduce_add_sync(0xffffffffu, lane);
    unsigned same = __match_any_sync(0xffffffffu, lane / 8);

    atomicAdd(&out[0], odd == 0xaaaaaaaau ? 1u : 0u);
    atomicAdd(&out[1], sum);
    atomicAdd(&out[2], same == 0xffu << (lane / 8 * 8) ? 1u : 0u);
    atomicAdd(&out[3], __shfl_sync(0xffffffffu, lane, 5));
}

static __global__ void add_one(int *x, int n)
{
    int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);

    if (i < n)
        x[i]++;
}

static void threads_of_a_block(void **)
{
    for (uint64_t seed = 0; seed < 20; seed++) {
        std::vector<int> in(1024), out(4);
        double rev[64];
        unsigned facts[4];
        int *d_in, *d_out;
        double *d_rev;
        unsigned *d_facts;
        int expected = 0;

        start(seed, 1, false);
        for (int i = 0; i < 1024; i++)
            in[static_cast<size_t>(i)] = i;
        for (int i = 0; i < 64; i++)
            rev[i] = i;
        CHECK(cudaMalloc(reinterpret_cast<void **>(&d_in), 4096));
        CHECK(cudaMalloc(reinterpret_cast<void **>(&d_out), 16));
        CHECK(cudaMalloc(reinterpret_cast<void **>(&d_rev), sizeof rev));
        CHECK(cudaMalloc(reinterpret_cast<void **>(&d_facts), sizeof facts));
        cudasim_poke(d_in, in.data(), 4096);
        cudasim_poke(d_rev, rev, sizeof rev);
        CHECK(cudaMemsetAsync(d_facts, 0, sizeof facts, nullptr));
        CHECK(OOC_LAUNCH(block_sum, 4, 256, 0, nullptr, d_in, d_out));
        CHECK(OOC_LAUNCH((reverse<double>), 1, 64, 512, nullptr, d_rev));
        CHECK(OOC_LAUNCH(warp_facts, 1, 32, 0, nullptr, d_facts));
        CHECK(cudaMemcpy(out.data(), d_out, 16, cudaMemcpyDeviceToHost));
        cudasim_peek(rev, d_rev, sizeof rev);
        cudasim_peek(facts, d_facts, sizeof facts);
        for (int b = 0; b < 4; b++) {
            expected = 256 * 255 / 2 + b * 256 * 256;
            assert_int_equal(out[static_cast<size_t>(b)], expected);
        }
        for (int i = 0; i < 64; i++)
            assert_true(rev[i] == 63 - i);
        assert_int_equal(facts[0], 32);
        assert_int_equal(facts[1], 31 * 32 / 2 * 32);
        assert_int_equal(facts[2], 32);
        assert_int_equal(facts[3], 5 * 32);
        for (void *p : {static_cast<void *>(d_in), static_cast<void *>(d_out),
                        static_cast<void *>(d_rev), static_cast<void *>(d_facts)})
            CHECK(cudaFree(p));
        assert_int_equal(cudasim_n_live(), 0);
    }
}

/* A slot used twice: copy, add, and copy over it. Correct with both waits under every seed; without
 * one of them some seed must see wrong data. */
static bool slot_round(uint64_t seed, bool wait_copied, bool wait_free)
{
    static int host[2][64];
    int got[2][64];
    cudaStream_t copy, compute;
    cudaEvent_t copied, used;
    int *slot, *out;
    bool good = true;

    start(seed, 1, false);
    for (int i = 0; i < 64; i++) {
        host[0][i] = i;
        host[1][i] = 1000 + i;
    }
    CHECK(cudaHostRegister(host, sizeof host, cudaHostRegisterDefault));
    CHECK(cudaMalloc(reinterpret_cast<void **>(&slot), sizeof host[0]));
    CHECK(cudaMalloc(reinterpret_cast<void **>(&out), sizeof host));
    CHECK(cudaStreamCreateWithFlags(&copy, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&compute, cudaStreamNonBlocking));
    CHECK(cudaEventCreateWithFlags(&copied, cudaEventDisableTiming));
    CHECK(cudaEventCreateWithFlags(&used, cudaEventDisableTiming));
    for (int k = 0; k < 2; k++) {
        if (k && wait_free)
            CHECK(cudaStreamWaitEvent(copy, used, 0));
        CHECK(cudaMemcpyAsync(slot, host[k], sizeof host[k], cudaMemcpyHostToDevice, copy));
        CHECK(cudaEventRecord(copied, copy));
        if (wait_copied)
            CHECK(cudaStreamWaitEvent(compute, copied, 0));
        CHECK(OOC_LAUNCH(add_one, 1, 64, 0, compute, slot, 64));
        CHECK(
            cudaMemcpyAsync(out + 64 * k, slot, sizeof host[k], cudaMemcpyDeviceToDevice, compute));
        CHECK(cudaEventRecord(used, compute));
    }
    CHECK(cudaStreamSynchronize(compute));
    cudasim_peek(got, out, sizeof got);
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < 64; i++)
            good = good && got[k][i] == host[k][i] + 1;
    CHECK(cudaStreamDestroy(copy));
    CHECK(cudaStreamDestroy(compute));
    CHECK(cudaEventDestroy(copied));
    CHECK(cudaEventDestroy(used));
    CHECK(cudaFree(slot));
    CHECK(cudaFree(out));
    CHECK(cudaHostUnregister(host));
    assert_int_equal(cudasim_n_live(), 0);
    return good;
}

static void missing_waits_are_found(void **)
{
    int seen_copied = 0, seen_free = 0;

    for (uint64_t seed = 0; seed < 60; seed++) {
        assert_true(slot_round(seed, true, true));
        seen_copied += !slot_round(seed, false, true);
        seen_free += !slot_round(seed, true, false);
    }
    assert_true(seen_copied > 0);
    assert_true(seen_free > 0);
}

static void devices_are_apart(void **)
{
    int *a, *b, got = 0, can, one = 1;

    for (int no_peer = 0; no_peer < 2; no_peer++) {
        start(3, 2, no_peer != 0);
        CHECK(cudaMalloc(reinterpret_cast<void **>(&a), 4));
        CHECK(cudaSetDevice(1));
        CHECK(cudaMalloc(reinterpret_cast<void **>(&b), 4));
        assert_int_equal(cudasim_used_bytes(0), 4);
        assert_int_equal(cudasim_used_bytes(1), 4);
        CHECK(cudaDeviceCanAccessPeer(&can, 1, 0));
        assert_int_equal(can, !no_peer);
        CHECK(cudaMemcpy(a, &one, 4, cudaMemcpyHostToDevice));
        CHECK(cudaMemcpyPeerAsync(b, 1, a, 0, 4, nullptr));
        CHECK(cudaMemcpy(&got, b, 4, cudaMemcpyDeviceToHost));
        assert_int_equal(got, 1);
        if (no_peer)
            assert_int_not_equal(cudaDeviceEnablePeerAccess(0, 0), cudaSuccess);
        else
            CHECK(cudaDeviceEnablePeerAccess(0, 0));
        CHECK(cudaFree(a));
        CHECK(cudaFree(b));
    }
}

static void memory_is_bounded_and_poisoned(void **)
{
    void *p, *q;
    unsigned char got[8];
    int host = 0;

    start(0, 1, false);
    CHECK(cudaMalloc(&p, 10u << 20));
    assert_int_equal(cudaMalloc(&q, 10u << 20), cudaErrorMemoryAllocation);
    assert_null(q);
    assert_int_equal(cudaGetLastError(), cudaErrorMemoryAllocation);
    assert_int_equal(cudaGetLastError(), cudaSuccess);
    cudasim_peek(got, p, 8);
    for (unsigned char c : got)
        assert_int_equal(c, 0xff);
    assert_int_equal(cudaMemcpy(&host, &host, 4, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    assert_int_equal(
        cudaMemcpy(static_cast<char *>(p) + (10u << 20) - 2, &host, 4, cudaMemcpyHostToDevice),
        cudaErrorInvalidValue);
    assert_int_equal(OOC_LAUNCH(add_one, 1, 2048, 0, nullptr, static_cast<int *>(p), 1),
                     cudaErrorInvalidConfiguration);
    assert_int_equal(OOC_LAUNCH((reverse<int>), 1, 64, 90000, nullptr, static_cast<int *>(p)),
                     cudaErrorInvalidValue);
    CHECK(cudaFuncSetAttribute(reverse<int>, cudaFuncAttributeMaxDynamicSharedMemorySize, 90000));
    CHECK(OOC_LAUNCH((reverse<int>), 1, 64, 90000, nullptr, static_cast<int *>(p)));
    assert_int_equal(cudasim_peak_bytes(0), 10u << 20);
    CHECK(cudaFree(p));
}

static void calls_fail_on_demand(void **)
{
    void *p;
    int n;

    start(0, 1, false);
    cudasim_fail(CUDASIM_MALLOC, 2, false);
    CHECK(cudaMalloc(&p, 8));
    CHECK(cudaFree(p));
    assert_int_equal(cudaMalloc(&p, 8), cudaErrorMemoryAllocation);
    CHECK(cudaMalloc(&p, 8));
    assert_int_equal(cudasim_calls(CUDASIM_MALLOC), 3);
    cudasim_fail(CUDASIM_EXECUTION, 1, false);
    OOC_LAUNCH(add_one, 1, 2, 0, nullptr, static_cast<int *>(p), 2);
    assert_int_not_equal(cudaDeviceSynchronize(), cudaSuccess);
    assert_int_not_equal(cudaMemGetInfo(nullptr, nullptr), cudaSuccess);

    cudasim_config c = {};
    c.driver = -1;
    cudasim_reset(&c);
    assert_int_equal(cudaGetDeviceCount(&n), cudaErrorInsufficientDriver);
    CHECK(cudaDriverGetVersion(&n));
    assert_int_equal(n, 0);
    c.driver = -2;
    cudasim_reset(&c);
    assert_int_equal(cudaGetDeviceCount(&n), cudaErrorNoDevice);
    c.driver = 11040;
    cudasim_reset(&c);
    assert_int_equal(cudaGetDeviceCount(&n), cudaErrorInsufficientDriver);
}

static __attribute__((noinline)) void one_site(cudaEvent_t e, cudaStream_t s)
{
    CHECK(cudaEventRecord(e, s));
}

static void sites_are_counted_and_skipped(void **)
{
    cudaEvent_t e;
    cudaStream_t s;
    int *x, got = 0;

    start(1, 1, false);
    CHECK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    CHECK(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
    CHECK(cudaMalloc(reinterpret_cast<void **>(&x), 4));
    /* volatile: a loop that the compiler unrolls would be several sites */
    for (volatile int i = 0; i < 3; i = i + 1)
        one_site(e, s);
    one_site(e, s);
    assert_int_equal(cudasim_n_sites(), 2);
    assert_int_equal(cudasim_site_visits(0), 3);
    assert_non_null(strstr(cudasim_site_name(0), "event record at"));
    for (volatile int skip = 0; skip < 2; skip = skip + 1) {
        CHECK(cudaMemsetAsync(x, 1 + skip, 4, s));
        cudasim_skip_site(skip ? 2 : -1);
        CHECK(cudaStreamSynchronize(s));
        cudasim_peek(&got, x, 4);
        assert_int_equal(got, 0x01010101); /* the second time nobody waited: still the old bytes */
    }
    cudasim_skip_site(-1);
    CHECK(cudaStreamDestroy(s));
    CHECK(cudaEventDestroy(e));
    CHECK(cudaFree(x));
}

int main()
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_of_a_block),   cmocka_unit_test(missing_waits_are_found),
        cmocka_unit_test(devices_are_apart),    cmocka_unit_test(memory_is_bounded_and_poisoned),
        cmocka_unit_test(calls_fail_on_demand), cmocka_unit_test(sites_are_counted_and_skipped),
    };

    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
