"""Workloads made of matrix products: batched, transposed, gated, attention."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from coding_framework.data.synthesis.interval import Interval
from coding_framework.data.synthesis.kernel_text import (
    Launch,
    Lines,
    one_kernel,
)
from coding_framework.data.synthesis.register_tiles import (
    REGISTERS_COMMENT,
    REGISTERS_WHY,
    register_tile,
    staged,
    tile_grid,
)
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
from coding_framework.types import DType, KernelExample

_FLOATS: tuple[DType, ...] = ("float32", "float16", "bfloat16")


@dataclass(frozen=True, slots=True)
class Product:
    """How C[b, r, q] = sum_j A[b, r, j] B[b, j, q] reads its matrices and sizes.

    `left` and `right` are C expressions over b, r (or q) and the inner index in place of {j}.
    """

    left: str
    right: str
    sizes: str
    """Names m, w (inner), n, and c, how many products there are."""
    allocate: str
    left_inner: bool = True
    """Whether neighbours in the left matrix's memory differ in the inner index."""
    right_inner: bool = False


_MAIN: tuple[Size, Size, Size] = ((2, 64, 48, 40), (3, 33, 29, 35), (1, 3, 5, 4))
_GPU: tuple[Size, Size, Size] = ((16, 1024, 1024, 1024), (5, 511, 1021, 509), (1, 3, 5, 4))
"""Products, rows, inner extent, columns."""
_MAIN_ONE: tuple[Size, Size, Size] = ((1, 96, 128, 64), (1, 67, 75, 45), (1, 3, 5, 4))
_GPU_ONE: tuple[Size, Size, Size] = ((1, 4096, 4096, 4096), (1, 1021, 2043, 1019), (1, 3, 5, 4))


def _product_interval(v: Interval) -> Interval:
    largest = max(abs(v.low), abs(v.high))
    return Interval(-8192 * largest, 8192 * largest, -4 * largest, 4 * largest)


def _launch(product: Product, grid: str) -> Launch:
    return Launch(product.sizes, product.allocate, grid, ["m", "w", "n"])


def _naive(product: Product, workload: Workload, style: Style) -> KernelExample:
    body = Writer(workload, style).body(
        """
int $i = blockIdx.x * blockDim.x + threadIdx.x, b = blockIdx.y;
if ($i >= m * n) return;
int r = $i / n, q = $i % n;
float a = 0.0f;
for (int j = 0; j < w; j++) {
  float $v = $left;
  $pre
  a = a + $v * float($right);
}
$post
$o[b * m * n + $i] = a;
""",
        left=product.left.format(j="j"),
        right=product.right.format(j="j"),
    )
    grid = f"dim3((m * n + {style.block - 1}) / {style.block}, c), {style.block}"
    return one_kernel(
        workload, style, "naive", "one thread per output", _launch(product, grid), body
    )


def _tiled(product: Product, workload: Workload, style: Style) -> KernelExample:
    write = Writer(workload, style)
    v = style.value
    body = write.body(
        """
__shared__ float s[16][16], t[16][16];
int tx = threadIdx.x, ty = threadIdx.y, b = blockIdx.z;
int r = blockIdx.y * 16 + ty, q = blockIdx.x * 16 + tx;
float a = 0.0f;
for (int d = 0; d < w; d += 16) {
  float $v = 0.0f;
  if (r < m && d + tx < w) {
    $v = $left;
    $pre
  }
  s[ty][tx] = $v;
  t[ty][tx] = d + ty < w && q < n ? float($right) : 0.0f;
  __syncthreads();
  for (int j = 0; j < 16; j++) a = a + s[ty][j] * t[j][tx];
  __syncthreads();
}
if (r < m && q < n) {
  $post
  $o[b * m * n + r * n + q] = a;
}
""",
        v=v,
        left=product.left.format(j="(d + tx)"),
        right=product.right.format(j="(d + ty)"),
    )
    launch = _launch(product, "dim3((n + 15) / 16, (m + 15) / 16, c), dim3(16, 16)")
    why = (
        "each element of a 16x16 shared-memory tile is read from global memory once and used by 16 "
        "threads"
    )
    return write.example(
        "shared", "16x16 tiles of both matrices in shared memory", launch, body, why
    )


