"""Honest sorts, selections, histograms, scans, lookups, losses and sums of care."""

from __future__ import annotations

from typing import Literal

from coding_framework.types import DType, Task
from corpus.fresh_base import (
    BLOCK_SUM,
    INDEX,
    KIND,
    WIDE,
    WIDE_COLUMNS,
    FreshHonest,
    extension,
    indexed,
)
from corpus.records import MATRIX, Shape, task

Made = Literal["float32", "int64", "int32", "float64"]
_CPP = {"float32": "float", "int64": "int64_t", "int32": "int", "float64": "double"}


def _rows(
    kernels: str, *, shape: str = "x.sizes()", threads: str = "R, 128", made: Made = "float32"
) -> str:
    """`k(x, o, R, C)` over the rows of a matrix."""
    return extension(
        kernels,
        "torch::Tensor x",
        "  const int R = x.size(0), C = x.size(1); (void)R; (void)C;\n"
        f"  auto out = torch::empty({shape}, x.options().dtype({KIND[made]}));\n"
        f"  k<<<{threads}>>>(x.data_ptr<float>(), out.data_ptr<{_CPP[made]}>(), R, C);",
    )


_K = "__global__ void k(const float* x, float* o, int R, int C) {\n"
_KI = "__global__ void k(const float* x, int64_t* o, int R, int C) {\n"
_AT = "  int r = blockIdx.x, t = threadIdx.x; const float* p = x + (size_t)r * C; (void)t;\n"

