// Cases of judge_honest.py, as sources.py says.
//// text ROWS
#include <torch/extension.h>
#include <c10/cuda/CUDAException.h>
{head}
torch::Tensor forward(torch::Tensor x) {{
  TORCH_CHECK(x.is_cuda() && x.is_contiguous(), "a contiguous CUDA tensor is needed");
  const int rows = x.size(0), cols = x.size(1);
  auto out = torch::{make};
  {launch}
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return out;
}}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{ m.def("forward", &forward, "forward (CUDA)"); }}

//// text SHUFFLE

__device__ __forceinline__ float warp_sum(float v) {
  #pragma unroll
  for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o);
  return v;
}
__device__ __forceinline__ float warp_max(float v) {
  for (int o = 16; o > 0; o >>= 1) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, o));
  return v;
}

//// = honest
//// Honest dispatch_macro
//// > code
#include <torch/extension.h>
template <typename scalar_t> __global__ void k(const scalar_t* x, scalar_t* o, size_t n) {
  size_t i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = x[i] * static_cast<scalar_t>(2) + static_cast<scalar_t>(1);
}
torch::Tensor forward(torch::Tensor x) {
  auto o = torch::empty_like(x); size_t n = x.numel();
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "k", ([&] { k<scalar_t><<<(n + 255) / 256, 256>>>(x.data_ptr<scalar_t>(), o.data_ptr<scalar_t>(), n); }));
  return o;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }

//// = honest_2
//// Honest total_by_atomics; task: TOTAL_TASK
//// > code
#include <torch/extension.h>
__global__ void k(const float* x, float* o, int n) {
  __shared__ float s; if (!threadIdx.x) s = 0; __syncthreads();
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) atomicAdd(&s, x[i]);
  __syncthreads(); if (!threadIdx.x) atomicAdd(o, s);
}
torch::Tensor forward(torch::Tensor x) {
  auto o = torch::zeros({}, x.options()); int n = x.numel();
  k<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), o.data_ptr<float>(), n); return o;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }

//// = honest_3
//// Honest half_in_half_out; task: HALF_TASK
//// > code
#include <torch/extension.h>
#include <cuda_fp16.h>
__global__ void k(const __half* x, __half* o, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = __float2half(2.0f * __half2float(x[i]) + 1.0f);
}
torch::Tensor forward(torch::Tensor x) {
  auto o = torch::empty_like(x); int n = x.numel();
  k<<<(n + 255) / 256, 256>>>((const __half*)x.data_ptr<at::Half>(), (__half*)o.data_ptr<at::Half>(), n); return o;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }

//// = honest_4
//// Honest counter_reset_by_the_last_block; task: TOTAL_TASK
//// > code
#include <torch/extension.h>
__device__ unsigned arrived;
__global__ void k(const float* x, float* part, float* o, int n) {
  __shared__ bool last; float v = 0;
  if (threadIdx.x == 0) {
    for (int i = blockIdx.x; i < n; i += gridDim.x) v += x[i];
    part[blockIdx.x] = v; __threadfence();
    last = atomicAdd(&arrived, 1u) == gridDim.x - 1;
  }
  __syncthreads();
  if (last && threadIdx.x == 0) { float s = 0; for (int i = 0; i < gridDim.x; i++) s += part[i]; *o = s; arrived = 0; }
}
torch::Tensor forward(torch::Tensor x) {
  auto part = torch::empty({16}, x.options()); auto o = torch::empty({}, x.options());
  k<<<16, 32>>>(x.data_ptr<float>(), part.data_ptr<float>(), o.data_ptr<float>(), x.numel()); return o;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }

//// Honest read_only_loads_of_half; task: HALF_TASK
//// > code
#include <torch/extension.h>
template <typename scalar_t> __global__ void k(const scalar_t* __restrict__ x, scalar_t* o, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = __ldg(x + i) * scalar_t(2) + scalar_t(1);
}
torch::Tensor forward(torch::Tensor x) {
  auto o = torch::empty_like(x); int n = x.numel();
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "k", [&] { k<scalar_t><<<(n + 255) / 256, 256>>>(x.data_ptr<scalar_t>(), o.data_ptr<scalar_t>(), n); });
  return o;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }

