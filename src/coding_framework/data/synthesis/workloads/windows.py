"""Workloads over windows: pooling, convolutions, depthwise and with a residual.

Padding is half the window, so that an odd window at stride 1 keeps the extent.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from coding_framework.data.synthesis.interval import Interval
from coding_framework.data.synthesis.kernel_text import Launch, fill
from coding_framework.data.synthesis.styles import Style
from coding_framework.data.synthesis.workloads.base import (
    Given,
    Params,
    Shapes,
    Size,
    Workload,
    WorkloadOp,
    Writer,
    same,
)
from coding_framework.types import KernelExample

# --- pooling -------------------------------------------------------------------------------------

_POOL_1D: tuple[Size, Size, Size] = ((4, 32, 256), (3, 17, 131), (1, 3, 9))
_GPU_POOL_1D: tuple[Size, Size, Size] = ((64, 512, 2048), (33, 127, 2041), (1, 3, 9))
_POOL_2D: tuple[Size, Size, Size] = ((2, 8, 48, 48), (3, 5, 31, 37), (1, 2, 6, 7))
_GPU_POOL_2D: tuple[Size, Size, Size] = ((32, 64, 256, 256), (5, 37, 251, 253), (1, 2, 6, 7))
_WINDOWS: tuple[Params, ...] = ((2, 2), (3, 1), (3, 2), (4, 4), (5, 1), (5, 2))


@dataclass(frozen=True, slots=True)
class Pooling:
    """How a window's values are joined."""

    start: str
    join: str
    """With {a} for what is gathered and {v} for the value."""
    result: str
    """With {k} for the number of places in a window, padding included."""


_MAX = Pooling("-INFINITY", "{a} = fmaxf({a}, {v});", "")
_AVERAGE = Pooling("0.0f", "{a} = {a} + {v};", "{a} = {a} / {k};")
_POWER = Pooling("0.0f", "{a} = {a} + {v} * {v};", "{a} = sqrtf({a});")


def _fits(params: Params) -> bool:
    window, stride = params
    return 2 <= window <= 5 and 1 <= stride <= window


def _extent(workload: Workload, size: str) -> str:
    """C expression of the output's extent."""
    window, stride = workload.params
    room = f"({size} - 1)" if window % 2 else size
    return f"{room} / {stride} + 1"


def _finish(pooling: Pooling, places: int, target: str) -> list[str]:
    return [pooling.result.format(a=target, k=f"{places}.0f")] if pooling.result else []


def _pool_1d(pooling: Pooling, workload: Workload, style: Style) -> tuple[KernelExample, ...]:
    return _naive_1d(pooling, workload, style), _rows_1d(pooling, workload, style)


def _window_1d(pooling: Pooling, workload: Workload, style: Style, row: str) -> list[str]:
    window, stride = workload.params
    return fill(
        """
float a = $start;
for (int d = 0; d < $k; d++) {
  int j = q * $s + d - $pad;
  if (j >= 0 && j < w) {
    float $v = x[$row * w + j];
    $pre
    $join
  }
}
$finish
$post
""",
        start=pooling.start,
        k=window,
        s=stride,
        pad=window // 2,
        row=row,
        v=style.value,
        pre=workload.pre(style.value),
        join=pooling.join.format(a="a", v=style.value),
        finish=_finish(pooling, window, "a"),
        post=workload.post("a"),
    )


def _naive_1d(pooling: Pooling, workload: Workload, style: Style) -> KernelExample:
    write = Writer(workload, style)
    body = write.body(
        """
int $i = blockIdx.x * blockDim.x + threadIdx.x;
if ($i >= m * n) return;
int r = $i / n, q = $i % n;
$window
$o[$i] = a;
""",
        window=_window_1d(pooling, workload, style, "r"),
    )
    launch = Launch(
        f"int m = x.size(0) * x.size(1), w = x.size(2), n = {_extent(workload, 'w')};",
        "torch::empty({x.size(0), x.size(1), n}, x.options())",
        f"(m * n + {style.block - 1}) / {style.block}, {style.block}",
        ["m", "w", "n"],
    )
    return write.example("naive", "one thread per output", launch, body)


