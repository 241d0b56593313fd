"""Kernels of a matrix product with steps on each output: from one thread an output to tensor cores.

Pure functions from a `Product` to the source of an archive-style answer. Sizes are read at run
time; how the factors lie and what follows is written into the source.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from coding_framework.data.modules.kernels.short_tensor_cores import HEAD, Kernel, matrix
from coding_framework.data.modules.kernels.tensor_cores import (
    COPY,
    COPY_ONE,
    PAD,
    PARTS,
    Parts,
    Tile,
    copies,
    lanes,
    multiply,
    source_offsets,
    store,
)
from coding_framework.data.synthesis.kernel_text import Lines, fill


@dataclass(frozen=True, slots=True)
class Product:
    """o[r, q] = post(sum over d of x[r, d] u[d, q]), of one pair of matrices or of a batch."""

    x_inner_first: bool = True
    """Whether x lies [rows][inner]; else [inner][rows]."""
    u_inner_first: bool = False
    """Whether u lies [columns][inner], as a Linear's weight; else [inner][columns]."""
    batched: bool = False
    """Of any number of axes in front, none as well: the elements tell how many pairs there are, so
    that one text serves all ranks. What tells them apart is taken for one another."""
    x_axes: int = 2
    """Of an x that is no batch, and lies [rows][inner]: the axes in front are rows."""
    post: tuple[str, ...] = ()
    """C statements on an output `a` in row `r` and column `q`."""
    extra: tuple[str, ...] = ()
    """Names of further float tensors that `post` reads."""

    @property
    def names(self) -> tuple[str, ...]:
        return ("x", "u", *self.extra)


def _flat(product: Product, row: str, inner: str) -> str:
    return f"{row} * k + {inner}" if product.x_inner_first else f"({inner}) * m + {row}"


def _flat_u(product: Product, inner: str, column: str) -> str:
    return f"{column} * k + {inner}" if product.u_inner_first else f"({inner}) * n + {column}"


def _sizes(product: Product) -> str:
    """The statement that names rows m, columns n and the inner extent k."""
    inner, rows = ("-1", "-2") if product.x_inner_first else ("-2", "-1")
    columns = "-2" if product.u_inner_first else "-1"
    row_count = "x.numel() / k" if product.x_axes > 2 else f"x.size({rows})"
    return f"int k = x.size({inner}), m = {row_count}, n = u.size({columns});"


def _allocate(product: Product) -> str:
    if product.batched:
        return "auto o = torch::empty({x.size(0), m, n}, x.options());"
    if product.x_axes == 2:
        return "auto o = torch::empty({m, n}, x.options());"
    front = ", ".join(f"x.size({axis})" for axis in range(product.x_axes - 1))
    return f"auto o = torch::empty({{{front}, n}}, x.options());"


def _signature(product: Product, name: str, head: str = "__global__ void") -> str:
    pointers = ", ".join(f"const float* {n}" for n in product.names)
    return f"{head} {name}({pointers}, float* o, int m, int n, int k)"


def _arguments(product: Product, out: str = "o") -> str:
    pointers = [f"{n}.data_ptr<float>()" for n in (*product.names, out)]
    return ", ".join([*pointers, "m", "n", "k"])


def _source(product: Product, comment: str, device: Lines, launch: Lines) -> str:
    inputs = ", ".join(f"torch::Tensor {n}" for n in product.names)
    body = [_sizes(product), _allocate(product), *launch, "return o;"]
    return "\n".join(
        [
            "#include <torch/extension.h>",
            "",
            f"// {comment}",
            *device,
            "",
            f"torch::Tensor forward({inputs}) {{",
            *(f"  {line}" for line in body),
            "}",
            "",
            'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }',
            "",
        ]
    )


def _batches(product: Product) -> str:
    return "x.numel() / (m * k)" if product.batched else "1"


def _shift(product: Product, x: str, u: str) -> Lines:
    """The statement that moves the pointers to a block's own pair of matrices of these sizes."""
    if not product.batched:
        return []
    z = "(size_t)blockIdx.z"
    return [f"x += {z} * {x}, u += {z} * {u}, o += {z} * m * n;"]


# --- one thread an output -----------------------------------------------------------------------


