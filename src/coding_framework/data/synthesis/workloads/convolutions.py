"""Convolutions: of sequences and images, depthwise, and as a block with bias or residual.

Padding is half the window, so that an odd window at stride 1 keeps the extent.
"""

from __future__ import annotations

from dataclasses import dataclass

from coding_framework.data.synthesis.kernel_text import Launch, Lines
from coding_framework.data.synthesis.register_tiles import register_tile, staged, tile_grid
from coding_framework.data.synthesis.styles import Style
from coding_framework.data.synthesis.workloads.base import (
    Given,
    Params,
    Size,
    Workload,
    WorkloadOp,
    Writer,
    sums,
    weight,
)
from coding_framework.types import KernelExample

# --- sequences -----------------------------------------------------------------------------------

_CONV_1D: tuple[Size, Size, Size] = ((2, 8, 128, 16), (3, 5, 61, 7), (1, 2, 9, 3))
"""Batch, channels in, extent, channels out."""
_GPU_CONV_1D: tuple[Size, Size, Size] = ((32, 64, 8192, 64), (5, 37, 8191, 61), (1, 2, 9, 3))


def _odd_window(params: Params) -> bool:
    return params[0] in (3, 5, 7)


def _conv_1d(workload: Workload, style: Style) -> tuple[KernelExample, ...]:
    writers = (_naive_conv_1d, _shared_conv_1d, _product_conv_1d)
    return tuple(write(workload, style) for write in writers)


_SIZES_CONV_1D = "int m = x.size(0), c = x.size(1), w = x.size(2), n = u.size(0);"
_OUT_CONV_1D = "torch::empty({m, n, w}, x.options())"
_ARGUMENTS_1D = ["m", "c", "w", "n"]


def _naive_conv_1d(workload: Workload, style: Style) -> KernelExample:
    write = Writer(workload, style)
    (window,) = workload.params
    body = write.body(
        """
int $i = blockIdx.x * blockDim.x + threadIdx.x;
if ($i >= m * n * w) return;
int q = $i % w, p = $i / w % n, r = $i / w / n;
float a = 0.0f;
for (int e = 0; e < c; e++) {
  for (int d = 0; d < $k; d++) {
    int j = q + d - $pad;
    if (j >= 0 && j < w) {
      float $v = x[(r * c + e) * w + j];
      $pre
      a = a + $v * u[(p * c + e) * $k + d];
    }
  }
}
$post
$o[$i] = a;
""",
        k=window,
        pad=window // 2,
    )
    grid = f"(m * n * w + {style.block - 1}) / {style.block}, {style.block}"
    launch = Launch(_SIZES_CONV_1D, _OUT_CONV_1D, grid, _ARGUMENTS_1D)
    return write.example("naive", "one thread per output", launch, body)


def _shared_conv_1d(workload: Workload, style: Style) -> KernelExample:
    """128 places of 8 channels out per block; the input's stretch in shared memory."""
    write = Writer(workload, style)
    (window,) = workload.params
    body = write.body(
        """
__shared__ float t[$staged], s[8][$k];
int r = blockIdx.z, p = blockIdx.y * 8, q = blockIdx.x * 128 + threadIdx.x;
float a8[8] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
for (int e = 0; e < c; e++) {
  for (int d = threadIdx.x; d < $staged; d += 128) {
    int j = blockIdx.x * 128 + d - $pad;
    float $v = 0.0f;
    if (j >= 0 && j < w) {
      $v = x[(r * c + e) * w + j];
      $pre
    }
    t[d] = $v;
  }
  for (int d = threadIdx.x; d < 8 * $k; d += 128) {
    int f = p + d / $k;
    s[d / $k][d % $k] = f < n ? u[(f * c + e) * $k + d % $k] : 0.0f;
  }
  __syncthreads();
  for (int d = 0; d < $k; d++) {
    for (int f = 0; f < 8; f++) a8[f] = a8[f] + t[threadIdx.x + d] * s[f][d];
  }
  __syncthreads();
}
for (int f = 0; f < 8; f++) {
  float a = a8[f];
  $post
  if (q < w && p + f < n) $o[(r * n + p + f) * w + q] = a;
}
""",
        k=window,
        staged=128 + window - 1,
        pad=window // 2,
    )
    grid = "dim3((w + 127) / 128, (n + 7) / 8, m), 128"
    launch = Launch(_SIZES_CONV_1D, _OUT_CONV_1D, grid, _ARGUMENTS_1D)
    why = (
        "a stretch of the input in shared memory serves all taps and 8 channels out, whose sums "
        "stay in registers"
    )
    return write.example("shared", "input and weights in shared memory", launch, body, why)


