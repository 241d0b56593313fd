"""How many terms the longest sum of a module has: the K of its tolerance (`cuda.expected`).

The operations are gone through by their shapes, so that a task is made without PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from coding_framework.data.modules.records import ModuleDraft, Operation, Sizes, extent, shape_of
from coding_framework.data.modules.structural import LOSSES, REDUCTIONS

Shape = tuple[int, ...]
Step = tuple[Shape, int]
"""(the shape of the result, terms of the operation's longest sum)."""


@dataclass(frozen=True, slots=True)
class _At:
    """An operation where it stands: the shape of the tensor in hand, and of the module's inputs."""

    shape: Shape
    inputs: Sequence[Shape]
    sizes: Sizes


def result(draft: ModuleDraft, sizes: Sizes) -> Step:
    """The shape of the result at these sizes, and the terms of the longest sum: 1 where nothing is
    added up."""
    inputs = [shape_of(given.dims, sizes) for given in draft.inputs]
    shape, longest = inputs[0], 1
    for operation in draft.operations:
        step = _STEPS.get(operation.name, _elementwise)
        shape, terms = step(_At(shape, inputs, sizes), operation)
        longest = max(longest, terms)
    return shape, longest


def _elementwise(at: _At, o: Operation) -> Step:
    return at.shape, 1


# --- products ------------------------------------------------------------------------------------


def _linear(at: _At, o: Operation) -> Step:
    *outer, inner = at.shape
    return (*outer, extent(str(o["out"]), at.sizes)), inner


def _product(at: _At, o: Operation) -> Step:
    other = at.inputs[0 if o.flag("own") else -1 if o.name == "matmul_last" else 1]
    *batch, rows, inner = at.shape
    if o.flag("ta"):
        rows, inner = inner, rows
    return (*batch, rows, other[-2 if o.flag("tb") else -1]), inner


def _addmm(at: _At, o: Operation) -> Step:
    return at.shape, at.inputs[1][-1]


def _attention(at: _At, o: Operation) -> Step:
    return at.shape, max(at.shape[-2:])


# --- windows -------------------------------------------------------------------------------------


def _convolution(at: _At, o: Operation) -> Step:
    batch, channels, *spatial = at.shape
    kernel, groups = o.integers("kernel_size"), o.number("groups")
    depthwise = groups < 0
    out = channels if depthwise else extent(str(o["out"]), at.sizes)
    each = 1 if depthwise else channels // groups
    steps = zip(
        spatial, kernel, o.integers("stride"), o.integers("padding"), o.integers("dilation"),
        strict=True,
    )  # fmt: skip
    if o.name.startswith("conv_transpose"):
        more = o.integers("output_padding")
        outs = [(n - 1) * s - 2 * p + d * (k - 1) + 1 for n, k, s, p, d in steps]
        outs = [n + m for n, m in zip(outs, more, strict=True)]
    else:
        outs = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in steps]
    return (batch, out, *outs), each * prod(kernel)


