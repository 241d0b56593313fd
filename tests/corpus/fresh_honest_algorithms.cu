// Cases of fresh_honest_algorithms.py, as sources.py says.
//// text BITONIC
@_K@  __shared__ float a[512];
@_AT@  if (C > 512) {
    for (int j = t; j < C; j += 128) {
      int rank = 0;
      for (int i = 0; i < C; i++) rank += p[i] < p[j] || (p[i] == p[j] && i < j);
      o[(size_t)r * C + rank] = p[j];
    }
    return;
  }
  for (int j = t; j < 512; j += 128) a[j] = j < C ? p[j] : INFINITY;
  for (int size = 2; size <= 512; size *= 2)
    for (int d = size / 2; d > 0; d /= 2) {
      __syncthreads();
      for (int i = t; i < 512; i += 128) {
        int j = i ^ d;
        if (j > i && (a[i] > a[j]) == ((i & size) == 0)) {
          float v = a[i]; a[i] = a[j]; a[j] = v;
        }
      }
    }
  __syncthreads();
  for (int j = t; j < C; j += 128) o[(size_t)r * C + j] = a[j];
}
//// text ODD_EVEN
@_K@  extern __shared__ float a[];
@_AT@  for (int j = t; j < C; j += blockDim.x) a[j] = p[j];
  __syncthreads();
  for (int s = 0; s < C; s++) {
    for (int j = 2 * t + s % 2; j + 1 < C; j += 2 * blockDim.x)
      if (a[j] < a[j + 1]) { float v = a[j]; a[j] = a[j + 1]; a[j + 1] = v; }
    __syncthreads();
  }
  for (int j = t; j < C; j += blockDim.x) o[(size_t)r * C + j] = a[j];
}
//// text RANKS
@_K@@_AT@  for (int j = t; j < C; j += 128) {
    float v = p[j];
    int rank = 0;
    for (int i = 0; i < C; i++) rank += p[i] < v || (p[i] == v && i < j);
    o[(size_t)r * C + rank] = v;
  }
}
//// text TOP_K
@_K@@_AT@  __shared__ float best[128];
  __shared__ int place[128], taken[3];
  for (int n = 0; n < 3; n++) {
    float v = -INFINITY;
    int at = -1;
    for (int j = t; j < C; j += 128) {
      bool used = false;
      for (int i = 0; i < n; i++) used |= taken[i] == j;
      if (!used && (at < 0 || p[j] > v)) { v = p[j]; at = j; }
    }
    best[t] = v; place[t] = at;
    __syncthreads();
    for (int d = 64; d > 0; d /= 2) {
      if (t < d && place[t + d] >= 0 && (place[t] < 0 || best[t + d] > best[t])) {
        best[t] = best[t + d]; place[t] = place[t + d];
      }
      __syncthreads();
    }
    if (t == 0) { taken[n] = place[0]; o[r * 3 + n] = best[0]; }
    __syncthreads();
  }
}
//// text ARG
@_KI@@_AT@  float v = p[t < C ? t : 0];
  int at = t < C ? t : 0;
  for (int j = t; j < C; j += 32) if (p[j] OP v) { v = p[j]; at = j; }
  for (int d = 16; d > 0; d /= 2) {
    float u = __shfl_down_sync(0xffffffffu, v, d);
    int b = __shfl_down_sync(0xffffffffu, at, d);
    if (u OP v || (u == v && b < at)) { v = u; at = b; }
  }
  if (t == 0) o[r] = at;
}
//// text ARG_PACKED
@_KI@@_AT@  __shared__ unsigned long long top;
  if (t == 0) top = 0;
  __syncthreads();
  for (int j = t; j < C; j += blockDim.x) {
    float v = p[j] + 0.f;
    unsigned b = __float_as_uint(v);
    b = b & 0x80000000u ? ~b : b | 0x80000000u;
    atomicMax(&top, (unsigned long long)b << 32 | (0xffffffffu - j));
  }
  __syncthreads();
  if (t == 0) o[r] = 0xffffffffu - (unsigned)top;
}
//// text PREFIX
@_K@@_AT@  __shared__ float w[4], all;
  float before = 0.f;
  for (int b = 0; b < C; b += 128) {
    int j = b + t, lane = t % 32;
    float v = j < C ? TERM : 0.f;
    for (int d = 1; d < 32; d *= 2) {
      float u = __shfl_up_sync(0xffffffffu, v, d);
      if (lane >= d) v += u;
    }
    if (lane == 31) w[t / 32] = v;
    __syncthreads();
    for (int i = 0; i < t / 32; i++) v += w[i];
    if (t == 127) all = v;
    __syncthreads();
    if (j < C) o[(size_t)r * C + j] = before + v EXTRA;
    before += all;
    __syncthreads();
  }
}
//// text BLELLOCH
@_K@@_AT@  __shared__ float a[512];
  if (C > 512) {
    float s = 0.f;
    if (t == 0) for (int j = 0; j < C; j++) { o[(size_t)r * C + j] = s; s += p[j]; }
    return;
  }
  for (int j = t; j < 512; j += 256) a[j] = j < C ? p[j] : 0.f;
  int d = 1;
  for (int n = 256; n > 0; n /= 2, d *= 2) {
    __syncthreads();
    if (t < n) a[d * (2 * t + 2) - 1] += a[d * (2 * t + 1) - 1];
  }
  __syncthreads();
  if (t == 0) a[511] = 0.f;
  for (int n = 1; n < 512; n *= 2) {
    d /= 2;
    __syncthreads();
    if (t < n) {
      int i = d * (2 * t + 1) - 1, j = d * (2 * t + 2) - 1;
      float v = a[i]; a[i] = a[j]; a[j] += v;
    }
  }
  __syncthreads();
  for (int j = t; j < C; j += 256) o[(size_t)r * C + j] = a[j];
}
//// text HISTOGRAM
__global__ void k(const float* x, int* o, int n) {
  __shared__ int bins[8];
  if (threadIdx.x < 8) bins[threadIdx.x] = 0;
  __syncthreads();
  for (int i = blockIdx.x * 128 + threadIdx.x; i < n; i += gridDim.x * 128) {
    float v = x[i];
    int b = 0;
    for (int j = 0; j < 7; j++) b += v >= j - 3;
    atomicAdd(bins + b, 1);
  }
  __syncthreads();
  if (threadIdx.x < 8) atomicAdd(o + threadIdx.x, bins[threadIdx.x]);
}
//// text BALLOT
@_K@@_AT@  int count = 0;
  for (int b = 0; b < C; b += 32) {
    unsigned votes = __ballot_sync(0xffffffffu, b + t < C && p[b + t] > 0.f);
    count += __popc(votes);
  }
  if (t == 0) o[r] = count;
}
//// text KAHAN
@_K@  int r = blockIdx.x * 32 + threadIdx.x;
  if (r >= R) return;
  volatile float s = 0.f, c = 0.f;
  for (int j = 0; j < C; j++) {
    volatile float y = x[(size_t)r * C + j] - c;
    volatile float u = s + y;
    c = (u - s) - y;
    s = u;
  }
  o[r] = s;
}
//// text DOUBLES
@_K@@_AT@  double s = 0.0;
  for (int j = t; j < C; j += 32) s += TERM;
  for (int d = 16; d > 0; d /= 2) s += __shfl_xor_sync(0xffffffffu, s, d);
  if (t == 0) o[r] = (float)(FINISH);
}
//// text WELFORD
@_K@@_AT@  float n = 0.f, m = 0.f, s = 0.f;
  for (int j = t; j < C; j += 32) {
    n += 1.f;
    float d = p[j] - m;
    m += d / n;
    s += d * (p[j] - m);
  }
  for (int h = 16; h > 0; h /= 2) {
    float n2 = __shfl_down_sync(0xffffffffu, n, h), m2 = __shfl_down_sync(0xffffffffu, m, h);
    float s2 = __shfl_down_sync(0xffffffffu, s, h), d = m2 - m, all = n + n2;
    if (all > 0.f) {
      m += d * n2 / all;
      s += s2 + d * d * n * n2 / all;
      n = all;
    }
  }
  VALUE
}
//// text ONLINE
@_K@@_AT@  float m = -INFINITY, s = 0.f;
  for (int j = t; j < C; j += 32) {
    float v = p[j], top = fmaxf(m, v);
    s = s * expf(m - top) + expf(v - top);
    m = top;
  }
  for (int d = 16; d > 0; d /= 2) {
    float m2 = __shfl_xor_sync(0xffffffffu, m, d), s2 = __shfl_xor_sync(0xffffffffu, s, d);
    float top = fmaxf(m, m2);
    s = (m == -INFINITY ? 0.f : s * expf(m - top)) + (m2 == -INFINITY ? 0.f : s2 * expf(m2 - top));
    m = top;
  }
  VALUE
}
//// text COLUMNS
@_K@  int c = blockIdx.x * 32 + threadIdx.x;
  __shared__ float a[8][32];
  float s = 0.f;
  if (c < C) for (int r = threadIdx.y; r < R; r += 8) s += x[(size_t)r * C + c];
  a[threadIdx.y][threadIdx.x] = s;
  __syncthreads();
  if (threadIdx.y != 0 || c >= C) return;
  for (int j = 1; j < 8; j++) s += a[j][threadIdx.x];
  o[c] = s FINISH;
}
//// text COLUMN_NORM
@_K@  int c = blockIdx.x * 64 + threadIdx.x;
  if (c >= C) return;
  float m = 0.f, s = 0.f;
  for (int r = 0; r < R; r++) m += x[(size_t)r * C + c];
  m /= R;
  for (int r = 0; r < R; r++) { float d = x[(size_t)r * C + c] - m; s += d * d; }
  s = rsqrtf(s / R + 1e-5f);
  for (int r = 0; r < R; r++) o[(size_t)r * C + c] = (x[(size_t)r * C + c] - m) * s;
}
//// text GROUPS
@BLOCK_SUM@@_K@  int P = C / 4, t = threadIdx.x;
  const float* p = x + (size_t)blockIdx.x * P;
  float s = 0.f, v = 0.f;
  for (int j = t; j < P; j += 128) s += p[j];
  float m = block_sum(s) / P;
  for (int j = t; j < P; j += 128) v += (p[j] - m) * (p[j] - m);
  v = rsqrtf(block_sum(v) / P + 1e-5f);
  for (int j = t; j < P; j += 128) o[(size_t)blockIdx.x * P + j] = (p[j] - m) * v;
}
//// text ROTARY
@_K@@_AT@  int H = C / 2;
  for (int j = t; j < H; j += 32) {
    double angle = r * pow(10000.0, -(double)j / H);
    float c = (float)cos(angle), s = (float)sin(angle), a = p[j], b = p[H + j];
    o[(size_t)r * C + j] = a * c - b * s;
    o[(size_t)r * C + H + j] = a * s + b * c;
  }
}
//// text PAIRWISE
@_K@  int i = blockIdx.y, j = blockIdx.x * 32 + threadIdx.x;
  if (j >= R) return;
  float s = 0.f;
  for (int c = 0; c < C; c++) { float d = x[i * C + c] - x[j * C + c]; s += d * d; }
  o[i * R + j] = s;
}
//// text LOSS
__global__ void k(const float* x, const float* y, float* o, int n) {
  float s = 0.f;
  for (int i = threadIdx.x; i < n; i += 128) { float a = x[i], b = y[i]; s += TERM; }
  s = block_sum(s);
  if (threadIdx.x == 0) o[0] = s / n;
}
//// text ENTROPY
  if (i >= M) return;
  const float* p = x + (size_t)i * C;
  float m = p[0], s = 0.f;
  for (int j = 1; j < C; j++) m = fmaxf(m, p[j]);
  for (int j = 0; j < C; j++) s += expf(p[j] - m);
  o[i] = m + logf(s) - p[y[i]];
//// text WARP_REDUCE
__global__ void k(const int* x, int* o, int R, int C) {
  int r = blockIdx.x, lane = threadIdx.x, s = 0;
  for (int j = lane; j < C; j += 32) s += x[(size_t)r * C + j] & 1;
  s = __reduce_add_sync(0xffffffffu, s);
  if (lane == 0) o[r] = s;
}
