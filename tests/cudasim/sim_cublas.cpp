/* Column-major products, in double, on the stream like any other operation. */
#include "cublas_v2.h"
#include "sim_state.h"

struct sim_cublas {
    cudaStream_t stream;
};

#define ENTER_LIBRARY()                                                                            \
    std::lock_guard<std::recursive_mutex> held_(sim_lock);                                         \
    if (sim_enter(CUDASIM_LIBRARY) != cudaSuccess)                                                 \
    return CUBLAS_STATUS_EXECUTION_FAILED

cublasStatus_t cublasCreate(cublasHandle_t *h)
{
    ENTER_LIBRARY();
    *h = new sim_cublas{nullptr};
    sim_live(1);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy(cublasHandle_t h)
{
    std::lock_guard<std::recursive_mutex> held(sim_lock);

    delete h;
    sim_live(-1);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream(cublasHandle_t h, cudaStream_t s)
{
    ENTER_LIBRARY();
    h->stream = s;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace(cublasHandle_t h, void *p, size_t bytes)
{
    ENTER_LIBRARY();
    if (reinterpret_cast<uintptr_t>(p) % 256 ||
        sim_memory_owner(p, bytes) != sim_stream_device(h->stream))
        return CUBLAS_STATUS_INVALID_VALUE;
    return CUBLAS_STATUS_SUCCESS;
}

static size_t matrix_bytes(int rows, int cols, int ld)
{
    return (static_cast<size_t>(cols - 1) * static_cast<size_t>(ld) + static_cast<size_t>(rows)) *
           sizeof(float);
}

cublasStatus_t cublasSgemm(cublasHandle_t h, cublasOperation_t opA, cublasOperation_t opB, int m,
                           int n, int k, const float *alpha, const float *A, int lda,
                           const float *B, int ldb, const float *beta, float *C, int ldc)
{
    ENTER_LIBRARY();
    bool a_t = opA == CUBLAS_OP_T, b_t = opB == CUBLAS_OP_T;
    int device = sim_stream_device(h->stream);
    float al = *alpha, be = *beta;

    if (m <= 0 || n <= 0 || k <= 0 || lda < (a_t ? k : m) || ldb < (b_t ? n : k) || ldc < m ||
        sim_memory_owner(A, matrix_bytes(a_t ? k : m, a_t ? m : k, lda)) != device ||
        sim_memory_owner(B, matrix_bytes(b_t ? n : k, b_t ? k : n, ldb)) != device ||
        sim_memory_owner(C, matrix_bytes(m, n, ldc)) != device)
        return CUBLAS_STATUS_INVALID_VALUE;
    sim_enqueue(
        h->stream, "gemm",
        [=]() {
            int64_t sa_m = a_t ? lda : 1, sa_k = a_t ? 1 : lda, sb_k = b_t ? ldb : 1,
                    sb_n = b_t ? 1 : ldb;

            for (int64_t j = 0; j < n; j++)
                for (int64_t i = 0; i < m; i++) {
                    double sum = 0;

                    for (int64_t l = 0; l < k; l++)
                        sum += static_cast<double>(A[i * sa_m + l * sa_k]) *
                               static_cast<double>(B[l * sb_k + j * sb_n]);
                    float *c = C + j * ldc + i;
                    *c = static_cast<float>(
                        static_cast<double>(al) * sum +
                        (be == 0 ? 0.0 : static_cast<double>(be) * static_cast<double>(*c)));
                }
        },
        nullptr, 0);
    return CUBLAS_STATUS_SUCCESS;
}

const char *cublasGetStatusName(cublasStatus_t s)
{
    return s == CUBLAS_STATUS_SUCCESS ? "CUBLAS_STATUS_SUCCESS" : "CUBLAS_STATUS_ERROR";
}
