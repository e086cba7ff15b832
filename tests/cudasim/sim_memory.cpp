/* Device memory: every allocation is a mapping of its own, closed to the host while nothing runs,
 * filled with 0xFF (a NaN in every type) when it is taken, unmapped for good when it is freed. */
#include "sim_state.h"

#include <string.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(p, n)   ((void)(p), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#endif

namespace
{
const size_t page = 4096;
const unsigned char tail_byte = 0xfb;
/* Above this a block is only partly filled and stays open: protecting it takes time that grows with
 * it. */
const size_t big_bytes = 64u << 20;

struct block {
    char *base;
    size_t bytes, mapped; /* mapped: rounded up to pages; a closed page follows and goes before */
    int device;
};

struct host_range {
    const char *base;
    size_t bytes;
};

std::vector<block> blocks;
std::vector<host_range> registered;
std::vector<uint64_t> used, peak;
std::vector<char> peers; /* [device * n + peer] */
int open_depth;

bool guarded(const block &b)
{
    return !sim_config.open_memory && b.mapped <= big_bytes;
}

void protect(int device, bool all, int prot)
{
    for (const block &b : blocks)
        if (guarded(b) && (all || sim_can_reach(device, b.device)) &&
            mprotect(b.base, b.mapped, prot))
            sim_broken("mprotect of device memory");
}

void unmap(block &b)
{
    ASAN_UNPOISON_MEMORY_REGION(b.base, b.mapped);
    munmap(b.base - page, b.mapped + 2 * page);
}
} // namespace

int sim_memory_owner(const void *p, size_t bytes)
{
    const char *c = static_cast<const char *>(p);

    for (const block &b : blocks)
        if (c >= b.base && c <= b.base + b.bytes &&
            bytes <= static_cast<size_t>(b.base + b.bytes - c))
            return b.device;
    return -1;
}

bool sim_memory_overlaps(const void *p, size_t bytes)
{
    const char *c = static_cast<const char *>(p);

    for (const block &b : blocks)
        if (c < b.base + b.bytes && b.base < c + bytes)
            return true;
    return false;
}

bool sim_can_reach(int device, int owner)
{
    return device == owner || sim_peer_enabled(device, owner);
}

void sim_enable_peer(int device, int peer)
{
    peers[static_cast<size_t>(device * sim_config.n_devices + peer)] = 1;
}

bool sim_peer_enabled(int device, int peer)
{
    return peers[static_cast<size_t>(device * sim_config.n_devices + peer)];
}

void sim_memory_open(int device, bool all)
{
    if (open_depth++)
        sim_broken("an operation runs inside another");
    protect(device, all, PROT_READ | PROT_WRITE);
}

void sim_memory_close()
{
    open_depth--;
    protect(-1, true, PROT_NONE);
}

void sim_memory_reset()
{
    size_t n = static_cast<size_t>(sim_config.n_devices);

    for (block &b : blocks)
        unmap(b);
    blocks.clear();
    registered.clear();
    open_depth = 0;
    used.assign(n, 0);
    peak.assign(n, 0);
    peers.assign(n * n, 0);
}