def naive(product: Product) -> str:
    """One thread an output, one row of threads after another."""
    device = fill(
        """
$signature {
  int q = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 8 + threadIdx.y;
  if (r >= m || q >= n) return;
  $shift
  float a = 0.0f;
  for (int d = 0; d < k; d++) a += x[$x] * u[$u];
  $post
  o[r * n + q] = a;
}
""",
        signature=_signature(product, "product"),
        shift=_shift(product, "m * k", "k * n"),
        x=_flat(product, "r", "d"),
        u=_flat_u(product, "d", "q"),
        post=list(product.post),
    )
    grid = f"dim3((n + 31) / 32, (m + 7) / 8, {_batches(product)})"
    launch = [f"product<<<{grid}, dim3(32, 8)>>>({_arguments(product)});"]
    return _source(product, "one thread per output", device, launch)


# --- 128 x 128 tiles, 8 x 8 outputs a thread ----------------------------------------------------

_TILES = """
$signature {
  __shared__ float s[2][16][132], w[2][16][132];
  int t = threadIdx.x, r0 = blockIdx.y * 128, q0 = blockIdx.x * 128;
  int y = t / 32 % 2 * 64 + t % 32 / 4 * 4, z = t / 64 * 32 + t % 4 * 4;
  $shift
  auto load = [&](int h, int d) {
    $load_x
    $load_u
  };
  float acc[8][8] = {};
  load(0, 0);
  for (int d = 0, h = 0; d < k; d += 16, h ^= 1) {
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    if (d + 16 < k) load(h ^ 1, d + 16);
    #pragma unroll
    for (int p = 0; p < 16; p++) {
      float a[8], b[8];
      #pragma unroll
      for (int e = 0; e < 8; e += 4) {
        *(float4*)&a[e] = *(float4*)&s[h][p][y + e * 8];
        *(float4*)&b[e] = *(float4*)&w[h][p][z + e * 4];
      }
      #pragma unroll
      for (int e = 0; e < 64; e++) acc[e / 8][e % 8] += a[e / 8] * b[e % 8];
    }
  }
  #pragma unroll
  for (int e = 0; e < 64; e++) {
    int r = r0 + y + e / 32 * 32 + e / 8 % 4, q = q0 + z + e / 4 % 2 * 16 + e % 4;
    if (r >= m || q >= n) continue;
    float a = acc[e / 8][e % 8];
    $post
    o[r * n + q] = a;
  }
}
"""


def _simt_copies(
    target: str, source: str, first: str, extent: str, row: str, *, inner_first: bool
) -> Lines:
    """The loop that starts the copies of a 128 x 16 tile, laid [inner][outer]: four neighbours at a
    time, or one by one into their columns."""
    if inner_first:
        place = f"min({first} + e / 16, {extent} - 1) * k + d + e % 16"
        count, copy = 2048, "copy1(&{}[h][e % 16][e / 16], {} + {}, d + e % 16 < k ? 4 : 0);"
    else:
        place = f"(d + e / 32) * {row} + min({first} + e % 32 * 4, {row} - 4)"
        count, copy = 512, "copy4(&{}[h][e / 32][e % 32 * 4], {} + {}, d + e / 32 < k);"
    loop = f"for (int e = t; e < {count}; e += 256)"
    return ["#pragma unroll", loop, f"  {copy.format(target, source, place)}"]


def tiles(product: Product) -> str:
    """128 x 128 outputs a block and 8 x 8 a thread, on FMAs, two stages in shared memory."""
    return _whole(product, tile_parts(product))