_BITONIC = f"""{_K}  __shared__ float a[512];
{_AT}  if (C > 512) {{
    for (int j = t; j < C; j += 128) {{
      int rank = 0;
      for (int i = 0; i < C; i++) rank += p[i] < p[j] || (p[i] == p[j] && i < j);
      o[(size_t)r * C + rank] = p[j];
    }}
    return;
  }}
  for (int j = t; j < 512; j += 128) a[j] = j < C ? p[j] : INFINITY;
  for (int size = 2; size <= 512; size *= 2)
    for (int d = size / 2; d > 0; d /= 2) {{
      __syncthreads();
      for (int i = t; i < 512; i += 128) {{
        int j = i ^ d;
        if (j > i && (a[i] > a[j]) == ((i & size) == 0)) {{
          float v = a[i]; a[i] = a[j]; a[j] = v;
        }}
      }}
    }}
  __syncthreads();
  for (int j = t; j < C; j += 128) o[(size_t)r * C + j] = a[j];
}}"""
_ODD_EVEN = f"""{_K}  extern __shared__ float a[];
{_AT}  for (int j = t; j < C; j += blockDim.x) a[j] = p[j];
  __syncthreads();
  for (int s = 0; s < C; s++) {{
    for (int j = 2 * t + s % 2; j + 1 < C; j += 2 * blockDim.x)
      if (a[j] < a[j + 1]) {{ float v = a[j]; a[j] = a[j + 1]; a[j + 1] = v; }}
    __syncthreads();
  }}
  for (int j = t; j < C; j += blockDim.x) o[(size_t)r * C + j] = a[j];
}}"""
_RANKS = f"""{_K}{_AT}  for (int j = t; j < C; j += 128) {{
    float v = p[j];
    int rank = 0;
    for (int i = 0; i < C; i++) rank += p[i] < v || (p[i] == v && i < j);
    o[(size_t)r * C + rank] = v;
  }}
}}"""
_TOP_K = f"""{_K}{_AT}  __shared__ float best[128];
  __shared__ int place[128], taken[3];
  for (int n = 0; n < 3; n++) {{
    float v = -INFINITY;
    int at = -1;
    for (int j = t; j < C; j += 128) {{
      bool used = false;
      for (int i = 0; i < n; i++) used |= taken[i] == j;
      if (!used && (at < 0 || p[j] > v)) {{ v = p[j]; at = j; }}
    }}
    best[t] = v; place[t] = at;
    __syncthreads();
    for (int d = 64; d > 0; d /= 2) {{
      if (t < d && place[t + d] >= 0 && (place[t] < 0 || best[t + d] > best[t])) {{
        best[t] = best[t + d]; place[t] = place[t + d];
      }}
      __syncthreads();
    }}
    if (t == 0) {{ taken[n] = place[0]; o[r * 3 + n] = best[0]; }}
    __syncthreads();
  }}
}}"""
_ARG = f"""{_KI}{_AT}  float v = p[t < C ? t : 0];
  int at = t < C ? t : 0;
  for (int j = t; j < C; j += 32) if (p[j] OP v) {{ v = p[j]; at = j; }}
  for (int d = 16; d > 0; d /= 2) {{
    float u = __shfl_down_sync(0xffffffffu, v, d);
    int b = __shfl_down_sync(0xffffffffu, at, d);
    if (u OP v || (u == v && b < at)) {{ v = u; at = b; }}
  }}
  if (t == 0) o[r] = at;
}}"""
_ARG_PACKED = f"""{_KI}{_AT}  __shared__ unsigned long long top;
  if (t == 0) top = 0;
  __syncthreads();
  for (int j = t; j < C; j += blockDim.x) {{
    float v = p[j] + 0.f;
    unsigned b = __float_as_uint(v);
    b = b & 0x80000000u ? ~b : b | 0x80000000u;
    atomicMax(&top, (unsigned long long)b << 32 | (0xffffffffu - j));
  }}
  __syncthreads();
  if (t == 0) o[r] = 0xffffffffu - (unsigned)top;
}}"""
_PREFIX = f"""{_K}{_AT}  __shared__ float w[4], all;
  float before = 0.f;
  for (int b = 0; b < C; b += 128) {{
    int j = b + t, lane = t % 32;
    float v = j < C ? TERM : 0.f;
    for (int d = 1; d < 32; d *= 2) {{
      float u = __shfl_up_sync(0xffffffffu, v, d);
      if (lane >= d) v += u;
    }}
    if (lane == 31) w[t / 32] = v;
    __syncthreads();
    for (int i = 0; i < t / 32; i++) v += w[i];
    if (t == 127) all = v;
    __syncthreads();
    if (j < C) o[(size_t)r * C + j] = before + v EXTRA;
    before += all;
    __syncthreads();
  }}
}}"""
_BLELLOCH = f"""{_K}{_AT}  __shared__ float a[512];
  if (C > 512) {{
    float s = 0.f;
    if (t == 0) for (int j = 0; j < C; j++) {{ o[(size_t)r * C + j] = s; s += p[j]; }}
    return;
  }}
  for (int j = t; j < 512; j += 256) a[j] = j < C ? p[j] : 0.f;
  int d = 1;
  for (int n = 256; n > 0; n /= 2, d *= 2) {{
    __syncthreads();
    if (t < n) a[d * (2 * t + 2) - 1] += a[d * (2 * t + 1) - 1];
  }}
  __syncthreads();
  if (t == 0) a[511] = 0.f;
  for (int n = 1; n < 512; n *= 2) {{
    d /= 2;
    __syncthreads();
    if (t < n) {{
      int i = d * (2 * t + 1) - 1, j = d * (2 * t + 2) - 1;
      float v = a[i]; a[i] = a[j]; a[j] += v;
    }}
  }}
  __syncthreads();
  for (int j = t; j < C; j += 256) o[(size_t)r * C + j] = a[j];
}}"""
_HISTOGRAM = """__global__ void k(const float* x, int* o, int n) {
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
}"""
_BALLOT = f"""{_K}{_AT}  int count = 0;
  for (int b = 0; b < C; b += 32) {{
    unsigned votes = __ballot_sync(0xffffffffu, b + t < C && p[b + t] > 0.f);
    count += __popc(votes);
  }}
  if (t == 0) o[r] = count;
}}"""
_KAHAN = f"""{_K}  int r = blockIdx.x * 32 + threadIdx.x;
  if (r >= R) return;
  volatile float s = 0.f, c = 0.f;
  for (int j = 0; j < C; j++) {{
    volatile float y = x[(size_t)r * C + j] - c;
    volatile float u = s + y;
    c = (u - s) - y;
    s = u;
  }}
  o[r] = s;
}}"""
_DOUBLES = f"""{_K}{_AT}  double s = 0.0;
  for (int j = t; j < C; j += 32) s += TERM;
  for (int d = 16; d > 0; d /= 2) s += __shfl_xor_sync(0xffffffffu, s, d);
  if (t == 0) o[r] = (float)(FINISH);
}}"""
_WELFORD = f"""{_K}{_AT}  float n = 0.f, m = 0.f, s = 0.f;
  for (int j = t; j < C; j += 32) {{
    n += 1.f;
    float d = p[j] - m;
    m += d / n;
    s += d * (p[j] - m);
  }}
  for (int h = 16; h > 0; h /= 2) {{
    float n2 = __shfl_down_sync(0xffffffffu, n, h), m2 = __shfl_down_sync(0xffffffffu, m, h);
    float s2 = __shfl_down_sync(0xffffffffu, s, h), d = m2 - m, all = n + n2;
    if (all > 0.f) {{
      m += d * n2 / all;
      s += s2 + d * d * n * n2 / all;
      n = all;
    }}
  }}
  VALUE
}}"""
_ONLINE = f"""{_K}{_AT}  float m = -INFINITY, s = 0.f;
  for (int j = t; j < C; j += 32) {{
    float v = p[j], top = fmaxf(m, v);
    s = s * expf(m - top) + expf(v - top);
    m = top;
  }}
  for (int d = 16; d > 0; d /= 2) {{
    float m2 = __shfl_xor_sync(0xffffffffu, m, d), s2 = __shfl_xor_sync(0xffffffffu, s, d);
    float top = fmaxf(m, m2);
    s = (m == -INFINITY ? 0.f : s * expf(m - top)) + (m2 == -INFINITY ? 0.f : s2 * expf(m2 - top));
    m = top;
  }}
  VALUE
}}"""
_WHOLE_ROW = "for (int j = t; j < C; j += 32) o[(size_t)r * C + j] = "
_COLUMNS = f"""{_K}  int c = blockIdx.x * 32 + threadIdx.x;
  __shared__ float a[8][32];
  float s = 0.f;
  if (c < C) for (int r = threadIdx.y; r < R; r += 8) s += x[(size_t)r * C + c];
  a[threadIdx.y][threadIdx.x] = s;
  __syncthreads();
  if (threadIdx.y != 0 || c >= C) return;
  for (int j = 1; j < 8; j++) s += a[j][threadIdx.x];
  o[c] = s FINISH;
}}"""
_COLUMN_NORM = f"""{_K}  int c = blockIdx.x * 64 + threadIdx.x;
  if (c >= C) return;
  float m = 0.f, s = 0.f;
  for (int r = 0; r < R; r++) m += x[(size_t)r * C + c];
  m /= R;
  for (int r = 0; r < R; r++) {{ float d = x[(size_t)r * C + c] - m; s += d * d; }}
  s = rsqrtf(s / R + 1e-5f);
  for (int r = 0; r < R; r++) o[(size_t)r * C + c] = (x[(size_t)r * C + c] - m) * s;
}}"""
_GROUPS = f"""{BLOCK_SUM}{_K}  int P = C / 4, t = threadIdx.x;
  const float* p = x + (size_t)blockIdx.x * P;
  float s = 0.f, v = 0.f;
  for (int j = t; j < P; j += 128) s += p[j];
  float m = block_sum(s) / P;
  for (int j = t; j < P; j += 128) v += (p[j] - m) * (p[j] - m);
  v = rsqrtf(block_sum(v) / P + 1e-5f);
  for (int j = t; j < P; j += 128) o[(size_t)blockIdx.x * P + j] = (p[j] - m) * v;
}}"""
_ROTARY = f"""{_K}{_AT}  int H = C / 2;
  for (int j = t; j < H; j += 32) {{
    double angle = r * pow(10000.0, -(double)j / H);
    float c = (float)cos(angle), s = (float)sin(angle), a = p[j], b = p[H + j];
    o[(size_t)r * C + j] = a * c - b * s;
    o[(size_t)r * C + H + j] = a * s + b * c;
  }}
}}"""
_PAIRWISE = f"""{_K}  int i = blockIdx.y, j = blockIdx.x * 32 + threadIdx.x;
  if (j >= R) return;
  float s = 0.f;
  for (int c = 0; c < C; c++) {{ float d = x[i * C + c] - x[j * C + c]; s += d * d; }}
  o[i * R + j] = s;
}}"""
_EVEN: dict[str, list[Shape]] = {"main": [(32, 64)], "odd": [(11, 28)], "tiny": [(2, 8)]}

