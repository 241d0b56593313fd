"""Workloads that move data, or work along an inner axis: permutations, reductions of a middle axis,
rows by index, counts, gates, rotary embeddings, channel-wise norms, upsampling."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from coding_framework.data.synthesis.interval import Interval
from coding_framework.data.synthesis.kernel_text import (
    ADD,
    MAX,
    MIN,
    Combine,
    Launch,
    fill,
)
from coding_framework.data.synthesis.styles import Style
from coding_framework.data.synthesis.workloads.base import (
    Given,
    Params,
    Size,
    Workload,
    WorkloadOp,
    Writer,
    each,
    same,
    weight,
)
from coding_framework.types import DType, KernelExample

_FLOATS: tuple[DType, ...] = ("float32", "float16", "bfloat16")

# --- permutations: transposes of a batch of matrices ----------------------------------------------

_CUBE: tuple[Size, Size, Size] = ((8, 96, 128), (5, 61, 75), (2, 3, 5))
_GPU_CUBE: tuple[Size, Size, Size] = ((64, 1024, 512), (37, 1021, 509), (2, 3, 5))


@dataclass(frozen=True, slots=True)
class Turn:
    """A permutation as `c` transposes of an m x w matrix each."""

    order: str
    sizes: str
    shape: str


_TURNS = (
    Turn("0, 2, 1", "int c = x.size(0), m = x.size(1), w = x.size(2);", "c, w, m"),
    Turn(
        "2, 0, 1",
        "int c = 1, m = x.size(0) * x.size(1), w = x.size(2);",
        "w, x.size(0), x.size(1)",
    ),
    Turn(
        "1, 2, 0",
        "int c = 1, m = x.size(0), w = x.size(1) * x.size(2);",
        "x.size(1), x.size(2), m",
    ),
)


def _naive_turn(turn: Turn, workload: Workload, style: Style) -> KernelExample:
    write = Writer(workload, style)
    body = write.body(
        """
int $i = blockIdx.x * blockDim.x + threadIdx.x;
if ($i >= c * m * w) return;
int j = $i % w, r = $i / w % m, b = $i / w / m;
float $v = x[$i];
$pre
$o[(b * w + j) * m + r] = $v;
""",
    )
    grid = f"(c * m * w + {style.block - 1}) / {style.block}, {style.block}"
    allocate = f"torch::empty({{{turn.shape}}}, x.options())"
    launch = Launch(turn.sizes, allocate, grid, ["c", "m", "w"])
    return write.example("naive", "one thread per element", launch, body)


def _tiled_turn(turn: Turn, workload: Workload, style: Style) -> KernelExample:
    write = Writer(workload, style)
    body = write.body(
        """
__shared__ float t[32][33];
int b = blockIdx.z, j = blockIdx.x * 32 + threadIdx.x;
for (int q = threadIdx.y; q < 32; q += 8) {
  int r = blockIdx.y * 32 + q;
  if (r < m && j < w) {
    float $v = x[(b * m + r) * w + j];
    $pre
    t[q][threadIdx.x] = $v;
  }
}
__syncthreads();
int r = blockIdx.y * 32 + threadIdx.x;
for (int q = threadIdx.y; q < 32; q += 8) {
  int j = blockIdx.x * 32 + q;
  if (r < m && j < w) $o[(b * w + j) * m + r] = t[threadIdx.x][q];
}
""",
    )
    allocate = f"torch::empty({{{turn.shape}}}, x.options())"
    grid = "dim3((w + 31) / 32, (m + 31) / 32, c), dim3(32, 8)"
    launch = Launch(turn.sizes, allocate, grid, ["m", "w"])
    comment = "32x32 tile in shared memory, padded against bank conflicts"
    why = (
        "a padded 32x32 shared-memory tile makes both the reads and the writes coalesced and free "
        "of bank conflicts"
    )
    return write.example("shared", comment, launch, body, why)


PERMUTE = tuple(
    WorkloadOp(
        name=f"permute{turn.order.replace(', ', '')}",
        inputs=lambda params, size: (Given("x", size),),
        torch=(f"x.permute({turn.order}).contiguous()",),
        spoken=f"{{v}} with its axes in the order ({turn.order})",
        kernels=partial(each, (_naive_turn, _tiled_turn), turn),
        sizes=_CUBE,
        gpu_sizes=_GPU_CUBE,
        dtypes=_FLOATS,
        atoms=("transpose",),
    )
    for turn in _TURNS
)

# --- reductions of the middle axis ----------------------------------------------------------------

_MIDDLE: tuple[Size, Size, Size] = ((4, 128, 64), (3, 75, 45), (2, 3, 5))
_GPU_MIDDLE: tuple[Size, Size, Size] = ((16, 8192, 256), (5, 4093, 509), (2, 3, 5))
_MIDDLE_SIZES = "int b = x.size(0), m = x.size(1), w = x.size(2);"
_MIDDLE_OUT = "torch::empty({b, w}, x.options())"


@dataclass(frozen=True, slots=True)
class Reduction:
    """How the values along an axis become one."""

    combine: Combine
    term: str = "{v}"
    result: str = "a"


def _naive_middle(reduction: Reduction, workload: Workload, style: Style) -> KernelExample:
    write = Writer(workload, style)
    v = style.value
    body = write.body(
        """
