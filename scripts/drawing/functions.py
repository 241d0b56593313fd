"""Draws the functions of the catalogue, by name."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise, product

from coding_framework.data.synthesis.canonical import canonical_key
from coding_framework.data.synthesis.catalog import (
    PROGRAMS,
    WORKLOADS,
    Family,
    family_of,
    primitives,
)
from coding_framework.data.synthesis.function import Function, fingerprint
from coding_framework.data.synthesis.steps import UNARY, Operand, Step, ops_of

MOST_BEFORE, MOST_AFTER = 1, 2
"""Steps that are drawn around a workload's core; names may carry more."""

# --- drawing programs: no two have equal values ---------------------------------------------------


def programs(seed: int = 0, per_family: int = 60) -> list[str]:
    """Names of the primitives, then of up to `per_family` composed ones a family, no two equal."""
    chosen = {p.name: p for p in primitives()}
    values = {fingerprint(p) for p in chosen.values()}
    for family in PROGRAMS:
        rng = random.Random(f"{family.name}:{seed}")
        found = 0
        for _ in range(200 * per_family):
            if found == per_family:
                break
            program = _draw_program(family, rng)
            if program.name in chosen or program.input_range() is None:
                continue
            if family_of(program) is not family or fingerprint(program) in values:
                continue
            chosen[program.name] = program
            values.add(fingerprint(program))
            found += 1
    return list(chosen)


def _draw_program(family: Family, rng: random.Random) -> Function:
    """A random program of the family's form; not yet known to be valid."""
    before = _draw_steps(family.kinds, rng.randint(*family.lengths), family.operands, rng)
    core = rng.choice(family.cores)
    after = _draw_steps(family.kinds, rng.randint(0, family.after), family.after_operands, rng)
    return Function(before, core, after)


def _draw_steps(
    kinds: tuple[str, ...], count: int, operands: tuple[Operand, ...], rng: random.Random
) -> tuple[Step, ...]:
    steps = [_draw_step(kinds, rng) for _ in range(count)]
    for operand in operands:
        op = rng.choice(list(ops_of("operand").values()))
        steps.insert(rng.randint(0, len(steps)), Step(op, operand=operand))
    return tuple(steps)


def _draw_step(kinds: tuple[str, ...], rng: random.Random) -> Step:
    op = rng.choice([op for op in ops_of(*UNARY, "scalar").values() if op.kind in kinds])
    return Step(op, rng.choice(op.constants))


# --- drawing workloads: no two have the same graph of ops and the same constants ------------------


def workloads(seed: int = 0, per_family: int = 40) -> list[str]:
    """Names of every core alone with every choice of parameters and dtypes, then of compositions
    drawn until a family has `per_family` members, or no more are found."""
    chosen: list[str] = []
    for family in WORKLOADS:
        members = {_identity(w): w for w in _alone(family)}
        rng = random.Random(f"{family.name}:{seed}")
        for _ in range(100 * per_family):
            if len(members) >= per_family:
                break
            drawn = _draw_workload(family, rng)
            if drawn.input_range() is not None and not _pointless(drawn):
                members.setdefault(_identity(drawn), drawn)
        chosen += [member.name for member in members.values()][: max(per_family, 1)]
    return chosen


def _alone(family: Family) -> Iterator[Function]:
    for core in family.cores:
        for params, dtype in product(core.choices, core.dtypes):
            workload = Function((), core, (), params, dtype)
            if core.atoms != () and workload.input_range() is not None:
                yield workload


def _draw_workload(family: Family, rng: random.Random) -> Function:
    """A random member; not yet known to be valid."""
    core = rng.choice(family.cores)
    before = rng.randint(0, MOST_BEFORE) if core.steps_before else 0
    after = rng.randint(0, MOST_AFTER) if core.interval is not None else 0
    if core.atoms == ():
        before, after = rng.randint(1, 3), 0
    params = rng.choice(core.choices)
    steps = [_draw_step((*UNARY, "scalar"), rng) for _ in range(before + after)]
    dtype = rng.choice(core.dtypes)
    return Function(tuple(steps[:before]), core, tuple(steps[before:]), params, dtype)


def _pointless(workload: Function) -> bool:
    """Whether the steps change nothing, as a factor before a cosine, or hide each other."""
    ops = [step.op for step in workload.after]
    hidden = any(a.name == "leakyrelu" and b.atoms == ("clip",) for a, b in pairwise(ops))
    return hidden or (workload.core.atoms != () and canonical_key(workload) == workload.core_atoms)


def _identity(workload: Function) -> tuple[object, ...]:
    """Equal for workloads that are the same function, or nearly so."""
    constants = sorted(c for s in (*workload.before, *workload.after) for c in s.constants)
    key = canonical_key(workload)
    return workload.core.name, workload.params, workload.dtype, key, tuple(constants)
