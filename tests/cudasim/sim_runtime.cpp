/* The rest of the runtime: devices, copies, fills, launches, names of errors. */
#include "sim_block.h"
#include "sim_state.h"

#include <map>
#include <stdio.h>
#include <string.h>

namespace
{
/* As an sm_86 card has it. */
const int shared_default = 48 * 1024, shared_optin = 99 * 1024;

std::map<std::pair<const void *, int>, int> shared_limits;

struct rows {
    char *dst;
    const char *src;
    size_t dst_pitch, src_pitch, width, height;
};

void copy_rows(const rows &r)
{
    for (size_t i = 0; i < r.height; i++)
        memcpy(r.dst + i * r.dst_pitch, r.src + i * r.src_pitch, r.width);
}

size_t span(size_t pitch, size_t width, size_t height)
{
    return height ? (height - 1) * pitch + width : 0;
}

/* A copy from memory that isn't page-locked may return when the source has been read; one to such
 * memory when it is done. Whether they do is open ("might be synchronous"): the seed decides.
 * Others run when the stream comes to them. */
cudaError_t copy(const rows &r, cudaMemcpyKind kind, cudaStream_t s)
{
    size_t src_bytes = span(r.src_pitch, r.width, r.height);
    size_t dst_bytes = span(r.dst_pitch, r.width, r.height);
    bool from_host = kind == cudaMemcpyHostToDevice, to_host = kind == cudaMemcpyDeviceToHost;

    if (sim_stream_device(s) < 0)
        return cudaErrorInvalidResourceHandle;
    if (!r.width || !r.height)
        return cudaSuccess;
    if (r.dst_pitch < r.width || r.src_pitch < r.width || kind == cudaMemcpyHostToHost ||
        kind == cudaMemcpyDefault)
        return cudaErrorInvalidValue;
    if ((sim_memory_owner(r.src, src_bytes) < 0) != from_host ||
        (sim_memory_owner(r.dst, dst_bytes) < 0) != to_host)
        return cudaErrorInvalidValue;
    if ((from_host && sim_memory_overlaps(r.src, src_bytes)) ||
        (to_host && sim_memory_overlaps(r.dst, dst_bytes)))
        return cudaErrorInvalidValue;
    bool pageable = (from_host && !sim_host_registered(r.src, src_bytes)) ||
                    (to_host && !sim_host_registered(r.dst, dst_bytes));
    bool at_once = pageable && sim_config.seed != 1 && (!sim_config.seed || sim_random() % 2);

    if (from_host)
        sim_note_bus(r.width * r.height);
    if (pageable)
        sim_note_pageable();
    if (from_host && at_once) {
        auto staged = std::make_shared<std::vector<char>>(r.width * r.height);

        copy_rows({staged->data(), r.src, r.width, r.src_pitch, r.width, r.height});
        sim_enqueue(
            s, "copy",
            [r, staged]() {
                copy_rows({r.dst, staged->data(), r.dst_pitch, r.width, r.width, r.height});
            },
            nullptr, 0);
        return cudaSuccess;
    }
    const void *host = from_host ? static_cast<const void *>(r.src) : to_host ? r.dst : nullptr;
    sim_enqueue(
        s, "copy", [r]() { copy_rows(r); }, host, from_host ? src_bytes : dst_bytes);
    if (to_host && at_once)
        sim_force(s);
    return sim_take_async_error();
}
} // namespace

cudaError_t cudaDriverGetVersion(int *version)
{
    SIM_ENTER(CUDASIM_OTHER);
    *version = sim_config.driver == -1 ? 0 : sim_config.driver == -2 ? 12000 : sim_config.driver;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    SIM_ENTER(CUDASIM_OTHER);
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    SIM_ENTER(CUDASIM_OTHER);
    *count = 0;
    if (sim_config.driver == -2)
        return sim_leave(cudaErrorNoDevice);
    if (sim_config.driver < CUDART_VERSION)
        return sim_leave(cudaErrorInsufficientDriver);
    *count = sim_config.n_devices;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    SIM_ENTER(CUDASIM_OTHER);
    if (device < 0 || device >= sim_config.n_devices)
        return sim_leave(cudaErrorInvalidDevice);
    sim_device_now = device;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    SIM_ENTER(CUDASIM_OTHER);
    *device = sim_device_now;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *prop, int device)
{
    SIM_ENTER(CUDASIM_OTHER);
    snprintf(prop->name, sizeof prop->name, "simulated card %d", device);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attr, int)
{
    SIM_ENTER(CUDASIM_OTHER);
    switch (attr) {
    case cudaDevAttrMultiProcessorCount:
        *value = 4;
        break;
    case cudaDevAttrComputeCapabilityMajor:
        *value = 8;
        break;
    case cudaDevAttrComputeCapabilityMinor:
        *value = 6;
        break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
        *value = shared_default;
        break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = shared_optin;
        break;
    }
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    SIM_ENTER(CUDASIM_OTHER);
    *can = !sim_config.no_peer && device != peer;
    return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned)
{
    SIM_ENTER(CUDASIM_OTHER);
    if (sim_config.no_peer || peer == sim_device_now || peer >= sim_config.n_devices)
        return sim_leave(cudaErrorInvalidDevice);
    if (sim_peer_enabled(sim_device_now, peer))
        return sim_leave(cudaErrorPeerAccessAlreadyEnabled);
    sim_enable_peer(sim_device_now, peer);
    return cudaSuccess;
}