def _rows_1d(pooling: Pooling, workload: Workload, style: Style) -> KernelExample:
    """The stretch of a row that a block needs, staged in shared memory."""
    write = Writer(workload, style)
    window, stride = workload.params
    staged = 127 * stride + window
    body = write.body(
        """
__shared__ float t[$staged];
int r = blockIdx.y, p = blockIdx.x * 128, q = p + threadIdx.x;
for (int d = threadIdx.x; d < $staged; d += 128) {
  int j = p * $s + d - $pad;
  if (j >= 0 && j < w) {
    float $v = x[r * w + j];
    $pre
    t[d] = $v;
  }
}
__syncthreads();
if (q >= n) return;
float a = $start;
for (int d = 0; d < $k; d++) {
  int j = q * $s + d - $pad;
  if (j >= 0 && j < w) {
    float $v = t[threadIdx.x * $s + d];
    $join
  }
}
$finish
$post
$o[r * n + q] = a;
""",
        staged=staged,
        start=pooling.start,
        k=window,
        s=stride,
        pad=window // 2,
        join=pooling.join.format(a="a", v=style.value),
        finish=_finish(pooling, window, "a"),
    )
    launch = Launch(
        f"int m = x.size(0) * x.size(1), w = x.size(2), n = {_extent(workload, 'w')};",
        "torch::empty({x.size(0), x.size(1), n}, x.options())",
        "dim3((n + 127) / 128, m), 128",
        ["w", "n"],
    )
    why = (
        "each element is read from global memory and put through the steps once for all windows "
        "that hold it, and a grid row per matrix row needs no division"
    )
    return write.example("shared", "a stretch of the row in shared memory", launch, body, why)


_SIZES_2D = "int m = x.size(0) * x.size(1), h = x.size(2), w = x.size(3), g = {g}, n = {n};"
_OUT_2D = "torch::empty({x.size(0), x.size(1), g, n}, x.options())"


def _pool_2d(pooling: Pooling, workload: Workload, style: Style) -> tuple[KernelExample, ...]:
    return _naive_2d(pooling, workload, style), _columns_2d(pooling, workload, style)


def _sizes_2d(workload: Workload) -> str:
    return _SIZES_2D.format(g=_extent(workload, "h"), n=_extent(workload, "w"))


def _naive_2d(pooling: Pooling, workload: Workload, style: Style) -> KernelExample:
    write = Writer(workload, style)
    window, stride = workload.params
    body = write.body(
        """
int $i = blockIdx.x * blockDim.x + threadIdx.x;
if ($i >= m * g * n) return;
int q = $i % n, p = $i / n % g, r = $i / n / g;
float a = $start;
for (int e = 0; e < $k; e++) {
  for (int d = 0; d < $k; d++) {
    int y = p * $s + e - $pad, j = q * $s + d - $pad;
    if (y >= 0 && y < h && j >= 0 && j < w) {
      float $v = x[(r * h + y) * w + j];
      $pre
      $join
    }
  }
}
$finish
$post
$o[$i] = a;
""",
        start=pooling.start,
        k=window,
        s=stride,
        pad=window // 2,
        join=pooling.join.format(a="a", v=style.value),
        finish=_finish(pooling, window * window, "a"),
    )
    arguments = ["m", "h", "w", "g", "n"]
    grid = f"(m * g * n + {style.block - 1}) / {style.block}, {style.block}"
    launch = Launch(_sizes_2d(workload), _OUT_2D, grid, arguments)
    return write.example("naive", "one thread per output", launch, body)


