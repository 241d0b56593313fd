// at::cuda::blas, rejected by name.
#pragma once
#include <cublas_v2.h>
#include <torch/extension.h>

namespace at {
namespace cuda {
namespace blas {
template <class T, class... A>
void gemm(const A&...) { cf_reject("at::cuda::blas::gemm"); }
template <class T, class... A>
void gemv(const A&...) { cf_reject("at::cuda::blas::gemv"); }
template <class T, class... A>
void bgemm(const A&...) { cf_reject("at::cuda::blas::bgemm"); }
}  // namespace blas
}  // namespace cuda
}  // namespace at
