// Kernels of the families that tasks are made of, checked against numpy.
#include <stdint.h>

extern "C" __global__ void add(const float *a, const float *b, float *c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}

extern "C" __global__ void add4(const float4 *a, const float4 *b, float4 *c, int n4) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n4) {
    float4 x = a[i], y = b[i];
    c[i] = make_float4(x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w);
  }
}

extern "C" __global__ void add_strided(const float *a, const float *b, float *c, int n, int stride) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  int per = n / stride, j = (i % per) * stride + i / per;
  if (i < n) c[j] = a[j] + b[j];
}

extern "C" __global__ void row_sum(const float *x, float *out, int columns) {
  __shared__ float part[32];
  const float *row = x + (int64_t)blockIdx.x * columns;
  float sum = 0;
  for (int i = threadIdx.x; i < columns; i += blockDim.x) sum += row[i];
  for (int o = 16; o; o >>= 1) sum += __shfl_down_sync(0xffffffffu, sum, o);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x < 32) {
    sum = threadIdx.x < blockDim.x / 32 ? part[threadIdx.x] : 0.f;
    for (int o = 16; o; o >>= 1) sum += __shfl_down_sync(0xffffffffu, sum, o);
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
  }
}

extern "C" __global__ void softmax(const float *x, float *y, int columns) {
  extern __shared__ float buffer[];
  const float *row = x + (int64_t)blockIdx.x * columns;
  float *out = y + (int64_t)blockIdx.x * columns;
  float m = -INFINITY;
  for (int i = threadIdx.x; i < columns; i += blockDim.x) m = fmaxf(m, row[i]);
  buffer[threadIdx.x] = m;
  __syncthreads();
  for (int s = blockDim.x / 2; s; s >>= 1) {
    if (threadIdx.x < s) buffer[threadIdx.x] = fmaxf(buffer[threadIdx.x], buffer[threadIdx.x + s]);
    __syncthreads();
  }
  m = buffer[0];
  __syncthreads();
  float sum = 0;
  for (int i = threadIdx.x; i < columns; i += blockDim.x) sum += expf(row[i] - m);
  buffer[threadIdx.x] = sum;
  __syncthreads();
  for (int s = blockDim.x / 2; s; s >>= 1) {
    if (threadIdx.x < s) buffer[threadIdx.x] += buffer[threadIdx.x + s];
    __syncthreads();
  }
  sum = buffer[0];
  for (int i = threadIdx.x; i < columns; i += blockDim.x) out[i] = expf(row[i] - m) / sum;
}

extern "C" __global__ void layernorm(const float *x, const float *g, const float *b, float *y, int columns,
                                     float eps) {
  __shared__ float s1[32], s2[32];
  const float *row = x + (int64_t)blockIdx.x * columns;
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
  float a = 0, c = 0;
  for (int i = threadIdx.x; i < columns; i += blockDim.x) { float v = row[i]; a += v; c += v * v; }
  for (int o = 16; o; o >>= 1) { a += __shfl_xor_sync(~0u, a, o); c += __shfl_xor_sync(~0u, c, o); }
  if (lane == 0) { s1[warp] = a; s2[warp] = c; }
  __syncthreads();
  if (threadIdx.x == 0) {
    a = c = 0;
    for (int i = 0; i < warps; i++) { a += s1[i]; c += s2[i]; }
    s1[0] = a / columns;
    s2[0] = rsqrtf(c / columns - s1[0] * s1[0] + eps);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < columns; i += blockDim.x)
    y[(int64_t)blockIdx.x * columns + i] = (row[i] - s1[0]) * s2[0] * g[i] + b[i];
}

extern "C" __global__ void matmul(const float *a, const float *b, float *c, int n) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= n || y >= n) return;
  float s = 0;
  for (int k = 0; k < n; k++) s += a[y * n + k] * b[k * n + x];
  c[y * n + x] = s;
}

extern "C" __global__ void matmul_tiled(const float *a, const float *b, float *c, int n) {
  __shared__ float ta[16][16], tb[16][16];
  int tx = threadIdx.x, ty = threadIdx.y, x = blockIdx.x * 16 + tx, y = blockIdx.y * 16 + ty;
  float s = 0;
  for (int t = 0; t < n; t += 16) {
    ta[ty][tx] = y < n && t + tx < n ? a[y * n + t + tx] : 0.f;
    tb[ty][tx] = x < n && t + ty < n ? b[(t + ty) * n + x] : 0.f;
    __syncthreads();
    for (int k = 0; k < 16; k++) s += ta[ty][k] * tb[k][tx];
    __syncthreads();
  }
  if (x < n && y < n) c[y * n + x] = s;
}

extern "C" __global__ void transpose(const float *a, float *c, int rows, int columns) {
  int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y;
  if (x < columns && y < rows) c[x * rows + y] = a[y * columns + x];
}

template <int PAD> __device__ void transpose_block(const float *a, float *c, int rows, int columns) {
  __shared__ float tile[32][32 + PAD];
  int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += 8)
    if (x < columns && y + j < rows) tile[threadIdx.y + j][threadIdx.x] = a[(y + j) * columns + x];
  __syncthreads();
  x = blockIdx.y * 32 + threadIdx.x;
  y = blockIdx.x * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += 8)
    if (x < rows && y + j < columns) c[(y + j) * rows + x] = tile[threadIdx.x][threadIdx.y + j];
}
extern "C" __global__ void transpose_tiled(const float *a, float *c, int rows, int columns) { transpose_block<1>(a, c, rows, columns); }
extern "C" __global__ void transpose_conflict(const float *a, float *c, int rows, int columns) { transpose_block<0>(a, c, rows, columns); }