_PRODUCT_COMMENT = "a matrix product of weights and windows, 4x4 outputs per thread"
_PRODUCT_WHY = (
    "the convolution is a matrix product of the weights and of the windows, which are never "
    "stored: 64x64 tiles in shared memory, and 4x4 outputs per thread in registers"
)


@dataclass(frozen=True, slots=True)
class _Window:
    """What one element of the matrix of windows is: row `j` of it, column `q`."""

    indices: str
    """Definitions of the place in x that it stands for."""
    inside: str
    """Condition under which that lies in x."""
    read: str


def _as_product(
    workload: Workload, style: Style, window: _Window, batch: str, taps: int, places: str,
    store: Lines, launch: Launch,
) -> KernelExample:  # fmt: skip
    """Weights [n, c * taps] times windows [c * taps, places], one product for each of the batch."""
    inner = f"c * {taps}"
    weights = staged(
        "s", "p", f"p < n && j < {inner}", f"u[p * {inner} + j]", inner_contiguous=True
    )
    windows = staged(
        "t", "q", f"j < {inner} && {window.inside}", window.read,
        inner_contiguous=False, value=style.value, pre=workload.pre(style.value),
        extra=f", {window.indices}",
    )  # fmt: skip
    tile = register_tile(
        [*weights, *windows], store, rows=("p", "n"), columns=("q", places), inner=inner
    )
    body = [f"int {batch} = blockIdx.z;", *tile]
    return Writer(workload, style).example(
        "registers", _PRODUCT_COMMENT, launch, body, _PRODUCT_WHY
    )


def _product_conv_1d(workload: Workload, style: Style) -> KernelExample:
    (taps,) = workload.params
    window = _Window(
        indices=f"l = q + j % {taps} - {taps // 2}",
        inside="l >= 0 && l < w",
        read=f"x[(b * c + j / {taps}) * w + l]",
    )
    store = [*workload.post("a"), f"{style.out}[(b * n + p) * w + q] = a;"]
    launch = Launch(_SIZES_CONV_1D, _OUT_CONV_1D, tile_grid("n", "w", "m"), _ARGUMENTS_1D)
    return _as_product(workload, style, window, "b", taps, "w", store, launch)


CONV_1D = (
    WorkloadOp(
        name="conv1d",
        inputs=lambda params, size: (
            Given("x", size[:3]),
            weight("u", size[3], size[1], params[0]),
        ),
        torch=("F.conv1d(x, u, padding={k} // 2)",),
        spoken="conv1d({v}, u), {k} taps",
        kernels=_conv_1d,
        sizes=_CONV_1D,
        gpu_sizes=_GPU_CONV_1D,
        interval=sums(64 * 7),
        letters="k",
        choices=((3,), (5,), (7,)),
        terms=lambda params, shapes: shapes[0][1] * params[0],
        check=_odd_window,
    ),
)

# --- images --------------------------------------------------------------------------------------

