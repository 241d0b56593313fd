"""How many terms the longest sum of a module has: the K of its tolerance (`cuda.expected`).

The operations are gone through by their shapes, so that a task is made without PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import NamedTuple

from coding_framework.data.modules.operations import LOSSES, REDUCTIONS
from coding_framework.data.modules.records import ModuleDraft, Operation, Sizes

Shape = tuple[int, ...]
Step = tuple[Shape, int]
"""(the shape of the result, terms of the operation's longest sum)."""


class Module(NamedTuple):
    inputs: Sequence[Shape]
    sizes: Sizes


def longest_sum(draft: ModuleDraft, sizes: Sizes) -> int:
    """Its terms at these sizes: 1 where nothing is added up."""
    module = Module([given.shape(sizes) for given in draft.inputs], sizes)
    shape, longest = module.inputs[0], 1
    for o in draft.operations:
        if o.name in STEPS:
            shape, terms = STEPS[o.name](o, shape, module)
        else:
            terms = _KEPT[o.name](o, shape) if o.name in _KEPT else 1
        longest = max(longest, terms)
    return longest


def _linear(o: Operation, at: Shape, module: Module) -> Step:
    return (*at[:-1], module.sizes[o["out"]]), at[-1]


def _product(o: Operation, at: Shape, module: Module) -> Step:
    other = module.inputs[0 if o.get("own") else -1 if o.name == "matmul_last" else 1]
    *batch, rows, inner = at
    if o.get("ta"):
        rows, inner = inner, rows
    return (*batch, rows, other[-2 if o.get("tb") else -1]), inner


def _addmm(o: Operation, at: Shape, module: Module) -> Step:
    return at, module.inputs[1][-1]


def _convolution(o: Operation, at: Shape, module: Module) -> Step:
    batch, channels, *places = at
    kernel, groups = o["kernel_size"], o["groups"]
    outs: list[int] = []
    for i, (n, k) in enumerate(zip(places, kernel, strict=True)):
        s, p, window = o["stride"][i], o["padding"][i], o["dilation"][i] * (k - 1) + 1
        if "transpose" in o.name:
            outs.append((n - 1) * s - 2 * p + window + o["output_padding"][i])
        else:
            outs.append((n + 2 * p - window) // s + 1)
    each = 1 if groups < 0 else channels // groups
    return (batch, module.sizes[o["out"]], *outs), each * prod(kernel)


def _pool(o: Operation, at: Shape, module: Module) -> Step:
    batch, channels, *places = at
    kernel, d = o["kernel_size"], o.get("dilation", 1)
    outs: list[int] = []
    for n, k, s, p in zip(places, kernel, o["stride"], o["padding"], strict=True):
        last = n + 2 * p - d * (k - 1) - 1
        if o.get("ceil_mode"):  # no window starts behind the padded input
            count = -(-last // s)
            outs.append(count + 1 - (count * s >= n + p))
        else:
            outs.append(last // s + 1)
    return (batch, channels, *outs), 1 if o.name.startswith("max") else prod(kernel)


def _adaptive_pool(o: Operation, at: Shape, module: Module) -> Step:
    return (*at[:2], *o["output_size"]), prod(at[2:]) if "avg" in o.name else 1


def _global_pool(o: Operation, at: Shape, module: Module) -> Step:
    return (*at[:2], *(1 for _ in at[2:])), prod(at[2:])


def _reduction(o: Operation, at: Shape, module: Module) -> Step:
    axes, keep = o["axes"], o["keepdim"]
    left = tuple(1 if a in axes else n for a, n in enumerate(at) if keep or a not in axes)
    return left, 1 if o.name.startswith("arg") else prod(at[a] for a in axes)


STEPS: dict[str, Callable[[Operation, Shape, Module], Step]] = {
    "linear": _linear,
    **dict.fromkeys(("matmul", "bmm", "matmul_last"), _product),
    "addmm": _addmm,
    **{f"conv{t}{n}d": _convolution for t in ("", "_transpose") for n in (1, 2, 3)},
    **{f"{kind}_pool{n}d": _pool for kind in ("max", "avg", "lp") for n in (1, 2, 3)},
    **{f"adaptive_{k}_pool{n}d": _adaptive_pool for k in ("avg", "max") for n in (1, 2, 3)},
    "global_pool": _global_pool,
    **dict.fromkeys((*REDUCTIONS, "vector_norm"), _reduction),
}
"""By operation: of those whose result has another shape and may be summed up again."""


def _loss(o: Operation, at: Shape) -> int:
    """Of elements, or of rows: these are summed up by rows first."""
    own = 1
    if o.name in ("cross_entropy", "nll_loss", "multi_margin_loss", "triplet_margin_loss"):
        own, at = 1 if o.name == "nll_loss" else at[1], at[:1]
    return own if o["reduction"] == "none" else max(own, prod(at))


def _scan(o: Operation, at: Shape) -> int:
    return at[o["axis"]] if o["kind"] not in ("cummax", "cummin") else 1


_ALONG = ("rms_norm", "normalize", "softmax", "log_softmax", "softmin", "cosine_similarity")
_KEPT: dict[str, Callable[[Operation, Shape], int]] = {
    **dict.fromkeys(_ALONG, lambda o, at: at[o["axis"]]),
    **dict.fromkeys(("pairwise_distance", "cdist"), lambda o, at: at[-1]),
    **dict.fromkeys((*LOSSES, "hinge"), _loss),
    "scan": _scan,
    "attention": lambda o, at: max(at[-2:]),
    "batch_norm": lambda o, at: prod(at) // at[1],
    "instance_norm": lambda o, at: prod(at[2:]),
    "group_norm": lambda o, at: at[1] // o["num_groups"] * prod(at[2:]),
    "layer_norm": lambda o, at: prod(at[len(at) - o["axes"] :]),
}
"""By operation: of those whose result is as large, or is the last. Others add nothing up."""
