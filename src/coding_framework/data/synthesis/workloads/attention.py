"""Attention: the probabilities of the scores, and the whole of it, with and without a causal mask.

x holds queries [c, m, w], y keys [c, n, w], z values [c, n, h].
"""

from __future__ import annotations

from functools import partial

from coding_framework.data.synthesis.kernel_text import Launch, Lines, example, fill, kernel, source
from coding_framework.data.synthesis.register_tiles import register_tile, staged, tile_grid
from coding_framework.data.synthesis.styles import Style
from coding_framework.data.synthesis.workloads.base import (
    Given,
    Params,
    Shapes,
    Size,
    Workload,
    WorkloadOp,
    Writer,
    each,
    within,
)
from coding_framework.types import KernelExample

_SIZES: tuple[Size, Size, Size] = ((2, 48, 48, 32, 32), (3, 33, 33, 19, 35), (1, 3, 3, 5, 4))
"""Batch, queries, keys, extent of queries and keys, extent of values."""
_GPU_SIZES: tuple[Size, Size, Size] = (
    (64, 1024, 1024, 64, 64),
    (5, 1021, 1021, 61, 67),
    (1, 3, 3, 5, 4),
)
_SCORES: tuple[Size, Size, Size] = ((2, 64, 64, 32, 0), (3, 45, 45, 19, 0), (1, 3, 3, 5, 0))
_GPU_SCORES: tuple[Size, Size, Size] = (
    (16, 2048, 2048, 64, 0),
    (5, 1021, 1021, 61, 0),
    (1, 3, 3, 5, 0),
)


def _limit(causal: bool) -> str:
    """How many keys query r of a batch sees."""
    return "min(n, r + 1)" if causal else "n"


def _dot(workload: Workload, style: Style, target: str, key: str) -> Lines:
    """The scaled score of query r with a key."""
    return fill(
        """
$target = 0.0f;
for (int j = 0; j < w; j++) {
  float $v = x[(b * m + r) * w + j];
  $pre
  $target = $target + $v * y[(b * n + $key) * w + j];
}
$target = $target * rsqrtf((float)w);
""",
        target=target,
        key=key,
        v=style.value,
        pre=workload.pre(style.value),
    )


# --- probabilities -------------------------------------------------------------------------------

_SCORE_SIZES = "int c = x.size(0), m = x.size(1), w = x.size(2), n = y.size(1);"
_SCORE_OUT = "torch::empty({c, m, n}, x.options())"


def _naive_scores(causal: bool, workload: Workload, style: Style) -> KernelExample:
    write = Writer(workload, style)
    body = write.body(
        """
int r = blockIdx.x * blockDim.x + threadIdx.x, b = blockIdx.y;
if (r >= m) return;
int l = $limit;
float a = -INFINITY, e = 0.0f, u;
for (int q = 0; q < l; q++) {
  $dot
  $o[(b * m + r) * n + q] = u;
  a = fmaxf(a, u);
}
for (int q = 0; q < l; q++) e = e + expf($o[(b * m + r) * n + q] - a);
for (int q = 0; q < n; q++) {
  u = q < l ? expf($o[(b * m + r) * n + q] - a) / e : 0.0f;
  $post
  $o[(b * m + r) * n + q] = u;
}
""",
        limit=_limit(causal),
        dot=_dot(workload, style, "u", "q"),
        post=workload.post("u"),
    )
    launch = Launch(
        _SCORE_SIZES,
        _SCORE_OUT,
        f"dim3((m + {style.block - 1}) / {style.block}, c), {style.block}",
        ["m", "w", "n"],
    )
    return write.example("naive", "one thread per query", launch, body)


