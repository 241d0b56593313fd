"""A task with shapes that somebody wanted a kernel for, made of the task that a kernel has."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from coding_framework.types import InitArg, Task, TestCase

MOST_SHAPES = 8
"""Of one request."""
MOST_ELEMENTS = 1 << 18
"""Of the inputs of a shape that the emulator judges; a GPU judges one larger shape a task."""
_TENSOR = re.compile(r"([a-z0-9]{3,10})\[((?:\d{1,10}(?:,\d{1,10}){0,7})?)\]")


@dataclass(frozen=True, slots=True)
class Widened:
    """What became of wanted shapes."""

    task: Task | None
    """The task with those that it can have; None: none."""
    keys: dict[str, str] = field(default_factory=dict)
    """Shape key of the inputs alone, by the shape key that was wanted."""
    refused: dict[str, str] = field(default_factory=dict)
    """A sentence by shape key."""


def widened(task: Task, wanted: Sequence[str], *, on_gpu: bool) -> Widened:
    """`task` with more shape sets. wanted: shape keys of calls: the task's inputs, then any
    parameters. on_gpu: whether a GPU judges."""
    small: list[TestCase] = []
    large: list[TestCase] = []
    keys: dict[str, str] = {}
    refused: dict[str, str] = {}
    for key in dict.fromkeys(wanted):
        case = _case(task.cases[0], task.init_args, key)
        if isinstance(case, str):
            refused[key] = case
            continue
        if sum(math.prod(spec.shape) for spec in case.inputs) <= MOST_ELEMENTS:
            small.append(case)
        elif not on_gpu:
            refused[key] = f"it has over {MOST_ELEMENTS} elements, and no GPU judges here"
            continue
        elif large:
            refused[key] = "one shape of real size at a time: ask for it again"
            continue
        else:
            large.append(case)
        keys[key] = ";".join(key.split(";")[: len(case.inputs)])
    if not keys:
        return Widened(None, {}, refused)
    known = {_shapes(case) for case in task.cases}
    cases = (*task.cases, *(case for case in small if _shapes(case) not in known))
    made = task.model_copy(
        update={"cases": cases, "gpu_cases": (*large, *task.gpu_cases[: 1 - len(large)])}
    )
    return Widened(made, keys, refused)


def _case(like: TestCase, init_args: tuple[InitArg, ...], key: str) -> TestCase | str:
    """The shape set of a key, or why there is none."""
    parsed = [_TENSOR.fullmatch(part) for part in key.split(";")[: len(like.inputs)]]
    if len(parsed) < len(like.inputs) or not all(parsed):
        return "it is no shape key of this function"
    specs, extents = [], _Extents()
    for spec, found in zip(like.inputs, parsed, strict=True):
        assert found is not None
        shape = tuple(int(n) for n in found[2].split(",") if n)
        if found[1] != spec.dtype or len(shape) != len(spec.shape):
            return f"{spec.name} is {spec.dtype} of rank {len(spec.shape)} in the kernel's task"
        if 0 in shape:
            return "a tensor without elements has no launch template"
        extents.pair(spec.shape, shape)
        specs.append(spec.model_copy(update={"shape": shape}))
    length = 1 if like.reduction_length == 1 else extents.of(like.reduction_length)
    if length is None:
        return (
            f"its longest sum has {like.reduction_length} terms in the kernel's task, and cannot "
            "be told for these shapes: add it with a task file of your own"
        )
    own = tuple(extents.of(a) or a if type(a) is int else a for a in (like.init_args or init_args))
    name = f"wanted {hashlib.sha256(key.encode()).hexdigest()[:8]}"
    return like.model_copy(
        update={
            "name": name, "inputs": tuple(specs), "init_args": own, "reduction_length": length,
            "shown": False,
        }
    )  # fmt: skip


class _Extents:
    """Which extent became which."""

    def __init__(self) -> None:
        self._became: dict[int, set[int]] = {}

    def pair(self, before: Sequence[int], after: Sequence[int]) -> None:
        for old, new in zip(before, after, strict=True):
            self._became.setdefault(old, set()).add(new)

    def of(self, old: int) -> int | None:
        """What it became, where that is one number."""
        found = self._became.get(old, set())
        return next(iter(found)) if len(found) == 1 else None


def _shapes(case: TestCase) -> tuple[tuple[int, ...], ...]:
    return tuple(spec.shape for spec in case.inputs)
