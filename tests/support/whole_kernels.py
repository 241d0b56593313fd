"""Whole files of the templates of fast kernels, as an answer has them: host code around a head's
kernels, whose sizes are read from the tensors."""

from __future__ import annotations

import re
from collections.abc import Sequence

from coding_framework.data.modules.kernels import convolutions, products, transposed
from coding_framework.data.modules.kernels.convolutions import Convolution, out_extents, tile_of
from coding_framework.data.modules.kernels.products import Product
from coding_framework.data.modules.kernels.short_tensor_cores import (
    EXTENTS,
    HEAD,
    OUTS,
    Kernel,
    Windows,
    matrix,
    output_place,
    weights,
    window_copies,
    windows_before,
)
from coding_framework.data.modules.kernels.tensor_cores import Parts, Tile


def tiles(product: Product) -> str:
    return _product(product, products.tile_parts(product))


def tensor(product: Product, tile: Tile | None = None, *, split: bool = False) -> str:
    return _product(product, products.tensor_parts(product, tile or Tile(), split=split))


def short(product: Product) -> str:
    batch = product.batched
    kernel = Kernel(
        matrix("a", "x", "r0", "m", inner_first=product.x_inner_first),
        matrix("b", "u", "q0", "n", inner_first=product.u_inner_first),
        ("m", "n"),
        "(blockIdx.z * m + r) * n + q" if batch else "r * n + q",
        [re.sub(r"\ba\b", "v", line) for line in product.post],
        ["x += blockIdx.z * m * k, u += blockIdx.z * n * k;"] if batch else [],
    )
    pairs = "x.numel() / (m * k)" if batch else "1"
    device = kernel.source("product", f"{_pointers(product.names)}, int m, int n, int k")
    launch = kernel.launch("product", f"{_given(product.names)}, m, n, k", pairs)
    return _product(product, Parts((HEAD,), device, launch))


def convolution(conv: Convolution, tile: Tile | None = None) -> str:
    """Transposed ones too."""
    write = transposed.tensor_parts if conv.transposed else convolutions.tensor_parts
    return _convolution(conv, write(conv, tile or tile_of(1 << 10)))


def short_convolution(conv: Convolution) -> str:
    axes = len(conv.kernel)
    windows = Windows(
        conv.kernel, conv.steps, conv.margins, conv.spread, conv.transposed, conv.groups,
        EXTENTS[-axes:], OUTS[-axes:],
    )  # fmt: skip
    channel = "int p = blockIdx.z * m + r;" if conv.groups > 1 else "int p = r;"
    post = [channel, "float a = v;", *conv.statements, "v = a;"] if conv.statements else []
    kernel = Kernel(
        weights(windows), window_copies(windows), ("m", "count"), output_place(windows), post,
        windows_before(windows),
    )  # fmt: skip
    declared = ("m", "k", "c", "count", *windows.extents, *windows.outs)
    count = " * ".join(("m", *out_extents(conv)))
    inner = f"c * {conv.taps}"
    given = (_given(conv.names), "n", inner, "c", count, *conv.extents, *out_extents(conv))
    device = kernel.source(
        "conv", f"{_pointers(conv.names)}, {', '.join(f'int {s}' for s in declared)}"
    )
    sizes = {"m": "n", "k": inner, "count": f"({count})"}
    launch = kernel.launch("conv", ", ".join(given), str(conv.groups), sizes)
    return _convolution(conv, Parts((HEAD,), device, launch))


def _pointers(names: Sequence[str]) -> str:
    return ", ".join([*(f"const float* {n}" for n in names), "float* o"])


def _given(names: Sequence[str]) -> str:
    return ", ".join(f"{n}.data_ptr<float>()" for n in (*names, "o"))


def _product(product: Product, parts: Parts) -> str:
    inner, rows = (-1, -2) if product.x_inner_first else (-2, -1)
    columns = -2 if product.u_inner_first else -1
    batch = "x.size(0), " if product.batched else ""
    sizes = f"int k = x.size({inner}), m = x.size({rows}), n = u.size({columns});"
    return _file(product.names, parts, [sizes], f"{batch}m, n")


def _convolution(conv: Convolution, parts: Parts) -> str:
    groups = f" / {conv.groups}"
    channels = f"int m = x.size(0), c = x.size(1){groups}, n = u.size(0){groups};"
    if conv.transposed:
        channels = f"int m = x.size(0), c = x.size(1){groups}, n = u.size(1);"
    sizes = [channels]
    for axis, name in enumerate(conv.extents):
        reach = conv.spread[axis] * (conv.kernel[axis] - 1)
        step, margin = conv.steps[axis], conv.margins[axis]
        out = f"({name} + {2 * margin} - {reach} - 1) / {step} + 1"
        if conv.transposed:
            more = (conv.output_padding or (0,) * 3)[axis]
            out = f"({name} - 1) * {step} - {2 * margin} + {reach} + {more} + 1"
        sizes.append(f"int {name} = x.size({axis + 2}), o{name} = {out};")
    return _file(conv.names, parts, sizes, f"m, n * {conv.groups}, {', '.join(out_extents(conv))}")


def _file(names: Sequence[str], parts: Parts, sizes: Sequence[str], shape: str) -> str:
    inputs = ", ".join(f"torch::Tensor {n}" for n in names)
    body = [*sizes, f"auto o = torch::empty({{{shape}}}, x.options());", *parts.launch, "return o;"]
    return "\n".join(
        [
            "#include <torch/extension.h>",
            *parts.shared,
            *parts.device,
            f"torch::Tensor forward({inputs}) {{",
            *body,
            "}",
            'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }',
            "",
        ]
    )