def _registers(product: Product, workload: Workload, style: Style) -> KernelExample:
    v, o = style.value, style.out
    x = staged(
        "s", "r", "r < m && j < w", product.left.format(j="j"),
        inner_contiguous=product.left_inner, value=v, pre=workload.pre(v),
    )  # fmt: skip
    u = staged(
        "t", "q", "j < w && q < n", product.right.format(j="j"),
        inner_contiguous=product.right_inner,
    )  # fmt: skip
    tile = register_tile(
        [*x, *u],
        [*workload.post("a"), f"{o}[b * m * n + r * n + q] = a;"],
        rows=("r", "m"),
        columns=("q", "n"),
        inner="w",
    )
    launch = _launch(product, tile_grid("m", "n", "c"))
    return one_kernel(
        workload,
        style,
        "registers",
        REGISTERS_COMMENT,
        launch,
        ["int b = blockIdx.z;", *tile],
        REGISTERS_WHY,
    )


def _op(
    name: str,
    product: Product,
    torch: str,
    spoken: str,
    inputs: Callable[[Params, Size], tuple[Given, ...]],
    *,
    single: bool = False,
    dtypes: tuple[DType, ...] = ("float32",),
    atoms: tuple[str, ...] | None = None,
) -> WorkloadOp:
    inner = 0 if name == "matmultn" else -1

    def terms(params: Params, shapes: Shapes) -> int:
        return shapes[0][inner]

    return WorkloadOp(
        name=name,
        inputs=inputs,
        torch=(torch,),
        spoken=spoken,
        kernels=partial(each, (_naive, _tiled, _registers), product),
        sizes=_MAIN_ONE if single else _MAIN,
        gpu_sizes=_GPU_ONE if single else _GPU,
        interval=_product_interval,
        dtypes=dtypes,
        terms=terms,
        atoms=atoms,
    )


def _matrix(name: str, *shape: int) -> Given:
    return Given(name, shape, low=-1.0, high=1.0)


_BATCH_SIZES = "int c = x.size(0), m = x.size(1), w = x.size(2), n = u.size(2);"
_BATCH_OUT = "torch::empty({c, m, n}, x.options())"
BATCHED_MATMUL = (
    _op(
        "bmm",
        Product("x[(b * m + r) * w + {j}]", "u[(b * w + {j}) * n + q]", _BATCH_SIZES, _BATCH_OUT),
        "torch.bmm(x, u)",
        "({v}) @ u for each matrix of the batch",
        lambda params, size: (
            Given("x", (size[0], size[1], size[2])),
            _matrix("u", size[0], size[2], size[3]),
        ),
        dtypes=_FLOATS,
    ),
    _op(
        "bmmnt",
        Product(
            "x[(b * m + r) * w + {j}]",
            "u[(b * n + q) * w + {j}]",
            "int c = x.size(0), m = x.size(1), w = x.size(2), n = u.size(1);",
            _BATCH_OUT,
            right_inner=True,
        ),
        "torch.bmm(x, u.transpose(1, 2))",
        "({v}) @ u^T for each matrix of the batch",
        lambda params, size: (
            Given("x", (size[0], size[1], size[2])),
            _matrix("u", size[0], size[3], size[2]),
        ),
    ),
    _op(
        "bmmshared",
        Product(
            "x[(b * m + r) * w + {j}]",
            "u[{j} * n + q]",
            "int c = x.size(0), m = x.size(1), w = x.size(2), n = u.size(1);",
            _BATCH_OUT,
        ),
        "x @ u",
        "({v}) @ u, the same u for each matrix of the batch",
        lambda params, size: (
            Given("x", (size[0], size[1], size[2])),
            _matrix("u", size[2], size[3]),
        ),
        atoms=("matmul",),
    ),
)
_ONE_OUT = "torch::empty({m, n}, x.options())"
MATMUL_TRANSPOSED = (
    _op(
        "matmulnt",
        Product(
            "x[r * w + {j}]",
            "u[q * w + {j}]",
            "int c = 1, m = x.size(0), w = x.size(1), n = u.size(0);",
            _ONE_OUT,
            right_inner=True,
        ),
        "x @ u.t()",
        "({v}) @ u^T",
        lambda params, size: (Given("x", (size[1], size[2])), _matrix("u", size[3], size[2])),
        single=True,
        dtypes=_FLOATS,
        atoms=("matmul",),
    ),
    _op(
        "matmultn",
        Product(
            "x[{j} * m + r]",
            "u[{j} * n + q]",
            "int c = 1, m = x.size(1), w = x.size(0), n = u.size(1);",
            _ONE_OUT,
            left_inner=False,
        ),
        "x.t() @ u",
        "({v})^T @ u",
        lambda params, size: (Given("x", (size[2], size[1])), _matrix("u", size[2], size[3])),
        single=True,
        dtypes=_FLOATS,
    ),
    _op(
        "matmulhalf",
        Product(
            "x[r * w + {j}]",
            "u[{j} * n + q]",
            "int c = 1, m = x.size(0), w = x.size(1), n = u.size(1);",
            _ONE_OUT,
        ),
        "x @ u",
        "({v}) @ u",
        lambda params, size: (Given("x", (size[1], size[2])), _matrix("u", size[2], size[3])),
        single=True,
        dtypes=_FLOATS[1:],
        atoms=("matmul",),
    ),
)

