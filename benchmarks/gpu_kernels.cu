// Kernels of known size and duration, for benchmarks of the clock and of the emulator. Compiled like
// a candidate's; launched by plans of ours, so there is no host code.

extern "C" __global__ void copy4(const float4* x, float4* o, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) o[i] = x[i];
}

extern "C" __global__ void multiply_add(const float* x, float* o, int n, int steps) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float a = x[i], b = 1.0f;
  for (int k = 0; k < steps; ++k) b = b * a + 0.5f;
  o[i] = b;
}

// --- sums of rows, from worse to better -----------------------------------------------------------

extern "C" __global__ void row_sum_serial(const float* x, float* o, int rows, int cols) {
  int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r >= rows) return;
  float s = 0.0f;
  for (int c = 0; c < cols; ++c) s += x[(size_t)r * cols + c];
  o[r] = s;
}

extern "C" __global__ void row_sum_shared(const float* x, float* o, int rows, int cols) {
  __shared__ float part[256];
  float s = 0.0f;
  for (int c = threadIdx.x; c < cols; c += 256) s += x[(size_t)blockIdx.x * cols + c];
  part[threadIdx.x] = s;
  __syncthreads();
  for (int step = 1; step < 256; step *= 2) {
    if (threadIdx.x % (2 * step) == 0) part[threadIdx.x] += part[threadIdx.x + step];
    __syncthreads();
  }
  if (threadIdx.x == 0) o[blockIdx.x] = part[0];
}

extern "C" __global__ void row_sum_shuffle(const float* x, float* o, int rows, int cols) {
  __shared__ float part[8];
  float s = 0.0f;
  for (int c = threadIdx.x; c < cols; c += 256) s += x[(size_t)blockIdx.x * cols + c];
  for (int step = 16; step; step /= 2) s += __shfl_down_sync(0xffffffffu, s, step);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = s;
  __syncthreads();
  if (threadIdx.x < 8) {
    s = part[threadIdx.x];
    for (int step = 4; step; step /= 2) s += __shfl_down_sync(0xffu, s, step);
    if (threadIdx.x == 0) o[blockIdx.x] = s;
  }
}

extern "C" __global__ void row_sum_vector(const float* x, float* o, int rows, int cols) {
  __shared__ float part[8];
  const float4* row = (const float4*)(x + (size_t)blockIdx.x * cols);
  float s = 0.0f;
  for (int c = threadIdx.x; c < cols / 4; c += 256) {
    float4 v = row[c];
    s += (v.x + v.y) + (v.z + v.w);
  }
  for (int step = 16; step; step /= 2) s += __shfl_down_sync(0xffffffffu, s, step);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = s;
  __syncthreads();
  if (threadIdx.x < 8) {
    s = part[threadIdx.x];
    for (int step = 4; step; step /= 2) s += __shfl_down_sync(0xffu, s, step);
    if (threadIdx.x == 0) o[blockIdx.x] = s;
  }
}

// --- transposes of a square matrix, from worse to better ------------------------------------------

extern "C" __global__ void transpose_naive(const float* x, float* o, int rows, int cols) {
  int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 8 + threadIdx.y;
  if (r < rows && c < cols) o[(size_t)c * rows + r] = x[(size_t)r * cols + c];
}

extern "C" __global__ void transpose_conflicts(const float* x, float* o, int rows, int cols) {
  __shared__ float tile[32][32];
  int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 32 + threadIdx.y;
  for (int k = 0; k < 32; k += 8)
    if (r + k < rows && c < cols) tile[threadIdx.y + k][threadIdx.x] = x[(size_t)(r + k) * cols + c];
  __syncthreads();
  c = blockIdx.y * 32 + threadIdx.x, r = blockIdx.x * 32 + threadIdx.y;
  for (int k = 0; k < 32; k += 8)
    if (r + k < cols && c < rows) o[(size_t)(r + k) * rows + c] = tile[threadIdx.x][threadIdx.y + k];
}

extern "C" __global__ void transpose_padded(const float* x, float* o, int rows, int cols) {
  __shared__ float tile[32][33];
  int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 32 + threadIdx.y;
  for (int k = 0; k < 32; k += 8)
    if (r + k < rows && c < cols) tile[threadIdx.y + k][threadIdx.x] = x[(size_t)(r + k) * cols + c];
  __syncthreads();
  c = blockIdx.y * 32 + threadIdx.x, r = blockIdx.x * 32 + threadIdx.y;
  for (int k = 0; k < 32; k += 8)
    if (r + k < cols && c < rows) o[(size_t)(r + k) * rows + c] = tile[threadIdx.x][threadIdx.y + k];
}