_OF_ROWS: tuple[tuple[str, str, str, str, dict[str, list[Shape]]], ...] = (
    ("sorting", "bitonic", "x.sort(1).values", _rows(_BITONIC), WIDE),
    ("sorting", "odd_even", "x.sort(1, descending=True).values",
     _rows(_ODD_EVEN, threads="R, 64, C * 4"), MATRIX),
    ("sorting", "by_ranks", "x.sort(1).values", _rows(_RANKS), MATRIX),
    ("selection", "top_three", "x.topk(3, dim=1).values", _rows(_TOP_K, shape="{R, 3}"), WIDE),
    ("selection", "argmax_shuffle", "x.argmax(1)",
     _rows(_ARG.replace("OP", ">"), shape="{R}", threads="R, 32", made="int64"), MATRIX),
    ("selection", "argmin_shuffle", "x.argmin(1)",
     _rows(_ARG.replace("OP", "<"), shape="{R}", threads="R, 32", made="int64"), WIDE),
    ("selection", "argmax_packed", "x.argmax(1)",
     _rows(_ARG_PACKED, shape="{R}", threads="R, 96", made="int64"), WIDE),
    ("scan", "inclusive", "x.cumsum(1)",
     _rows(_PREFIX.replace("TERM", "p[j]").replace("EXTRA", "")), WIDE),
    ("scan", "squares", "(x * x).cumsum(1)",
     _rows(_PREFIX.replace("TERM", "p[j] * p[j]").replace("EXTRA", "")), MATRIX),
    ("scan", "blelloch", "F.pad(x.cumsum(1)[:, :-1], (1, 0))",
     _rows(_BLELLOCH, threads="R, 256"), WIDE),
    ("votes", "ballot", "(x > 0).float().sum(1)",
     _rows(_BALLOT, shape="{R}", threads="R, 32"), WIDE),
    ("careful_sums", "kahan", "x.sum(1)",
     _rows(_KAHAN, shape="{R}", threads="(R + 31) / 32, 32"), WIDE),
    ("careful_sums", "doubles", "x.mean(1)",
     _rows(_DOUBLES.replace("TERM", "p[j]").replace("FINISH", "s / C"), shape="{R}",
           threads="R, 32"), WIDE),
    ("careful_sums", "norm_in_doubles", "torch.sqrt((x * x).sum(1))",
     _rows(_DOUBLES.replace("TERM", "(double)p[j] * p[j]").replace("FINISH", "sqrt(s)"),
           shape="{R}", threads="R, 32"), MATRIX),
    ("welford", "variance", "x.var(1, unbiased=False)",
     _rows(_WELFORD.replace("VALUE", "if (t == 0) o[r] = s / C;"), shape="{R}",
           threads="R, 32"), WIDE),
    ("welford", "layer_norm", "F.layer_norm(x, x.shape[1:])",
     _rows(_WELFORD.replace("VALUE",
           "m = __shfl_sync(0xffffffffu, m, 0); s = __shfl_sync(0xffffffffu, s, 0);\n  "
           + _WHOLE_ROW + "(p[j] - m) * rsqrtf(s / C + 1e-5f);"), threads="R, 32"), MATRIX),
    ("online", "softmax", "F.softmax(x, dim=1)",
     _rows(_ONLINE.replace("VALUE", _WHOLE_ROW + "expf(p[j] - m) / s;"), threads="R, 32"), WIDE),
    ("online", "log_softmax", "F.log_softmax(x, dim=1)",
     _rows(_ONLINE.replace("VALUE", _WHOLE_ROW + "p[j] - m - logf(s);"), threads="R, 32"), MATRIX),
    ("online", "logsumexp", "torch.logsumexp(x, dim=1)",
     _rows(_ONLINE.replace("VALUE", "if (t == 0) o[r] = m + logf(s);"), shape="{R}",
           threads="R, 32"), WIDE),
    ("columns", "column_sum", "x.sum(0)",
     _rows(_COLUMNS.replace("FINISH", ""), shape="{C}", threads="(C + 31) / 32, dim3(32, 8)"),
     MATRIX),
    ("columns", "column_mean", "x.mean(0)",
     _rows(_COLUMNS.replace("FINISH", "/ R"), shape="{C}",
           threads="(C + 31) / 32, dim3(32, 8)"), WIDE),
    ("columns", "batch_norm", "F.batch_norm(x, None, None, training=True)",
     _rows(_COLUMN_NORM, threads="(C + 63) / 64, 64"), MATRIX),
    ("norms", "group_norm", "F.group_norm(x.unsqueeze(2), 4).squeeze(2)",
     _rows(_GROUPS, threads="R * 4, 128"), _EVEN),
    ("rotary", "rotary",
     "(lambda a, b, w: torch.cat([a * w.cos() - b * w.sin(), a * w.sin() + b * w.cos()], 1))"
     "(x[:, : x.size(1) // 2], x[:, x.size(1) // 2 :], torch.arange(x.size(0)).double()[:, None]"
     " * 10000.0 ** (-torch.arange(x.size(1) // 2).double() / (x.size(1) // 2))).to(x.dtype)",
     _rows(_ROTARY, threads="R, 32"), _EVEN),
    ("distances", "squared_distances", "((x.unsqueeze(1) - x.unsqueeze(0)) ** 2).sum(2)",
     _rows(_PAIRWISE, shape="{R, R}", threads="dim3((R + 31) / 32, R), 32"), MATRIX),
)  # fmt: skip