_CONV_2D: tuple[Size, Size, Size] = ((2, 4, 24, 24, 8), (1, 3, 19, 21, 5), (1, 2, 6, 7, 2))
"""Batch, channels in, height, width, channels out."""
_GPU_CONV_2D: tuple[Size, Size, Size] = (
    (16, 64, 128, 128, 64),
    (3, 19, 127, 125, 21),
    (1, 2, 6, 7, 2),
)
_BLOCK_2D: tuple[Size, Size, Size] = ((2, 6, 24, 24, 6), (1, 5, 19, 21, 5), (1, 2, 6, 7, 2))
_GPU_BLOCK_2D: tuple[Size, Size, Size] = (
    (16, 64, 128, 128, 64),
    (3, 21, 127, 125, 21),
    (1, 2, 6, 7, 2),
)
_SIZES_2D = "int m = x.size(0), c = x.size(1), h = x.size(2), w = x.size(3), n = u.size(0);"
_OUT_2D = "torch::empty({m, n, h, w}, x.options())"
_ARGUMENTS_2D = ["m", "c", "h", "w", "n"]


def _extra(workload: Workload, style: Style, channel: str, place: str) -> Lines:
    """Statements that add the bias or the residual to `a`."""
    match workload.op.name:
        case "convbias":
            return [f"a = a + b[{channel}];"]
        case "convresidual" | "depthresidual":
            v = style.value
            return [f"float {v} = x[{place}];", *workload.pre(v), f"a = a + {v};"]
        case _:
            return []


def _conv_2d(workload: Workload, style: Style) -> tuple[KernelExample, ...]:
    writers = (_naive_conv_2d, _shared_conv_2d, _product_conv_2d)
    return tuple(write(workload, style) for write in writers)


def _naive_conv_2d(workload: Workload, style: Style) -> KernelExample:
    write = Writer(workload, style)
    (window,) = workload.params
    body = write.body(
        """
int $i = blockIdx.x * blockDim.x + threadIdx.x;
if ($i >= m * n * h * w) return;
int q = $i % w, y = $i / w % h, p = $i / w / h % n, r = $i / w / h / n;
float a = 0.0f;
for (int e = 0; e < c; e++) {
  for (int f = 0; f < $k; f++) {
    for (int d = 0; d < $k; d++) {
      int l = y + f - $pad, j = q + d - $pad;
      if (l >= 0 && l < h && j >= 0 && j < w) {
        float $v = x[((r * c + e) * h + l) * w + j];
        $pre
        a = a + $v * u[((p * c + e) * $k + f) * $k + d];
      }
    }
  }
}
$extra
$post
$o[$i] = a;
""",
        k=window,
        pad=window // 2,
        extra=_extra(workload, style, "p", style.index),
    )
    grid = f"(m * n * h * w + {style.block - 1}) / {style.block}, {style.block}"
    launch = Launch(_SIZES_2D, _OUT_2D, grid, _ARGUMENTS_2D)
    return write.example("naive", "one thread per output", launch, body)


def _shared_conv_2d(workload: Workload, style: Style) -> KernelExample:
    """16 x 16 places of 4 channels out per block; the input's tile in shared memory."""
    write = Writer(workload, style)
    (window,) = workload.params
    place = "((r * n + p + f) * h + y) * w + q"
    body = write.body(
        """
__shared__ float t[$side][$side], s[4][$taps];
int tx = threadIdx.x, ty = threadIdx.y, g = (n + 3) / 4;
int r = blockIdx.z / g, p = blockIdx.z % g * 4;
int q = blockIdx.x * 16 + tx, y = blockIdx.y * 16 + ty;
float a4[4] = {0.0f, 0.0f, 0.0f, 0.0f};
for (int e = 0; e < c; e++) {
  for (int d = ty * 16 + tx; d < $side * $side; d += 256) {
    int l = blockIdx.y * 16 + d / $side - $pad, j = blockIdx.x * 16 + d % $side - $pad;
    float $v = 0.0f;
    if (l >= 0 && l < h && j >= 0 && j < w) {
      $v = x[((r * c + e) * h + l) * w + j];
      $pre
    }
    t[d / $side][d % $side] = $v;
  }
  for (int d = ty * 16 + tx; d < 4 * $taps; d += 256) {
    int f = p + d / $taps;
    s[d / $taps][d % $taps] = f < n ? u[(f * c + e) * $taps + d % $taps] : 0.0f;
  }
  __syncthreads();
  for (int d = 0; d < $taps; d++) {
    float b0 = t[ty + d / $k][tx + d % $k];
    for (int f = 0; f < 4; f++) a4[f] = a4[f] + b0 * s[f][d];
  }
  __syncthreads();
}
for (int f = 0; f < 4; f++) {
  if (p + f >= n || y >= h || q >= w) continue;
  float a = a4[f];
  $extra
  $post
  $o[$place] = a;
}
""",
        k=window,
        taps=window * window,
        side=16 + window - 1,
        pad=window // 2,
        place=place,
        extra=_extra(workload, style, "p + f", place),
    )
    grid = "dim3((w + 15) / 16, (h + 15) / 16, m * ((n + 3) / 4)), dim3(16, 16)"
    launch = Launch(_SIZES_2D, _OUT_2D, grid, _ARGUMENTS_2D)
    why = (
        "an input tile with its border in shared memory serves every tap of 256 places and 4 "
        "channels out, whose sums stay in registers"
    )
    return write.example("shared", "input tile and weights in shared memory", launch, body, why)


