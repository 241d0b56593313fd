// Half precision, asynchronous copies, cooperative groups and printf.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cstdio>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>
namespace cg = cooperative_groups;
extern "C" __global__ void f16(const __half *a, const __half *b, __half *o, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  __half x = a[i], y = b[i];
  o[i] = __hadd(x, y); o[n + i] = __hmul(x, y); o[2 * n + i] = __hdiv(x, y); o[3 * n + i] = __hmax(x, y);
  o[4 * n + i] = hsqrt(__habs(x)); o[5 * n + i] = hexp(x); o[6 * n + i] = htanh(y); o[7 * n + i] = __hfma(x, y, x);
}
extern "C" __global__ void f16x2(const __half2 *a, const __half2 *b, __half2 *o, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  __half2 x = a[i], y = b[i];
  o[i] = __hadd2(x, y); o[n + i] = __hmul2(x, y); o[2 * n + i] = __hfma2(x, y, y); o[3 * n + i] = __hmin2(x, y);
  o[4 * n + i] = __hgt2(x, y); o[5 * n + i] = __hsub2(x, y); o[6 * n + i] = __hfma2_relu(x, y, y); o[7 * n + i] = __lows2half2(x, y);
}
extern "C" __global__ void bf16(const __nv_bfloat16 *a, const __nv_bfloat16 *b, __nv_bfloat16 *o, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  __nv_bfloat16 x = a[i], y = b[i];
  o[i] = __hadd(x, y); o[n + i] = __hmul(x, y); o[2 * n + i] = x / y; o[3 * n + i] = __hmax(x, y);
  o[4 * n + i] = __float2bfloat16(sqrtf(fabsf(__bfloat162float(x)))); o[5 * n + i] = hexp(x); o[6 * n + i] = __hsub(x, y); o[7 * n + i] = __hfma(x, y, x);
}
extern "C" __global__ void half_atomics(__half *a, __half2 *b, __nv_bfloat16 *c, __nv_bfloat162 *d) {
  atomicAdd(a, __float2half(0.5f)); atomicAdd(b, __floats2half2_rn(1.f, 2.f));
  atomicAdd(c, __float2bfloat16(1.f)); atomicAdd(d, __floats2bfloat162_rn(1.f, 2.f));
}
extern "C" __global__ void copies(const float4 *a, float4 *b, const float *c, float *d, int n) {
  __shared__ float4 s[128];
  __shared__ float t[128];
  __pipeline_memcpy_async(&s[threadIdx.x], &a[threadIdx.x], 16);
  if (threadIdx.x < n) __pipeline_memcpy_async(&t[threadIdx.x], &c[threadIdx.x], 4);
  else __pipeline_memcpy_async(&t[threadIdx.x], c, 4, 4);
  __pipeline_commit();
  __pipeline_wait_prior(0);
  __syncthreads();
  b[threadIdx.x] = s[127 - threadIdx.x];
  d[threadIdx.x] = t[127 - threadIdx.x];
}
extern "C" __global__ void groups(const float *a, float *o) {
  auto block = cg::this_thread_block();
  auto warp = cg::tiled_partition<32>(block);
  auto eight = cg::tiled_partition<8>(warp);
  int t = block.thread_rank();
  float v = a[t];
  o[t] = cg::reduce(warp, v, cg::plus<float>());
  o[64 + t] = cg::reduce(eight, v, cg::greater<float>());
  block.sync();
  o[128 + t] = 0;
  if (v > 0) {
    auto active = cg::coalesced_threads();
    o[128 + t] = active.size() * 100 + active.thread_rank();
  }
}
extern "C" __global__ void grid_barrier(int *a, int n) {
  auto grid = cg::this_grid();
  int i = grid.thread_rank();
  a[i] = i;
  grid.sync();
  int s = a[(i + n / 2) % n];
  grid.sync();
  a[i] = s * 2;
}
extern "C" __global__ void prints(int n) {
  if (threadIdx.x < n) printf("thread %d of %s: %5.2f %lld %c %x%%\n", threadIdx.x, "block", threadIdx.x * 1.5, (long long)n << 33, 'a' + threadIdx.x, 255);
}
