"""What a wrong output shows of its cause: what is unwritten, and what was computed instead.

It explains and decides nothing. The hypotheses are tried with the task's own reference: a kernel
that takes its inputs in another order gives what the reference gives for them in that order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, product
from typing import NamedTuple

import torch

from coding_framework.types import Finding

Recompute = Callable[[Sequence[torch.Tensor]], torch.Tensor | None]
"""The reference's output for other inputs, in float64; None where it takes no such inputs."""
MOST_ELEMENTS = 1 << 20
"""Larger outputs are not looked at: a small shape set fails first where both are wrong."""
_LOOSE, _STEADY = 1e-3, 1e-4
_STEADY_SHARE = 0.8
"""Of elements that are all far off; a row of eight, so small that a constant shows, differs."""
_UNSET_BYTE = 0xFF
"""What memory holds in which nothing was written."""
_TAIL = 1024
"""Fewer unwritten elements at the end are the rest of a block."""
_MOST_CHANNELS = 64
_ENOUGH, _ONE_SIDE, _MOST, _LITTLE = 20, 0.9, 0.9, 0.05
"""Elements, and the share of them that errs to one side, from which it is no rounding; the share of
all that means almost all; a relative error that is small."""
_NEUTRAL = (1.0, 40.0)
"""What leaves out a factor, or a gate that saturates."""
_TILES = (128, 64, 32, 16, 8, 4)


class Evidence(NamedTuple):
    """One thing that an output shows: the rule of its finding, and what was seen."""

    rule: str
    message: str


class WrongOutput(NamedTuple):
    """A wrong output. `got` in its own dtype, `want` in float64."""

    got: torch.Tensor
    want: torch.Tensor
    wrong: torch.Tensor
    """Which elements are wrong."""
    inputs: Sequence[torch.Tensor]
    names: Sequence[str]


def mismatch(out: WrongOutput, recompute: Recompute) -> list[Finding]:
    """What the output shows, the most certain first."""
    if not 0 < out.got.numel() <= MOST_ELEMENTS or not bool(out.wrong.any()):
        return []
    found: list[Evidence] = []
    for look in (_unwritten, _not_finite, _one_value, _hypotheses, _places, _ratios):
        found = found or list(look(out, recompute))
    return [
        Finding(rule=e.rule, severity="medium", line=None, message=e.message, basis="run")
        for e in found
    ]


def _unwritten(out: WrongOutput, _: Recompute) -> Iterator[Evidence]:
    size = out.got.element_size()
    bits = out.got.contiguous().reshape(-1).view(torch.uint8).reshape(-1, size)
    unset = (bits == _UNSET_BYTE).all(1) & out.wrong.reshape(-1)
    count, total = int(unset.sum()), len(unset)
    if not count:
        return
    first = int(unset.to(torch.uint8).argmax())
    if count == total:
        yield Evidence("unwritten", "no element of the output is written")
    elif count == total - first and count < min(_TAIL, total / 4):
        yield Evidence("unwritten_tail", f"the last {count} of {total} elements are not written")
    elif count == total - first:
        yield Evidence("unwritten_rest", f"only the first {first} of {total} elements are written")
    else:
        yield Evidence("unwritten_some", f"{count} of {total} elements are not written")


def _not_finite(out: WrongOutput, _: Recompute) -> Iterator[Evidence]:
    if not out.got.is_floating_point():
        return
    bad = out.wrong & ~torch.isfinite(out.got) & torch.isfinite(out.want)
    count = int(bad.sum())
    if not count:
        return
    told = f"{count} elements are not finite"
    axis = next((a for a in range(bad.dim()) if _only_at(bad, a, 0)), None)
    if axis is not None and out.got.shape[axis] > 1:
        yield Evidence("empty_first", f"{told}: those at index 0 of axis {axis}")
    elif _all_of_equal_inputs(bad, out.inputs):
        yield Evidence("zero_divisor", f"{told}, all in rows whose inputs are all equal")
    else:
        yield Evidence("overflow", told)


def _all_of_equal_inputs(bad: torch.Tensor, inputs: Sequence[torch.Tensor]) -> bool:
    """Whether each row of the output with such an element comes of a row of one value."""
    first = next((t for t in inputs if t.is_floating_point() and t.dim() > 1), None)
    if first is None or bad.dim() < 1 or first.shape[0] != bad.shape[0]:
        return False
    rows = first.reshape(len(first), -1)[bad.reshape(len(bad), -1).any(1)]
    return bool((rows == rows[:, :1]).all())