int $i = blockIdx.x * blockDim.x + threadIdx.x;
if ($i >= b * w) return;
float a = $identity;
for (int r = 0; r < m; r++) {
  float $v = x[($i / w * m + r) * w + $i % w];
  $pre
  $join
}
$result
$post
$o[$i] = a;
""",
        v=v,
        identity=reduction.combine.identity,
        join=reduction.combine.assign("a", reduction.term.format(v=v)),
        result=[f"a = {reduction.result};"] if reduction.result != "a" else [],
    )
    grid = f"(b * w + {style.block - 1}) / {style.block}, {style.block}"
    launch = Launch(_MIDDLE_SIZES, _MIDDLE_OUT, grid, ["b", "m", "w"])
    return write.example("naive", "one thread per output", launch, body)


def _split_middle(reduction: Reduction, workload: Workload, style: Style) -> KernelExample:
    write = Writer(workload, style)
    v = style.value
    body = write.body(
        """
__shared__ float t[16][32];
int j = blockIdx.x * 32 + threadIdx.x, q = threadIdx.y, e = blockIdx.y;
float a = $identity;
if (j < w) {
  for (int r = q; r < m; r += 16) {
    float $v = x[(e * m + r) * w + j];
    $pre
    $join
  }
}
t[q][threadIdx.x] = a;
__syncthreads();
if (q > 0 || j >= w) return;
for (int d = 1; d < 16; d++) $gather
$result
$post
$o[e * w + j] = a;
""",
        v=v,
        identity=reduction.combine.identity,
        join=reduction.combine.assign("a", reduction.term.format(v=v)),
        gather=reduction.combine.assign("a", "t[d][threadIdx.x]"),
        result=[f"a = {reduction.result};"] if reduction.result != "a" else [],
    )
    grid = "dim3((w + 31) / 32, b), dim3(32, 16)"
    launch = Launch(_MIDDLE_SIZES, _MIDDLE_OUT, grid, ["m", "w"])
    comment = "16 threads share an output, their parts meet in shared memory"
    why = (
        "16 threads share each output, so 16 times as many loads are in flight, still coalesced "
        "along the last axis"
    )
    return write.example("shared", comment, launch, body, why)


def _middle_op(
    name: str,
    reduction: Reduction,
    torch: str,
    interval: Callable[[Interval], Interval],
) -> WorkloadOp:
    return WorkloadOp(
        name=name,
        inputs=lambda params, size: (Given("x", size),),
        torch=(torch,),
        spoken=f"{name}({{v}}) along the middle axis",
        kernels=partial(each, (_naive_middle, _split_middle), reduction),
        sizes=_MIDDLE,
        gpu_sizes=_GPU_MIDDLE,
        interval=interval,
        terms=lambda params, shapes: shapes[0][1] if reduction.combine is ADD else 1,
        dtypes=_FLOATS[:1],
    )


def _mean(v: Interval) -> Interval:
    middle = (v.typical_low + v.typical_high) / 2
    spread = (v.typical_high - v.typical_low) / 16
    return Interval(v.low, v.high, middle - spread, middle + spread)


def _extreme(v: Interval) -> Interval:
    return Interval(v.low, v.high, v.typical_low, v.typical_high)


def _sum(v: Interval) -> Interval:
    spread = 8 * (v.typical_high - v.typical_low)
    centre = 64 * (v.typical_low + v.typical_high)
    return Interval(min(v.low * 8192, v.low), max(v.high * 8192, v.high), centre - spread,
                    centre + spread)  # fmt: skip


MIDDLE_REDUCTION = (
    _middle_op("midsum", Reduction(ADD), "x.sum(dim=1)", _sum),
    _middle_op("midmean", Reduction(ADD, result="a / m"), "x.mean(dim=1)", _mean),
    _middle_op("midmax", Reduction(MAX), "x.amax(dim=1)", _extreme),
    _middle_op("midmin", Reduction(MIN), "x.amin(dim=1)", _extreme),
    _middle_op(
        "midnorm",
        Reduction(ADD, "{v} * {v}", "sqrtf(a)"),
        "torch.linalg.vector_norm(x, dim=1)",
        lambda v: Interval(0.0, 91 * max(abs(v.low), abs(v.high)), 2.0, 40.0),
    ),
)

# --- rows by index --------------------------------------------------------------------------------

_TABLE: tuple[Size, Size, Size] = ((200, 128, 300), (101, 75, 83), (4, 5, 3))
"""Rows of the table, columns, rows asked for."""
_GPU_TABLE: tuple[Size, Size, Size] = ((32768, 1024, 32768), (4093, 1021, 8191), (4, 5, 3))
_TABLE_SIZES = "int n = y.numel(), w = x.size(1);"
_TABLE_OUT = "torch::empty({n, w}, x.options())"


def _naive_gather(extra: str, workload: Workload, style: Style) -> KernelExample:
    write = Writer(workload, style)
    body = write.body(
        """
