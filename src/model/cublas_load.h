/* cublas_load.h - cuBLAS, loaded when the first model asks for it: commands that don't need it
 * neither carry its hundreds of megabytes nor fail to start where it is missing. */
#ifndef OOC_SRC_MODEL_CUBLAS_LOAD_H
#define OOC_SRC_MODEL_CUBLAS_LOAD_H

#include "base/err.h"

#include <cublas_v2.h>

struct ooc_cublas {
    decltype(&cublasCreate) create;
    decltype(&cublasDestroy) destroy;
    decltype(&cublasSetStream) set_stream;
    decltype(&cublasSetWorkspace) set_workspace;
    decltype(&cublasSgemm) sgemm;
    decltype(&cublasGetStatusName) status_name;
};

/* OOC_E_UNSUPPORTED names the library that was looked for. It stays loaded. */
ooc_status ooc_cublas_load(ooc_cublas *out, ooc_err *err);

#endif