def _only_at(mask: torch.Tensor, axis: int, index: int) -> bool:
    """Whether all at this index of the axis are set, and no others."""
    there = mask.select(axis, index)
    return bool(there.all()) and int(there.sum()) == int(mask.sum())


# --- what the reference gives for other inputs ----------------------------------------------------


def _hypotheses(out: WrongOutput, recompute: Recompute) -> Iterator[Evidence]:
    """The first of the usual mistakes whose result is this output."""
    got = out.got.to(torch.float64)
    for evidence, inputs, after in _variants(out):
        made = recompute(inputs)
        made = None if made is None else after(made)
        if made is None or made.shape != got.shape or not _equal(got, made):
            continue
        if _distance(got, made) < 0.1 * _distance(got, out.want):  # and no right result
            yield evidence
            return
    yield from _other_channel(out, recompute)


def _distance(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one - other).nan_to_num_(0.0, 0.0, 0.0).square().mean())


def _other_channel(out: WrongOutput, recompute: Recompute) -> Iterator[Evidence]:
    """Whether each element is right for some entry of the inputs of one axis, not for its own."""
    counts = {t.numel() for t in out.inputs if t.dim() == 1}
    if len(counts) != 1 or not 1 < min(counts) <= _MOST_CHANNELS or out.got.dim() < 2:
        return
    near = torch.zeros_like(out.wrong)
    for k in range(min(counts)):
        made = recompute([t[k].expand_as(t).clone() if t.dim() == 1 else t for t in out.inputs])
        if made is None or made.shape != out.got.shape:
            return
        near |= (out.got - made).abs() <= _STEADY * (1.0 + made.abs())
    if float(near.double().mean()) > 0.99:
        names = ", ".join(n for n, t in zip(out.names, out.inputs, strict=False) if t.dim() == 1)
        yield Evidence("other_broadcast", f"each element is right for another entry of {names}")


def _equal(got: torch.Tensor, made: torch.Tensor) -> bool:
    known = torch.isfinite(got) & torch.isfinite(made)
    if int(known.sum()) < 0.9 * got.numel():
        return False
    room = _LOOSE * (made[known].abs() + made[known].square().mean().sqrt())
    return float(((got - made)[known].abs() <= room).double().mean()) > 0.99


Variant = tuple[Evidence, list[torch.Tensor], Callable[[torch.Tensor], torch.Tensor]]


def _variants(out: WrongOutput) -> Iterator[Variant]:
    """(what it would be, the inputs that the reference then gets, what to do with its output)."""
    given = list(out.inputs)

    def other(i: int, tensor: torch.Tensor, rule: str, text: str) -> Variant:
        return Evidence(rule, text), [*given[:i], tensor, *given[i + 1 :]], lambda made: made

    for i, j in combinations(range(len(given)), 2):
        if given[i].shape == given[j].shape and given[i].dtype == given[j].dtype:
            inputs = list(given)
            inputs[i], inputs[j] = given[j], given[i]
            text = f"this is the result for {out.names[i]} and {out.names[j]} swapped"
            yield Evidence("swapped_inputs", text), inputs, lambda made: made
    first = given[0] if given else torch.empty(0)
    if first.dim() >= 2 and out.got.dim() == first.dim():
        turned = [first.transpose(-1, -2).contiguous(), *given[1:]]
        text = f"this is the result along the other axis of {out.names[0]}"
        yield Evidence("other_axis", text), turned, lambda made: made.transpose(-1, -2)
    for i, tensor in enumerate(given):
        name = out.names[i]
        if tensor.dim() >= 2:
            *batch, height, width = tensor.shape
            read = tensor.reshape(*batch, width, height).transpose(-1, -2)
            yield other(i, read, "swapped_strides", f"{name} is read with its strides swapped")
        if tensor.dtype is torch.int64:
            half = tensor.reshape(-1).contiguous().view(torch.int32)[: tensor.numel()]
            narrow = half.reshape(tensor.shape).to(torch.int64)
            yield other(i, narrow, "read_as_other_type", f"{name}, of int64, is read as int32")
        if tensor.dtype is torch.bfloat16:
            read = tensor.view(torch.float16)
            text = f"{name}, of bfloat16, is read as float16"
            inputs = [*given[:i], read, *given[i + 1 :]]
            yield (
                Evidence("read_as_other_type", text), inputs,
                lambda made: made.to(torch.float16).view(torch.bfloat16).to(torch.float64),
            )  # fmt: skip
        yield from _broadcast(other, i, tensor, first, name)
        if tensor.is_floating_point():
            for value in _NEUTRAL:
                told = f"{name} does not count: this is the result where all of it is {value:g}"
                yield other(i, torch.full_like(tensor, value), "unread_input", told)
            told = f"this is the result for {name} times a million: no added constant counts"
            yield other(i, tensor * 1e6, "no_eps", told)
            yield other(i, tensor * 0.0, "lost_factor", f"{name} does not count: it is times 0")
            yield from _left_out(other, i, tensor, name)
            for size, power in product(sorted(set(tensor.shape)), (0.5, -0.5, 1, -1)):
                if size > 1:
                    text = f"{name}, or what is made of it, is scaled by {size}^{power} too much"
                    yield other(i, tensor * size**power, "scaled_input", text)


