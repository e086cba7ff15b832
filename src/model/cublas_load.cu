#include "src/model/cublas_load.h"

#if defined(OOC_CUDASIM)

ooc_status ooc_cublas_load(ooc_cublas *out, ooc_err *)
{
    *out = {cublasCreate,       cublasDestroy, cublasSetStream,
            cublasSetWorkspace, cublasSgemm,   cublasGetStatusName};
    return OOC_OK;
}

#else

#include <dlfcn.h>
#include <stdio.h>

template <class F> static bool find(void *library, const char *name, F *out)
{
    *out = reinterpret_cast<F>(dlsym(library, name));
    return *out != nullptr;
}

ooc_status ooc_cublas_load(ooc_cublas *out, ooc_err *err)
{
    char name[32];
    void *library;

    snprintf(name, sizeof name, "libcublas.so.%d", CUBLAS_VER_MAJOR);
    library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library) /* where the toolkit that built us has it */
        library = dlopen(OOC_CUDA_LIBRARY_DIR "/libcublas.so", RTLD_NOW | RTLD_LOCAL);
    if (library && find(library, "cublasCreate_v2", &out->create) &&
        find(library, "cublasDestroy_v2", &out->destroy) &&
        find(library, "cublasSetStream_v2", &out->set_stream) &&
        find(library, "cublasSetWorkspace_v2", &out->set_workspace) &&
        find(library, "cublasSgemm_v2", &out->sgemm) &&
        find(library, "cublasGetStatusName", &out->status_name))
        return OOC_OK;
    return ooc_fail(
        err, OOC_E_UNSUPPORTED,
        "models on a GPU need %s: install cuBLAS of CUDA %d, or give --model-device cpu", name,
        CUBLAS_VER_MAJOR);
}

#endif