def _warp_scores(causal: bool, workload: Workload, style: Style) -> KernelExample:
    write = Writer(workload, style)
    body = write.body(
        """
int r = blockIdx.x * 4 + threadIdx.x / 32, q = threadIdx.x % 32, b = blockIdx.y;
if (r >= m) return;
int l = $limit;
float a = -INFINITY, e = 0.0f, u;
for (int s = q; s < l; s += 32) {
  $dot
  $o[(b * m + r) * n + s] = u;
  a = fmaxf(a, u);
}
for (int d = 16; d > 0; d /= 2) a = fmaxf(a, __shfl_xor_sync(0xffffffff, a, d));
for (int s = q; s < l; s += 32) e = e + expf($o[(b * m + r) * n + s] - a);
for (int d = 16; d > 0; d /= 2) e = e + __shfl_xor_sync(0xffffffff, e, d);
for (int s = q; s < n; s += 32) {
  u = s < l ? expf($o[(b * m + r) * n + s] - a) / e : 0.0f;
  $post
  $o[(b * m + r) * n + s] = u;
}
""",
        limit=_limit(causal),
        dot=_dot(workload, style, "u", "s"),
        post=workload.post("u"),
    )
    launch = Launch(_SCORE_SIZES, _SCORE_OUT, "dim3((m + 3) / 4, c), 128", ["m", "w", "n"])
    why = (
        "a warp per query gives every lane its own key, so 32 times as many threads work, writes "
        "are coalesced, and maximum and sum take 5 shuffles each"
    )
    return write.example("shuffle", "one warp per query, a key per lane", launch, body, why)


def _tiled_scores(causal: bool, workload: Workload, style: Style) -> KernelExample:
    v, o = style.value, style.out
    x = staged(
        "s", "r", "r < m && j < w", "x[(b * m + r) * w + j]",
        inner_contiguous=True, value=v, pre=workload.pre(v),
    )  # fmt: skip
    y = staged(
        "t", "q", "q < n && j < w", "y[(b * n + q) * w + j]",
        inner_contiguous=True,
    )  # fmt: skip
    tile = register_tile(
        [*x, *y],
        [f"{o}[(b * m + r) * n + q] = a * rsqrtf((float)w);"],
        rows=("r", "m"),
        columns=("q", "n"),
        inner="w",
    )
    product = kernel(workload, style, ["m", "w", "n"], ["int b = blockIdx.z;", *tile])
    softmax = fill(
        """
__global__ void softmax(float* $o, int m, int n) {
  int tx = threadIdx.x, r = blockIdx.x, l = $limit;
  float a = -INFINITY, e = 0.0f;
  for (int q = tx; q < l; q += 32) a = fmaxf(a, $o[r * n + q]);
  for (int d = 16; d > 0; d /= 2) a = fmaxf(a, __shfl_xor_sync(0xffffffff, a, d));
  for (int q = tx; q < l; q += 32) e = e + expf($o[r * n + q] - a);
  for (int d = 16; d > 0; d /= 2) e = e + __shfl_xor_sync(0xffffffff, e, d);
  for (int q = tx; q < n; q += 32) {
    float u = q < l ? expf($o[r * n + q] - a) / e : 0.0f;
    $post
    $o[r * n + q] = u;
  }
}
""",
        o=o,
        limit="min(n, r % m + 1)" if causal else "n",
        post=workload.post("u"),
    )
    then = f"softmax<<<c * m, 32>>>({o}.data_ptr<float>(), m, n);"
    launch = Launch(
        _SCORE_SIZES, _SCORE_OUT, tile_grid("m", "n", "c"), ["m", "w", "n"], then=(then,)
    )
    comment = "scores by 64x64 tiles, then the softmax of each row"
    code = source(workload, style, comment, launch, product, softmax)
    why = (
        "scores are a matrix product with 4x4 outputs per thread in registers, and a second kernel "
        "takes the softmax of each row with one warp, so all reads and writes are coalesced"
    )
    return example(workload, "registers", code, why)


# --- attention -----------------------------------------------------------------------------------

_SIZES_LINE = "int c = x.size(0), m = x.size(1), w = x.size(2), n = y.size(1), h = z.size(2);"
_OUT = "torch::empty({c, m, h}, x.options())"
_ARGUMENTS = ["m", "w", "n", "h"]


def _naive(causal: bool, workload: Workload, style: Style) -> KernelExample:
    write = Writer(workload, style)
    body = write.body(
        """
int $i = blockIdx.x * blockDim.x + threadIdx.x, b = blockIdx.y;
if ($i >= m * h) return;
int r = $i / h, p = $i % h, l = $limit;
float a = -INFINITY, e = 0.0f, s = 0.0f, u;
for (int q = 0; q < l; q++) {
  $dot
  a = fmaxf(a, u);
}
for (int q = 0; q < l; q++) {
  $dot
  u = expf(u - a);
  e = e + u;
  s = s + u * z[(b * n + q) * h + p];
}
s = s / e;
$post
$o[(b * m + r) * h + p] = s;
""",
        limit=_limit(causal),
        dot=_dot(workload, style, "u", "q"),
        post=workload.post("s"),
    )
    grid = f"dim3((m * h + {style.block - 1}) / {style.block}, c), {style.block}"
    launch = Launch(_SIZES_LINE, _OUT, grid, _ARGUMENTS)
    return write.example("naive", "one thread per output", launch, body)