Other = Callable[[int, torch.Tensor, str, str], Variant]


def _broadcast(
    other: Other, i: int, tensor: torch.Tensor, first: torch.Tensor, name: str
) -> Iterator[Variant]:
    """A row or column vector that is read along the other axis of the first input."""
    if first.dim() != 2 or tensor.numel() in (0, 1):
        return
    rows, cols = first.shape
    text = f"{name} is read along the other axis of the first input"
    if tensor.shape == (cols,):
        read = tensor[torch.arange(rows) % cols].reshape(rows, 1)
        yield other(i, read, "other_broadcast", text)
    elif tensor.shape == (rows, 1):
        read = tensor[torch.arange(cols) % rows].reshape(1, cols)
        yield other(i, read, "other_broadcast", text)


def _left_out(other: Other, i: int, tensor: torch.Tensor, name: str) -> Iterator[Variant]:
    """The first or last terms of an axis, or those beyond the last whole tile, are not added."""
    for axis, size in enumerate(tensor.shape if tensor.numel() else ()):
        for start, stop in ((size - 1, size), (0, 1)):
            text = f"index {start} of axis {axis} of {name} is left out"
            yield other(i, _zeroed(tensor, axis, start, stop), "term_left_out", text)
        for tile in _TILES:
            if size > tile and size % tile > 1:
                start = size // tile * tile
                text = f"the last {size - start} of axis {axis} of {name} are left out"
                yield other(i, _zeroed(tensor, axis, start, size), "tile_left_out", text)


def _zeroed(tensor: torch.Tensor, axis: int, start: int, stop: int) -> torch.Tensor:
    changed = tensor.clone()
    changed.narrow(axis, start, stop - start).zero_()
    return changed


# --- where the wrong elements are, and what they hold ---------------------------------------------


def _places(out: WrongOutput, _: Recompute) -> Iterator[Evidence]:
    got, want, wrong = out.got.to(torch.float64), out.want, out.wrong
    shift = _shift(got, want)
    if shift is not None:
        told = f"each element is the one that is expected {shift} further"
        yield Evidence("shifted", told)
    elif _is_permuted(got.reshape(-1), want.reshape(-1)):
        yield Evidence("moved", "the right values are in other places")
    for axis in range(wrong.dim()):
        last = wrong.shape[axis] - 1
        if last > 1 and _only_right_at(wrong, axis, last):
            yield Evidence("right_at_end", f"only index {last} of axis {axis} is right")
        elif last > 1 and float(wrong.double().mean()) < 0.5 and _only_at(wrong, axis, last):
            yield Evidence("wrong_at_end", f"only index {last} of axis {axis} is wrong")


def _is_permuted(got: torch.Tensor, want: torch.Tensor) -> bool:
    ordered, wanted = got.sort()[0], want.sort()[0]
    near = _distance(ordered, wanted) < _LOOSE * _distance(got, want)
    return len(got) > 2 and near and _equal(ordered, wanted)


def _only_right_at(wrong: torch.Tensor, axis: int, index: int) -> bool:
    right = ~wrong
    there = right.select(axis, index)
    return bool(there.all()) and int(right.sum()) < 2 * int(there.sum())


def _one_value(out: WrongOutput, _: Recompute) -> Iterator[Evidence]:
    """Wrong elements that all hold one value."""
    got, want = out.got[out.wrong].to(torch.float64), out.want[out.wrong]
    value = float(got[0])
    if len(got) < 2 or not bool((got == value).all()):
        return
    if bool((out.got == value).all()) and bool((want != want[0]).any()):
        yield Evidence("constant_output", f"all elements are {value:.6g}")
    elif value.is_integer() and (bool((want < value).all()) or bool((want > value).all())):
        less = "less" if bool((want < value).all()) else "more"
        told = f"the wrong elements are all {value:.6g}, where {less} is expected"
        yield Evidence("starts_at_value", told)


