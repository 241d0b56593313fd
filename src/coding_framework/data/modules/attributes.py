"""Other names of a module's parameters and of the layers that have some, in its source and in its
kernels: people call a weight `gamma` or `scale`, and a layer `dense` or `downsample`.

A kernel's arguments are called as the module's parameters are. Where one is called as a local of
the kernel, the local has another name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from coding_framework.data.modules.records import ModuleTask
from coding_framework.data.modules.sizes import drawn_place

_CONVOLUTIONS = ("body", "features", "encode", "dwconv", "to_hidden")
_TRANSPOSED = ("upsample", "decode", "expand")
_NORMS = ("post_norm", "ln_out", "normalize_features")
_PRODUCTS = ("dense", "head", "out_proj", "to_out", "classifier")
OTHER_ATTRIBUTES: Mapping[str, tuple[str, ...]] = {
    "weight": ("scale", "gamma", "gain"),
    "bias": ("beta", "shift", "additive"),
    "subtract": ("mean", "center", "baseline"),
    "multiplier": ("scale", "gain"),
    "offset": ("shift", "center"),
    **dict.fromkeys(("conv", "conv1d", "conv2d", "conv3d"), _CONVOLUTIONS),
    **dict.fromkeys(("conv_transpose", "deconv", "up"), _TRANSPOSED),
    **dict.fromkeys(
        ("norm", "bn", "gn", "ln", "batch_norm", "group_norm", "instance_norm", "layer_norm"),
        _NORMS,
    ),
    **dict.fromkeys(("fc", "linear", "gemm", "proj"), _PRODUCTS),
}
"""By what the synthesis calls an attribute."""
_LOCALS: Mapping[str, tuple[str, ...]] = {
    "scale": ("inverse", "ratio"),
    "mean": ("average", "middle"),
}
"""Words that kernels have for numbers of their own, and what these are called beside a parameter of
that name."""
_WORD = re.compile(r"(?<!\w)[A-Za-z_]\w*")


def with_other_attributes(
    module: ModuleTask, spelling: int, kernels: Sequence[str]
) -> tuple[str, list[str]]:
    """A module's source and its kernels with other names of about half of the attributes that hold
    parameters. spelling: the number by which the module is spelled, which decides too."""
    in_source = {*_WORD.findall(module.source)}
    in_kernels = {word for code in kernels for word in _WORD.findall(code)}
    held: dict[str, list[str]] = {}
    for parameter in module.parameters:
        held.setdefault(parameter.name.split(".")[0], []).append(parameter.c_name)
    attributes: dict[str, str] = {}
    words: dict[str, str] = {}
    for attribute, names in held.items():
        other = _other(f"{module.name}/{spelling}", attribute)
        if other is None or other in in_source or other in attributes.values():
            continue
        called = {name: other + name.removeprefix(attribute) for name in names}
        taken = {*called.values()} & in_kernels
        moved: dict[str, str] = {}
        for new in taken:
            free = [w for w in _LOCALS.get(new, ()) if w not in in_kernels | in_source]
            if free:
                moved[new] = free[0]
        if len(moved) == len(taken):
            attributes[attribute] = other
            words |= called | moved
    source = module.source
    for attribute, other in attributes.items():
        source = re.sub(rf"\bself\.{attribute}\b", f"self.{other}", source)
    return source, [_WORD.sub(lambda m: words.get(m[0], m[0]), code) for code in kernels]


def _other(name: str, attribute: str) -> str | None:
    """None: it keeps its name."""
    base = attribute.rstrip("0123456789")
    others = OTHER_ATTRIBUTES.get(base)
    if others is None:
        return None
    place = drawn_place(f"{name}/self.{attribute}", 2 * len(others))
    return others[place] + attribute.removeprefix(base) if place < len(others) else None