def _fused(causal: bool, workload: Workload, style: Style) -> KernelExample:
    write = Writer(workload, style)
    body = write.body(
        """
int r = blockIdx.x * 4 + threadIdx.x / 32, q = threadIdx.x % 32, b = blockIdx.y;
if (r >= m) return;
int l = $limit;
float a = -INFINITY, e = 0.0f, s4[4] = {0.0f, 0.0f, 0.0f, 0.0f};
for (int k0 = 0; k0 < l; k0 += 32) {
  float u = -INFINITY;
  if (k0 + q < l) {
    $dot
  }
  float top = u;
  for (int d = 16; d > 0; d /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffff, top, d));
  top = fmaxf(top, a);
  float f = expf(a - top), p = expf(u - top), t = p;
  for (int d = 16; d > 0; d /= 2) t = t + __shfl_xor_sync(0xffffffff, t, d);
  e = e * f + t;
  a = top;
  for (int d = 0; d < 4; d++) s4[d] = s4[d] * f;
  for (int k = 0; k < min(32, l - k0); k++) {
    float pk = __shfl_sync(0xffffffff, p, k);
    for (int d = 0; d < 4; d++) {
      int g = blockIdx.z * 128 + d * 32 + q;
      if (g < h) s4[d] = s4[d] + pk * z[(b * n + k0 + k) * h + g];
    }
  }
}
for (int d = 0; d < 4; d++) {
  int g = blockIdx.z * 128 + d * 32 + q;
  float s = s4[d] / e;
  $post
  if (g < h) $o[(b * m + r) * h + g] = s;
}
""",
        limit=_limit(causal),
        dot=_dot(workload, style, "u", "(k0 + q)"),
        post=workload.post("s"),
    )
    launch = Launch(_SIZES_LINE, _OUT, "dim3((m + 3) / 4, c, (h + 127) / 128), 128", _ARGUMENTS)
    why = (
        "an online softmax fuses scores, softmax and the product with the values, and each score "
        "is computed once for all columns instead of twice for every column"
    )
    return write.example("fused", "a warp per query, online softmax", launch, body, why)