extern "C" __global__ void scan(const float *x, float *y, int n) {
  __shared__ float s[1024];
  int t = threadIdx.x;
  s[t] = t < n ? x[(int64_t)blockIdx.x * n + t] : 0.f;
  __syncthreads();
  for (int o = 1; o < blockDim.x; o <<= 1) {
    float v = t >= o ? s[t - o] : 0.f;
    __syncthreads();
    s[t] += v;
    __syncthreads();
  }
  if (t < n) y[(int64_t)blockIdx.x * n + t] = s[t];
}

extern "C" __global__ void histogram(const uint8_t *x, unsigned *bins, int n) {
  __shared__ unsigned local[256];
  for (int i = threadIdx.x; i < 256; i += blockDim.x) local[i] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    atomicAdd(&local[x[i]], 1u);
  __syncthreads();
  for (int i = threadIdx.x; i < 256; i += blockDim.x) atomicAdd(&bins[i], local[i]);
}

__constant__ float weights[9];
__device__ int calls;
__device__ float table[4] = {1.f, -2.f, 3.f, 0.5f};
extern "C" __global__ void conv3x3(const float *x, float *y, int h, int w) {
  int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;
  if (c == 0 && r == 0) atomicAdd(&calls, 1);
  if (c >= w || r >= h) return;
  float s = 0;
  for (int i = -1; i <= 1; i++)
    for (int j = -1; j <= 1; j++)
      if (r + i >= 0 && r + i < h && c + j >= 0 && c + j < w)
        s += weights[(i + 1) * 3 + j + 1] * x[(r + i) * w + c + j];
  y[r * w + c] = s + table[(r + c) & 3];
}

extern "C" __global__ void mixed_types(const bool *m, const int8_t *a, const int16_t *b, const int64_t *c,
                                       const double *d, double *out, int8_t *narrow, int64_t *wide, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int64_t v = (int64_t)a[i] * b[i] + (m[i] ? c[i] / 7 : c[i] % 13);
  wide[i] = v;
  narrow[i] = (int8_t)v;
  out[i] = d[i] * (double)v + sqrt(fabs(d[i]));
}

extern "C" __global__ void local_array(const float *x, float *y, const int *index, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float a[16];
  for (int k = 0; k < 16; k++) a[k] = x[i] * k;
  for (int k = 0; k < 8; k++) a[index[(i + k) % n] & 15] += k;
  y[i] = a[index[i] & 15];
}

__device__ __noinline__ float power(float x, int k) { return k > 0 ? x * power(x, k - 1) : 1.f; }
typedef float (*Unary)(float);
__device__ float twice(float x) { return 2 * x; }
__device__ float square(float x) { return x * x; }
__device__ Unary functions[2] = {twice, square};
struct Pair { float v; int k; double w[2]; };
__device__ __noinline__ Pair make(float v, int k) { Pair p; p.v = v; p.k = k; p.w[0] = v + k; p.w[1] = v - k; return p; }
extern "C" __global__ void calls_functions(const float *x, float *y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  Pair p = make(x[i], i % 5);
  float s = power(p.v, p.k) + functions[i & 1](x[i]);
  if (i % 3 == 0) s += power(x[i], i % 7);
  y[i] = s + (float)p.w[i & 1];
}

struct Config { int n; float scale; int offsets[4]; };
extern "C" __global__ void by_value(Config c, const float *x, float *y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < c.n) y[i] = x[i] * c.scale + c.offsets[i & 3];
}

extern "C" __global__ void warp_functions(const int *a, int *out) {
  int t = threadIdx.x, v = a[t];
  unsigned ballot = __ballot_sync(~0u, v > 0);
  out[t] = __popc(ballot) + 100 * __any_sync(~0u, v == 3) + 1000 * __all_sync(~0u, v < 100);
  out[64 + t] = __shfl_up_sync(~0u, v, 3) + __shfl_sync(~0u, v, t ^ 5, 8);
  out[128 + t] = __reduce_add_sync(~0u, v) + __reduce_max_sync(~0u, v);
  out[192 + t] = __popc(__match_any_sync(~0u, v & 3));
  if (v & 1) out[256 + t] = __popc(__activemask()) + __popc(__ballot_sync(__activemask(), v > 0));
  else out[256 + t] = -__popc(__activemask());
  out[320 + t] = __syncthreads_count(v > 0) + 1000 * __syncthreads_or(v == 7) + 2000 * __syncthreads_and(v > -100);
}

extern "C" __global__ void atomics(int *i, unsigned *u, float *f, double *d, unsigned long long *l) {
  int t = blockIdx.x * blockDim.x + threadIdx.x;
  atomicAdd(i, t); atomicMax(i + 1, t); atomicMin(i + 2, -t); atomicExch(i + 3, 7); atomicSub(i + 4, 1);
  atomicOr(u, 1u << (t & 31)); atomicAnd(u + 1, ~(1u << (t & 15))); atomicXor(u + 2, t); atomicInc(u + 3, 9);
  atomicDec(u + 4, 9);
  atomicAdd(f, 0.5f); atomicAdd(d, 0.25); atomicAdd(l, 1ull); atomicMax(l + 1, (unsigned long long)t << 33);
  while (atomicCAS(i + 5, t, t + 1) != t) {
    if (t > 40) break;
  }
}