def _product_conv_2d(workload: Workload, style: Style) -> KernelExample:
    (side,) = workload.params
    taps, pad = side * side, side // 2
    window = _Window(
        indices=f"l = q / w + j / {side} % {side} - {pad}, y = q % w + j % {side} - {pad}",
        inside="l >= 0 && l < h && y >= 0 && y < w",
        read=f"x[((r * c + j / {taps}) * h + l) * w + y]",
    )
    place = "(r * n + p) * h * w + q"
    extra = _extra(workload, style, "p", place)
    store = [*extra, *workload.post("a"), f"{style.out}[{place}] = a;"]
    launch = Launch(_SIZES_2D, _OUT_2D, tile_grid("n", "h * w", "m"), _ARGUMENTS_2D)
    return _as_product(workload, style, window, "r", taps, "h * w", store, launch)


def _conv_op(name: str, torch: str, spoken: str, *, square: bool, bias: bool = False) -> WorkloadOp:
    def inputs(params: Params, size: Size) -> tuple[Given, ...]:
        batch, channels, height, width, out = size
        given = [
            Given("x", (batch, channels, height, width)),
            weight("u", out, channels, params[0], params[0]),
        ]
        return (*given, weight("b", out)) if bias else tuple(given)

    return WorkloadOp(
        name=name,
        inputs=inputs,
        torch=(torch,),
        spoken=spoken,
        kernels=_conv_2d,
        sizes=_BLOCK_2D if square else _CONV_2D,
        gpu_sizes=_GPU_BLOCK_2D if square else _GPU_CONV_2D,
        interval=sums(64 * 25 + 1),
        letters="k",
        choices=((3,), (5,)),
        terms=lambda params, shapes: shapes[0][1] * params[0] ** 2,
        check=_odd_window,
    )


CONV_2D = (
    _conv_op("conv2d", "F.conv2d(x, u, padding={k} // 2)", "conv2d({v}, u), {k}x{k}", square=False),
)
CONV_BLOCK = (
    _conv_op("convbias", "F.conv2d(x, u, b, padding={k} // 2)", "conv2d({v}, u, b), {k}x{k}",
             square=False, bias=True),
    _conv_op("convresidual", "x + F.conv2d(x, u, padding={k} // 2)",
             "{v} + conv2d({v}, u), {k}x{k}", square=True),
)  # fmt: skip

# --- depthwise -----------------------------------------------------------------------------------

_DEPTH: tuple[Size, Size, Size] = ((2, 8, 40, 40), (3, 5, 31, 37), (1, 2, 6, 7))
_GPU_DEPTH: tuple[Size, Size, Size] = ((32, 64, 256, 256), (5, 37, 251, 253), (1, 2, 6, 7))
_SIZES_DEPTH = "int m = x.size(0) * x.size(1), c = x.size(1), h = x.size(2), w = x.size(3);"
_ARGUMENTS_DEPTH = ["m", "c", "h", "w"]


def _depthwise(workload: Workload, style: Style) -> tuple[KernelExample, ...]:
    return _naive_depthwise(workload, style), _shared_depthwise(workload, style)


