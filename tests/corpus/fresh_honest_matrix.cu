// Cases of fresh_honest_matrix.py, as sources.py says.
//// text TILE_16

  __shared__ float a[16][16], b[16][17];
  int tx = threadIdx.x, ty = threadIdx.y, r = blockIdx.y * 16 + ty, c = blockIdx.x * 16 + tx;
  float s = 0.f;
  for (int k = 0; k < K; k += 16) {
    a[ty][tx] = r < M && k + tx < K ? x[r * K + k + tx] : 0.f;
    b[ty][tx] = c < N && k + ty < K ? y[(k + ty) * N + c] : 0.f;
    __syncthreads();
    #pragma unroll
    for (int j = 0; j < 16; j++) s = fmaf(a[ty][j], b[j][tx], s);
    __syncthreads();
  }
  if (r < M && c < N) o[r * N + c] = s;

//// text REGISTERS

  __shared__ float a[8][32], b[8][32];
  int t = threadIdx.x, tr = t / 8 * 4, tc = t % 8 * 4, R = blockIdx.y * 32, C = blockIdx.x * 32;
  float s[4][4] = {};
  for (int k = 0; k < K; k += 8) {
    for (int i = t; i < 256; i += 64) {
      int r = R + i / 8, q = k + i % 8;
      a[i % 8][i / 8] = r < M && q < K ? x[r * K + q] : 0.f;
      int c = C + i % 32, p = k + i / 32;
      b[i / 32][i % 32] = c < N && p < K ? y[p * N + c] : 0.f;
    }
    __syncthreads();
    for (int j = 0; j < 8; j++)
      for (int u = 0; u < 4; u++)
        for (int w = 0; w < 4; w++) s[u][w] += a[j][tr + u] * b[j][tc + w];
    __syncthreads();
  }
  for (int u = 0; u < 4; u++)
    for (int w = 0; w < 4; w++)
      if (R + tr + u < M && C + tc + w < N) o[(R + tr + u) * N + C + tc + w] = s[u][w];

//// text DOUBLE_BUFFER

  __shared__ float a[2][16][17], b[2][16][17];
  int tx = threadIdx.x, ty = threadIdx.y, r = blockIdx.y * 16 + ty, c = blockIdx.x * 16 + tx;
  int steps = (K + 15) / 16;
  a[0][ty][tx] = r < M && tx < K ? x[r * K + tx] : 0.f;
  b[0][ty][tx] = c < N && ty < K ? y[ty * N + c] : 0.f;
  __syncthreads();
  float s = 0.f;
  for (int i = 0; i < steps; i++) {
    int now = i & 1, k = (i + 1) * 16;
    if (i + 1 < steps) {
      a[1 - now][ty][tx] = r < M && k + tx < K ? x[r * K + k + tx] : 0.f;
      b[1 - now][ty][tx] = c < N && k + ty < K ? y[(k + ty) * N + c] : 0.f;
    }
    for (int j = 0; j < 16; j++) s += a[now][ty][j] * b[now][j][tx];
    __syncthreads();
  }
  if (r < M && c < N) o[r * N + c] = s;

//// text WARP_DOT

  int lane = threadIdx.x, r = blockIdx.y, c = blockIdx.x * 4 + threadIdx.y;
  float s = 0.f;
  if (c < N) for (int j = lane; j < K; j += 32) s += x[r * K + j] * y[j * N + c];
  for (int d = 16; d > 0; d /= 2) s += __shfl_down_sync(0xffffffffu, s, d);
  if (lane == 0 && c < N) o[r * N + c] = s;