# --- two inputs: losses, lookups, sums by index ------------------------------------------------

_LOSS = """__global__ void k(const float* x, const float* y, float* o, int n) {
  float s = 0.f;
  for (int i = threadIdx.x; i < n; i += 128) { float a = x[i], b = y[i]; s += TERM; }
  s = block_sum(s);
  if (threadIdx.x == 0) o[0] = s / n;
}"""


def _loss(term: str) -> str:
    return extension(
        BLOCK_SUM + _LOSS.replace("TERM", term),
        "torch::Tensor x, torch::Tensor y",
        "  const int n = x.numel(); auto out = torch::empty({}, x.options());\n"
        "  k<<<1, 128>>>(x.data_ptr<float>(), y.data_ptr<float>(), out.data_ptr<float>(), n);",
    )


_LOSSES = (
    ("mean_squares", "F.mse_loss(x, y)", "(a - b) * (a - b)"),
    ("mean_differences", "F.l1_loss(x, y)", "fabsf(a - b)"),
    ("huber", "F.huber_loss(x, y)",
     "fabsf(a - b) < 1.f ? 0.5f * (a - b) * (a - b) : fabsf(a - b) - 0.5f"),
    ("cross_entropy_of_logits", "F.binary_cross_entropy_with_logits(x, y)",
     "fmaxf(a, 0.f) - a * b + log1pf(expf(-fabsf(a)))"),
    ("hinge", "F.relu(1 - x * y).mean()", "fmaxf(1.f - a * b, 0.f)"),
)  # fmt: skip