def _pool(at: _At, o: Operation) -> Step:
    batch, channels, *spatial = at.shape
    kernel = o.integers("kernel_size")
    d = o.number("dilation") if "dilation" in dict(o.arguments) else 1
    outs = []
    for n, k, s, p in zip(
        spatial, kernel, o.integers("stride"), o.integers("padding"), strict=True
    ):
        last = n + 2 * p - d * (k - 1) - 1
        if o.flag("ceil_mode"):  # no window starts behind the padded input
            count = -(-last // s)
            outs.append(count + 1 - (count * s >= n + p))
        else:
            outs.append(last // s + 1)
    return (batch, channels, *outs), 1 if o.name.startswith("max") else prod(kernel)


def _adaptive_pool(at: _At, o: Operation) -> Step:
    terms = prod(at.shape[2:]) if "avg" in o.name else 1
    return (*at.shape[:2], *o.integers("output_size")), terms


def _global_pool(at: _At, o: Operation) -> Step:
    batch, channels, *spatial = at.shape
    return (batch, channels, *(1 for _ in spatial)), prod(spatial)


# --- groups --------------------------------------------------------------------------------------


def _batch_norm(at: _At, o: Operation) -> Step:
    return at.shape, prod(at.shape) // at.shape[1]


def _instance_norm(at: _At, o: Operation) -> Step:
    return at.shape, prod(at.shape[2:])


def _group_norm(at: _At, o: Operation) -> Step:
    return at.shape, at.shape[1] // o.number("num_groups") * prod(at.shape[2:])


def _layer_norm(at: _At, o: Operation) -> Step:
    return at.shape, prod(at.shape[len(at.shape) - o.number("axes") :])


def _along(at: _At, o: Operation) -> Step:
    """The sum is along an axis, and the result has the shape of the input."""
    return at.shape, at.shape[o.number("axis")]


def _scan(at: _At, o: Operation) -> Step:
    return _along(at, o) if o["kind"] not in ("cummax", "cummin") else (at.shape, 1)


def _reduced(at: _At, o: Operation, *axes: int) -> Step:
    keep = o.flag("keepdim")
    left = [1 if a in axes else n for a, n in enumerate(at.shape) if keep or a not in axes]
    return tuple(left), prod(at.shape[a] for a in axes)


def _reduction(at: _At, o: Operation) -> Step:
    shape, terms = _reduced(at, o, *o.integers("axes"))
    return shape, 1 if o.name.startswith("arg") else terms


# --- losses and distances ------------------------------------------------------------------------


def _loss(at: _At, o: Operation) -> Step:
    """Of elements, or of rows: these are summed up by rows first."""
    terms, shape = 1, at.shape
    if o.name in _ROW_LOSSES:
        terms, shape = 1 if o.name == "nll_loss" else shape[1], shape[:1]
    return (shape, terms) if o["reduction"] == "none" else ((), max(terms, prod(shape)))


def _distance(at: _At, o: Operation) -> Step:
    return _reduced(at, o, len(at.shape) - 1 if o.name == "pairwise_distance" else o.number("axis"))


def _all_distances(at: _At, o: Operation) -> Step:
    *outer, inner = at.shape
    return (*outer, at.inputs[1][-2]), inner


# --- moves ---------------------------------------------------------------------------------------


def _permute(at: _At, o: Operation) -> Step:
    return tuple(at.shape[a] for a in o.integers("order")), 1


def _pad(at: _At, o: Operation) -> Step:
    shape, widths = [*at.shape], o.integers("widths")
    for number in range(len(widths) // 2):
        shape[-1 - number] += sum(widths[2 * number : 2 * number + 2])
    return tuple(shape), 1


def _shuffle(at: _At, o: Operation) -> Step:
    r, (n, c, h, w) = o.number("factor"), at.shape
    if o.name == "pixel_shuffle":
        return (n, c // (r * r), h * r, w * r), 1
    return (n, c * r * r, h // r, w // r), 1


def _upsample(at: _At, o: Operation) -> Step:
    return (*at.shape[:2], *(n * o.number("factor") for n in at.shape[2:])), 1


def _glu(at: _At, o: Operation) -> Step:
    axis = o.number("axis")
    return tuple(n // 2 if a == axis else n for a, n in enumerate(at.shape)), 1


def _embedding(at: _At, o: Operation) -> Step:
    return (*at.shape, at.sizes["embedding_dim"]), 1


_ROW_LOSSES = ("cross_entropy", "nll_loss", "multi_margin_loss", "triplet_margin_loss")
_STEPS: dict[str, Callable[[_At, Operation], Step]] = {
    "linear": _linear,
    **dict.fromkeys(("matmul", "bmm", "matmul_last"), _product),
    "addmm": _addmm,
    "attention": _attention,
    **{f"conv{t}{n}d": _convolution for t in ("", "_transpose") for n in (1, 2, 3)},
    **{f"{kind}_pool{n}d": _pool for kind in ("max", "avg", "lp") for n in (1, 2, 3)},
    **{f"adaptive_{k}_pool{n}d": _adaptive_pool for k in ("avg", "max") for n in (1, 2, 3)},
    "global_pool": _global_pool,
    "batch_norm": _batch_norm,
    "instance_norm": _instance_norm,
    "group_norm": _group_norm,
    "layer_norm": _layer_norm,
    **dict.fromkeys(("rms_norm", "normalize", "softmax", "log_softmax", "softmin"), _along),
    "scan": _scan,
    **dict.fromkeys(REDUCTIONS, _reduction),
    **dict.fromkeys((*LOSSES, "hinge"), _loss),
    **dict.fromkeys(("cosine_similarity", "pairwise_distance"), _distance),
    "cdist": _all_distances,
    "permute": _permute,
    "pad": _pad,
    **dict.fromkeys(("pixel_shuffle", "pixel_unshuffle"), _shuffle),
    "upsample_nearest": _upsample,
    "glu": _glu,
    "embedding": _embedding,
}
"""By operation; of others the result has the shape of the input, and nothing is added up."""