cudaError_t cudaMemcpy2DAsync(void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind, cudaStream_t s)
{
    SIM_ENTER(CUDASIM_COPY);
    return sim_leave(copy({static_cast<char *>(dst), static_cast<const char *>(src), dst_pitch,
                           src_pitch, width, height},
                          kind, s));
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t s)
{
    SIM_ENTER(CUDASIM_COPY);
    return sim_leave(
        copy({static_cast<char *>(dst), static_cast<const char *>(src), bytes, bytes, bytes, 1},
             kind, s));
}

cudaError_t cudaMemcpy(void *dst, const void *src, size_t bytes, cudaMemcpyKind kind)
{
    SIM_ENTER(CUDASIM_COPY);
    cudaError_t e =
        copy({static_cast<char *>(dst), static_cast<const char *>(src), bytes, bytes, bytes, 1},
             kind, nullptr);

    sim_force(nullptr);
    return sim_leave(e);
}

cudaError_t cudaMemcpyPeerAsync(void *dst, int dst_device, const void *src, int src_device,
                                size_t bytes, cudaStream_t s)
{
    SIM_ENTER(CUDASIM_COPY);
    if (sim_memory_owner(dst, bytes) != dst_device || sim_memory_owner(src, bytes) != src_device)
        return sim_leave(cudaErrorInvalidValue);
    return sim_leave(
        copy({static_cast<char *>(dst), static_cast<const char *>(src), bytes, bytes, bytes, 1},
             cudaMemcpyDeviceToDevice, s));
}

cudaError_t cudaMemcpy3DPeerAsync(const cudaMemcpy3DPeerParms *p, cudaStream_t s)
{
    SIM_ENTER(CUDASIM_COPY);
    size_t height = p->extent.height, width = p->extent.width;

    if (p->extent.depth != 1 ||
        sim_memory_owner(p->dstPtr.ptr, span(p->dstPtr.pitch, width, height)) != p->dstDevice ||
        sim_memory_owner(p->srcPtr.ptr, span(p->srcPtr.pitch, width, height)) != p->srcDevice)
        return sim_leave(cudaErrorInvalidValue);
    return sim_leave(
        copy({static_cast<char *>(p->dstPtr.ptr), static_cast<const char *>(p->srcPtr.ptr),
              p->dstPtr.pitch, p->srcPtr.pitch, width, height},
             cudaMemcpyDeviceToDevice, s));
}

cudaError_t cudaMemset2DAsync(void *p, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t s)
{
    SIM_ENTER(CUDASIM_MEMSET);
    if (sim_stream_device(s) < 0)
        return sim_leave(cudaErrorInvalidResourceHandle);
    if (!width || !height)
        return cudaSuccess;
    if (pitch < width || sim_memory_owner(p, span(pitch, width, height)) != sim_stream_device(s))
        return sim_leave(cudaErrorInvalidValue);
    sim_enqueue(
        s, "set",
        [=]() {
            for (size_t i = 0; i < height; i++)
                memset(static_cast<char *>(p) + i * pitch, value, width);
        },
        nullptr, 0);
    return sim_leave(sim_take_async_error());
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t s)
{
    return cudaMemset2DAsync(p, bytes, value, bytes, 1, s);
}

cudaError_t sim_func_shared_limit(const void *fn, int bytes)
{
    SIM_ENTER(CUDASIM_OTHER);
    if (bytes > shared_optin)
        return sim_leave(cudaErrorInvalidValue);
    shared_limits[{fn, sim_device_now}] = bytes;
    return cudaSuccess;
}

cudaError_t sim_launch(const void *fn, const char *name, dim3 grid, dim3 block, size_t shared,
                       cudaStream_t s, std::function<void()> body)
{
    SIM_ENTER(CUDASIM_LAUNCH);
    int device = sim_stream_device(s);
    uint64_t per_block = static_cast<uint64_t>(block.x) * block.y * block.z;
    uint64_t seed = sim_config.seed ? sim_random() | 1 : 0;

    if (device != sim_device_now)
        return sim_leave(cudaErrorInvalidResourceHandle);
    auto limit = shared_limits.find({fn, device});
    if (per_block == 0 || per_block > SIM_MAX_THREADS || block.z > 64 || grid.x == 0 ||
        grid.x > 0x7fffffffu || grid.y == 0 || grid.y > 65535 || grid.z == 0 || grid.z > 65535)
        return sim_leave(cudaErrorInvalidConfiguration);
    if (shared > static_cast<size_t>(limit == shared_limits.end() ? shared_default : limit->second))
        return sim_leave(cudaErrorInvalidValue);
    sim_enqueue(
        s, name, [=]() { sim_run_kernel(name, grid, block, shared, seed, body); }, nullptr, 0);
    return sim_leave(sim_take_async_error());
}

const char *cudaGetErrorName(cudaError_t e)
{
    switch (e) {
    case cudaSuccess:
        return "cudaSuccess";
    case cudaErrorMemoryAllocation:
        return "cudaErrorMemoryAllocation";
    case cudaErrorInsufficientDriver:
        return "cudaErrorInsufficientDriver";
    case cudaErrorNoDevice:
        return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice:
        return "cudaErrorInvalidDevice";
    case cudaErrorIllegalAddress:
        return "cudaErrorIllegalAddress";
    case cudaErrorLaunchFailure:
        return "cudaErrorLaunchFailure";
    case cudaErrorInvalidValue:
        return "cudaErrorInvalidValue";
    default:
        return "cudaErrorOther";
    }
}

const char *cudaGetErrorString(cudaError_t e)
{
    switch (e) {
    case cudaErrorMemoryAllocation:
        return "out of memory";
    case cudaErrorInsufficientDriver:
        return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorNoDevice:
        return "no CUDA-capable device is detected";
    default:
        return "simulated error";
    }
}