cudaError_t cudaMalloc(void **p, size_t bytes)
{
    SIM_ENTER(CUDASIM_MALLOC);
    size_t d = static_cast<size_t>(sim_device_now);
    block b;

    *p = nullptr;
    if (bytes == 0)
        return cudaSuccess;
    if (bytes > sim_config.device_bytes - sim_config.context_bytes - used[d])
        return sim_leave(cudaErrorMemoryAllocation);
    b.bytes = bytes;
    b.mapped = (bytes + page - 1) & ~(page - 1);
    b.device = sim_device_now;
    void *m = mmap(nullptr, b.mapped + 2 * page, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (m == MAP_FAILED)
        return sim_leave(cudaErrorMemoryAllocation);
    b.base = static_cast<char *>(m) + page;
    if (mprotect(b.base, b.mapped, PROT_READ | PROT_WRITE))
        sim_broken("mprotect of new device memory");
    memset(b.base, 0xff, bytes < big_bytes ? bytes : big_bytes);
    memset(b.base + bytes, tail_byte, b.mapped - bytes);
    ASAN_POISON_MEMORY_REGION(b.base + bytes, b.mapped - bytes);
    if (guarded(b))
        mprotect(b.base, b.mapped, PROT_NONE);
    blocks.push_back(b);
    used[d] += bytes;
    if (used[d] > peak[d])
        peak[d] = used[d];
    sim_live(1);
    *p = b.base;
    return cudaSuccess;
}

cudaError_t cudaFree(void *p)
{
    SIM_ENTER_RELEASE();
    if (!p)
        return sim_leave(injected_);
    for (size_t i = 0; i < blocks.size(); i++) {
        block b = blocks[i];

        if (b.base != p)
            continue;
        sim_run_all(-1);
        if (guarded(b))
            mprotect(b.base, b.mapped, PROT_READ);
        ASAN_UNPOISON_MEMORY_REGION(b.base, b.mapped);
        for (size_t k = b.bytes; k < b.mapped; k++)
            if (static_cast<unsigned char>(b.base[k]) != tail_byte)
                sim_broken("byte %zu behind a device block of %zu bytes was written", k - b.bytes,
                           b.bytes);
        used[static_cast<size_t>(b.device)] -= b.bytes;
        unmap(b);
        blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(i));
        sim_live(-1);
        return sim_leave(injected_);
    }
    return sim_leave(cudaErrorInvalidDevicePointer);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    SIM_ENTER(CUDASIM_OTHER);
    *total_bytes = sim_config.device_bytes;
    *free_bytes = sim_config.device_bytes - sim_config.context_bytes -
                  used[static_cast<size_t>(sim_device_now)];
    return cudaSuccess;
}

bool sim_host_registered(const void *p, size_t bytes)
{
    const char *c = static_cast<const char *>(p);

    for (const host_range &r : registered)
        if (c >= r.base && c + bytes <= r.base + r.bytes)
            return true;
    return false;
}

cudaError_t cudaHostRegister(void *p, size_t bytes, unsigned)
{
    SIM_ENTER(CUDASIM_REGISTER);
    const char *c = static_cast<const char *>(p);

    if (!p || !bytes || sim_memory_overlaps(p, bytes))
        return sim_leave(cudaErrorInvalidValue);
    for (const host_range &r : registered)
        if (c < r.base + r.bytes && r.base < c + bytes)
            return sim_leave(cudaErrorHostMemoryAlreadyRegistered);
    registered.push_back({c, bytes});
    sim_live(1);
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *p)
{
    SIM_ENTER_RELEASE();
    for (size_t i = 0; i < registered.size(); i++) {
        if (registered[i].base != p)
            continue;
        if (sim_host_pending(p, registered[i].bytes))
            sim_broken("page-locked memory is given back while a copy from or to it is queued");
        registered.erase(registered.begin() + static_cast<std::ptrdiff_t>(i));
        sim_live(-1);
        return sim_leave(injected_);
    }
    return sim_leave(cudaErrorHostMemoryNotRegistered);
}

void sim_check_pointer(const void *p, cudaStream_t s)
{
    std::lock_guard<std::recursive_mutex> held(sim_lock);
    int device = sim_stream_device(s), owner = sim_memory_owner(p, 0);

    if (p && (owner < 0 || !sim_can_reach(device, owner)))
        sim_broken("a kernel on device %d is given %p, which is %s", device, p,
                   owner < 0 ? "not device memory" : "another device's, without peer access");
}

uint64_t cudasim_used_bytes(int device)
{
    return used[static_cast<size_t>(device)];
}

uint64_t cudasim_peak_bytes(int device)
{
    return peak[static_cast<size_t>(device)];
}

void cudasim_peek(void *host, const void *device, uint64_t bytes)
{
    std::lock_guard<std::recursive_mutex> held(sim_lock);

    sim_memory_open(0, true);
    memcpy(host, device, bytes);
    sim_memory_close();
}

void cudasim_poke(void *device, const void *host, uint64_t bytes)
{
    std::lock_guard<std::recursive_mutex> held(sim_lock);

    sim_memory_open(0, true);
    memcpy(device, host, bytes);
    sim_memory_close();
}