// --- products of two square matrices, from worse to better; x holds both --------------------------

extern "C" __global__ void matmul_uncoalesced(const float* x, float* o, int n, int unused) {
  int i = blockIdx.x * 16 + threadIdx.x, j = blockIdx.y * 16 + threadIdx.y;
  if (i >= n || j >= n) return;
  const float* y = x + (size_t)n * n;
  float s = 0.0f;
  for (int k = 0; k < n; ++k) s += x[(size_t)i * n + k] * y[(size_t)k * n + j];
  o[(size_t)i * n + j] = s;
}

extern "C" __global__ void matmul_naive(const float* x, float* o, int n, int unused) {
  int j = blockIdx.x * 16 + threadIdx.x, i = blockIdx.y * 16 + threadIdx.y;
  if (i >= n || j >= n) return;
  const float* y = x + (size_t)n * n;
  float s = 0.0f;
  for (int k = 0; k < n; ++k) s += x[(size_t)i * n + k] * y[(size_t)k * n + j];
  o[(size_t)i * n + j] = s;
}

extern "C" __global__ void matmul_tiled(const float* x, float* o, int n, int unused) {
  __shared__ float a[16][16], b[16][16];
  int j = blockIdx.x * 16 + threadIdx.x, i = blockIdx.y * 16 + threadIdx.y;
  const float* y = x + (size_t)n * n;
  float s = 0.0f;
  for (int t = 0; t < n; t += 16) {
    a[threadIdx.y][threadIdx.x] = i < n && t + threadIdx.x < n ? x[(size_t)i * n + t + threadIdx.x] : 0.0f;
    b[threadIdx.y][threadIdx.x] = t + threadIdx.y < n && j < n ? y[(size_t)(t + threadIdx.y) * n + j] : 0.0f;
    __syncthreads();
    for (int k = 0; k < 16; ++k) s += a[threadIdx.y][k] * b[k][threadIdx.x];
    __syncthreads();
  }
  if (i < n && j < n) o[(size_t)i * n + j] = s;
}

// Each thread makes sixteen results of a column.
extern "C" __global__ void matmul_blocked(const float* x, float* o, int n, int unused) {
  __shared__ float a[64][17], b[16][64];
  const float* y = x + (size_t)n * n;
  int tx = threadIdx.x, ty = threadIdx.y;  // 64 x 4
  int column = blockIdx.x * 64 + tx, row = blockIdx.y * 64;
  float s[16] = {};
  for (int t = 0; t < n; t += 16) {
    for (int k = ty * 64 + tx; k < 64 * 16; k += 256) {
      int r = k / 16, c = k % 16;
      a[r][c] = row + r < n && t + c < n ? x[(size_t)(row + r) * n + t + c] : 0.0f;
    }
    for (int k = ty; k < 16; k += 4) b[k][tx] = t + k < n && column < n ? y[(size_t)(t + k) * n + column] : 0.0f;
    __syncthreads();
    for (int k = 0; k < 16; ++k)
#pragma unroll
      for (int r = 0; r < 16; ++r) s[r] += a[ty * 16 + r][k] * b[k][tx];
    __syncthreads();
  }
#pragma unroll
  for (int r = 0; r < 16; ++r)
    if (row + ty * 16 + r < n && column < n) o[(size_t)(row + ty * 16 + r) * n + column] = s[r];
}

// --- reads of shared memory at a stride, in words of 4, 8 and 16 bytes -----------------------------

template <typename Word> __device__ void gather(const float* x, float* o, int floats, int stride) {
  __shared__ Word tile[1024];
  int first = blockIdx.x * 1024;
  if ((first + 1024) * sizeof(Word) > floats * sizeof(float)) return;
  for (int k = threadIdx.x; k < 1024; k += 256) tile[k] = ((const Word*)x)[first + k];
  __syncthreads();
  for (int k = threadIdx.x; k < 1024; k += 256) ((Word*)o)[first + k] = tile[k * stride & 1023];
}

extern "C" __global__ void gather1(const float* x, float* o, int n, int s) { gather<float>(x, o, n, s); }
extern "C" __global__ void gather2(const float* x, float* o, int n, int s) { gather<float2>(x, o, n, s); }
extern "C" __global__ void gather4(const float* x, float* o, int n, int s) { gather<float4>(x, o, n, s); }