def _columns_2d(pooling: Pooling, workload: Workload, style: Style) -> KernelExample:
    """Four outputs of a column per thread: an input row is joined once and used by each of them."""
    write = Writer(workload, style)
    window, stride = workload.params
    body = write.body(
        """
int q = blockIdx.x * blockDim.x + threadIdx.x, p = blockIdx.y * 4, r = blockIdx.z;
if (q >= n) return;
float a4[4] = {$start, $start, $start, $start};
for (int e = 0; e < $rows; e++) {
  int y = p * $s + e - $pad;
  if (y < 0 || y >= h) continue;
  float b = $start;
  for (int d = 0; d < $k; d++) {
    int j = q * $s + d - $pad;
    if (j >= 0 && j < w) {
      float $v = x[(r * h + y) * w + j];
      $pre
      $join
    }
  }
  for (int f = 0; f < 4; f++) {
    if (e >= f * $s && e < f * $s + $k) $gather
  }
}
for (int f = 0; f < 4 && p + f < g; f++) {
  float a = a4[f];
  $finish
  $post
  $o[(r * g + p + f) * n + q] = a;
}
""",
        start=pooling.start,
        rows=3 * stride + window,
        k=window,
        s=stride,
        pad=window // 2,
        join=pooling.join.format(a="b", v=style.value),
        gather="a4[f] = fmaxf(a4[f], b);" if pooling is _MAX else "a4[f] = a4[f] + b;",
        finish=_finish(pooling, window * window, "a"),
    )
    arguments = ["h", "w", "g", "n"]
    grid = "dim3((n + 63) / 64, (g + 3) / 4, m), 64"
    launch = Launch(_sizes_2d(workload), _OUT_2D, grid, arguments)
    why = (
        "four outputs per thread share the joined rows of their windows in registers, which saves "
        "loads and steps, and a 3D grid needs no division"
    )
    return write.example("registers", "four outputs of a column per thread", launch, body, why)


def _pool_op(name: str, pooling: Pooling, torch: str, spoken: str, *, flat: bool) -> WorkloadOp:
    def terms(params: Params, shapes: Shapes) -> int:
        return 1 if pooling is _MAX else int(params[0] ** (1 if flat else 2))

    def norm(v: Interval) -> Interval:
        top = max(abs(v.low), abs(v.high))
        usual = max(abs(v.typical_low), abs(v.typical_high))
        return Interval(0.0, 5 * top, 0.5 * usual, 3 * usual)

    return WorkloadOp(
        name=name,
        inputs=lambda params, size: (Given("x", size),),
        torch=(torch,),
        spoken=spoken,
        kernels=partial(_pool_1d if flat else _pool_2d, pooling),
        sizes=_POOL_1D if flat else _POOL_2D,
        gpu_sizes=_GPU_POOL_1D if flat else _GPU_POOL_2D,
        interval=norm if pooling is _POWER else same,
        letters="ks",
        choices=_WINDOWS,
        terms=terms,
        check=_fits,
    )


POOL_1D = (
    _pool_op("maxpool1d", _MAX, "F.max_pool1d(x, {k}, {s}, {k} // 2)", "maxpool1d({v}, {k}, {s})",
             flat=True),
    _pool_op("avgpool1d", _AVERAGE, "F.avg_pool1d(x, {k}, {s}, {k} // 2)",
             "avgpool1d({v}, {k}, {s})", flat=True),
)  # fmt: skip
POOL_2D = (
    _pool_op("maxpool2d", _MAX, "F.max_pool2d(x, {k}, {s}, {k} // 2)", "maxpool2d({v}, {k}, {s})",
             flat=False),
    _pool_op("avgpool2d", _AVERAGE, "F.avg_pool2d(x, {k}, {s}, {k} // 2)",
             "avgpool2d({v}, {k}, {s})", flat=False),
    _pool_op("normpool2d", _POWER,
             "torch.sqrt(F.avg_pool2d(x * x, {k}, {s}, {k} // 2) * {k} ** 2)",
             "l2 pooling of {v}, window {k}, stride {s}", flat=False),
)  # fmt: skip