def _registers(causal: bool, workload: Workload, style: Style) -> KernelExample:
    """64 queries a block, their sums for 64 columns of the values in registers."""
    write = Writer(workload, style)
    body = write.body(
        """
__shared__ float s[16][68], t[16][68], p[64][65], g[64][64];
int tx = threadIdx.x % 16, ty = threadIdx.x / 16, b = blockIdx.y, l = $limit;
float a4[4], e4[4] = {}, s16[16] = {};
for (int e = 0; e < 4; e++) a4[e] = -INFINITY;
for (int k0 = 0; k0 < l; k0 += 64) {
  float u16[16] = {};
  for (int d = 0; d < w; d += 16) {
    for (int e = threadIdx.x; e < 1024; e += 256) {
      int r = blockIdx.x * 64 + e / 16, q = k0 + e / 16, j = d + e % 16;
      float $v = 0.0f;
      if (r < m && j < w) {
        $v = x[(b * m + r) * w + j];
        $pre
      }
      s[e % 16][e / 16] = $v;
      t[e % 16][e / 16] = q < n && j < w ? y[(b * n + q) * w + j] : 0.0f;
    }
    __syncthreads();
    for (int j = 0; j < 16; j++)
      for (int e = 0; e < 16; e++) u16[e] = u16[e] + s[j][ty * 4 + e / 4] * t[j][tx * 4 + e % 4];
    __syncthreads();
  }
  for (int e = threadIdx.x; e < 4096; e += 256) {
    int q = k0 + e / 64, i = blockIdx.z * 64 + e % 64;
    g[e / 64][e % 64] = q < n && i < h ? z[(b * n + q) * h + i] : 0.0f;
  }
  for (int e = 0; e < 4; e++) {
    float top = a4[e], sum = 0.0f;
    for (int f = 0; f < 4; f++) {
      int q = k0 + tx * 4 + f;
      float& u = u16[e * 4 + f];
      u = $seen ? u * rsqrtf((float)w) : -INFINITY;
      top = fmaxf(top, u);
    }
    for (int d = 8; d > 0; d /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffff, top, d));
    for (int f = 0; f < 4; f++) {
      float u = expf(u16[e * 4 + f] - top);
      p[ty * 4 + e][tx * 4 + f] = u;
      sum = sum + u;
    }
    for (int d = 8; d > 0; d /= 2) sum = sum + __shfl_xor_sync(0xffffffff, sum, d);
    float old = expf(a4[e] - top);
    e4[e] = e4[e] * old + sum;
    a4[e] = top;
    for (int f = 0; f < 4; f++) s16[e * 4 + f] = s16[e * 4 + f] * old;
  }
  __syncthreads();
  for (int j = 0; j < 64; j++)
    for (int e = 0; e < 16; e++) s16[e] = s16[e] + p[ty * 4 + e / 4][j] * g[j][tx * 4 + e % 4];
  __syncthreads();
}
for (int e = 0; e < 16; e++) {
  int r = blockIdx.x * 64 + ty * 4 + e / 4, i = blockIdx.z * 64 + tx * 4 + e % 4;
  float u = s16[e] / e4[e / 4];
  $post
  if (r < m && i < h) $o[(b * m + r) * h + i] = u;
}
""",
        limit="min(n, (int)blockIdx.x * 64 + 64)" if causal else "n",
        seen="q < n && q <= blockIdx.x * 64 + ty * 4 + e" if causal else "q < n",
        post=workload.post("u"),
    )
    launch = Launch(_SIZES_LINE, _OUT, "dim3((m + 63) / 64, c, (h + 63) / 64), 256", _ARGUMENTS)
    why = (
        "64 queries share every tile of keys and values, scores and sums stay in registers, 4x4 a "
        "thread, and the online softmax stores no score in global memory"
    )
    return write.example("registers", "64 queries a block, online softmax", launch, body, why)


# --- the operations ------------------------------------------------------------------------------

_SCORE = "s = (x @ y.transpose(1, 2)) * x.size(2) ** -0.5"
_MASK = "s = s.masked_fill(torch.ones_like(s).triu(1) > 0, float('-inf'))"


def _queries_and_keys(params: Params, size: Size) -> tuple[Given, ...]:
    batch, queries, keys, extent, _ = size
    return (Given("x", (batch, queries, extent)), Given("y", (batch, keys, extent)))


def _all_three(params: Params, size: Size) -> tuple[Given, ...]:
    batch, _, keys, _, values = size
    return (*_queries_and_keys(params, size), Given("z", (batch, keys, values)))


def _terms(params: Params, shapes: Shapes) -> int:
    return shapes[0][2] + shapes[1][1]


def _score_op(name: str, causal: bool) -> WorkloadOp:
    masked = (_MASK,) if causal else ()
    return WorkloadOp(
        name=name,
        inputs=_queries_and_keys,
        torch=(_SCORE, *masked, "torch.softmax(s, dim=2)"),
        spoken=f"softmax of the {'causal ' if causal else ''}scores ({{v}}) @ y^T / sqrt(w)",
        kernels=partial(each, (_naive_scores, _warp_scores, _tiled_scores), causal),
        sizes=_SCORES,
        gpu_sizes=_GPU_SCORES,
        interval=within(0.0, 1.0, 0.0, 0.1),
        terms=_terms,
    )


def _attention_op(name: str, causal: bool) -> WorkloadOp:
    masked = (_MASK,) if causal else ()
    return WorkloadOp(
        name=name,
        inputs=_all_three,
        torch=(_SCORE, *masked, "torch.softmax(s, dim=2) @ z"),
        spoken=f"{'causal ' if causal else ''}attention of the queries {{v}}, keys y, values z",
        kernels=partial(each, (_naive, _fused, _registers), causal),
        sizes=_SIZES,
        gpu_sizes=_GPU_SIZES,
        interval=within(-2.0, 2.0, -0.6, 0.6),
        terms=_terms,
    )


ATTENTION_SCORES = (_score_op("attnscores", False), _score_op("causalscores", True))
ATTENTION = (_attention_op("attention", False), _attention_op("causalattention", True))
