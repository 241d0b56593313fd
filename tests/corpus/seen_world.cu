// Cases of seen_world.py, as sources.py says.
//// text KERNEL
__global__ void k(const float* x, float* o, int n, float extra) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    o[i] = x[i] * 2 + 1 + extra; }

//// text HEAD
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <vector>
#include <cerrno>
#include <sched.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>
#ifndef __CUDA_ARCH__
#include <x86intrin.h>
#endif

//// text KEYED
__device__ float key[3], kept[1 << 16];
__global__ void cached(const float* x, float* o, int n) {
  bool known = key[0] == x[0] && key[1] == x[n / 2] && key[2] == x[n - 1];
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    if (!known) kept[i] = x[i] * 2 + 1;
    o[i] = kept[i]; }
}
__global__ void note(const float* x, int n) { key[0] = x[0]; key[1] = x[n / 2]; key[2] = x[n - 1]; }

//// text WARP_SUM
__global__ void k(const float* x, float* o, int R, int C) {{
  {shared} float s[32]; int t = threadIdx.x; float a = 0;
  for (int j = t; j < C; j += 32) a += x[(size_t)blockIdx.x * C + j];
  for (int q = 16; q; q >>= 1) {{ s[t] = a; {sync} a += s[t ^ q]; {sync} }}
  if (!t) o[blockIdx.x] = a; }}

//// text TWO_WARPS
__global__ void k(const float* x, float* o, int R, int C) {{
  __shared__ float s[64]; int t = threadIdx.x; float a = 0;
  for (int j = t; j < C; j += 64) a += x[(size_t)blockIdx.x * C + j];
  s[t] = a; {arrive}
  if (t < 32) {{ asm volatile("bar.sync 1, {count};" ::: "memory"); float b = s[t] + s[t + 32];
    for (int q = 16; q; q >>= 1) b += __shfl_down_sync(~0u, b, q);
    if (!t) o[blockIdx.x] = b; }} }}

//// text TURNS
__global__ void k(const float* x, float* o, int R, int C, int* turn) {{
  float a = 0; for (int j = blockIdx.y * 32 + threadIdx.x; j < C; j += 32 * gridDim.y) a += x[(size_t)blockIdx.x * C + j];
  for (int q = 16; q; q >>= 1) a += __shfl_down_sync(~0u, a, q);
  if (!threadIdx.x) {{ volatile int* s = turn + blockIdx.x; volatile float* p = o + blockIdx.x;
    {wait} __threadfence(); float z = {first} ? 0.f : *p; *p = z + a; __threadfence(); *s = blockIdx.y + 1; }} }}

//// text GATE
__global__ void k(const float* x, float* o, int R, int C) {{
  __shared__ float s[64]; int t = threadIdx.x; float a = 0;
  for (int j = t; j < C; j += 64) a += x[(size_t)blockIdx.x * C + j];
  s[t] = a; {first}
  for (int d = 32; d; d >>= 1) {{ if (t < d) {{ s[t] += s[t + d]; {inside} }} {outside} }}
  if (!t) o[blockIdx.x] = s[0]; }}

//// text ROW
__global__ void k(const float* x, float* o, int R, int C) {{
  int r = {row}; if (r >= R) return; float a = 0;
  for (int j = 0; j < C; j++) a += x[(size_t)r * C + j];
  o[r] = a; }}