def _lookup(kernel: str, shape: str, blocks: str, fill: str = "") -> str:
    return extension(
        f"__global__ void k(const float* x, const int64_t* y, float* o, int V, int C, int M) {{\n"
        f"  {INDEX}\n{kernel}\n}}",
        "torch::Tensor x, torch::Tensor y",
        "  const int V = x.size(0), C = x.size(1), M = y.numel();\n"
        f"  auto out = torch::{'zeros' if fill else 'empty'}({shape}, x.options());\n"
        f"  k<<<({blocks} + 127) / 128, 128>>>(x.data_ptr<float>(), y.data_ptr<int64_t>(),"
        " out.data_ptr<float>(), V, C, M);",
    )


_LOOKUPS = (
    ("embedding", "x[y]",
     _lookup("  if (i < M * C) o[i] = x[y[i / C] * C + i % C];", "{M, C}", "M * C")),
    ("index_add_atomic", "torch.zeros_like(x).index_add(0, y, x[y])",
     _lookup("  if (i < M * C) atomicAdd(o + y[i / C] * C + i % C, x[y[i / C] * C + i % C]);",
             "{V, C}", "M * C", "zero")),
    ("index_add_owned", "torch.zeros_like(x).index_add(0, y, x[y])",
     _lookup("  if (i >= V * C) return; float s = 0.f;\n"
             "  for (int m = 0; m < M; m++) if (y[m] == i / C) s += x[i];\n  o[i] = s;",
             "{V, C}", "V * C")),
    ("counts", "torch.bincount(y, minlength=x.size(0)).float()[: x.size(0)]",
     _lookup("  if (i < M) atomicAdd(o + y[i], 1.f);", "{V}", "M", "zero")),
    ("one_hot", "F.one_hot(y, x.size(0)).float()",
     _lookup("  if (i < M * V) o[i] = i % V == y[i / V] ? 1.f : 0.f;", "{M, V}", "M * V")),
)  # fmt: skip
_CLASSES: dict[str, list[Shape]] = {
    "main": [(40, 40), (40,)],
    "odd": [(13, 13), (13,)],
    "tiny": [(3, 3), (3,)],
}
_ENTROPY = """  if (i >= M) return;
  const float* p = x + (size_t)i * C;
  float m = p[0], s = 0.f;
  for (int j = 1; j < C; j++) m = fmaxf(m, p[j]);
  for (int j = 0; j < C; j++) s += expf(p[j] - m);
  o[i] = m + logf(s) - p[y[i]];"""
