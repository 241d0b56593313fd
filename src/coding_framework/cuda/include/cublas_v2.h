// cuBLAS, rejected by name.
#pragma once
#include "coding_framework/rejected_library.h"

typedef struct cublasContext* cublasHandle_t;
enum cublasStatus_t {
  CUBLAS_STATUS_SUCCESS, CUBLAS_STATUS_NOT_INITIALIZED, CUBLAS_STATUS_ALLOC_FAILED = 3,
  CUBLAS_STATUS_INVALID_VALUE = 7, CUBLAS_STATUS_ARCH_MISMATCH, CUBLAS_STATUS_MAPPING_ERROR = 11,
  CUBLAS_STATUS_EXECUTION_FAILED = 13, CUBLAS_STATUS_INTERNAL_ERROR, CUBLAS_STATUS_NOT_SUPPORTED
};
enum cublasOperation_t { CUBLAS_OP_N, CUBLAS_OP_T, CUBLAS_OP_C };
enum cublasFillMode_t { CUBLAS_FILL_MODE_LOWER, CUBLAS_FILL_MODE_UPPER, CUBLAS_FILL_MODE_FULL };
enum cublasSideMode_t { CUBLAS_SIDE_LEFT, CUBLAS_SIDE_RIGHT };
enum cublasDiagType_t { CUBLAS_DIAG_NON_UNIT, CUBLAS_DIAG_UNIT };
enum cublasPointerMode_t { CUBLAS_POINTER_MODE_HOST, CUBLAS_POINTER_MODE_DEVICE };
enum cublasMath_t {
  CUBLAS_DEFAULT_MATH, CUBLAS_TENSOR_OP_MATH, CUBLAS_PEDANTIC_MATH, CUBLAS_TF32_TENSOR_OP_MATH
};
enum cublasGemmAlgo_t { CUBLAS_GEMM_DEFAULT = -1, CUBLAS_GEMM_DEFAULT_TENSOR_OP = 99 };
enum cublasComputeType_t {
  CUBLAS_COMPUTE_16F = 64, CUBLAS_COMPUTE_32F = 68, CUBLAS_COMPUTE_32F_PEDANTIC = 69,
  CUBLAS_COMPUTE_64F = 70, CUBLAS_COMPUTE_32F_FAST_16F = 74, CUBLAS_COMPUTE_32F_FAST_TF32 = 77
};

#define CF_BLAS(NAME) CF_REJECTED_CALL(cublasStatus_t, NAME)
#define CF_BLAS_TYPED(SUFFIX) CF_BLAS(cublasS##SUFFIX) CF_BLAS(cublasD##SUFFIX)
CF_BLAS(cublasCreate) CF_BLAS(cublasDestroy) CF_BLAS(cublasSetStream) CF_BLAS(cublasGetStream)
CF_BLAS(cublasSetMathMode) CF_BLAS(cublasSetPointerMode) CF_BLAS(cublasSetWorkspace)
CF_BLAS(cublasCreate_v2) CF_BLAS(cublasDestroy_v2) CF_BLAS(cublasSetStream_v2)
CF_BLAS_TYPED(gemm) CF_BLAS_TYPED(gemmBatched) CF_BLAS_TYPED(gemmStridedBatched)
CF_BLAS_TYPED(gemm_v2) CF_BLAS_TYPED(gemv) CF_BLAS_TYPED(ger) CF_BLAS_TYPED(symm)
CF_BLAS_TYPED(syrk) CF_BLAS_TYPED(trsm) CF_BLAS_TYPED(trmm) CF_BLAS_TYPED(geam)
CF_BLAS_TYPED(dgmm) CF_BLAS_TYPED(axpy) CF_BLAS_TYPED(dot) CF_BLAS_TYPED(scal)
CF_BLAS_TYPED(nrm2) CF_BLAS_TYPED(asum) CF_BLAS_TYPED(copy) CF_BLAS_TYPED(swap)
CF_BLAS(cublasHgemm) CF_BLAS(cublasHgemmBatched) CF_BLAS(cublasHgemmStridedBatched)
CF_BLAS(cublasGemmEx) CF_BLAS(cublasGemmBatchedEx) CF_BLAS(cublasGemmStridedBatchedEx)
CF_BLAS(cublasSgemmEx) CF_BLAS(cublasIsamax) CF_BLAS(cublasIsamin)
inline const char* cublasGetStatusString(cublasStatus_t) { return "cuBLAS is not available"; }
#undef CF_BLAS
#undef CF_BLAS_TYPED