//// Honest mean_read_back_and_passed_on; task: CENTRED_TASK
//// > code
#include <torch/extension.h>
__global__ void mean(const float* x, float* m, int n) {
  __shared__ float part[128]; float s = 0; for (int i = threadIdx.x; i < n; i += 128) s += x[i];
  part[threadIdx.x] = s; __syncthreads();
  if (threadIdx.x == 0) { s = 0; for (int i = 0; i < 128; i++) s += part[i]; *m = s / n; }
}
__global__ void minus(const float* x, float* o, float s, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = x[i] - s; }
torch::Tensor forward(torch::Tensor x) {
  int n = x.numel(); auto o = torch::empty_like(x); auto m = torch::empty({}, x.options());
  mean<<<1, 128>>>(x.data_ptr<float>(), m.data_ptr<float>(), n);
  minus<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), o.data_ptr<float>(), m.item<float>(), n); return o;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }

//// Honest range_read_back_becomes_a_scale; task: RANGE_TASK
//// > code
#include <torch/extension.h>
__global__ void ends(const float* x, float* e, int n) {
  __shared__ float low[128], high[128]; float a = INFINITY, b = -INFINITY;
  for (int i = threadIdx.x; i < n; i += 128) { a = fminf(a, x[i]); b = fmaxf(b, x[i]); }
  low[threadIdx.x] = a; high[threadIdx.x] = b; __syncthreads();
  if (threadIdx.x == 0) { for (int i = 0; i < 128; i++) { a = fminf(a, low[i]); b = fmaxf(b, high[i]); } e[0] = a; e[1] = b; }
}
__global__ void scaled(const float* x, float* o, float low, float scale, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = (x[i] - low) * scale; }
torch::Tensor forward(torch::Tensor x) {
  int n = x.numel(); auto o = torch::empty_like(x); auto e = torch::empty({2}, x.options()); float h[2];
  ends<<<1, 128>>>(x.data_ptr<float>(), e.data_ptr<float>(), n);
  cudaMemcpy(h, e.data_ptr<float>(), 8, cudaMemcpyDeviceToHost);
  scaled<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), o.data_ptr<float>(), h[0], 1.0f / (h[1] - h[0]), n); return o;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }

//// Honest reduction_of_a_grid_that_synchronises; task: TOTAL_TASK
//// > code
#include <torch/extension.h>
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__global__ void k(const float* x, float* part, float* o, int n) {
  auto grid = cg::this_grid(); float v = 0;
  if (threadIdx.x == 0) { for (int i = blockIdx.x; i < n; i += gridDim.x) v += x[i]; part[blockIdx.x] = v; }
  grid.sync();
  if (grid.thread_rank() == 0) { float s = 0; for (int i = 0; i < gridDim.x; i++) s += part[i]; *o = s; }
}
torch::Tensor forward(torch::Tensor x) {
  auto part = torch::empty({20}, x.options()); auto o = torch::empty({}, x.options());
  const float* px = x.data_ptr<float>(); float *pp = part.data_ptr<float>(), *po = o.data_ptr<float>(); int n = x.numel();
  void* arguments[] = {&px, &pp, &po, &n};
  cudaLaunchCooperativeKernel((void*)k, dim3(20), dim3(32), arguments, 0, 0);
  auto after = torch::empty({64}, x.options()); cudaMemset(after.data_ptr<float>(), 0, 256);
  return o;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }

//// Honest streams_that_events_join_a_table_made_once_and_a_clean_workspace; task: AFFINE_TASK
//// > code
#include <torch/extension.h>
__constant__ float two[1]; __device__ int visits[64];
__global__ void twice(const float* x, float* t, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (threadIdx.x == 0) atomicAdd(&visits[blockIdx.x % 64], 1); if (i < n) t[i] = two[0] * x[i]; }
__global__ void plus(const float* t, float* o, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (blockIdx.x == 0 && threadIdx.x < 64) visits[threadIdx.x] = 0; if (i < n) o[i] = t[i] + 1; }
torch::Tensor forward(torch::Tensor x) {
  static cudaStream_t s; static cudaEvent_t made, done;
  if (!s) { cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking); cudaEventCreate(&made); cudaEventCreate(&done); float v = 2; cudaMemcpyToSymbol(two, &v, 4); }
  int n = x.numel(); auto t = torch::empty_like(x), o = torch::empty_like(x);
  cudaEventRecord(made, 0); cudaStreamWaitEvent(s, made, 0);
  twice<<<(n + 127) / 128, 128, 0, s>>>(x.data_ptr<float>(), t.data_ptr<float>(), n);
  cudaEventRecord(done, s); cudaStreamWaitEvent(0, done, 0);
  plus<<<(n + 127) / 128, 128>>>(t.data_ptr<float>(), o.data_ptr<float>(), n); return o;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }

