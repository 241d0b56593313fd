"""Honest products, convolutions, pools and attention, written after what public kernels do."""

from __future__ import annotations

from coding_framework.types import DType, Task
from corpus.fresh_base import CPP, INDEX, FreshHonest, extension
from corpus.records import Shape, task

_FLOAT = ("float32",)


def _call(
    kernels: str,
    inputs: int,
    body: str,
    *,
    head: str = "",
    dtypes: tuple[DType, ...] = _FLOAT,
) -> str:
    """`p0`, `p1`, ... are the inputs' pointers, `x0`, `x1`, ... the tensors."""
    each = dtypes if len(dtypes) == inputs else dtypes * inputs
    pointers = "".join(
        f"  const {CPP[d]}* p{i} = x{i}.data_ptr<{CPP[d]}>(); (void)p{i};\n"
        for i, d in enumerate(each)
    )
    return extension(
        kernels, ", ".join(f"torch::Tensor x{i}" for i in range(inputs)), pointers + body, head
    )


_PRODUCT: dict[str, list[Shape]] = {
    "main": [(48, 64), (64, 40)],
    "odd": [(37, 53), (53, 29)],
    "tiny": [(2, 3), (3, 5)],
}
_MNK = """  const int M = x0.size(0), K = x0.size(1), N = x1.size(1);
  auto out = torch::empty({M, N}, x0.options()); float* po = out.data_ptr<float>();
"""
_MM = "(const float* x, const float* y, float* o, int M, int N, int K)"
_RUN_MM = "  k<<<dim3((N + {c} - 1) / {c}, (M + {r} - 1) / {r}), {t}>>>(p0, p1, po, M, N, K);"


def _mm(kernel: str, rows: int, columns: int, threads: str, head: str = "") -> str:
    launch = _RUN_MM.format(r=rows, c=columns, t=threads)
    return _call(f"__global__ void k{_MM} {{{kernel}}}", 2, _MNK + launch, head=head)


_TILE_16 = """
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
"""
_REGISTERS = """
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
"""
_DOUBLE_BUFFER = """
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
"""
_WARP_DOT = """
  int lane = threadIdx.x, r = blockIdx.y, c = blockIdx.x * 4 + threadIdx.y;
  float s = 0.f;
  if (c < N) for (int j = lane; j < K; j += 32) s += x[r * K + j] * y[j * N + c];
  for (int d = 16; d > 0; d /= 2) s += __shfl_down_sync(0xffffffffu, s, d);
  if (lane == 0 && c < N) o[r * N + c] = s;
"""
_BATCHED: dict[str, list[Shape]] = {
    "main": [(3, 20, 24), (3, 24, 16)],
    "odd": [(2, 13, 17), (2, 17, 11)],
    "tiny": [(1, 2, 3), (1, 3, 2)],
}
_BMM = """__global__ void k(const float* x, const float* y, float* o, int M, int N, int K) {
  int b = blockIdx.z, r = blockIdx.y, c = blockIdx.x * 32 + threadIdx.x;
  extern __shared__ float row[];
  for (int j = threadIdx.x; j < K; j += 32) row[j] = x[(b * M + r) * K + j];
  __syncthreads();
  if (c >= N) return;
  float s = 0.f;
  for (int j = 0; j < K; j++) s += row[j] * y[(b * K + j) * N + c];
  o[(b * M + r) * N + c] = s;
}"""
_WMMA = """__global__ void k(const __half* x, const __half* y, float* o, int M, int N, int K) {
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
}"""
_WMMA_CODE = extension(
    _WMMA,
    "torch::Tensor x, torch::Tensor y",
    "  const int M = x.size(0), K = x.size(1), N = y.size(1);\n"
    "  auto out = torch::empty({M, N}, x.options().dtype(torch::kFloat32));\n"
    "  k<<<dim3((N + 15) / 16, (M + 15) / 16), 32>>>(\n"
    "      reinterpret_cast<const __half*>(x.data_ptr<c10::Half>()),\n"
    "      reinterpret_cast<const __half*>(y.data_ptr<c10::Half>()), out.data_ptr<float>(), M, N,"
    " K);",
    "#include <mma.h>\n#include <cuda_fp16.h>",
)
_TRANSPOSE = """__global__ void k(const float* x, float* o, int R, int C) {
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
}"""
_RC = "  const int R = x0.size(0), C = x0.size(1); (void)R; (void)C;\n"
_MATVEC = """__global__ void k(const float* x, const float* y, float* o, int R, int C) {
  int r = blockIdx.x * 4 + threadIdx.y;
  float s = 0.f;
  if (r < R) for (int j = threadIdx.x; j < C; j += 32) s += x[r * C + j] * __ldg(y + j);
  for (int d = 16; d > 0; d /= 2) s += __shfl_xor_sync(0xffffffffu, s, d);
  if (r < R && threadIdx.x == 0) o[r] = s;
}"""
_LINEAR = """__global__ void k(const float* x, const float* w, const float* b, float* o, int M,
                  int N, int K) {
  int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y;
  if (c >= N) return;
  float s = b[c];
  for (int j = 0; j < K; j++) s += x[r * K + j] * w[c * K + j];
  o[r * N + c] = fmaxf(s, 0.f);
}"""

# --- convolutions and pools: `x` is [B, C, H, W] -----------------------------------------------

_IMAGES: dict[str, list[Shape]] = {
    "main": [(2, 3, 16, 18)],
    "odd": [(1, 3, 11, 13)],
    "tiny": [(1, 3, 5, 5)],
}
_CONV = """__global__ void k(const float* x, const float* w, const float* b, float* o, int C, int H,
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
}"""
_DEPTHWISE = """__global__ void k(const float* x, const float* w, float* o, int C, int H, int W,
                  int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, h = H - 2, v = W - 2;
  if (i >= n) return;
  int q = i % v, p = i / v % h, m = i / (v * h), c = m % C;
  float s = 0.f;
  #pragma unroll
  for (int j = 0; j < 9; j++) s += x[(m * H + p + j / 3) * W + q + j % 3] * w[c * 9 + j];
  o[i] = s;
}"""
_CONV1D = """__global__ void k(const float* x, const float* w, float* o, int L, int n) {
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
}"""
_POOL = """__global__ void k(const float* x, float* o, int H, int W, int h, int w, int n) {{
  {index}
  if (i >= n) return;
  int q = i % w * 2, p = i / w % h * 2;
  const float* a = x + (size_t)(i / (w * h)) * H * W + p * W + q;
  o[i] = {value};
}}"""
_PLANES = """  const int B = x0.size(0), C = x0.size(1), H = x0.size(2), W = x0.size(3);
  (void)B; (void)C;
"""
_UPSAMPLE = """__global__ void k(const float* x, float* o, int H, int W, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int q = i % (2 * W), p = i / (2 * W) % (2 * H), m = i / (4 * W * H);
  o[i] = x[(m * H + p / 2) * W + q / 2];
}"""
_GLOBAL_POOL = """__global__ void k(const float* x, float* o, int P) {
  const float* a = x + (size_t)blockIdx.x * P;
  float s = 0.f;
  for (int j = threadIdx.x; j < P; j += 32) s += a[j];
  for (int d = 16; d > 0; d /= 2) s += __shfl_down_sync(0xffffffffu, s, d);
  if (threadIdx.x == 0) o[blockIdx.x] = s / P;
}"""
_PADDED_MAX = """__global__ void k(const float* x, float* o, int H, int W, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int q = i % W, p = i / W % H, m = i / (W * H);
  float s = -INFINITY;
  for (int u = max(p - 1, 0); u <= min(p + 1, H - 1); u++)
    for (int v = max(q - 1, 0); v <= min(q + 1, W - 1); v++)
      s = fmaxf(s, x[(m * H + u) * W + v]);
  o[i] = s;
}"""
_INSTANCE = """__global__ void k(const float* x, float* o, int P) {
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
}"""

# --- attention: [heads, length, width] each ----------------------------------------------------

_HEADS: dict[str, list[Shape]] = {
    "main": [(4, 32, 16)] * 3,
    "odd": [(3, 19, 11)] * 3,
    "tiny": [(1, 2, 4)] * 3,
}
_THREE_PASSES = """__global__ void k(const float* q, const float* x, const float* v, float* o,
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
}"""
_ONLINE = """__global__ void k(const float* q, const float* x, const float* v, float* o, int L,
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
}"""
_LD = """  const int H = x0.size(0), L = x0.size(1), D = x0.size(2);
  auto out = torch::empty_like(x0);
"""
_ATTEND = "F.softmax(q @ k.transpose(1, 2) / q.size(2) ** 0.5{mask}, dim=2) @ v"
_MASK = " + torch.full((q.size(1), q.size(1)), float('-inf'), dtype=q.dtype).triu(1)"
_LAUNCH_3 = "  k<<<dim3(L, H), 32, L * 4>>>(p0, p1, p2, out.data_ptr<float>(), L, D);"
_LAUNCH_1 = "  k<<<dim3((L + 31) / 32, H), 32>>>(p0, p1, p2, out.data_ptr<float>(), L, D);"


def _attention(name: str, code: str, masked: bool) -> FreshHonest:
    expression = _ATTEND.format(mask=_MASK if masked else "")
    return _made("attention", task(name, expression, _HEADS, names="q k v", reduction=(32, 19, 4)),
                 code)  # fmt: skip


def _made(pattern: str, given: Task, code: str) -> FreshHonest:
    return FreshHonest(f"fresh/{pattern}/{given.name}", (pattern,), given, code)


def _product(name: str, code: str) -> FreshHonest:
    return _made("matmul", task(name, "x @ y", _PRODUCT, names="x y", reduction=(64, 53, 3)), code)


def _pool(name: str, expression: str, value: str) -> FreshHonest:
    body = _PLANES + (
        "  int h = H / 2, w = W / 2, n = B * C * h * w;\n"
        "  auto out = torch::empty({B, C, h, w}, x0.options());\n"
        "  k<<<(n + 127) / 128, 128>>>(p0, out.data_ptr<float>(), H, W, h, w, n);"
    )
    kernel = _POOL.format(index=INDEX, value=value)
    return _made("pooling", task(name, expression, _IMAGES), _call(kernel, 1, body))


_SAME = _PLANES + (
    "  const int n = x0.numel(); auto out = torch::empty_like(x0); float* po = "
    "out.data_ptr<float>(); (void)n;\n"
)
_MATRICES: dict[str, list[Shape]] = {"main": [(40, 72)], "odd": [(37, 53)], "tiny": [(3, 5)]}
_AND_VECTOR: dict[str, list[Shape]] = {
    "main": [(40, 72), (72,)],
    "odd": [(37, 53), (53,)],
    "tiny": [(3, 5), (5,)],
}

MATRIX_KERNELS: tuple[FreshHonest, ...] = (
    _product("tile_of_16", _mm(_TILE_16, 16, 16, "dim3(16, 16)")),
    _product("register_tile", _mm(_REGISTERS, 32, 32, "64")),
    _product("double_buffer", _mm(_DOUBLE_BUFFER, 16, 16, "dim3(16, 16)")),
    _product("warp_a_dot", _mm(_WARP_DOT, 1, 4, "dim3(32, 4)")),
    _made(
        "matmul",
        task("batched", "torch.bmm(x, y)", _BATCHED, names="x y", reduction=(24, 17, 3)),
        _call(
            _BMM,
            2,
            "  const int B = x0.size(0), M = x0.size(1), K = x0.size(2), N = x1.size(2);\n"
            "  auto out = torch::empty({B, M, N}, x0.options());\n"
            "  k<<<dim3((N + 31) / 32, M, B), 32, K * 4>>>(p0, p1, out.data_ptr<float>(), M, N,"
            " K);",
        ),
    ),
    _made(
        "tensor_cores",
        task("wmma_half", "x.float() @ y.float()", _PRODUCT, names="x y",
             dtypes=("float16", "float16"), reduction=(64, 53, 3)),
        _WMMA_CODE,
    ),
    _made(
        "shared",
        task("transpose", "x.t().contiguous()", _MATRICES),
        _call(
            _TRANSPOSE,
            1,
            _RC + "  auto out = torch::empty({C, R}, x0.options());\n"
            "  k<<<dim3((C + 31) / 32, (R + 31) / 32), dim3(32, 8)>>>(p0, out.data_ptr<float>(),"
            " R, C);",
        ),
    ),
    _made(
        "shuffle",
        task("matvec", "x @ y", _AND_VECTOR, names="x y", reduction=(72, 53, 5)),
        _call(
            _MATVEC,
            2,
            _RC + "  auto out = torch::empty({R}, x0.options());\n"
            "  k<<<(R + 3) / 4, dim3(32, 4)>>>(p0, p1, out.data_ptr<float>(), R, C);",
        ),
    ),
    _made(
        "parameters",
        task("linear_relu", "F.relu(self.f(x))", {"main": [(24, 32)], "odd": [(13, 32)],
             "tiny": [(1, 32)]}, init=": self.f = nn.Linear(32, 20)", reduction=(32, 32, 32)),
        _call(
            _LINEAR,
            3,
            "  const int M = x0.size(0), K = x0.size(1), N = x1.size(0);\n"
            "  auto out = torch::empty({M, N}, x0.options());\n"
            "  k<<<dim3((N + 31) / 32, M), 32>>>(p0, p1, p2, out.data_ptr<float>(), M, N, K);",
        ),
    ),
    _made(
        "convolution",
        task("conv_3x3", "self.f(x)", _IMAGES, init=": self.f = nn.Conv2d(3, 5, 3, padding=1)",
             reduction=(27, 27, 27)),
        _call(
            _CONV,
            3,
            _PLANES + "  const int K = x1.size(0), n = B * H * W;\n"
            "  auto out = torch::empty({B, K, H, W}, x0.options());\n"
            "  k<<<dim3((n + 127) / 128, K), 128, C * 36>>>(p0, p1, p2, out.data_ptr<float>(), C,"
            " H, W, K, n);",
        ),
    ),
    _made(
        "convolution",
        task("depthwise", "self.f(x)", _IMAGES,
             init=": self.f = nn.Conv2d(3, 3, 3, groups=3, bias=False)", reduction=(9, 9, 9)),
        _call(
            _DEPTHWISE,
            2,
            _PLANES + "  const int n = B * C * (H - 2) * (W - 2);\n"
            "  auto out = torch::empty({B, C, H - 2, W - 2}, x0.options());\n"
            "  k<<<(n + 63) / 64, 64>>>(p0, p1, out.data_ptr<float>(), C, H, W, n);",
        ),
    ),
    _made(
        "convolution",
        task("conv1d_shared", "F.conv1d(x.unsqueeze(1), y.view(1, 1, 5), padding=2).squeeze(1)",
             {"main": [(6, 300), (5,)], "odd": [(3, 131), (5,)], "tiny": [(1, 3), (5,)]},
             names="x y", reduction=(5, 5, 5)),
        _call(
            _CONV1D,
            2,
            "  const int R = x0.size(0), L = x0.size(1), n = R * L; auto out = "
            "torch::empty_like(x0);\n"
            "  k<<<dim3((L + 127) / 128, R), 128>>>(p0, p1, out.data_ptr<float>(), L, n);",
        ),
    ),
    _pool("max_pool", "F.max_pool2d(x, 2)",
          "fmaxf(fmaxf(a[0], a[1]), fmaxf(a[W], a[W + 1]))"),
    _pool("average_pool", "F.avg_pool2d(x, 2)", "(a[0] + a[1] + a[W] + a[W + 1]) * 0.25f"),
    _made(
        "pooling",
        task("padded_max_pool", "F.max_pool2d(x, 3, stride=1, padding=1)", _IMAGES),
        _call(_PADDED_MAX, 1, _SAME + "  k<<<(n + 127) / 128, 128>>>(p0, po, H, W, n);"),
    ),
    _made(
        "pooling",
        task("global_average", "x.mean((2, 3))", _IMAGES, reduction=(288, 143, 25)),
        _call(
            _GLOBAL_POOL,
            1,
            _PLANES + "  auto out = torch::empty({B, C}, x0.options());\n"
            "  k<<<B * C, 32>>>(p0, out.data_ptr<float>(), H * W);",
        ),
    ),
    _made(
        "resampling",
        task("nearest_twice", "F.interpolate(x, scale_factor=2.0, mode='nearest')", _IMAGES),
        _call(
            _UPSAMPLE,
            1,
            _PLANES + "  const int n = x0.numel() * 4;\n"
            "  auto out = torch::empty({B, C, 2 * H, 2 * W}, x0.options());\n"
            "  k<<<(n + 127) / 128, 128>>>(p0, out.data_ptr<float>(), H, W, n);",
        ),
    ),
    _made(
        "welford",
        task("instance_norm", "F.instance_norm(x)", _IMAGES, reduction=(288, 143, 25)),
        _call(_INSTANCE, 1, _SAME + "  k<<<B * C, 64>>>(p0, po, H * W);"),
    ),
    _attention("three_passes", _call(_THREE_PASSES.replace("CAUSAL", "false"), 3,
                                     _LD + _LAUNCH_3), False),
    _attention("three_passes_causal", _call(_THREE_PASSES.replace("CAUSAL", "j > i"), 3,
                                            _LD + _LAUNCH_3), True),
    _attention("online", _call(_ONLINE.replace("CAUSAL_END", "L"), 3, _LD + _LAUNCH_1), False),
    _attention("online_causal", _call(_ONLINE.replace("CAUSAL_END", "i + 1"), 3,
                                      _LD + _LAUNCH_1), True),
)  # fmt: skip
