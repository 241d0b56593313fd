// The small torch/extension.h: what CUDA kernels in extension form use of torch, and no more.
// Written for compile time: real torch costs about 45 s a kernel here. See coding_framework/tensor.h.
#pragma once
#include <cuda_runtime.h>

#include "../coding_framework/cuda_context.h"
#include "../coding_framework/dispatch.h"
#include "../coding_framework/module.h"
#include "../coding_framework/tensor.h"

// Named as missing: an operator is registered with a dispatcher that is not here.
#define CF_LIBRARY(NAME, M) \
  static auto cf_library = NAME; \
  static void cf_registers(int M)
#define TORCH_LIBRARY(NS, M) CF_LIBRARY(TORCH_LIBRARY, M)
#define TORCH_LIBRARY_FRAGMENT(NS, M) CF_LIBRARY(TORCH_LIBRARY_FRAGMENT, M)
#define TORCH_LIBRARY_IMPL(NS, KEY, M) CF_LIBRARY(TORCH_LIBRARY_IMPL, M)

namespace torch {
using namespace at;
namespace cuda {
inline bool is_available() { return true; }
inline int64_t device_count() { return 1; }
inline void synchronize(int64_t = -1) { C10_CUDA_CHECK(cudaDeviceSynchronize()); }
}  // namespace cuda
namespace nn {
namespace functional {
using namespace at;
}
}  // namespace nn
struct NoGradGuard {
  NoGradGuard() {}
};
struct InferenceMode {
  InferenceMode(bool = true) {}
};
}  // namespace torch
namespace at {
using NoGradGuard = torch::NoGradGuard;
}
