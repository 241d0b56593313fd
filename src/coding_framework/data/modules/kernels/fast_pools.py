"""Fast kernels of poolings: blocks that stay in one plane, and windows that many threads share."""

from __future__ import annotations

from math import prod

from coding_framework.data.cuda import Lines
from coding_framework.data.modules.kernels.fast_groups import NotFasterError
from coding_framework.data.modules.kernels.lowering import (
    BLOCK,
    JOINS,
    Join,
    Lowering,
    coordinates,
    decomposed,
    factor,
    linear,
    product_of,
)
from coding_framework.data.modules.kernels.naive_layers import Parameters, pool_body
from coding_framework.data.modules.records import Operation, extent


def pool(w: Lowering, o: Operation, parameters: Parameters) -> None:
    """Blocks of one image's channel: what is left to divide are coordinates of a plane."""
    batch, c, *spatial = w.dims
    body, outs = pool_body(w, o)
    dims, plane = [batch, c, *outs], product_of(outs)
    if extent(plane, w.main_values) < BLOCK // 2:
        raise NotFasterError
    name, out = w.next_kernel()
    end = [f"int i = blockIdx.x * {factor(plane)} + q;", *w.post_lines(dims), "o[i] = v;"]
    known = {f"i{axis + 2}" for axis in range(len(outs))}
    more = [line for line in coordinates(end, dims) if line.split()[1] not in known]
    lines = [
        f"int q = blockIdx.y * {BLOCK} + threadIdx.x;",
        f"if (q >= {plane}) return;",
        *decomposed("q", [f"i{axis + 2}" for axis in range(len(outs))], outs),
        f"x += blockIdx.x * {factor(product_of(spatial))};",
        *body,
        end[0],
        *more,
        *end[1:],
    ]
    grid = f"dim3({batch} * {c}, ({plane} + {BLOCK - 1}) / {BLOCK}), {BLOCK}"
    w.kernel(name, lines, (), out, dims, grid, "float", True)


def adaptive_pool(w: Lowering, o: Operation, parameters: Parameters) -> None:
    """A warp an output where its window has an element for each lane, a block where it has many."""
    average, sizes = "avg" in o.name, o.integers("output_size")
    batch, c, *spatial = w.dims
    window = prod(extent(d, w.main_values) // s for d, s in zip(spatial, sizes, strict=True))
    if window < 32:
        raise NotFasterError
    dims, axes = [batch, c, *(str(size) for size in sizes)], range(len(spatial))
    names = [f"p{a}" for a in axes] if len(axes) > 1 else ["t"]
    at = linear(["i0", "i1", *(f"s{a} + {p}" for a, p in enumerate(names))], w.dims)
    first, one, loop, joined, grid = _workers(
        w, "sum" if average else "max", product_of(dims), many=window >= 4 * BLOCK
    )
    ends = [_window(a, d, size) for a, (d, size) in enumerate(zip(spatial, sizes, strict=True))]
    write = [*(["v = v / all;"] if average else []), *w.post_lines(dims), "o[i] = v;"]
    lines = [
        *first,
        *coordinates([*ends, "i0, i1", *write], dims),
        *ends,
        f"int all = {product_of([f'l{a}' for a in axes])};",
        f"float v = {'0.0f' if average else '-INFINITY'};",
        loop,
        *(f"  {line}" for line in decomposed("t", names, [f"l{a}" for a in axes])),
        f"  {JOINS['sum' if average else 'max'].format(a='v', e=f'x[{at}]')}",
        "}",
        *joined,
        f"if ({one} > 0) return;",
        *write,
    ]
    name, out = w.next_kernel()
    w.kernel(name, lines, (), out, dims, grid, "float", True)


def _window(axis: int, dim: str, size: int) -> str:
    """Where an output's window starts along an axis, and its length."""
    if size == 1:
        return f"int s{axis} = 0, l{axis} = {dim};"
    i = f"i{axis + 2}"
    end = f"(({i} + 1) * {dim} + {size - 1}) / {size}"
    return f"int s{axis} = {i} * {dim} / {size}, l{axis} = {end} - s{axis};"


def _workers(
    w: Lowering, join: Join, count: str, *, many: bool
) -> tuple[Lines, str, str, Lines, str]:
    """(the place of a warp's or block's output, a thread's number in it, its loop over `all`, how
    the values `v` are joined, the grid)."""
    if many:
        w.block_function(join)
        loop = f"for (int t = threadIdx.x; t < all; t += {BLOCK}) {{"
        joined = [f"v = block_{join}(v);"]
        return ["int i = blockIdx.x;"], "threadIdx.x", loop, joined, f"{count}, {BLOCK}"
    first = ["int i = (blockIdx.x * blockDim.x + threadIdx.x) / 32;", f"if (i >= {count}) return;"]
    loop = "for (int t = threadIdx.x % 32; t < all; t += 32) {"
    shuffled = JOINS[join].format(a="v", e="__shfl_xor_sync(~0u, v, d)")
    joined = ["for (int d = 16; d > 0; d /= 2)", f"  {shuffled}"]
    return first, "threadIdx.x % 32", loop, joined, f"({count} + 7) / 8, {BLOCK}"


POOLS = tuple(f"{kind}_pool{n}d" for kind in ("max", "avg", "lp") for n in (1, 2, 3))
ADAPTIVE_POOLS = tuple(f"adaptive_{kind}_pool{n}d" for kind in ("avg", "max") for n in (1, 2, 3))
