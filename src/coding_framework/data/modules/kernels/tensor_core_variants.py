"""Module tasks with their products and convolutions on tensor cores, the fastest and longest way.

As the naive lowering, but that linear layers, products and convolutions in float32 are written by
`products`, `convolutions` and `transposed`, and end with the elementwise operations after them.
What remains of a task keeps its naive kernels.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from coding_framework.data.cuda import Lines
from coding_framework.data.modules.kernels.convolutions import (
    MOST_TAPS,
    Convolution,
    out_extents,
    tile_of,
)
from coding_framework.data.modules.kernels.convolutions import tensor_parts as convolution_parts
from coding_framework.data.modules.kernels.fast_layers import FAST
from coding_framework.data.modules.kernels.heads import (
    CONVOLUTIONS,
    MULTIPROCESSORS,
    PRODUCTS,
    NotHereError,
    channels,
    factors,
    scaled_sum,
    tiled,
)
from coding_framework.data.modules.kernels.lowering import Lowering, product_of, strip
from coding_framework.data.modules.kernels.naive import lower
from coding_framework.data.modules.kernels.naive_layers import Lower
from coding_framework.data.modules.kernels.products import Product, tensor_parts, tile_parts
from coding_framework.data.modules.kernels.tensor_cores import Parts, Tile
from coding_framework.data.modules.kernels.transposed import tensor_parts as transposed_parts
from coding_framework.data.modules.records import KernelVariant, ModuleTask, Operation, Parameter

_NAMES = re.compile(r"\b(product|finish|conv|pack|order|Order|sorted)\b")
_TENSOR_REASON = (
    "factors come to shared memory and leave it 16 bytes at a time, few outputs share out their "
    "inner indices to many blocks, and taps that reach nothing are left out"
)
_TILES_REASON = (
    "a block makes 128x128 outputs and a thread 8x8 in registers, so each value from shared memory "
    "is used eight times, and copies of the next tiles run meanwhile"
)


def tensor_core_variants(task: ModuleTask) -> Sequence[KernelVariant]:
    """FMA tiles (level 1) for products; tensor cores with 16-byte copies (level 4) for products and
    convolutions, and groups as `fast_layers` has them."""
    if any(given.dtype != "float32" for given in task.inputs[:1]):
        return ()
    found = []
    for level, reason, heads in ((1, _TILES_REASON, _TILES), (4, _TENSOR_REASON, _TENSOR)):
        if any(o.name in heads for o in task.operations):
            heads = {**FAST, **heads} if level > 1 else heads
            try:
                source = lower(task, heads).source()
            except NotHereError:
                continue
            found.append(KernelVariant(level=level, reason=reason, source=source))
    return found


# --- products ------------------------------------------------------------------------------------


def _linear_tiles(w: Lowering, o: Operation, parameters: tuple[Parameter, ...]) -> None:
    _linear(w, o, parameters, on_tensor_cores=False)


def _linear_tensor(w: Lowering, o: Operation, parameters: tuple[Parameter, ...]) -> None:
    _linear(w, o, parameters, on_tensor_cores=True)


def _linear(
    w: Lowering, o: Operation, parameters: tuple[Parameter, ...], *, on_tensor_cores: bool
) -> None:
    weight, *bias = parameters
    *outer, k = w.dims
    dims = [*outer, w.variable(str(o["out"]))]
    extra, post = _epilogue(w, dims, {f"i{len(outer)}": "q", "i": "r * n + q"})
    if bias:
        extra, post = [*extra, bias[0].c_name], [f"a += g{len(extra)}[q];", *post]
    product = Product(
        u_inner_first=True, post=tuple(post), extra=tuple(f"g{i}" for i in range(len(extra)))
    )
    m, n = product_of(outer) if outer else "1", dims[-1]
    tiles = tiled(w, m, k, n)
    parts = _product_parts(
        product, tiles, on_tensor_cores=on_tensor_cores,
        split=on_tensor_cores and _is_split(*tiles),
    )  # fmt: skip
    sizes = {"m": m, "n": n, "k": k}
    _emit(w, parts, [w.x.host, weight.c_name, *extra], sizes, dims)


def _matmul_tiles(w: Lowering, o: Operation, parameters: tuple[Parameter, ...]) -> None:
    _matmul(w, o, on_tensor_cores=False)


def _matmul_tensor(w: Lowering, o: Operation, parameters: tuple[Parameter, ...]) -> None:
    _matmul(w, o, on_tensor_cores=True)


def _matmul(w: Lowering, o: Operation, *, on_tensor_cores: bool) -> None:
    of = factors(w, o)
    row = len(of.batch)
    tiles = tiled(w, of.m, of.k, of.n)
    split = on_tensor_cores and not of.batch and _is_split(*tiles)
    flat = "r * n + q" if split else "((int)blockIdx.z * m + r) * n + q"
    extra, post = _epilogue(w, of.dims, {f"i{row + 1}": "q", f"i{row}": "r", "i": flat})
    if starts := scaled_sum(o, "a", f"g{len(extra)}[{flat}]"):
        extra, post = [*extra, w.x.host], [*starts, *post]
    product = Product(
        x_inner_first=of.x_inner_first, u_inner_first=of.u_inner_first, batched=not split,
        post=tuple(post), extra=tuple(f"g{i}" for i in range(len(extra))),
    )  # fmt: skip
    parts = _product_parts(product, tiles, on_tensor_cores=on_tensor_cores, split=split)
    _emit(w, parts, [of.left, of.right, *extra], of.sizes, of.dims)


def _is_split(m: int, k: int, n: int) -> bool:
    """Whether several blocks share an output tile: few outputs of many inner indices."""
    return -(-m // 64) * -(-n // 64) < 2 * MULTIPROCESSORS and k >= 1024


def _product_parts(
    product: Product, tiles: Sequence[int], *, on_tensor_cores: bool, split: bool
) -> Parts:
    m, k, n = tiles
    if not on_tensor_cores:
        return tile_parts(product)
    if split:
        return tensor_parts(product, Tile(128, 64, 32), split=True)
    large = -(-m // 128) * -(-n // 128) >= 4 * MULTIPROCESSORS and k >= 1024
    return tensor_parts(product, Tile() if large else Tile(64, 64, 32))


# --- convolutions --------------------------------------------------------------------------------


def _conv(w: Lowering, o: Operation, parameters: tuple[Parameter, ...]) -> None:
    weight, *bias = parameters
    of = channels(w, o)
    if of.taps > MOST_TAPS:
        raise NotHereError
    out, _ = tiled(w, of.each_out, f"{of.each_in} * {of.taps}")
    flat = f"q / places * n * {of.groups} * places + p * places + q % places"
    extra, post = _epilogue(w, of.dims, {"i1": "p"} if of.transposed else {"i1": "p", "i": flat})
    conv = Convolution(
        o.integers("kernel_size"), o.integers("stride"), o.integers("padding"),
        o.integers("dilation"), of.groups, of.transposed,
        o.integers("output_padding") if of.transposed else (), bool(bias), tuple(post),
        tuple(f"g{i}" for i in range(len(extra))),
    )  # fmt: skip
    write = transposed_parts if of.transposed else convolution_parts
    parts = write(conv, tile_of(out))
    sizes = {"m": of.batch, "c": of.each_in, "n": of.each_out}
    sizes |= dict(zip(conv.extents, of.spatial, strict=True))
    sizes |= dict(zip(out_extents(conv), of.outs, strict=True))
    given = [w.x.host, weight.c_name, *(b.c_name for b in bias), *extra]
    _emit(w, parts, given, sizes, of.dims, conv.names)


# --- what both need ------------------------------------------------------------------------------


def _epilogue(w: Lowering, dims: Sequence[str], places: dict[str, str]) -> tuple[list[str], Lines]:
    """The elementwise operations that follow, on an output `a`: what they read, under the names g0,
    g1 and so on, and their statements. places: the coordinates that the kernel knows."""
    lines, reads = w.head_end(dims)
    text = "\n".join(lines)
    for number, read in enumerate(reads):
        text = re.sub(rf"\b{re.escape(read)}\b", f"g{number}", text)
    used = sorted(set(re.findall(r"\bi\d*\b", text)))
    if not set(used) <= set(places):
        raise NotHereError
    text = re.sub(r"\bi\b", "place", text)  # the kernels have an `i` of their own
    defined = [f"int {'place' if name == 'i' else name} = {places[name]};" for name in used]
    return reads, ["float v = a;", *defined, *text.splitlines(), "a = v;"] if lines else []


def _emit(
    w: Lowering,
    parts: Parts,
    tensors: Sequence[str],
    sizes: dict[str, str],
    dims: Sequence[str],
    names: tuple[str, ...] = (),
) -> None:
    """The kernels, a host function that launches them, and its call. sizes: C name in the kernel
    -> expression on the host."""
    names = names or ("x", "u", *(f"g{i}" for i in range(len(tensors) - 2)))
    number, out = w.new_head()

    def own(lines: Sequence[str]) -> Lines:
        return [_NAMES.sub(rf"\g<1>{number}", line) for line in lines]

    for text in parts.shared:
        lines = [*text.strip("\n").splitlines(), ""]
        if lines[0] not in w.device:
            w.device += lines
    declared = [*(f"torch::Tensor {n}" for n in (*names, "o")), *(f"int {n}" for n in sizes)]
    w.device += [
        *own(parts.device),
        "",
        f"void launch{number}({', '.join(declared)}) {{",
        *(f"  {line}" for line in own(parts.launch)),
        "}",
        "",
    ]
    arguments = ", ".join([*tensors, out, *(strip(s) for s in sizes.values())])
    w.end_head(out, dims, [f"launch{number}({arguments});"])


_TILES: dict[str, Lower] = {
    "linear": _linear_tiles,
    **dict.fromkeys(PRODUCTS, _matmul_tiles),
}
_TENSOR: dict[str, Lower] = {
    "linear": _linear_tensor,
    **dict.fromkeys(PRODUCTS, _matmul_tensor),
    **dict.fromkeys(CONVOLUTIONS, _conv),
}
"""Operation -> what writes its kernels, instead of the naive ones."""
