// Kernels with one fault each; the counts that the tests expect are worked out by hand there.
#include <cassert>

extern "C" __global__ void out_of_bounds(const float *a, float *c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  c[i] = a[i];
}
extern "C" __global__ void misaligned(const char *a, float *c) { c[threadIdx.x] = *(const float *)(a + 4 * threadIdx.x + 2); }
extern "C" __global__ void misaligned_vector(const float *a, float *c) {
  float4 v = *(const float4 *)(a + 1);
  c[0] = v.x + v.w;
}
extern "C" __global__ void shared_overflow(float *c, int n) {
  __shared__ float s[64];
  s[threadIdx.x + n] = 1;
  __syncthreads();
  c[threadIdx.x] = s[threadIdx.x];
}
extern "C" __global__ void null_pointer(float *c) { c[threadIdx.x] = 1; }
extern "C" __global__ void endless(volatile int *c) { while (*c == 0) {} }
extern "C" __global__ void endless_alone(int *c) { for (;;) asm volatile(""); }
extern "C" __global__ void traps(int *c) { if (c[threadIdx.x] == 5) __trap(); }
extern "C" __global__ void asserts(int *c) { assert(c[threadIdx.x] != 5); }
extern "C" __global__ void unsupported_instruction(float *c) {
  __shared__ unsigned long long b;
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"((unsigned)__cvta_generic_to_shared(&b)));
  c[0] = 1;
}
extern "C" __global__ void writes_constant(const float *p) { *(float *)p = 1; }
__constant__ float fixed[4];
extern "C" __global__ void constant_overflow(float *c, int i) { c[0] = fixed[i]; }
__device__ __noinline__ int deep(int x, int *c) { int a[64]; for (int i = 0; i < 64; i++) a[i] = c[i & 3] + x; return x <= 0 ? a[c[0] & 63] : deep(x - 1, c) + a[x & 63]; }
extern "C" __global__ void deep_recursion(int *c, int depth) { c[threadIdx.x] = deep(depth, c); }
extern "C" __global__ void partial_barrier(float *c) {
  asm volatile("bar.sync 1, 64;");
  c[threadIdx.x] = 1;
}

extern "C" __global__ void uninitialized_shared(float *c) {
  __shared__ float s[256];
  int t = threadIdx.x;
  if (t < 128) s[t] = t;
  __syncthreads();
  c[t] = s[t];
}
extern "C" __global__ void race(const float *a, float *c) {
  __shared__ float s[256];
  int t = threadIdx.x;
  s[t] = a[t];
  c[t] = s[(t + 32) & 255];
}
extern "C" __global__ void race_after_loop(const float *a, float *c) {
  __shared__ float s[128];
  int t = threadIdx.x;
  float v = 0;
  for (int k = 0; k < 4; k++) {
    s[t] = a[k * 128 + t];
    __syncthreads();
    v += s[127 - t];
    // no barrier here: the next store races with this read
  }
  c[t] = v;
}
extern "C" __global__ void warp_race(const float *a, float *c) {
  __shared__ float s[32];
  int t = threadIdx.x;
  s[t] = a[t];
  c[t] = s[31 - t];
}
extern "C" __global__ void warp_in_step(const float *a, float *c) {
  __shared__ float s[32];
  int t = threadIdx.x;
  s[t] = a[t];
  __syncwarp();
  c[t] = s[31 - t];
}
extern "C" __global__ void divergent_barrier(const float *a, float *c) {
  __shared__ float s[64];
  int t = threadIdx.x;
  s[t] = a[t];
  if (a[t] > 0) __syncthreads();
  else s[t] = -s[t];
  c[t] = s[t];
}
extern "C" __global__ void reads_uninitialized(const float *a, float *c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i];
}
extern "C" __global__ void count_without_atomic(const float *a, float *c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n && a[i] > 0) *c = *c + 1;
}
extern "C" __global__ void largest_without_atomic(const float *a, volatile float *c, int n) {
  int i = threadIdx.x / 32 + blockIdx.x * (blockDim.x / 32);
  if (threadIdx.x % 32 == 0 && i < n && a[i] > *c) *c = a[i];
}
extern "C" __global__ void count_by_atomic(const float *a, float *c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n && a[i] > 0) atomicAdd(c, 1.0f);
}
