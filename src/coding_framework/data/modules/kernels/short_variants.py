"""Module tasks with their products and convolutions as `short_tensor_cores` writes them.

As the naive lowering, but for linear layers, products and convolutions, each of which is one kernel
that ends with the elementwise operations after it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from coding_framework.data.cuda import Lines
from coding_framework.data.modules.kernels.fast_layers import FAST, reason
from coding_framework.data.modules.kernels.heads import (
    CONVOLUTIONS,
    PRODUCTS,
    Channels,
    NotHereError,
    channels,
    factors,
    scaled_sum,
    tiled,
)
from coding_framework.data.modules.kernels.lowering import Lowering, product_of, strip
from coding_framework.data.modules.kernels.naive import lower
from coding_framework.data.modules.kernels.naive_layers import Lower
from coding_framework.data.modules.kernels.short_tensor_cores import (
    EXTENTS,
    HEAD,
    OUTS,
    TILE,
    Kernel,
    Windows,
    matrix,
    output_place,
    weights,
    window_copies,
    windows_before,
)
from coding_framework.data.modules.records import (
    KernelVariant,
    ModuleTask,
    Operation,
    Parameter,
    extent,
)


def _linear(w: Lowering, o: Operation, parameters: tuple[Parameter, ...]) -> None:
    weight, *bias = parameters
    *outer, k = w.dims
    n = w.variable(str(o["out"]))
    dims = [*outer, n]
    m = product_of(outer) if outer else "1"
    starts = [f"v += {bias[0].c_name}[q];"] if bias else []
    reads, post = _end(w, dims, {len(outer): "q"}, starts, [b.c_name for b in bias])
    tiled(w, m, n, k)
    kernel = Kernel(
        matrix("a", "x", "r0", "m", inner_first=True),
        matrix("b", "u", "q0", "n", inner_first=True),
        ("m", "n"), "r * n + q", post, [],
    )  # fmt: skip
    _emit(w, kernel, [w.x.host, weight.c_name, *reads], {"m": m, "n": n, "k": k}, dims)


def _matmul(w: Lowering, o: Operation, parameters: tuple[Parameter, ...]) -> None:
    of = factors(w, o)
    axes = len(of.batch)
    depth = f"{of.left}.numel() / ({of.m} * {of.k})"  # of any rank alike
    starts = scaled_sum(o, "v", f"{w.x.host}[i]")
    reads, post = _end(w, of.dims, {axes: "r", axes + 1: "q"}, starts, [w.x.host] if starts else [])
    tiled(w, of.m, of.n, of.k)
    shift = "x += blockIdx.z * m * k, u += blockIdx.z * n * k;"
    kernel = Kernel(
        matrix("a", "x", "r0", "m", inner_first=of.x_inner_first),
        matrix("b", "u", "q0", "n", inner_first=of.u_inner_first),
        ("m", "n"), "(blockIdx.z * m + r) * n + q", post, [shift],
    )  # fmt: skip
    _emit(w, kernel, [of.left, of.right, *reads], of.sizes, of.dims, depth)


def _conv(w: Lowering, o: Operation, parameters: tuple[Parameter, ...]) -> None:
    weight, *bias = parameters
    of = channels(w, o)
    if _is_pointwise(w, o, of):
        _pointwise(w, parameters, of)
        return
    axes = len(of.spatial)
    windows = Windows(
        o.integers("kernel_size"), o.integers("stride"), o.integers("padding"),
        o.integers("dilation"), of.transposed, of.groups, EXTENTS[-axes:], OUTS[-axes:],
    )  # fmt: skip
    count = product_of([of.batch, *of.outs])
    k = of.each_in if of.taps == 1 else f"{of.each_in} * {of.taps}"
    channel = "r" if of.groups == 1 else "blockIdx.z * m + r"
    starts = [f"v += {bias[0].c_name}[{channel}];"] if bias else []
    reads, post = _end(w, of.dims, {1: channel}, starts, [b.c_name for b in bias])
    tiled(w, of.each_out, count, k)
    kernel = Kernel(
        weights(windows), window_copies(windows), ("m", "count"),
        output_place(windows), post, windows_before(windows),
    )  # fmt: skip
    sizes = {"m": of.each_out, "k": k, "c": of.each_in, "count": count}
    sizes |= dict(zip(windows.extents, of.spatial, strict=True))
    sizes |= dict(zip(windows.outs, of.outs, strict=True))
    _emit(w, kernel, [w.x.host, weight.c_name, *reads], sizes, of.dims, str(of.groups))


def _is_pointwise(w: Lowering, o: Operation, of: Channels) -> bool:
    """Whether a convolution is a product of its weights and each image as it lies, and images are
    large enough for tiles of their own."""
    plain = of.taps == 1 and not of.transposed and not any(o.integers("padding"))
    places = extent(product_of(of.spatial), w.main_values)
    return plain and set(o.integers("stride")) == {1} and places >= 2 * TILE


def _pointwise(w: Lowering, parameters: tuple[Parameter, ...], of: Channels) -> None:
    """A window of one place: for each image and group the product of weights [m, k] and channels
    [k, places], both of which come by copies of 16 bytes."""
    weight, *bias = parameters
    channel = "r" if of.groups == 1 else f"blockIdx.z % {of.groups} * m + r"
    starts = [f"v += {bias[0].c_name}[{channel}];"] if bias else []
    reads, post = _end(w, of.dims, {1: channel}, starts, [b.c_name for b in bias])
    places = product_of(of.spatial)
    tiled(w, of.each_out, places, of.each_in)
    shift = "x += blockIdx.z * k * n;"
    if of.groups > 1:
        shift = f"x += blockIdx.z * k * n, u += blockIdx.z % {of.groups} * m * k;"
    kernel = Kernel(
        matrix("a", "u", "r0", "m", inner_first=True),
        matrix("b", "x", "q0", "n", inner_first=False),
        ("m", "n"), "(blockIdx.z * m + r) * n + q", post, [shift],
    )  # fmt: skip
    sizes = {"m": of.each_out, "n": places, "k": of.each_in}
    depth = of.batch if of.groups == 1 else f"{of.batch} * {of.groups}"
    _emit(w, kernel, [w.x.host, weight.c_name, *reads], sizes, of.dims, depth)


# --- what all need -------------------------------------------------------------------------------


def _end(
    w: Lowering, dims: Sequence[str], places: dict[int, str], starts: Lines, first: list[str]
) -> tuple[list[str], Lines]:
    """What the kernel reads besides its factors, and its statements on an output. places: the C
    name of a coordinate by its axis. starts, first: statements before those of the operations
    that follow, and what they read."""
    lines, reads = w.head_end(dims)
    text = "\n".join(lines)
    for axis in sorted({int(found) for found in re.findall(r"\bi(\d+)\b", text)}):
        if axis not in places:
            raise NotHereError
        text = re.sub(rf"\bi{axis}\b", places[axis], text)
    return list(dict.fromkeys([*first, *reads])), [*starts, *text.splitlines()]


def _emit(
    w: Lowering,
    kernel: Kernel,
    tensors: Sequence[str],
    sizes: dict[str, str],
    dims: Sequence[str],
    depth: str = "1",
) -> None:
    """The kernel and its launch. tensors: on the host, the factors first. sizes: C name in the
    kernel -> expression on the host. Raises NotHereError where a tensor has a name of the kernel's
    own."""
    number, out = w.new_head()
    name = f"kernel{number}"
    head = [*HEAD.strip("\n").splitlines(), ""]
    if head[0] not in w.device:
        w.device[:0] = head
    names = ["x", "u", *tensors[2:]]
    own = "\n".join(replace(kernel, post=[]).source(name, ""))
    if {t for t in tensors[2:] if re.search(rf"(?<!\.)\b{t}\b", own)}:
        raise NotHereError
    text = "\n".join(kernel.source(name, ""))
    used = [size for size in sizes if re.search(rf"\b{size}\b", text)]
    parameters = [*(f"const float* {n}" for n in names), "float* o", *(f"int {n}" for n in used)]
    w.device += [*kernel.source(name, ", ".join(parameters)), ""]
    arguments = [f"{t}.data_ptr<float>()" for t in (*tensors, out)]
    arguments += [strip(sizes[size]) for size in used]
    w.end_head(out, dims, kernel.launch(name, ", ".join(arguments), depth, sizes))


SHORT: dict[str, Lower] = {
    "linear": _linear,
    **dict.fromkeys(PRODUCTS, _matmul),
    **dict.fromkeys(CONVOLUTIONS, _conv),
}
"""Operation -> what writes its kernel, instead of the naive ones."""


MOST_CHARACTERS = 4_800
"""Of a kernel that an answer of 2,048 tokens can hold: by the vocabulary of Qwen2.5-Coder a token
of kernels of that length has 2.34 characters."""
_PRODUCT_REASON = (
    "products run on tensor cores: each factor is split in two TF32 parts, copies of the next "
    "stages run meanwhile, and the operations after them need no memory"
)


def short_variants(task: ModuleTask) -> Sequence[KernelVariant]:
    """Groups in one kernel (level 2), products on tensor cores as well (level 3). Where few large
    groups that are shared out to many blocks make level 3 too long, its groups are the naive ones.
    """
    found, before = [], lower(task).source()
    for level, why, heads in ((2, reason(task), FAST), (3, _PRODUCT_REASON, FAST | SHORT)):
        try:
            source = lower(task, heads).source()
            if level == 3 and len(source) > MOST_CHARACTERS:
                source = min(source, lower(task, SHORT).source(), key=len)
        except NotHereError:
            continue
        if source != before:
            found.append(KernelVariant(level=level, reason=why, source=source))
        before = source
    return found
