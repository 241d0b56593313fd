"""Other names of a module's parameters and of the layers that have some, in its source and in its
kernels: people call a weight `gamma` or `scale`, and a layer `dense` or `downsample`.

A kernel's arguments are called as the module's parameters are. Where one is called as a local of
the kernel, the local has another name, or the argument keeps its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

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


def with_other_attributes(module: ModuleTask, spelling: int) -> ModuleTask:
    """A module with other names of about half of the attributes that hold parameters. spelling: the
    number by which the module is spelled, which decides too."""
    words = {*_WORD.findall(module.source)}
    names: dict[str, str] = {}
    for attribute in dict.fromkeys(p.name.split(".")[0] for p in module.parameters):
        other = _other(f"{module.name}/{spelling}", attribute)
        if other is not None and other not in words and other not in names.values():
            names[attribute] = other
    source = module.source
    for attribute, other in names.items():
        source = re.sub(rf"\bself\.{attribute}\b", f"self.{other}", source)
    parameters = []
    for parameter in module.parameters:
        attribute, dot, member = parameter.name.partition(".")
        name = f"{names.get(attribute, attribute)}{dot}{member}"
        parameters.append(replace(parameter, name=name))
    return replace(module, source=source, parameters=tuple(parameters))


def with_arguments(code: str, before: ModuleTask, after: ModuleTask) -> str:
    """A kernel of a module, its arguments called as the parameters in another spelling of the
    module are. They are handed over in order, so the kernel stays what it is."""
    words = {*_WORD.findall(code)}
    pairs = zip(before.parameters, after.parameters, strict=True)
    names = {b.c_name: a.c_name for b, a in pairs if b.c_name != a.c_name}
    for old, new in list(names.items()):
        if new in words and new not in names:
            free = next((word for word in _LOCALS.get(new, ()) if word not in words), "")
            names |= {new: free} if free else {old: old}
    if len({names.get(word, word) for word in words}) < len(words):
        return code  # two of its words would be one
    return _WORD.sub(lambda found: names.get(found[0], found[0]), code)


def _other(name: str, attribute: str) -> str | None:
    """None: it keeps its name."""
    base = attribute.rstrip("0123456789")
    others = OTHER_ATTRIBUTES.get(base)
    if others is None:
        return None
    place = drawn_place(f"{name}/self.{attribute}", 2 * len(others))
    return others[place] + attribute.removeprefix(base) if place < len(others) else None
