# The .cu files of this room: compiled by nvcc for cards (kernels/CMakeLists.txt) and by the host's C++
# compiler for the stand-in (tests/cudasim/CMakeLists.txt).
set(OOC_CUDA_KERNELS dense_image_cuda.cu dense_vector_cuda.cu loss_cuda.cu spmm_adjoint_cuda.cu spmm_atomic_cuda.cu spmm_forward_cuda.cu)
list(TRANSFORM OOC_CUDA_KERNELS PREPEND ${PROJECT_SOURCE_DIR}/kernels/cuda/)
