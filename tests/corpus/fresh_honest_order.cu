// Cases of fresh_honest_order.py, as sources.py says.
//// text SCAN

__device__ T join(T a, T b) {{ return {join}; }}
__device__ T of_value({given} v) {{ return {term}; }}
__global__ void scan(const {given}* x, T* o, volatile T* total, volatile T* upto,
                     volatile int* state, int* ticket, int n) {{
  __shared__ int block;
  __shared__ T w[4], before;
  int t = threadIdx.x, lane = t & 31, warp = t >> 5;
  if (t == 0) block = atomicAdd(ticket, 1);
  __syncthreads();
  int b = block, i = b * 128 + t;
  T v = i < n ? of_value(x[i]) : T({none});
  for (int d = 1; d < 32; d *= 2) {{
    T u = __shfl_up_sync(0xffffffffu, v, d);
    if (lane >= d) v = join(u, v);
  }}
  if (lane == 31) w[warp] = v;
  __syncthreads();
  for (int j = warp - 1; j >= 0; j--) v = join(w[j], v);
  if (t == 127) {{
    T all = v, sum = T({none});
    if (b == 0) {{
      upto[0] = all;
      __threadfence();
      state[0] = 2;
    }} else {{
      total[b] = all;
      __threadfence();
      state[b] = 1;
      for (int j = b - 1; j >= 0;) {{
        int s = state[j];
        if (s == 0) continue;
        __threadfence();
        if (s == 2) {{ sum = join(upto[j], sum); break; }}
        sum = join(total[j], sum);
        j--;
      }}
      upto[b] = join(sum, all);
      __threadfence();
      state[b] = 2;
    }}
    before = sum;
  }}
  __syncthreads();
  if (b > 0) v = join(before, v);
  if (i < n) o[i] = v;
}}

//// text TILE

__device__ float tile_of(const float* x, const float* y, int M, int N, int K, int r, int c,
                         int from, int to) {
  __shared__ float a[16][17], b[16][17];
  int tx = threadIdx.x, ty = threadIdx.y;
  float s = 0.f;
  for (int k = from; k < to; k += 16) {
    a[ty][tx] = (r < M && k + tx < to) ? x[r * K + k + tx] : 0.f;
    b[ty][tx] = (c < N && k + ty < to) ? y[(k + ty) * N + c] : 0.f;
    __syncthreads();
    for (int j = 0; j < 16; j++) s += a[ty][j] * b[j][tx];
    __syncthreads();
  }
  return s;
}

//// text HERE
  int r = blockIdx.y * 16 + threadIdx.y, c = blockIdx.x * 16 + threadIdx.x;
  int S = gridDim.z, z = blockIdx.z, L = (K + S - 1) / S;
  float s = tile_of(x, y, M, N, K, r, c, z * L, min(K, z * L + L));
  int t = threadIdx.y * 16 + threadIdx.x, g = blockIdx.y * gridDim.x + blockIdx.x;
  (void)t; (void)g;

//// text SPLIT_ATOMIC
@_TILE@__global__ void k@_ARGS@) {
@_HERE@  if (r < M && c < N) atomicAdd(o + r * N + c, s);
}

//// text SPLIT_SPACE
@_TILE@__global__ void k@_ARGS@, float* w) {
@_HERE@  if (r < M && c < N) w[(z * M + r) * N + c] = s;
}
__global__ void l(const float* w, float* o, int n, int S) {
  @INDEX@
  if (i >= n) return;
  float s = 0; for (int z = 0; z < S; z++) s += w[z * n + i];
  o[i] = s;
}

//// text SPLIT_LAST
@_TILE@__device__ unsigned done[4096];
__global__ void k@_ARGS@, float* w) {
@_HERE@  __shared__ bool last;
  if (r < M && c < N) w[(z * M + r) * N + c] = s;
  __threadfence();
  __syncthreads();
  if (t == 0) last = atomicAdd(&done[g], 1u) == S - 1;
  __syncthreads();
  if (!last) return;
  __threadfence();
  if (r < M && c < N) {
    s = 0; for (int j = 0; j < S; j++) s += w[(j * M + r) * N + c];
    o[r * N + c] = s;
  }
  if (t == 0) done[g] = 0;
}

//// text SPLIT_CLEANS
@_TILE@__device__ unsigned done[4096];
__global__ void k@_ARGS@, float* w) {
@_HERE@  __shared__ bool last;
  if (r < M && c < N) atomicAdd(w + r * N + c, s);
  __threadfence();
  __syncthreads();
  if (t == 0) last = atomicInc(&done[g], S - 1) == S - 1;
  __syncthreads();
  if (!last || r >= M || c >= N) return;
  o[r * N + c] = atomicExch(w + r * N + c, 0.f);
}

//// text SPLIT_TURNS
@_TILE@__global__ void k@_ARGS@, int* turns) {
@_HERE@  if (t == 0) {
    int v;
    do asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(v) : "l"(turns + g) : "memory");
    while (v != z);
  }
  __syncthreads();
  if (r < M && c < N) o[r * N + c] = z ? o[r * N + c] + s : s;
  __syncthreads();
  if (t == 0) {
    __threadfence();
    int v = z == S - 1 ? 0 : z + 1;
    asm volatile("st.release.gpu.global.s32 [%0], %1;" :: "l"(turns + g), "r"(v) : "memory");
  }
}

//// text STREAM_K
@_TILE@
__global__ void k@_ARGS@, float* w, int* flags, int tiles, int steps) {
  int t = threadIdx.y * 16 + threadIdx.x, across = (N + 15) / 16;
  int total = tiles * steps, share = (total + gridDim.x - 1) / gridDim.x;
  int at = blockIdx.x * share, end = min(total, at + share);
  while (at < end) {
    int g = at / steps, first = at % steps, stop = min(steps, first + end - at);
    int r = g / across * 16 + threadIdx.y, c = g % across * 16 + threadIdx.x;
    float s = tile_of(x, y, M, N, K, r, c, first * 16, min(K, stop * 16));
    if (first != 0) {
      w[blockIdx.x * 256 + t] = s;
      __threadfence();
      __syncthreads();
      if (t == 0) atomicExch(flags + blockIdx.x, 1);
    } else {
      int have = stop, b = blockIdx.x + 1;
      while (have < steps) {
        if (t == 0) while (atomicAdd(flags + b, 0) == 0) {}
        __syncthreads();
        __threadfence();
        s += ((volatile float*)w)[b * 256 + t];
        have += min(steps - have, min(share, total - b * share));
        b++;
      }
      if (r < M && c < N) o[r * N + c] = s;
    }
    at += stop - first;
    __syncthreads();
  }
}

//// text SHAPE
  int M = x.size(0), K = x.size(1), N = y.size(1), n = M * N; (void)n;
  auto out = torch::empty({M, N}, x.options()); float* po = out.data_ptr<float>();
  const float* px = x.data_ptr<float>(); const float* py = y.data_ptr<float>();
  dim3 threads(16, 16), blocks((N + 15) / 16, (M + 15) / 16, SPLITS);

//// text TURNS
  auto f = torch::zeros({4096}, x.options().dtype(torch::kInt32)); int* pf = f.data_ptr<int>();

//// text KEPT
  static float* pw = nullptr;
  static int room = 0;
  if (room < n) {
    cudaMalloc((void**)&pw, n * 4);
    cudaMemset(pw, 0, n * 4);
    room = n;
  }

//// text PERSISTENT
  int tiles = blocks.x * blocks.y, steps = (K + 15) / 16;
  auto w = torch::empty({SPLITS * 256}, x.options());
  auto f = torch::zeros({SPLITS + 1}, x.options().dtype(torch::kInt32));
  k<<<SPLITS, threads>>>(px, py, po, M, N, K, w.data_ptr<float>(), f.data_ptr<int>(), tiles,
                         steps);
//// = tables
//// _table weights_of_columns; size: 4096; entry: 1.0f / (1 + j); expression: x / (1 + @_COLUMN@); use: v * table[c]
//// _table sines_of_columns; size: 4096; entry: (float)std::sin(0.1 * j); expression: x + torch.sin(0.1 * @_COLUMN@); use: v + table[c]
//// _table window; size: 4096; entry: 0.5f + 0.5f * (j % 2); expression: x * (0.5 + 0.5 * (@_COLUMN@ % 2)); use: v * table[c]
//// _table ramp; size: 4096; entry: (float)j; expression: x * @_COLUMN@; use: v * table[c]
//// _table signs; size: 4096; expression: torch.where(@_COLUMN@ % 3 == 0, -x, x); use: v * table[c]
//// > entry
j % 3 == 0 ? -1.f : 1.f
//// _table squares; size: 4096; entry: (float)(j * j); expression: x - @_COLUMN@ ** 2; use: v - table[c]
//// text TAIL
__global__ void k(const float* x, float* o, int n) {{
  int first = blockIdx.x * {b};
  if (n >= {b}) first = min(first, n - {b});
  for (int j = threadIdx.x; j < {b}; j += blockDim.x) {{
    int i = first + j;
    if (i < n) {{ float v = x[i]; o[i] = {value}; }}
  }}
}}
//// text FLAG
__global__ void k(const float* x, int* found, int n) {
  for (int i = blockIdx.x * 128 + threadIdx.x; i < n; i += gridDim.x * 128)
    if (TEST) *found = 1;
}
__global__ void l(const int* found, float* o) { o[0] = *found ? 1.f : 0.f; }

//// text TWO_MAPS
__global__ void f(const float* x, float* o, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = 3 * x[i]; }
__global__ void g(const float* x, float* o, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = x[i] + 1; }