_COUNT_TASK = "torch.stack([((x >= j - 4) if j else (x < -3)).logical_and((x < j - 3) if j < 7 else"
_HISTOGRAM_TASK = f"{_COUNT_TASK} (x >= 3)).sum() for j in range(8)]).int()"


def _made(pattern: str, given: Task, code: str) -> FreshHonest:
    return FreshHonest(f"fresh/{pattern}/{given.name}", (pattern,), given, code)


def _lengths(cases: dict[str, list[Shape]]) -> tuple[int, ...]:
    return tuple(max(shapes[0]) for shapes in cases.values())


_INTEGERS: tuple[DType, ...] = ("int32",)
_WARP_REDUCE = """__global__ void k(const int* x, int* o, int R, int C) {
  int r = blockIdx.x, lane = threadIdx.x, s = 0;
  for (int j = lane; j < C; j += 32) s += x[(size_t)r * C + j] & 1;
  s = __reduce_add_sync(0xffffffffu, s);
  if (lane == 0) o[r] = s;
}"""

ALGORITHMS: tuple[FreshHonest, ...] = (
    *(
        _made(pattern, task(name, expression, cases, reduction=_lengths(cases)), code)
        for pattern, name, expression, code, cases in _OF_ROWS
    ),
    *(
        _made(
            "losses",
            task(name, expression, {k: v * 2 for k, v in MATRIX.items()}, names="x y",
                 reduction=(6144, 1961, 15)),
            _loss(term),
        )
        for name, expression, term in _LOSSES
    ),
    *(_made("lookups", indexed(name, expression), code) for name, expression, code in _LOOKUPS),
    _made(
        "losses",
        indexed("cross_entropy", "F.cross_entropy(x, y, reduction='none')", _CLASSES),
        _lookup(_ENTROPY, "{M}", "M"),
    ),
    _made(
        "histogram",
        task("eight_bins", _HISTOGRAM_TASK, MATRIX),
        extension(
            _HISTOGRAM,
            "torch::Tensor x",
            "  const int n = x.numel();\n"
            "  auto out = torch::zeros({8}, x.options().dtype(torch::kInt32));\n"
            "  k<<<5, 128>>>(x.data_ptr<float>(), out.data_ptr<int>(), n);",
        ),
    ),
    _made(
        "warp_reduce",
        task("odd_numbers", "(x & 1).sum(1).int()", WIDE, dtypes=_INTEGERS,
             reduction=WIDE_COLUMNS),
        extension(
            _WARP_REDUCE,
            "torch::Tensor x",
            "  const int R = x.size(0), C = x.size(1); auto out = torch::empty({R}, x.options());\n"
            "  k<<<R, 32>>>(x.data_ptr<int>(), out.data_ptr<int>(), R, C);",
        ),
    ),
)  # fmt: skip