# --- gated products ------------------------------------------------------------------------------

_GATED_SIZES = "int m = x.size(0), w = x.size(1), n = u.size(1);"


def _gate(gate: str, workload: Workload) -> Lines:
    return [f"a = {gate.format(v='a')};", "a = a * e;", *workload.post("a")]


def _gated_naive(gate: str, workload: Workload, style: Style) -> KernelExample:
    write = Writer(workload, style)
    body = write.body(
        """
int $i = blockIdx.x * blockDim.x + threadIdx.x;
if ($i >= m * n) return;
int r = $i / n, q = $i % n;
float a = 0.0f, e = 0.0f;
for (int j = 0; j < w; j++) {
  float $v = x[r * w + j];
  $pre
  a = a + $v * float(u[j * n + q]);
  e = e + $v * float(g[j * n + q]);
}
$gate
$o[$i] = a;
""",
        gate=_gate(gate, workload),
    )
    grid = f"(m * n + {style.block - 1}) / {style.block}, {style.block}"
    launch = Launch(_GATED_SIZES, _ONE_OUT, grid, ["m", "w", "n"])
    return write.example("naive", "one thread per output", launch, body)


def _gated_tiled(gate: str, workload: Workload, style: Style) -> KernelExample:
    write = Writer(workload, style)
    body = write.body(
        """
__shared__ float s[16][16], t[16][16], p[16][16];
int tx = threadIdx.x, ty = threadIdx.y;
int r = blockIdx.y * 16 + ty, q = blockIdx.x * 16 + tx;
float a = 0.0f, e = 0.0f;
for (int d = 0; d < w; d += 16) {
  float $v = 0.0f;
  if (r < m && d + tx < w) {
    $v = x[r * w + d + tx];
    $pre
  }
  bool inside = d + ty < w && q < n;
  s[ty][tx] = $v;
  t[ty][tx] = inside ? float(u[(d + ty) * n + q]) : 0.0f;
  p[ty][tx] = inside ? float(g[(d + ty) * n + q]) : 0.0f;
  __syncthreads();
  for (int j = 0; j < 16; j++) {
    a = a + s[ty][j] * t[j][tx];
    e = e + s[ty][j] * p[j][tx];
  }
  __syncthreads();
}
if (r < m && q < n) {
  $gate
  $o[r * n + q] = a;
}
""",
        gate=_gate(gate, workload),
    )
    launch = Launch(
        _GATED_SIZES, _ONE_OUT, "dim3((n + 15) / 16, (m + 15) / 16), dim3(16, 16)", ["m", "w", "n"]
    )
    why = (
        "both products are fused over one shared-memory tile of x, and each element of a tile is "
        "read from global memory once for 16 threads"
    )
    return write.example("fused", "both products share the tile of x", launch, body, why)