def tile_parts(product: Product) -> Parts:
    """The kernel of `tiles`."""
    x_first, u_first = product.x_inner_first, product.u_inner_first
    wide = [name for name, first in (("m", x_first), ("n", u_first)) if not first]
    shift = _pair(product, "k" if x_first else "mw", "k" if u_first else "nw")
    device = fill(
        _TILES,
        signature=_signature(product, "product", "__global__ void __launch_bounds__(256, 2)"),
        shift=[*(f"int {n}w = ({n} + 3) & ~3;" for n in wide), *shift],
        load_x=_simt_copies("s", "x", "r0", "m", "mw", inner_first=x_first),
        load_u=_simt_copies("w", "u", "q0", "n", "nw", inner_first=u_first),
        post=list(product.post),
    )
    copy = [*([] if x_first and u_first else [COPY]), *([COPY_ONE] if x_first or u_first else [])]
    given = (("x", "m", x_first), ("u", "n", u_first))
    pads = [f"auto {name}p = padded({name}, {row});" for name, row, first in given if not first]
    x, u = "x" if x_first else "xp", "u" if u_first else "up"
    extra = "".join(f"{n}.data_ptr<float>(), " for n in product.extra)
    grid = f"dim3((n + 127) / 128, (m + 127) / 128, {_batches(product)})"
    launch = [
        *pads,
        f"product<<<{grid}, 256>>>({x}.data_ptr<float>(), {u}.data_ptr<float>(), "
        f"{extra}o.data_ptr<float>(), m, n, k);",
    ]
    comment = "128x128 outputs a block, 8x8 a thread in registers, two stages in shared memory"
    return Parts(comment, (*copy, *([PAD] if wide else [])), device, launch)


# --- tensor cores, the short way ------------------------------------------------------------------


def short(product: Product) -> str:
    """3xTF32 on tensor cores by `short_tensor_cores`."""
    batch = product.batched
    kernel = Kernel(
        matrix("a", "x", "r0", "m", inner_first=product.x_inner_first),
        matrix("b", "u", "q0", "n", inner_first=product.u_inner_first),
        ("m", "n"),
        "(blockIdx.z * m + r) * n + q" if batch else "r * n + q",
        [re.sub(r"\ba\b", "v", line) for line in product.post],
        ["x += blockIdx.z * m * k, u += blockIdx.z * n * k;"] if batch else [],
    )
    pointers = "".join(f"const float* {n}, " for n in product.names)
    device = [
        *HEAD.strip("\n").splitlines(),
        "",
        *kernel.source("product", f"{pointers}float* o, int m, int n, int k"),
    ]
    launch = kernel.launch("product", _arguments(product), _batches(product))
    comment = "float32 on tensor cores"
    return _source(product, comment, device, launch)


# --- tensor cores -------------------------------------------------------------------------------

_TENSOR = """
$signature {
  extern __shared__ float s[];
  $lanes
  int r0 = blockIdx.y * $rows, q0 = blockIdx.x * $columns;
  int $padded;
  $shift
  int steps = (k + $more) / $inner;
  $offsets_x
  $offsets_u
  auto load = [&](int i) {
    float *a = s + i % 3 * $stage, *b = a + $left;
    if (i < steps) {
      $load_x
      $load_u
    }
    asm volatile("cp.async.commit_group;");
  };
  $walk
  $store
}
"""
_FINISH = """
// the sum of all parts
$signature {
  int i = blockIdx.x * 256 + threadIdx.x, r = i / n, q = i % n;
  if (i >= m * n) return;
  float a = 0.0f;
  for (int d = 0; d < k; d++) a += w[(size_t)d * m * n + i];
  $post
  o[i] = a;
}
"""


def tensor(product: Product, tile: Tile | None = None, *, split: bool = False) -> str:
    """3xTF32 on tensor cores, three stages in shared memory filled by asynchronous copies.

    split: several blocks share an output tile, each with a part of the inner indices, and a second
    kernel adds their sums: for few outputs and many inner indices. Not for batches.
    """
    return _whole(product, tensor_parts(product, tile or Tile(), split=split))


