"""Other names of a module's constants, of its parameters and of the layers that have some, in its
source and in its kernels: people call a weight `gamma` or `scale`, and a layer `dense`.

A kernel's arguments are called as the module's parameters are. Where one is called as a local of
the kernel, the local has another name, or the argument keeps its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from coding_framework.data.modules.sizes import drawn_place
from coding_framework.types import Task

OTHER_NAMES: Mapping[str, tuple[str, ...]] = {
    "scale_factor": ("factor", "gain", "coefficient"),
    "divisor": ("denominator", "temperature"),
    "add_value": ("addend", "increment"),
    "subtract_value": ("decrement", "subtrahend"),
    "min_value": ("lower_bound", "floor"),
    "max_value": ("upper_bound", "ceiling"),
    "min_val": ("lowest",),
    "max_val": ("highest",),
    "pool_kernel_size": ("window", "pool_window"),
    "pool_stride": ("hop", "window_stride"),
    "dim": ("axis", "along"),
    "num_groups": ("n_groups", "channel_groups"),
    "eps": ("epsilon",),
    "lambd": ("cutoff",),
    "negative_slope": ("slope", "leak"),
    "threshold": ("limit",),
    "output_size": ("places", "pooled_size"),
    "shifts": ("steps",),
}
"""By a constant's own name, others that people give it; no two constants share one."""


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


def with_other_attributes(source: str, name: str) -> str:
    """A module with other names of about half of the attributes that hold parameters. name: of the
    task and the number of its spelling, which decide."""
    words = {*_WORD.findall(source)}
    names: dict[str, str] = {}
    for attribute in dict.fromkeys(re.findall(r"self\.(\w+) = nn\.", source)):
        base = attribute.rstrip("0123456789")
        others = OTHER_ATTRIBUTES.get(base, ())
        place = drawn_place(f"{name}/self.{attribute}", 2 * len(others)) if others else 0
        other = "".join(others[place : place + 1]) + attribute.removeprefix(base)
        if place < len(others) and other not in words and other not in names.values():
            names[attribute] = other
    return re.sub(r"\bself\.(\w+)", lambda m: f"self.{names.get(m[1], m[1])}", source)


def parameters_of(task: Task) -> list[str]:
    """What a kernel calls the parameters of the task's module, in the order of their definition:
    `conv_weight`."""
    import torch

    from coding_framework.reference_model import make_model, recorded_definitions, run_reference

    with torch.device("meta"), recorded_definitions() as definitions:
        model = make_model(run_reference(task.reference)["Model"], task.init_args)
    return [name.replace(".", "_") for name in definitions.parameters(model)]


def with_arguments(code: str, before: Task, after: Task) -> str:
    """A kernel of a module, its arguments called as the parameters in another spelling of the
    module are. They are handed over in order, so the kernel stays what it is."""
    words = {*_WORD.findall(code)}
    pairs = zip(parameters_of(before), parameters_of(after), strict=True)
    names = {b: a for b, a in pairs if b != a}
    for old, new in list(names.items()):
        if new in words and new not in names:
            free = next((word for word in _LOCALS.get(new, ()) if word not in words), "")
            names |= {new: free} if free else {old: old}
    if len({names.get(word, word) for word in words}) < len(words):
        return code  # two of its words would be one
    return _WORD.sub(lambda found: names.get(found[0], found[0]), code)