def _gated_registers(gate: str, workload: Workload, style: Style) -> KernelExample:
    """One product after the other would read x twice: both at once, each over its own tile."""
    write = Writer(workload, style)
    v = style.value
    x = staged(
        "s", "r", "r < m && j < w", "x[r * w + j]",
        inner_contiguous=True, value=v, pre=workload.pre(v),
    )  # fmt: skip
    body = write.body(
        """
__shared__ float s[32][68], t[32][68], p[32][68];
int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
float a16[16] = {}, e16[16] = {};
for (int d = 0; d < w; d += 32) {
  $x
  for (int e = threadIdx.x; e < 2048; e += 256) {
    int q = blockIdx.x * 64 + e % 64, j = d + e / 64;
    bool inside = j < w && q < n;
    t[e / 64][e % 64] = inside ? float(u[j * n + q]) : 0.0f;
    p[e / 64][e % 64] = inside ? float(g[j * n + q]) : 0.0f;
  }
  __syncthreads();
  for (int j = 0; j < 32; j++) {
    for (int e = 0; e < 16; e++) {
      a16[e] = a16[e] + s[j][ty * 4 + e / 4] * t[j][tx * 4 + e % 4];
      e16[e] = e16[e] + s[j][ty * 4 + e / 4] * p[j][tx * 4 + e % 4];
    }
  }
  __syncthreads();
}
for (int d = 0; d < 16; d++) {
  int r = blockIdx.y * 64 + ty * 4 + d / 4, q = blockIdx.x * 64 + tx * 4 + d % 4;
  if (r >= m || q >= n) continue;
  float a = a16[d], e = e16[d];
  $gate
  $o[r * n + q] = a;
}
""",
        x=x,
        gate=_gate(gate, workload),
    )
    launch = Launch(_GATED_SIZES, _ONE_OUT, tile_grid("m", "n"), ["m", "w", "n"])
    why = (
        "both products are fused over one tile of x, and each thread keeps 4x4 outputs of each in "
        "registers, so a value read from shared memory is used four times"
    )
    return write.example("registers", REGISTERS_COMMENT + ", both products", launch, body, why)


def _gated_op(name: str, gate: str, torch: str) -> WorkloadOp:
    return WorkloadOp(
        name=name,
        inputs=lambda params, size: (
            Given("x", (size[1], size[2])),
            _matrix("u", size[2], size[3]),
            _matrix("g", size[2], size[3]),
        ),
        torch=(f"{torch} * (x @ g)",),
        spoken=f"{name}: gate(({{v}}) @ u) * (({{v}}) @ g)",
        kernels=partial(each, (_gated_naive, _gated_tiled, _gated_registers), gate),
        sizes=_MAIN_ONE,
        gpu_sizes=((1, 2048, 2048, 4096), *_GPU_ONE[1:]),
        interval=within(-1e5, 1e5, -20.0, 20.0),
        terms=lambda params, shapes: shapes[0][1],
        dtypes=_FLOATS[:1],
    )


GATED_LINEAR = (
    _gated_op("swiglu", "{v} / (1.0f + expf(-{v}))", "F.silu(x @ u)"),
    _gated_op("geglu", "0.5f * {v} * (1.0f + erff({v} * 0.70710678f))", "F.gelu(x @ u)"),
    _gated_op("reglu", "fmaxf({v}, 0.0f)", "torch.relu(x @ u)"),
    _gated_op("sigglu", "1.0f / (1.0f + expf(-{v}))", "torch.sigmoid(x @ u)"),
    _gated_op("bilinear", "{v}", "(x @ u)"),
)