//// text BMM
__global__ void k(const float* x, const float* y, float* o, int M, int N, int K) {
  int b = blockIdx.z, r = blockIdx.y, c = blockIdx.x * 32 + threadIdx.x;
  extern __shared__ float row[];
  for (int j = threadIdx.x; j < K; j += 32) row[j] = x[(b * M + r) * K + j];
  __syncthreads();
  if (c >= N) return;
  float s = 0.f;
  for (int j = 0; j < K; j++) s += row[j] * y[(b * K + j) * N + c];
  o[(b * M + r) * N + c] = s;
}
//// text WMMA
__global__ void k(const __half* x, const __half* y, float* o, int M, int N, int K) {
  using namespace nvcuda;
  __shared__ __align__(32) __half a[256], b[256];
  __shared__ __align__(32) float d[256];
  int R = blockIdx.y * 16, C = blockIdx.x * 16, t = threadIdx.x;
  wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> fa;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> fb;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> fd;
  wmma::fill_fragment(fd, 0.f);
  for (int k = 0; k < K; k += 16) {
    for (int i = t; i < 256; i += 32) {
      int r = R + i / 16, q = k + i % 16, p = k + i / 16, c = C + i % 16;
      a[i] = r < M && q < K ? x[r * K + q] : __float2half(0.f);
      b[i] = p < K && c < N ? y[p * N + c] : __float2half(0.f);
    }
    __syncwarp();
    wmma::load_matrix_sync(fa, a, 16);
    wmma::load_matrix_sync(fb, b, 16);
    wmma::mma_sync(fd, fa, fb, fd);
    __syncwarp();
  }
  wmma::store_matrix_sync(d, fd, 16, wmma::mem_row_major);
  __syncwarp();
  for (int i = t; i < 256; i += 32)
    if (R + i / 16 < M && C + i % 16 < N) o[(R + i / 16) * N + C + i % 16] = d[i];
}
//// text TRANSPOSE
__global__ void k(const float* x, float* o, int R, int C) {
  __shared__ float a[32][33];
  for (int j = threadIdx.y; j < 32; j += 8) {
    int r = blockIdx.y * 32 + j, c = blockIdx.x * 32 + threadIdx.x;
    if (r < R && c < C) a[j][threadIdx.x] = x[r * C + c];
  }
  __syncthreads();
  for (int j = threadIdx.y; j < 32; j += 8) {
    int r = blockIdx.x * 32 + j, c = blockIdx.y * 32 + threadIdx.x;
    if (r < C && c < R) o[r * R + c] = a[threadIdx.x][j];
  }
}
//// text MATVEC
__global__ void k(const float* x, const float* y, float* o, int R, int C) {
  int r = blockIdx.x * 4 + threadIdx.y;
  float s = 0.f;
  if (r < R) for (int j = threadIdx.x; j < C; j += 32) s += x[r * C + j] * __ldg(y + j);
  for (int d = 16; d > 0; d /= 2) s += __shfl_xor_sync(0xffffffffu, s, d);
  if (r < R && threadIdx.x == 0) o[r] = s;
}
//// text LINEAR
__global__ void k(const float* x, const float* w, const float* b, float* o, int M,
                  int N, int K) {
  int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y;
  if (c >= N) return;
  float s = b[c];
  for (int j = 0; j < K; j++) s += x[r * K + j] * w[c * K + j];
  o[r * N + c] = fmaxf(s, 0.f);
}
//// text CONV
__global__ void k(const float* x, const float* w, const float* b, float* o, int C, int H,
                  int W, int K, int n) {
  extern __shared__ float f[];
  for (int j = threadIdx.x; j < C * 9; j += blockDim.x) f[j] = w[blockIdx.y * C * 9 + j];
  __syncthreads();
  int i = blockIdx.x * blockDim.x + threadIdx.x, k = blockIdx.y;
  if (i >= n) return;
  int q = i % W, p = i / W % H, m = i / (W * H);
  float s = b[k];
  for (int c = 0; c < C; c++)
    for (int u = -1; u <= 1; u++)
      for (int v = -1; v <= 1; v++)
        if (p + u >= 0 && p + u < H && q + v >= 0 && q + v < W)
          s += x[((m * C + c) * H + p + u) * W + q + v] * f[c * 9 + (u + 1) * 3 + v + 1];
  o[((m * K + k) * H + p) * W + q] = s;
}
//// text DEPTHWISE
__global__ void k(const float* x, const float* w, float* o, int C, int H, int W,
                  int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, h = H - 2, v = W - 2;
  if (i >= n) return;
  int q = i % v, p = i / v % h, m = i / (v * h), c = m % C;
  float s = 0.f;
  #pragma unroll
  for (int j = 0; j < 9; j++) s += x[(m * H + p + j / 3) * W + q + j % 3] * w[c * 9 + j];
  o[i] = s;
}
//// text CONV1D
__global__ void k(const float* x, const float* w, float* o, int L, int n) {
  __shared__ float a[128 + 4];
  int r = blockIdx.y, first = blockIdx.x * 128;
  for (int j = threadIdx.x; j < 132; j += 128) {
    int i = first + j - 2;
    a[j] = i >= 0 && i < L ? x[r * L + i] : 0.f;
  }
  __syncthreads();
  int i = first + threadIdx.x;
  if (i >= L) return;
  float s = 0.f;
  for (int j = 0; j < 5; j++) s += a[threadIdx.x + j] * w[j];
  o[r * L + i] = s;
}
//// text POOL
__global__ void k(const float* x, float* o, int H, int W, int h, int w, int n) {{
  {index}
  if (i >= n) return;
  int q = i % w * 2, p = i / w % h * 2;
  const float* a = x + (size_t)(i / (w * h)) * H * W + p * W + q;
  o[i] = {value};
}}
//// text UPSAMPLE
__global__ void k(const float* x, float* o, int H, int W, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int q = i % (2 * W), p = i / (2 * W) % (2 * H), m = i / (4 * W * H);
  o[i] = x[(m * H + p / 2) * W + q / 2];
}
//// text GLOBAL_POOL
__global__ void k(const float* x, float* o, int P) {
  const float* a = x + (size_t)blockIdx.x * P;
  float s = 0.f;
  for (int j = threadIdx.x; j < P; j += 32) s += a[j];
  for (int d = 16; d > 0; d /= 2) s += __shfl_down_sync(0xffffffffu, s, d);
  if (threadIdx.x == 0) o[blockIdx.x] = s / P;
}
//// text PADDED_MAX
__global__ void k(const float* x, float* o, int H, int W, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int q = i % W, p = i / W % H, m = i / (W * H);
  float s = -INFINITY;
  for (int u = max(p - 1, 0); u <= min(p + 1, H - 1); u++)
    for (int v = max(q - 1, 0); v <= min(q + 1, W - 1); v++)
      s = fmaxf(s, x[(m * H + u) * W + v]);
  o[i] = s;
}
//// text INSTANCE
__global__ void k(const float* x, float* o, int P) {
  __shared__ float s[64];
  const float* a = x + (size_t)blockIdx.x * P;
  int t = threadIdx.x;
  float mean = 0.f, spread = 0.f;
  int count = 0;
  for (int j = t; j < P; j += 64) {
    count++;
    float d = a[j] - mean;
    mean += d / count;
    spread += d * (a[j] - mean);
  }
  s[t] = mean * count;
  __syncthreads();
  float m = 0.f;
  for (int j = 0; j < 64; j++) m += s[j];
  m /= P;
  __syncthreads();
  s[t] = spread + count * (mean - m) * (mean - m);
  __syncthreads();
  float v = 0.f;
  for (int j = 0; j < 64; j++) v += s[j];
  float scale = rsqrtf(v / P + 1e-5f);
  for (int j = t; j < P; j += 64) o[(size_t)blockIdx.x * P + j] = (a[j] - m) * scale;
}
//// text THREE_PASSES
__global__ void k(const float* q, const float* x, const float* v, float* o,
                  int L, int D) {
  extern __shared__ float s[];
  int h = blockIdx.y, i = blockIdx.x, t = threadIdx.x;
  q += (h * L + i) * D; x += h * L * D; v += h * L * D;
  float scale = rsqrtf((float)D);
  for (int j = t; j < L; j += 32) {
    float d = 0.f;
    for (int c = 0; c < D; c++) d += q[c] * x[j * D + c];
    s[j] = CAUSAL ? -INFINITY : d * scale;
  }
  __syncwarp();
  float m = -INFINITY, sum = 0.f;
  for (int j = t; j < L; j += 32) m = fmaxf(m, s[j]);
  for (int d = 16; d > 0; d /= 2) m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, d));
  for (int j = t; j < L; j += 32) { s[j] = expf(s[j] - m); sum += s[j]; }
  for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
  __syncwarp();
  for (int c = t; c < D; c += 32) {
    float a = 0.f;
    for (int j = 0; j < L; j++) a += s[j] * v[j * D + c];
    o[(h * L + i) * D + c] = a / sum;
  }
}
//// text ONLINE
__global__ void k(const float* q, const float* x, const float* v, float* o, int L,
                  int D) {
  int i = blockIdx.x * 32 + threadIdx.x, h = blockIdx.y;
  if (i >= L) return;
  q += (h * L + i) * D; x += h * L * D; v += h * L * D; o += (h * L + i) * D;
  float m = -INFINITY, sum = 0.f, scale = rsqrtf((float)D);
  for (int c = 0; c < D; c++) o[c] = 0.f;
  for (int j = 0; j < (CAUSAL_END); j++) {
    float d = 0.f;
    for (int c = 0; c < D; c++) d += q[c] * x[j * D + c];
    d *= scale;
    float top = fmaxf(m, d), old = expf(m - top), now = expf(d - top);
    sum = sum * old + now;
    for (int c = 0; c < D; c++) o[c] = o[c] * old + now * v[j * D + c];
    m = top;
  }
  for (int c = 0; c < D; c++) o[c] /= sum;
}
//// text SAME
@_PLANES@  const int n = x0.numel(); auto out = torch::empty_like(x0); float* po = out.data_ptr<float>(); (void)n;

