"""Kernels of a matrix product with steps on each output: by tiles in registers and on tensor cores.

Pure functions from a `Product` to its kernels and how they are launched. Sizes are read at run
time; how the factors lie and what follows is written into the source.
"""

from __future__ import annotations

from dataclasses import dataclass

from coding_framework.data.cuda import Lines, cuda_text, fill
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
    post: tuple[str, ...] = ()
    """C statements on an output `a` in row `r` and column `q`."""
    extra: tuple[str, ...] = ()
    """Names of further float tensors that `post` reads."""

    @property
    def names(self) -> tuple[str, ...]:
        return ("x", "u", *self.extra)


def _signature(product: Product, name: str, head: str = "__global__ void") -> str:
    pointers = ", ".join(f"const float* {n}" for n in product.names)
    return f"{head} {name}({pointers}, float* o, int m, int n, int k)"


def _batches(product: Product) -> str:
    return "x.numel() / (m * k)" if product.batched else "1"


def _shift(product: Product, x: str, u: str) -> Lines:
    """The statement that moves the pointers to a block's own pair of matrices of these sizes."""
    if not product.batched:
        return []
    z = "(size_t)blockIdx.z"
    return [f"x += {z} * {x}, u += {z} * {u}, o += {z} * m * n;"]


# --- 128 x 128 tiles, 8 x 8 outputs a thread ----------------------------------------------------

_TILES = cuda_text("fma_tiles.cu")


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


def tile_parts(product: Product) -> Parts:
    """128 x 128 outputs a block and 8 x 8 a thread, on FMAs, two stages in shared memory."""
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
    return Parts((*copy, *([PAD] if wide else [])), device, launch)


# --- tensor cores -------------------------------------------------------------------------------

_TENSOR = cuda_text("stages_product.cu")
_FINISH = cuda_text("stages_finish.cu")


def tensor_parts(product: Product, tile: Tile, *, split: bool = False) -> Parts:
    """3xTF32 on tensor cores, three stages in shared memory filled by asynchronous copies.

    split: several blocks share an output tile, each with a part of the inner indices, and a second
    kernel adds their sums: for few outputs and many inner indices. Not for batches.
    """
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
    launch = _tensor_launch(product, tile, split=split)
    return Parts((COPY, PARTS, PAD), device, launch)


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