int $i = blockIdx.x * blockDim.x + threadIdx.x;
if ($i >= n * w) return;
float $v = x[y[$i / w] * w + $i % w];
$pre
$extra
$post
$o[$i] = $v;
""",
        extra=[extra.format(v=style.value, r=f"{style.index} / w", j=f"{style.index} % w")]
        if extra
        else [],
        post=workload.post(style.value),
    )
    grid = f"(n * w + {style.block - 1}) / {style.block}, {style.block}"
    launch = Launch(_TABLE_SIZES, _TABLE_OUT, grid, ["n", "w"])
    return write.example("naive", "one thread per element", launch, body)


def _block_gather(extra: str, workload: Workload, style: Style) -> KernelExample:
    write = Writer(workload, style)
    body = write.body(
        """
int r = blockIdx.x;
const $element* t = x + y[r] * w;
for (int j = threadIdx.x; j < w; j += 128) {
  float $v = t[j];
  $pre
  $extra
  $post
  $o[r * w + j] = $v;
}
""",
        element=workload.element,
        extra=[extra.format(v=style.value, r="r", j="j")] if extra else [],
        post=workload.post(style.value),
    )
    launch = Launch(_TABLE_SIZES, _TABLE_OUT, "n, 128", ["w"])
    why = (
        "a block per row reads its index once instead of once an element, and walks the row "
        "coalesced without divisions"
    )
    return write.example("coalesced", "one block per row asked for", launch, body, why)


def _gather_op(name: str, extra: str, torch: str, spoken: str, other: str = "") -> WorkloadOp:
    def inputs(params: Params, size: Size) -> tuple[Given, ...]:
        rows, columns, asked = size
        given = [Given("x", (rows, columns)), Given("y", (asked,), "int64", 0.0, rows - 1.0)]
        further = {"": (), "z": (Given("z", (asked, columns)),), "b": (weight("b", columns),),
                   "c": (Given("c", (asked,)),)}  # fmt: skip
        return (*given, *further[other])

    return WorkloadOp(
        name=name,
        inputs=inputs,
        torch=(torch,),
        spoken=spoken,
        kernels=partial(each, (_naive_gather, _block_gather), extra),
        sizes=_TABLE,
        gpu_sizes=_GPU_TABLE,
        interval=same if not extra else lambda v: Interval.of(2 * v.low - 2.5, 2 * v.high + 2.5),
        dtypes=_FLOATS if not extra else _FLOATS[:1],
    )


GATHER = (
    _gather_op("gatherrows", "", "x[y]", "rows y of {v}"),
    _gather_op(
        "gatheradd", "{v} = {v} + z[({r}) * w + {j}];", "x[y] + z", "rows y of {v}, plus z", "z"
    ),
    _gather_op("gatherbias", "{v} = {v} + b[{j}];", "x[y] + b", "rows y of {v}, plus b", "b"),
    _gather_op(
        "gatherscale", "{v} = {v} * c[{r}];", "x[y] * c[:, None]", "rows y of {v}, times c", "c"
    ),
)

# --- counts ---------------------------------------------------------------------------------------

_COUNTS: tuple[Size, Size, Size] = ((32768,), (10007,), (13,))
_GPU_COUNTS: tuple[Size, Size, Size] = ((16777216,), (8388593,), (13,))


def _global_histogram(index: str, workload: Workload, style: Style) -> KernelExample:
    write = Writer(workload, style)
    (bins,) = workload.params
    i = style.index
    body = write.body(
        """
