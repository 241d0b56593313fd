"""Module tasks with their groups (`fast_groups`) and losses in as few kernels as can be.

As the naive lowering; an operation of which nothing faster is known keeps its naive kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from coding_framework.data.modules.kernels.fast_arguments import place_of_extremum
from coding_framework.data.modules.kernels.fast_groups import (
    Groups,
    NotFasterError,
    Pass,
    split_groups,
    split_moments,
    whole_groups,
)
from coding_framework.data.modules.kernels.fast_losses import (
    ELEMENT_LOSSES,
    ROW_LOSSES,
    loss,
    loss_of_rows,
)
from coding_framework.data.modules.kernels.fast_maps import (
    elementwise,
    embedding,
    enlarge,
    gate,
    move,
    prelu,
)
from coding_framework.data.modules.kernels.fast_pools import (
    ADAPTIVE_POOLS,
    POOLS,
    adaptive_pool,
    pool,
)
from coding_framework.data.modules.kernels.fast_scans import scan_lines
from coding_framework.data.modules.kernels.lowering import (
    Lowering,
    Tensor,
)
from coding_framework.data.modules.kernels.naive_layers import (
    LAYER_KERNELS,
    NORMS,
    Lower,
    Parameters,
    along,
    norm_groups,
    norm_passes,
    norm_tail,
    normalize,
    of_total,
    powers,
    rms_norm,
    softmax_passes,
)
from coding_framework.data.modules.kernels.naive_tensors import (
    MOVES,
    SCANS,
    SOFTMAXES,
    TENSOR_KERNELS,
)
from coding_framework.data.modules.pointwise import POINTWISE, c_literal
from coding_framework.data.modules.records import ModuleTask, Operation

Fast = Callable[[Lowering, Operation, Parameters], None]
"""Raises NotFasterError, before it writes anything, where it has nothing better."""

# --- normalisation and softmax -------------------------------------------------------------------


def _norm(w: Lowering, o: Operation, parameters: Parameters) -> None:
    groups, group, affine_at = norm_groups(w, o)
    tail, given = norm_tail(o, parameters, affine_at)
    if groups.worker(w) != "blocks":
        whole_groups(w, groups, norm_passes(w, o, groups), f"(e - mean) * scale{tail}", *given)
        return
    split_moments(w, groups, c_literal(o["eps"]), group, f"v = v{tail};" if tail else "", *given)


def _softmax(w: Lowering, o: Operation, parameters: Parameters) -> None:
    passes, result = softmax_passes(o.name)
    _multiplied(w, along(w, o.number("axis")), passes, result)


def _unit(w: Lowering, o: Operation, parameters: Parameters) -> None:
    normalize(w, o, parameters, write=_multiplied)


def _multiplied(w: Lowering, groups: Groups, passes: list[Pass], result: str) -> None:
    """Where a result is divided by what the last pass gave, columns and blocks multiply by its
    inverse: a division has a branch, and the compiler reads nothing ahead of that."""
    value, divided, by = result.partition(f" / {passes[-1].name}")
    if divided and not by and groups.worker(w) in ("columns", "block"):
        last = passes[-1]
        passes = [*passes[:-1], replace(last, name="scale", finish=f"1.0f / {last.finish}")]
        result = f"{value} * scale"
    whole_groups(w, groups, passes, result)


# --- reductions ----------------------------------------------------------------------------------


def _reduction(w: Lowering, o: Operation, parameters: Parameters) -> None:
    axes, keep = o.integers("axes"), o.flag("keepdim")
    groups = Groups(tuple(w.dims), tuple(axes))
    dims = [("1" if a in axes else d) for a, d in enumerate(w.dims) if keep or a not in axes]
    passes = _passes(w, o, groups)
    _reduced(w, groups, passes, dims)


def _passes(w: Lowering, o: Operation, groups: Groups) -> list[Pass]:
    size = groups.size if " " not in groups.size else f"({groups.size})"
    match o.name:
        case "amax" | "max":
            return [Pass("most", "max", "e")]
        case "amin" | "min":
            return [Pass("least", "min", "e")]
        case "prod":
            return [Pass("total", "product", "e")]
        case "sum" | "mean":
            return [Pass("total", "sum", "e", "{a}" if o.name == "sum" else f"{{a}} / {size}")]
        case "var" | "std":
            divided = f"{{a}} / ({size} - 1)" if o.flag("unbiased") else f"{{a}} / {size}"
            finish = divided if o.name == "var" else f"sqrtf({divided})"
            square = "(e - mean) * (e - mean)"
            return [Pass("mean", "sum", "e", f"{{a}} / {size}"), Pass("a", "sum", square, finish)]
        case "vector_norm" if o["p"] == "inf":
            return [Pass("most", "max", "fabsf(e)")]
        case "vector_norm":
            power, root = powers(o.real("p"))
            return [Pass("total", "sum", power.format(e="e"), of_total(root))]
        case "logsumexp":
            last = Pass("total", "sum", "expf(e - most)", "most + logf({a})")
            return [Pass("most", "max", "e"), last]
    raise NotFasterError


def _reduced(
    w: Lowering, groups: Groups, passes: list[Pass], dims: list[str], *given: Tensor
) -> None:
    if len(passes) == 1 and groups.merged().parts(w):
        split_groups(w, groups, passes[0], *given, out_dims=dims)
    else:
        whole_groups(w, groups, passes, passes[-1].name, *given, out_dims=dims)


def _global_pool(w: Lowering, o: Operation, parameters: Parameters) -> None:
    axes = tuple(range(2, len(w.dims)))
    groups = Groups(tuple(w.dims), axes)
    finish = f"{{a}} / ({groups.size})" if o["kind"] == "mean" else "{a}"
    one = Pass("total", "max" if o["kind"] == "max" else "sum", "e", finish)
    _reduced(w, groups, [one], [*w.dims[:2], *("1" for _ in axes)])


# --- scans ----------------------------------------------------------------------------


def _scan(w: Lowering, o: Operation, parameters: Parameters) -> None:
    start, join = SCANS[str(o["kind"])]
    if o["kind"] == "logcumsumexp":  # two starts must not become inf - inf
        join = f"a == e ? a + 0.69314718f : {join}"
    scan_lines(w, o.number("axis"), start, join, str(o["direction"]))


_GROUPS = (
    "each group is read from DRAM once: its passes follow each other in one kernel, and few large "
    "groups are shared out to many blocks"
)
_WINDOWS = "a warp or block shares a window and reads neighbours together"
_PLANES = "a block stays in one channel of one image, so an output has two divisions less"
_SCANS = (
    "many threads share a line, each with four loads on their way, and pass on what came before by "
    "shuffles or shared memory"
)
_VECTORS = (
    "a thread reads and writes four elements, 16 bytes in one instruction, so four times as many "
    "bytes are on their way to keep DRAM busy"
)
_BEFORE = "what comes before the softmax is done where an element is read, without a kernel"
_FOURS = "a thread has four elements, whose loads wait together and not in turn"
_COPIES = "an element is read once and its copies go out together: one index for all, wide stores"
_TILES = "tiles go through shared memory, so that reads and writes are of whole lines of 128 bytes"
_PLACES = "many threads share a line and read neighbours together, and pass on the best of each"
_ROWS = "a block shares a row, so it reads neighbours together, and the row stays in a cache"
_LOSSES = "the loss of an element goes into the sum at once, and many blocks share the sum"

_REDUCTIONS = (
    "amax", "amin", "max", "min", "sum", "mean", "prod", "var", "std", "vector_norm", "logsumexp",
)  # fmt: skip

_FAST: dict[str, Fast] = {
    "elementwise": elementwise,
    "prelu": prelu,
    "embedding": embedding,
    **dict.fromkeys(MOVES, move),
    "glu": gate,
    "upsample_nearest": enlarge,
    **dict.fromkeys(NORMS, _norm),
    "rms_norm": partial(rms_norm, write=whole_groups),
    "normalize": _unit,
    **dict.fromkeys(SOFTMAXES, _softmax),
    **dict.fromkeys(_REDUCTIONS, _reduction),
    **dict.fromkeys(("argmax", "argmin"), place_of_extremum),
    "global_pool": _global_pool,
    "scan": _scan,
    **dict.fromkeys(POOLS, pool),
    **dict.fromkeys(ADAPTIVE_POOLS, adaptive_pool),
    **dict.fromkeys(ELEMENT_LOSSES, loss),
    **dict.fromkeys(ROW_LOSSES, loss_of_rows),
}


def reason(task: ModuleTask) -> str:
    """Why the kernels of this module beat the naive ones."""
    names = [o.name for o in task.operations]
    found = [_VECTORS] if names[0] in POINTWISE else []
    if found and set(names) & set(SOFTMAXES):
        found = [_BEFORE]
    found += [_reason(o) for o in task.operations if o.name in _FAST]
    return "; ".join(dict.fromkeys(found))


def _reason(o: Operation) -> str:
    if o.name in ("prelu", "embedding", "glu") or (
        o.name in ELEMENT_LOSSES and o["reduction"] == "none"
    ):
        return _VECTORS
    if o.name == "permute" and o.integers("order")[-1] != len(o.integers("order")) - 1:
        return _TILES
    by_name = {
        **dict.fromkeys(POOLS, _PLANES),
        **dict.fromkeys(ADAPTIVE_POOLS, _WINDOWS),
        **dict.fromkeys(ELEMENT_LOSSES, _LOSSES),
        **dict.fromkeys(ROW_LOSSES, _ROWS),
        **dict.fromkeys(MOVES, _FOURS),
        "upsample_nearest": _COPIES,
        **dict.fromkeys(("argmax", "argmin"), _PLACES),
        "scan": _SCANS,
    }
    return by_name.get(o.name, _GROUPS)


def _or_naive(name: str, fast: Fast) -> Lower:
    naive = {**LAYER_KERNELS, **TENSOR_KERNELS}[name]

    def write(w: Lowering, o: Operation, parameters: Parameters) -> None:
        try:
            fast(w, o, parameters)
        except NotFasterError:
            naive(w, o, parameters)

    return write


FAST: dict[str, Lower] = {name: _or_naive(name, fast) for name, fast in _FAST.items()}
"""Operation -> what writes its kernels, instead of the naive ones."""
