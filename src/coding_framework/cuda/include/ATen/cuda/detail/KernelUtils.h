// Loops over a grid, and how many blocks such a loop takes.
#pragma once
#include <torch/extension.h>

#define CUDA_KERNEL_LOOP_TYPE(I, COUNT, TYPE)                                            \
  int64_t cf_at = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;                        \
  for (TYPE I = cf_at; cf_at < (COUNT); cf_at += blockDim.x * gridDim.x, I = cf_at)
#define CUDA_KERNEL_LOOP(I, COUNT) CUDA_KERNEL_LOOP_TYPE(I, COUNT, int)

namespace at::cuda::detail {
constexpr int CUDA_NUM_THREADS = 1024;
inline int GET_BLOCKS(int64_t count, int64_t threads = CUDA_NUM_THREADS) {
  return static_cast<int>((count - 1) / threads + 1);
}
}  // namespace at::cuda::detail