int $i = blockIdx.x * blockDim.x + threadIdx.x;
if ($i < n) atomicAdd((unsigned long long*)$o + $bin, 1ULL);
""",
        i=i,
        bin=index.format(x=f"x[{i}]", c=bins),
    )
    launch = Launch(
        "int n = x.numel();",
        f"torch::zeros({{{bins}}}, x.options())",
        f"(n + {style.block - 1}) / {style.block}, {style.block}",
        ["n"],
    )
    return write.example("naive", "an atomic per element", launch, body)


def _shared_histogram(index: str, workload: Workload, style: Style) -> KernelExample:
    write = Writer(workload, style)
    (bins,) = workload.params
    i = style.index
    body = write.body(
        """
__shared__ unsigned t[$bins];
for (int q = threadIdx.x; q < $bins; q += 256) t[q] = 0;
__syncthreads();
for (int $i = blockIdx.x * 256 + threadIdx.x; $i < n; $i += 256 * gridDim.x) {
  atomicAdd(t + $bin, 1u);
}
__syncthreads();
for (int q = threadIdx.x; q < $bins; q += 256) {
  if (t[q] > 0) atomicAdd((unsigned long long*)$o + q, (unsigned long long)t[q]);
}
""",
        i=i,
        bins=bins,
        bin=index.format(x=f"x[{i}]", c=bins),
    )
    launch = Launch(
        "int n = x.numel();",
        f"torch::zeros({{{bins}}}, x.options())",
        "min((n + 4095) / 4096, 1024), 256",
        ["n"],
    )
    why = (
        "each block counts in shared memory, whose atomics are cheap, and adds its counts to "
        "global memory once per bin instead of once per element"
    )
    return write.example("shared", "counts of a block in shared memory", launch, body, why)


def _histogram_op(name: str, index: str, torch: str, spoken: str) -> WorkloadOp:
    return WorkloadOp(
        name=name,
        inputs=lambda params, size: (Given("x", size, "int64"),),
        torch=(torch,),
        spoken=spoken,
        kernels=partial(each, (_global_histogram, _shared_histogram), index),
        sizes=_COUNTS,
        gpu_sizes=_GPU_COUNTS,
        steps_before=False,
        letters="c",
        choices=((8,), (10,), (16,), (32,), (64,), (100,), (128,), (256,)),
        x_range=(0.0, 1000.0),
        output="int64",
        check=lambda params: 2 <= params[0] <= 1000,
    )


HISTOGRAM = (
    _histogram_op(
        "countmod",
        "{x} % {c}",
        "torch.bincount(x % {c}, minlength={c})",
        "how many of {v} have each remainder mod {c}",
    ),
    _histogram_op(
        "countclamp",
        "min((int){x}, {c} - 1)",
        "torch.bincount(x.clamp(max={c} - 1), minlength={c})",
        "how many of min({v}, {c} - 1) have each value",
    ),
    _histogram_op(
        "countscaled",
        "{x} * {c} / 1001",
        "torch.bincount(x * {c} // 1001, minlength={c})",
        "a histogram of {v} with {c} bins over [0, 1000]",
    ),
)

# --- gates over halves of the last axis -----------------------------------------------------------

_HALVES: tuple[Size, Size, Size] = ((128, 512), (61, 262), (3, 6))
_GPU_HALVES: tuple[Size, Size, Size] = ((4096, 8192), (4093, 8190), (3, 6))
_HALVES_SIZES = "int m = x.size(0), w = x.size(1) / 2;"
_HALVES_OUT = "torch::empty({m, w}, x.options())"


def _naive_glu(gate: str, workload: Workload, style: Style) -> KernelExample:
    write = Writer(workload, style)
    v = style.value
    body = write.body(
        """
