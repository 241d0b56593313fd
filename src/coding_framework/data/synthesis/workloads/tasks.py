"""From a workload to a `Task`, and the catalogue of workloads.

Guaranteed: the catalogue is a function of (seed, per_family); no two of its members have the same
graph of ops and the same constants, so none is another one with its steps in another order.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise, product

from coding_framework.data.synthesis.canonical import canonical_key
from coding_framework.data.synthesis.op_table import SCALAR_OPS, UNARY_OPS
from coding_framework.data.synthesis.ops import Step
from coding_framework.data.synthesis.program import Operation
from coding_framework.data.synthesis.reference import CASE_NAMES, module_text, spoken
from coding_framework.data.synthesis.workloads.base import Size, Workload
from coding_framework.data.synthesis.workloads.table import (
    FAMILY_OF_OPERATION,
    WORKLOAD_FAMILIES,
    WorkloadFamily,
)
from coding_framework.types import Split, Task, TestCase

MOST_BEFORE, MOST_AFTER = 1, 2
"""Steps that the catalogue draws around an operation; names may carry more."""


def make_workload_task(workload: Workload, split: Split) -> Task:
    """The task of a workload."""
    family = FAMILY_OF_OPERATION[workload.op.name]
    return Task(
        name=workload.name,
        tier=family.tier,
        family=family.name,
        ops=workload.ops,
        description=describe_workload(workload),
        reference=workload_source(workload),
        cases=_cases(workload, workload.op.sizes.emulator),
        gpu_cases=_cases(workload, workload.op.sizes.gpu),
        split=split,
    )


def workload_source(workload: Workload) -> str:
    """A `Model` with one statement per step, the operation's lines between them."""
    lines = [f"x = {s.render(s.op.torch, 'x')}" for s in workload.before]
    torch = workload.op.torch
    own = (torch,) if isinstance(torch, str) else torch
    *above, last = (line.format(**workload.named) for line in own)
    lines += above
    steps = [s.render(s.op.torch, "x") for s in workload.after]
    if steps and last != "x":
        lines.append(f"x = {last}")
    if steps:
        lines += [f"x = {text}" for text in steps[:-1]]
        last = steps[-1]
    elif last == "x" and lines:
        last = lines.pop().removeprefix("x = ")
    return module_text([given.name for given in workload.op.others], [*lines, last])


def describe_workload(workload: Workload) -> str:
    """One line of mathematics, e.g. "out = relu(conv2d(x * 2.0, u), 3x3)"."""
    text = spoken(map(Operation, workload.before), "x")
    text = workload.op.spoken.format(v=text, **workload.named)
    text = spoken(map(Operation, workload.after), text)
    dtype = "" if workload.dtype == "float32" else f"; {workload.dtype}"
    return f"out = {text}{dtype}"


def _cases(workload: Workload, sizes: tuple[Size, ...]) -> tuple[TestCase, ...]:
    return tuple(
        TestCase(
            name=name,
            inputs=workload.specs(size),
            reduction_length=workload.terms(size),
            shown=name == CASE_NAMES[0],
        )
        for name, size in zip(CASE_NAMES, sizes, strict=True)
    )


# --- the catalogue -------------------------------------------------------------------------------


@lru_cache(maxsize=8)
def workload_catalog(seed: int = 0, per_family: int = 40) -> tuple[Workload, ...]:
    """Every operation alone with every choice of parameters and dtypes, then compositions drawn
    until a family has `per_family` members, or no more are found."""
    chosen: list[Workload] = []
    for family in WORKLOAD_FAMILIES:
        members = {_identity(w): w for w in _alone(family)}
        rng = random.Random(f"{family.name}:{seed}")
        for _ in range(100 * per_family):
            if len(members) >= per_family:
                break
            drawn = _draw(family, rng)
            if drawn.input_range() is not None and not _pointless(drawn):
                members.setdefault(_identity(drawn), drawn)
        chosen += list(members.values())[: max(per_family, 1)]
    return tuple(chosen)


def _alone(family: WorkloadFamily) -> Iterator[Workload]:
    for op in family.operations:
        for params, dtype in product(op.choices, op.dtypes):
            workload = Workload(op, params, dtype=dtype)
            if op.atoms != () and workload.input_range() is not None:
                yield workload


def _draw(family: WorkloadFamily, rng: random.Random) -> Workload:
    """A random member; not yet known to be valid."""
    op = rng.choice(family.operations)
    before = rng.randint(0, MOST_BEFORE) if op.steps_before else 0
    after = rng.randint(0, MOST_AFTER) if op.interval is not None else 0
    if op.atoms == ():
        before = rng.randint(1, 3)
        after = 0
    return Workload(
        op,
        rng.choice(op.choices),
        tuple(_draw_step(rng) for _ in range(before)),
        tuple(_draw_step(rng) for _ in range(after)),
        rng.choice(op.dtypes),
    )


def _draw_step(rng: random.Random) -> Step:
    op = rng.choice((*UNARY_OPS.values(), *SCALAR_OPS.values()))
    return Step(op, rng.choice(op.constants))


def _pointless(workload: Workload) -> bool:
    """Whether the steps change nothing, as a factor before a cosine, or hide each other."""
    chain = workload.after
    hidden = any(a.op.name == "leakyrelu" and b.op.atoms == ("clip",) for a, b in pairwise(chain))
    return hidden or (workload.op.atoms != () and canonical_key(workload) == workload.core_atoms)


def _identity(workload: Workload) -> tuple[object, ...]:
    """Equal for workloads that are the same function, or nearly so."""
    constants = sorted(c for s in (*workload.before, *workload.after) for c in s.constants)
    key = canonical_key(workload)
    return workload.op.name, workload.params, workload.dtype, key, tuple(constants)
