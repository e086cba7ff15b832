/* cuda_runtime.h - the stand-in's: the part of the CUDA 12.0 runtime API that this project uses.
 *
 * Found instead of NVIDIA's by the include path of tests/cudasim. Names and numbers are the real
 * ones; what the calls do here is in sim_memory.cpp, sim_stream.cpp and sim_runtime.cpp. */
#ifndef OOC_SIM_CUDA_RUNTIME_H
#define OOC_SIM_CUDA_RUNTIME_H

#include "sim_device.h"

#include <functional>
#include <stddef.h>
#include <tuple>
#include <type_traits>

#define OOC_CUDASIM    1
#define CUDART_VERSION 12000

enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInitializationError = 3,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorInvalidDevicePointer = 17,
    cudaErrorInvalidMemcpyDirection = 21,
    cudaErrorInsufficientDriver = 35,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidDevice = 101,
    cudaErrorInvalidResourceHandle = 400,
    cudaErrorNotReady = 600,
    cudaErrorIllegalAddress = 700,
    cudaErrorPeerAccessAlreadyEnabled = 704,
    cudaErrorPeerAccessNotEnabled = 705,
    cudaErrorHostMemoryAlreadyRegistered = 712,
    cudaErrorHostMemoryNotRegistered = 713,
    cudaErrorLaunchFailure = 719,
    cudaErrorUnknown = 999
};

enum cudaMemcpyKind {
    cudaMemcpyHostToHost = 0,
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost = 2,
    cudaMemcpyDeviceToDevice = 3,
    cudaMemcpyDefault = 4
};

enum cudaDeviceAttr {
    cudaDevAttrMaxSharedMemoryPerBlock = 8,
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor = 76,
    cudaDevAttrMaxSharedMemoryPerBlockOptin = 97
};

enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };

#define cudaStreamNonBlocking   1u
#define cudaEventDisableTiming  2u
#define cudaHostRegisterDefault 0u
#define cudaStreamLegacy        (static_cast<cudaStream_t>(nullptr))

struct cudaDeviceProp {
    char name[256];
};

struct cudaPitchedPtr {
    void *ptr;
    size_t pitch, xsize, ysize;
};
struct cudaExtent {
    size_t width, height, depth;
};
struct cudaMemcpy3DPeerParms {
    cudaPitchedPtr srcPtr;
    int srcDevice;
    cudaPitchedPtr dstPtr;
    int dstDevice;
    cudaExtent extent;
};

static inline cudaPitchedPtr make_cudaPitchedPtr(void *p, size_t pitch, size_t xsize, size_t ysize)
{
    return {p, pitch, xsize, ysize};
}

static inline cudaExtent make_cudaExtent(size_t width, size_t height, size_t depth)
{
    return {width, height, depth};
}

struct sim_stream;
struct sim_event;
typedef sim_stream *cudaStream_t;
typedef sim_event *cudaEvent_t;

cudaError_t cudaDriverGetVersion(int *version);
cudaError_t cudaRuntimeGetVersion(int *version);
cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *prop, int device);
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attr, int device);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer);
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags);
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes);
cudaError_t cudaMalloc(void **p, size_t bytes);
cudaError_t cudaFree(void *p);
cudaError_t cudaHostRegister(void *p, size_t bytes, unsigned flags);
cudaError_t cudaHostUnregister(void *p);
cudaError_t cudaMemcpy(void *dst, const void *src, size_t bytes, cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t s);
cudaError_t cudaMemcpy2DAsync(void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind, cudaStream_t s);
cudaError_t cudaMemcpyPeerAsync(void *dst, int dst_device, const void *src, int src_device,
                                size_t bytes, cudaStream_t s);
cudaError_t cudaMemcpy3DPeerAsync(const cudaMemcpy3DPeerParms *p, cudaStream_t s);
cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t s);
cudaError_t cudaMemset2DAsync(void *p, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t s);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t s);
cudaError_t cudaStreamSynchronize(cudaStream_t s);
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t e);
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s);
cudaError_t cudaEventSynchronize(cudaEvent_t e);
cudaError_t cudaEventQuery(cudaEvent_t e);
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end);
cudaError_t cudaGetLastError();
cudaError_t cudaPeekAtLastError();
const char *cudaGetErrorName(cudaError_t e);
const char *cudaGetErrorString(cudaError_t e);

template <class T> static inline cudaError_t cudaMalloc(T **p, size_t bytes)
{
    return cudaMalloc(reinterpret_cast<void **>(p), bytes);
}

cudaError_t sim_func_shared_limit(const void *fn, int bytes);

template <class T>
static inline cudaError_t cudaFuncSetAttribute(T *fn, cudaFuncAttribute attr, int value)
{
    return attr == cudaFuncAttributeMaxDynamicSharedMemorySize
               ? sim_func_shared_limit(reinterpret_cast<const void *>(fn), value)
               : cudaErrorInvalidValue;
}

/* Launching: arguments are copied at the call, as a card does. Pointers among them must be device
 * memory that the stream's device can reach; struct arguments say so by a specialization. */
void sim_check_pointer(const void *p, cudaStream_t s);
cudaError_t sim_launch(const void *fn, const char *name, dim3 grid, dim3 block, size_t shared,
                       cudaStream_t s, std::function<void()> body);

template <class T> struct sim_arg {
    static void check(const T &, cudaStream_t)
    {
    }
};
template <class T> struct sim_arg<T *> {
    static void check(T *p, cudaStream_t s)
    {
        sim_check_pointer(p, s);
    }
};

template <class... P, class... A>
static inline cudaError_t sim_launch_kernel(void (*fn)(P...), const char *name, dim3 grid,
                                            dim3 block, size_t shared, cudaStream_t s, A... args)
{
    std::tuple<P...> copied(static_cast<P>(args)...);

    std::apply([s](const P &...a) { (sim_arg<P>::check(a, s), ...); }, copied);
    return sim_launch(reinterpret_cast<const void *>(fn), name, grid, block, shared, s,
                      [fn, copied]() { std::apply(fn, copied); });
}

#endif