int $i = blockIdx.x * blockDim.x + threadIdx.x;
if ($i >= m * w) return;
float $v = x[$i / w * 2 * w + $i % w], g = x[$i / w * 2 * w + w + $i % w];
$v = $v * ($gate);
$post
$o[$i] = $v;
""",
        v=v,
        gate=gate.format(v="g"),
        post=workload.post(v),
    )
    grid = f"(m * w + {style.block - 1}) / {style.block}, {style.block}"
    launch = Launch(_HALVES_SIZES, _HALVES_OUT, grid, ["m", "w"])
    return write.example("naive", "one thread per output", launch, body)


def _rows_glu(gate: str, workload: Workload, style: Style) -> KernelExample:
    write = Writer(workload, style)
    v = style.value
    body = write.body(
        """
int r = blockIdx.y, j = (blockIdx.x * 128 + threadIdx.x) * 4;
const float* p = x + r * 2 * w;
if (w % 4 == 0 && j < w) {
  float4 a4 = *(const float4*)(p + j), g4 = *(const float4*)(p + w + j);
  *(float4*)($o + r * w + j) =
      make_float4(f(a4.x, g4.x), f(a4.y, g4.y), f(a4.z, g4.z), f(a4.w, g4.w));
} else {
  for (int e = min(j + 4, w); j < e; j++) $o[r * w + j] = f(p[j], p[w + j]);
}
""",
    )
    function = fill(
        """
__device__ float f(float $v, float g) {
  $v = $v * ($gate);
  $post
  return $v;
}
""",
        v=v,
        gate=gate.format(v="g"),
        post=workload.post(v),
    )
    launch = Launch(_HALVES_SIZES, _HALVES_OUT, "dim3((w + 511) / 512, m), 128", ["w"])
    comment = "four columns of both halves per thread"
    why = (
        "a 2D grid needs no division for the row and column, and float4 moves 16 bytes per "
        "instruction from both halves"
    )
    return write.example("vectorized", comment, launch, body, why, [function])


def _glu_op(name: str, gate: str, torch: str) -> WorkloadOp:
    return WorkloadOp(
        name=name,
        inputs=lambda params, size: (Given("x", size),),
        torch=("a, g = x.chunk(2, dim=1)", torch),
        spoken=f"{name}({{v}}) of its halves",
        kernels=partial(each, (_naive_glu, _rows_glu), gate),
        sizes=_HALVES,
        gpu_sizes=_GPU_HALVES,
        interval=lambda v: Interval(-17.0, 17.0, -2.0, 2.0),
        steps_before=False,
    )


GLU = (
    _glu_op("glu", "1.0f / (1.0f + expf(-{v}))", "a * torch.sigmoid(g)"),
    _glu_op("siluglu", "{v} / (1.0f + expf(-{v}))", "a * F.silu(g)"),
    _glu_op("geluglu", "0.5f * {v} * (1.0f + erff({v} * 0.70710678f))", "a * F.gelu(g)"),
    _glu_op("reluglu", "fmaxf({v}, 0.0f)", "a * torch.relu(g)"),
    _glu_op("tanhglu", "tanhf({v})", "a * torch.tanh(g)"),
)