def _naive_depthwise(workload: Workload, style: Style) -> KernelExample:
    write = Writer(workload, style)
    (window,) = workload.params
    body = write.body(
        """
int $i = blockIdx.x * blockDim.x + threadIdx.x;
if ($i >= m * h * w) return;
int q = $i % w, y = $i / w % h, r = $i / w / h;
float a = 0.0f;
for (int f = 0; f < $k; f++) {
  for (int d = 0; d < $k; d++) {
    int l = y + f - $pad, j = q + d - $pad;
    if (l >= 0 && l < h && j >= 0 && j < w) {
      float $v = x[(r * h + l) * w + j];
      $pre
      a = a + $v * u[(r % c * $k + f) * $k + d];
    }
  }
}
$extra
$post
$o[$i] = a;
""",
        k=window,
        pad=window // 2,
        extra=_extra(workload, style, "r % c", style.index),
    )
    grid = f"(m * h * w + {style.block - 1}) / {style.block}, {style.block}"
    launch = Launch(_SIZES_DEPTH, "torch::empty_like(x)", grid, _ARGUMENTS_DEPTH)
    return write.example("naive", "one thread per output", launch, body)


def _shared_depthwise(workload: Workload, style: Style) -> KernelExample:
    write = Writer(workload, style)
    (window,) = workload.params
    place = "(r * h + y) * w + q"
    body = write.body(
        """
__shared__ float t[$tall][$wide], s[$taps];
int tx = threadIdx.x, ty = threadIdx.y, r = blockIdx.z;
int q = blockIdx.x * 32 + tx, y = blockIdx.y * 8 + ty;
for (int d = ty * 32 + tx; d < $tall * $wide; d += 256) {
  int l = blockIdx.y * 8 + d / $wide - $pad, j = blockIdx.x * 32 + d % $wide - $pad;
  float $v = 0.0f;
  if (l >= 0 && l < h && j >= 0 && j < w) {
    $v = x[(r * h + l) * w + j];
    $pre
  }
  t[d / $wide][d % $wide] = $v;
}
if (ty * 32 + tx < $taps) s[ty * 32 + tx] = u[r % c * $taps + ty * 32 + tx];
__syncthreads();
if (q >= w || y >= h) return;
float a = 0.0f;
for (int d = 0; d < $taps; d++) a = a + t[ty + d / $k][tx + d % $k] * s[d];
$extra
$post
$o[$place] = a;
""",
        k=window,
        taps=window * window,
        tall=8 + window - 1,
        wide=32 + window - 1,
        pad=window // 2,
        place=place,
        extra=_extra(workload, style, "r % c", place),
    )
    grid = "dim3((w + 31) / 32, (h + 7) / 8, m), dim3(32, 8)"
    launch = Launch(_SIZES_DEPTH, "torch::empty_like(x)", grid, _ARGUMENTS_DEPTH)
    why = (
        "a tile with its border in shared memory is read and put through the steps once for all "
        "taps, and a 3D grid needs no division"
    )
    return write.example("shared", "a tile and its filter in shared memory", launch, body, why)


def _depth_op(name: str, torch: str, spoken: str) -> WorkloadOp:
    return WorkloadOp(
        name=name,
        inputs=lambda params, size: (
            Given("x", size),
            weight("u", size[1], 1, params[0], params[0]),
        ),
        torch=(torch,),
        spoken=spoken,
        kernels=_depthwise,
        sizes=_DEPTH,
        gpu_sizes=_GPU_DEPTH,
        interval=sums(50),
        letters="k",
        choices=((3,), (5,), (7,)),
        terms=lambda params, shapes: int(params[0] ** 2),
        check=_odd_window,
    )


DEPTHWISE_CONV = (
    _depth_op("depthwise", "F.conv2d(x, u, padding={k} // 2, groups=x.size(1))",
              "depthwise conv2d({v}, u), {k}x{k}"),
    _depth_op("depthresidual", "x + F.conv2d(x, u, padding={k} // 2, groups=x.size(1))",
              "{v} + depthwise conv2d({v}, u), {k}x{k}"),
)  # fmt: skip
