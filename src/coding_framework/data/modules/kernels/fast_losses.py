"""Fast kernels of losses: each input is read once from DRAM, by neighbours at a time.

A loss of elements goes into the sum at once. A loss of rows (a score for each class, a label for
each row) takes a warp or a block a row, as `fast_groups` says; the rows' losses are then summed.
"""

from __future__ import annotations

from coding_framework.data.modules.kernels.fast_groups import (
    Groups,
    NotFasterError,
    Pass,
    split_groups,
    whole_groups,
)
from coding_framework.data.modules.kernels.fast_maps import loss_of_elements
from coding_framework.data.modules.kernels.lowering import Lowering, Tensor
from coding_framework.data.modules.kernels.naive_layers import Parameters
from coding_framework.data.modules.kernels.naive_tensors import (
    element_loss,
    hinge_loss,
    summed_loss,
)
from coding_framework.data.modules.pointwise import c_literal
from coding_framework.data.modules.records import Operation


def loss(w: Lowering, o: Operation, parameters: Parameters) -> None:
    """The loss of each element goes into the sum at once."""
    if o["reduction"] == "none":
        loss_of_elements(w, o)
        return
    text = hinge_loss(o) if o.name == "hinge" else element_loss(o)
    if text is None:
        raise NotFasterError
    other = w.task.inputs[1].name
    groups = Groups(tuple(w.dims), tuple(range(len(w.dims))))
    finish = "{a}" if o["reduction"] == "sum" else f"{{a}} / ({groups.size})"
    one = Pass("total", "sum", text.replace("{y}", f"{other}[i]"), finish)
    split_groups(w, groups, one, Tensor(other, other), out_dims=[])


def loss_of_rows(w: Lowering, o: Operation, parameters: Parameters) -> None:
    """`cross_entropy`, `multi_margin_loss` and `triplet_margin_loss`."""
    passes, result, reads = _ROWS[o.name](w, o)
    rows = Groups(tuple(w.dims), (1,))
    whole_groups(w, rows, passes, result, *reads, out_dims=[w.dims[0]])
    summed_loss(w, str(o["reduction"]))


_Loss = tuple[list[Pass], str, list[Tensor]]
"""(passes over a row, the row's loss, what they read besides x)."""


def _cross_entropy(w: Lowering, o: Operation) -> _Loss:
    label, own = _label(w)
    passes = [
        Pass("most", "max", "e"),
        Pass("total", "sum", "expf(e - most)", "most + logf({a})"),
    ]
    smoothing = o.real("label_smoothing")
    if not smoothing:
        return passes, f"total - {own}", [label]
    passes.append(Pass("mean", "sum", "e", f"{{a}} / {w.dims[1]}"))
    kept, shared = c_literal(1.0 - smoothing), c_literal(smoothing)
    return passes, f"{kept} * (total - {own}) + {shared} * (total - mean)", [label]


def _multi_margin(w: Lowering, o: Operation) -> _Loss:
    label, own = _label(w)
    above = f"fmaxf(0.0f, {c_literal(o['margin'])} - {own} + e)"
    one = Pass("total", "sum", f"t == label[g] ? 0.0f : {above}", f"{{a}} / {w.dims[1]}")
    return [one], "total", [label]


def _triplet(w: Lowering, o: Operation) -> _Loss:
    names = [given.name for given in w.task.inputs[1:3]]
    passes = []
    for distance, name in zip(("near", "far"), names, strict=True):
        d = f"e - {name}[i] + 1e-6f"
        if o.real("p") == 1.0:
            passes.append(Pass(distance, "sum", f"fabsf({d})"))
        else:
            passes.append(Pass(distance, "sum", f"({d}) * ({d})", "sqrtf({a})"))
    result = f"fmaxf(0.0f, near - far + {c_literal(o['margin'])})"
    return passes, result, [Tensor(name, name) for name in names]


def _label(w: Lowering) -> tuple[Tensor, str]:
    """The labels, and the score of a row's own class."""
    return Tensor("label", w.task.inputs[1].name, "int64_t"), f"x[g * {w.dims[1]} + label[g]]"


_ROWS = {
    "cross_entropy": _cross_entropy,
    "multi_margin_loss": _multi_margin,
    "triplet_margin_loss": _triplet,
}
ROW_LOSSES = tuple(_ROWS)
ELEMENT_LOSSES = (
    "l1_loss", "mse_loss", "smooth_l1_loss", "huber_loss", "bce_with_logits", "poisson_nll_loss",
    "hinge",
)  # fmt: skip