def tensor_parts(product: Product, tile: Tile, *, split: bool = False) -> Parts:
    """The kernels of `tensor`."""
    if split and product.batched:
        raise ValueError("a product of batches has blocks enough: it is not split")
    x_first, u_first = product.x_inner_first, product.u_inner_first
    x_row, u_row = "kw" if x_first else "mw", "kw" if u_first else "nw"
    rows = [f"{n}w = ({n} + 3) & ~3" for n in "kmn" if f"{n}w" in (x_row, u_row)]
    head = f"__global__ void __launch_bounds__({tile.threads})"
    device = fill(
        _TENSOR,
        signature=_tensor_signature(product, head, split=split),
        lanes=lanes(tile),
        rows=tile.rows, columns=tile.columns, inner=tile.inner, more=tile.inner - 1,
        stage=tile.stage, left=tile.rows * tile.inner,
        padded=", ".join(rows),
        shift=_part(product, x_row, u_row) if split else _pair(product, x_row, u_row),
        offsets_x=source_offsets(tile, "fx", tile.rows, "r0", "m", x_row, inner_first=x_first),
        offsets_u=source_offsets(tile, "fu", tile.columns, "q0", "n", u_row, inner_first=u_first),
        load_x=copies(tile, "a", "x", "fx", tile.rows, x_row, inner_first=x_first),
        load_u=copies(tile, "b", "u", "fu", tile.columns, u_row, inner_first=u_first),
        walk=multiply(tile, left_inner_first=x_first, right_inner_first=u_first),
        store=store(tile, ("m", "n"), [] if split else list(product.post), "o[(size_t)r * n + q]"),
    )  # fmt: skip
    if split:
        last = fill(_FINISH, signature=_finish_signature(product), post=list(product.post))
        device = [*device, "", *last]
    comment = (
        f"{tile.rows}x{tile.columns} outputs a block on tensor cores, each factor as the sum of "
        "two TF32 parts; float32 sums"
    )
    launch = _tensor_launch(product, tile, split=split)
    return Parts(comment, (COPY, PARTS, PAD), device, launch)


def _whole(product: Product, parts: Parts) -> str:
    return _source(product, parts.comment, parts.before()[:-1], parts.launch)


def _tensor_signature(product: Product, head: str, *, split: bool) -> str:
    if not split:
        return _signature(product, "product", head)
    return (
        f"{head} product(const float* x, const float* u, float* o, int m, int n, int k, int part)"
    )


def _finish_signature(product: Product) -> str:
    pointers = "".join(f"const float* {n}, " for n in product.extra)
    return f"__global__ void finish(const float* w, {pointers}float* o, int m, int n, int k)"


def _pair(product: Product, x_row: str, u_row: str) -> Lines:
    """Likewise of padded matrices, whose rows are so long."""
    x = f"m * {x_row}" if product.x_inner_first else f"k * {x_row}"
    u = f"n * {u_row}" if product.u_inner_first else f"k * {u_row}"
    return _shift(product, x, u)


def _part(product: Product, x_row: str, u_row: str) -> Lines:
    """Moves the pointers to a block's own part of the inner indices."""
    x = "z" if product.x_inner_first else f"z * {x_row}"
    u = "z" if product.u_inner_first else f"z * {u_row}"
    return [
        "size_t z = (size_t)blockIdx.z * part;",
        f"x += {x}, u += {u}, o += (size_t)blockIdx.z * m * n;",
        "k = min(k - (int)z, part);",
    ]


def _tensor_launch(product: Product, tile: Tile, *, split: bool) -> Lines:
    x_row = "k" if product.x_inner_first else "m"
    u_row = "k" if product.u_inner_first else "n"
    across, down = (
        f"(n + {tile.columns - 1}) / {tile.columns}",
        f"(m + {tile.rows - 1}) / {tile.rows}",
    )
    shared = tile.shared_bytes
    lines = [
        f"auto xp = padded(x, {x_row}), up = padded(u, {u_row});",
        f"cudaFuncSetAttribute(product, cudaFuncAttributeMaxDynamicSharedMemorySize, {shared});",
    ]
    extra = "".join(f"{n}.data_ptr<float>(), " for n in product.extra)
    factors = "xp.data_ptr<float>(), up.data_ptr<float>()"
    if not split:
        grid = f"dim3({across}, {down}, {_batches(product)})"
        given = f"{factors}, {extra}o.data_ptr<float>(), m, n, k"
        return [*lines, f"product<<<{grid}, {tile.threads}, {shared}>>>({given});"]
    return [
        *lines,
        f"int tiles = ({across}) * ({down}), parts = max(1, 264 / tiles);",
        f"int part = (k / parts + {tile.inner}) / {tile.inner} * {tile.inner};",
        "parts = (k + part - 1) / part;",
        "auto w = torch::empty({parts, m, n}, x.options());",
        f"product<<<dim3({across}, {down}, parts), {tile.threads}, {shared}>>>"
        f"({factors}, w.data_ptr<float>(), m, n, k, part);",
        "finish<<<(m * n + 255) / 256, 256>>>"
        f"(w.data_ptr<float>(), {extra}o.data_ptr<float>(), m, n, parts);",
    ]
