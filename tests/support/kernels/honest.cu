// Correct kernels with patterns that a careless race check takes for faults.
#include <stdint.h>
extern "C" __global__ void early_return(const float *a, float *c, int n) {
  __shared__ float s[64];
  int t = threadIdx.x;
  if (t >= n) return;
  s[t] = a[t];
  __syncthreads();
  c[t] = s[n - 1 - t];
}
extern "C" __global__ void return_inside(const float *a, float *c, int n) {
  __shared__ float s[64];
  int t = threadIdx.x;
  s[t] = 0;
  if (t % 2 == 0) {
    if (t >= n) { c[t] = -1; return; }
    s[t] = a[t];
  }
  __syncthreads();
  c[t] = s[t ^ (t + 1 < n ? 1 : 0)];
}
extern "C" __global__ void bytes_of_a_word(const int8_t *a, int8_t *c) {
  __shared__ int8_t s[128];
  s[threadIdx.x] = a[threadIdx.x];
  __syncthreads();
  c[threadIdx.x] = s[127 - threadIdx.x];
  s[127 - threadIdx.x] = 0;
}
extern "C" __global__ void same_value_by_all(const int *a, int *c) {
  __shared__ int flag;
  if (threadIdx.x == 0) flag = 0;
  __syncthreads();
  if (a[threadIdx.x] > 0) flag = 1;
  __syncthreads();
  c[threadIdx.x] = flag;
}
extern "C" __global__ void broadcast_then_write(const float *a, float *c) {
  __shared__ float s[32];
  int t = threadIdx.x;
  s[t] = a[t];
  __syncwarp();
  float v = s[0] + s[1];
  __syncwarp();
  s[t] = v;
  __syncwarp();
  c[t] = s[31 - t];
}
extern "C" __global__ void shared_atomics(const int *a, int *c) {
  __shared__ int s[8];
  if (threadIdx.x < 8) s[threadIdx.x] = 0;
  __syncthreads();
  atomicAdd(&s[a[threadIdx.x] & 7], 1);
  atomicMax(&s[0], 3);
  __syncthreads();
  if (threadIdx.x < 8) c[threadIdx.x] = s[threadIdx.x];
}
extern "C" __global__ void named_barriers(const float *a, float *c) {
  __shared__ float s[128];
  int t = threadIdx.x;
  s[t] = a[t];
  if (t < 64) asm volatile("bar.sync 1, 64;"); else asm volatile("bar.sync 2, 64;");
  c[t] = s[t ^ 32];
}
extern "C" __global__ void reused_buffer(const float *a, float *c, int n) {
  __shared__ float s[128];
  float v = 0;
  for (int k = 0; k < n; k++) {
    s[threadIdx.x] = a[k * 128 + threadIdx.x];
    __syncthreads();
    v += s[127 - threadIdx.x];
    __syncthreads();
  }
  c[threadIdx.x] = v;
}
extern "C" __global__ void last_block(const float *a, float *part, float *out, unsigned *count) {
  __shared__ bool last;
  __shared__ float s[64];
  s[threadIdx.x] = a[blockIdx.x * 64 + threadIdx.x];
  __syncthreads();
  if (threadIdx.x == 0) {
    float v = 0;
    for (int i = 0; i < 64; i++) v += s[i];
    part[blockIdx.x] = v;
    __threadfence();
    last = atomicAdd(count, 1u) == gridDim.x - 1;
  }
  __syncthreads();
  if (last && threadIdx.x == 0) {
    float v = 0;
    for (int i = 0; i < gridDim.x; i++) v += ((volatile float *)part)[i];
    *out = v;
  }
}
extern "C" __global__ void waits_for_later_block(volatile int *flag, int *c) {
  if (blockIdx.x == 0) { while (*flag == 0) {} c[0] = 1; }
  else if (blockIdx.x == gridDim.x - 1) { *flag = 1; c[1] = 1; }
}
extern "C" __global__ void warp_waits_for_warp(int *c) {
  __shared__ volatile int flag;
  if (threadIdx.x == 0) flag = 0;
  __syncthreads();
  if (threadIdx.x < 32) { while (flag == 0) {} c[threadIdx.x] = 1; }
  else if (threadIdx.x == 32) flag = 1;
}
extern "C" __global__ void lock_in_a_warp(int *lock, int *c) {
  while (atomicCAS(lock, 0, 1) != 0) {}
  *(volatile int *)c += 1;
  __threadfence();
  atomicExch(lock, 0);
}
extern "C" __global__ void lock_with_flag(int *lock, int *c) {
  bool done = false;
  while (!done) {
    if (atomicCAS(lock, 0, 1) == 0) {
      *(volatile int *)c += 1;
      __threadfence();
      atomicExch(lock, 0);
      done = true;
    }
  }
}
extern "C" __global__ void long_divergent_loop(const unsigned *n, unsigned *c) {
  unsigned v = threadIdx.x;
  for (unsigned i = 0; i < n[threadIdx.x]; i++) v = v * 1664525u + 1013904223u;
  c[threadIdx.x] = v + __shfl_xor_sync(0xffffffffu, v, 1);
}