def _shift(got: torch.Tensor, want: torch.Tensor) -> tuple[int, ...] | None:
    """How far along the last two axes the right values lie, at most one place each; None."""
    axes = min(2, got.dim())
    for steps in product((0, 1, -1), repeat=axes):
        moved, kept = got, want
        for axis, step in zip(range(got.dim() - axes, got.dim()), steps, strict=True):
            length = got.shape[axis] - abs(step)
            moved = moved.narrow(axis, max(0, -step), length)
            kept = kept.narrow(axis, max(0, step), length)
        if any(steps) and moved.numel() > 2 and _equal(moved, kept):
            return steps
    return None


def _ratios(out: WrongOutput, _: Recompute) -> Iterator[Evidence]:
    """How the values relate to what is expected: one factor, a stretch of each row or channel."""
    got, want = out.got.to(torch.float64), out.want
    known = out.wrong & torch.isfinite(got) & torch.isfinite(want) & (want != 0)
    if not bool(known.any()):
        return
    ratio = got[known] / want[known]
    middle = float(ratio.median())
    whole = math.isclose(max(abs(middle), 1 / max(abs(middle), 1e-300)) % 1, 0, abs_tol=1e-3)
    steady = (ratio - middle).abs() <= _STEADY * abs(middle)
    share = float(out.wrong.double().mean())
    needed = _STEADY_SHARE if share > _MOST and abs(middle - 1.0) > _LITTLE else _MOST
    if float(steady.double().mean()) > needed and (len(ratio) > 1 or whole):
        yield _of_factor(middle, {n for t in out.inputs for n in t.shape})
    elif stretched := list(_stretched(got, want)):
        yield from stretched
    else:
        yield from _biased(got[known], want[known], share)


def _biased(got: torch.Tensor, want: torch.Tensor, share: float) -> Iterator[Evidence]:
    """Wrong elements that all err to one side, which rounding does not. share: of all elements."""
    low = float((got < want).double().mean())
    if len(got) < _ENOUGH or max(low, 1 - low) < _ONE_SIDE:
        nearer = float((got.abs() < want.abs()).double().mean())
        if len(got) >= _ENOUGH and max(nearer, 1 - nearer) > _ONE_SIDE and share > _MOST:
            side = "small" if nearer > 0.5 else "large"
            yield Evidence(f"too_{side}", f"almost all elements are too {side} in size")
    elif share < _MOST:
        side = "less" if low > 0.5 else "more"
        told = f"{share:.0%} of the elements are {side} than expected, and the others are right"
        yield Evidence("terms_differ", told)
    elif float((got / want - 1).abs().median()) < _LITTLE:
        side = "small" if low > 0.5 else "large"
        yield Evidence(f"too_{side}", f"almost all elements are a little too {side}")


def _of_factor(factor: float, sizes: set[int]) -> Evidence:
    for size in sorted(sizes):
        for off in (size / (size - 1) if size > 1 else math.inf, (size - 1) / size):
            if math.isclose(factor, off, rel_tol=_STEADY) and size > 2:
                told = f"each is {factor:.6g} times what is expected: {size} and {size - 1}"
                return Evidence("count_off", told)
    if math.isclose(factor, -1.0, rel_tol=_STEADY):
        return Evidence("negated", "each has the other sign")
    return Evidence("factor", f"each is {factor:.6g} times what is expected")


def _stretched(got: torch.Tensor, want: torch.Tensor) -> Iterator[Evidence]:
    """Slices along an axis that are each a straight line of what is expected."""
    for axis in range(got.dim()):
        x = want.transpose(0, axis).reshape(want.shape[axis], -1)
        y = got.transpose(0, axis).reshape(got.shape[axis], -1)
        if x.shape[1] < 3:
            continue
        dx, dy = x - x.mean(1, keepdim=True), y - y.mean(1, keepdim=True)
        slope = (dx * dy).sum(1) / dx.square().sum(1).clamp_min(1e-300)
        rest = (dy - slope[:, None] * dx).square().mean().sqrt()
        if float(rest) > 0.02 * float((y - x).square().mean().sqrt()):
            continue
        off = slope[(slope - 1).abs() > 1e-5] - 1
        if not len(off):  # a number is added to each
            return
        less, more = int((off < 0).sum()), int((off > 0).sum())
        if min(less, more) > 0.05 * max(less, more, 1):
            yield Evidence("slice_scaled", f"each slice along axis {axis} has a factor of its own")
        else:
            side = "small" if less > more else "large"
            told = (
                f"slices along axis {axis} are too {side}, by {float(off.abs().max()):.2g} at most"
            )
            yield Evidence(f"too_{side}", told)
        return
