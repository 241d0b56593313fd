"""Which programs are tasks: families, the catalogue drawn from them, and the split.

Guaranteed: the catalogue is a function of (seed, per_family); a task's split is a function of its
canonical key alone, so no seed and no constant moves a function across; every op of a held-out task
also occurs in training, alone.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass
from functools import cache, lru_cache

from coding_framework.data import kernels as compiled
from coding_framework.data.kept import kept
from coding_framework.data.synthesis.canonical import canonical_key
from coding_framework.data.synthesis.interval import Operand
from coding_framework.data.synthesis.layouts import LAYOUTS
from coding_framework.data.synthesis.op_table import OPERAND_OPS, SCALAR_OPS, UNARY_OPS
from coding_framework.data.synthesis.ops import Step
from coding_framework.data.synthesis.program import Program, fingerprint, parse_program, spelled
from coding_framework.data.synthesis.reference import make_task
from coding_framework.data.synthesis.workloads.base import Workload
from coding_framework.data.synthesis.workloads.table import (
    FAMILY_OF_OPERATION,
    OPERATIONS,
    WORKLOAD_FAMILIES,
    WorkloadFamily,
    parse_workload,
)
from coding_framework.data.synthesis.workloads.tasks import make_workload_task, workload_catalog
from coding_framework.types import KernelExample, Split, Task

Function = Program | Workload
"""What a synthesised task asks for."""

HELD_OUT_SHARE = 0.25
"""Share of canonical keys, beyond the primitive ones, that are held out."""
_SPLIT_SALT = "coding-framework split 1"


@dataclass(frozen=True, slots=True)
class Family:
    """A kind of task, drawn from: operands first to be placed, then steps of these kinds."""

    name: str
    tier: int
    kinds: tuple[str, ...]
    """Kinds of the other steps: "math", "activation", "scalar"."""
    lengths: tuple[int, int]
    """Fewest and most other steps before the layout."""
    operands: tuple[Operand, ...] = ()
    layouts: tuple[str, ...] = ("map",)
    after: int = 0
    """Most other steps after the layout."""
    after_operands: tuple[Operand, ...] = ()
    """Inputs that steps after the layout read."""
    needs: tuple[str, ...] = ()
    """At least one step must be of these kinds, where given."""


_ANY = ("math", "activation", "scalar")
_REDUCTIONS = ("rowsum", "rowmean", "rowmax", "rowmin")
_NORMS = ("layernorm", "rmsnorm", "unitnorm", "center")

FAMILIES: tuple[Family, ...] = (
    Family("unary", 0, ("math",), (1, 2)),
    Family("activation", 0, ("activation", "math"), (1, 2), needs=("activation",)),
    Family("scalar", 0, ("scalar", "math"), (1, 3), needs=("scalar",)),
    Family("binary", 0, ("math",), (0, 1), operands=("full",)),
    Family("ternary", 0, ("math", "scalar"), (0, 1), operands=("full", "full")),
    Family("chain", 0, _ANY, (2, 4)),
    Family("fused_binary", 0, _ANY, (2, 3), operands=("full",)),
    Family("broadcast_row", 0, _ANY, (0, 2), operands=("row",)),
    Family("broadcast_col", 0, _ANY, (0, 2), operands=("col",)),
    Family("broadcast_scalar", 0, _ANY, (0, 2), operands=("scalar",)),
    Family("row_sum", 1, _ANY, (0, 2), layouts=("rowsum",), after=1),
    Family("row_mean", 1, _ANY, (0, 2), layouts=("rowmean",), after=1),
    Family("row_extremum", 1, _ANY, (0, 2), layouts=("rowmax", "rowmin"), after=1),
    Family("row_dot", 1, ("math", "scalar"), (0, 1), operands=("full",), layouts=_REDUCTIONS),
    Family("transpose", 1, _ANY, (0, 2), layouts=("transpose",), after=1),
    Family("scan", 1, _ANY, (0, 2), layouts=("cumsum", "cummax"), after=1),
    Family("column", 1, _ANY, (0, 2), layouts=("colsum", "colmean", "colmax"), after=1),
    Family("row_statistic", 1, _ANY, (0, 2), layouts=("rowvar", "rownorm", "logsumexp"), after=1),
    Family("loss", 1, ("math", "scalar"), (1, 2), operands=("full",), layouts=("allmean",)),
    Family("softmax", 2, _ANY, (0, 2), layouts=("softmax", "logsoftmax"), after=1),
    Family("normalization", 2, _ANY, (0, 2), layouts=_NORMS, after=1),
    Family("matmul", 2, _ANY, (0, 1), layouts=("matmul",), after=1),
    Family(
        "masked_softmax", 3, ("scalar",), (1, 1), operands=("full",),
        layouts=("softmax", "logsoftmax"),
    ),
    Family("affine_norm", 3, _ANY, (0, 2), layouts=_NORMS, after=1, after_operands=("row", "row")),
    Family("residual_norm", 3, _ANY, (0, 1), operands=("full",), layouts=_NORMS, after=1),
    Family("linear", 3, _ANY, (0, 1), layouts=("matmul",), after=2, after_operands=("row",)),
)  # fmt: skip


def primitives() -> tuple[Program, ...]:
    """Every op alone and every layout alone: always in training."""
    steps = [Step(op) for op in UNARY_OPS.values() if op.constants == ((),)]
    steps += [
        Step(op, constants)
        for op in (*SCALAR_OPS.values(), *UNARY_OPS.values())
        if op.constants != ((),)
        for constants in op.constants
    ]
    kinds: tuple[Operand, ...] = ("full", "row", "col", "scalar")
    steps += [Step(op, operand=kind) for kind in kinds for op in OPERAND_OPS.values()]
    programs = [Program((step,)) for step in steps]
    programs += [Program((), layout) for layout in LAYOUTS if layout != "map"]
    return tuple(p for p in programs if p.input_range() is not None)


@cache
def _primitive_keys() -> frozenset[tuple[str, ...]]:
    return frozenset(canonical_key(p) for p in primitives())


@cache
def _operation_keys() -> frozenset[tuple[str, ...]]:
    """Of workloads' operations alone: always in training, unless their family is held out."""
    return frozenset((op.name,) for op in OPERATIONS.values() if op.atoms is None)


@lru_cache(maxsize=65536)
def split_of(function: Function) -> Split:
    """The side on which every function with this canonical key is."""
    key = canonical_key(function)
    if any(atom in FAMILY_OF_OPERATION and FAMILY_OF_OPERATION[atom].held_out for atom in key):
        return Split.HELD_OUT
    if not key or key in _primitive_keys() or key in _operation_keys():
        return Split.TRAIN
    digest = hashlib.sha256("|".join((_SPLIT_SALT, *key)).encode()).digest()
    drawn = int.from_bytes(digest[:8], "big") / 2**64
    return Split.HELD_OUT if drawn < HELD_OUT_SHARE else Split.TRAIN


def family_names() -> tuple[str, ...]:
    """All families, of programs and of workloads."""
    return (*(f.name for f in FAMILIES), *(f.name for f in WORKLOAD_FAMILIES))


def family_of(function: Function) -> Family | WorkloadFamily:
    """The family of a function; a name outside the catalogue has one too."""
    if isinstance(function, Workload):
        return FAMILY_OF_OPERATION[function.op.name]
    return _family_of_program(function)


@lru_cache(maxsize=65536)
def _family_of_program(program: Program) -> Family:
    """The first family whose form the program has, else the nearest: by its layout alone."""
    exact = next((f for f in FAMILIES if _belongs(program, f)), None)
    return exact or next(f for f in reversed(FAMILIES) if program.layout in f.layouts)


def _belongs(program: Program, family: Family) -> bool:
    before = [s.operand for s in program.before if s.operand is not None]
    after = [s.operand for s in program.after if s.operand is not None]
    kinds = {s.op.kind for s in program.steps if s.operand is None}
    others = len(program.before) - len(before)
    return (
        program.layout in family.layouts
        and sorted(before) == sorted(family.operands)
        and sorted(after) == sorted(family.after_operands)
        and kinds <= set(family.kinds)
        and family.lengths[0] <= others <= family.lengths[1]
        and len(program.after) - len(after) <= family.after
        and (not family.needs or bool(kinds & set(family.needs)))
    )


@lru_cache(maxsize=4096)
def build_task(function: Function) -> Task:
    """The task of a function, without a kernel: reading it takes some tenths of a second."""
    split = split_of(function)
    if isinstance(function, Workload):
        return make_workload_task(function, split)
    family = _family_of_program(function)
    return make_task(function, family=family.name, tier=family.tier, split=split)


def kernels(function: Function) -> tuple[KernelExample, ...]:
    """Naive first, then faster ones with a reason, the best guess last. Correctness is what the
    judge finds (`receipts`)."""
    return compiled.kernels_of(build_task(function))


def parse_function(name: str) -> Function | None:
    """The function that a task's name stands for; None where it is no valid one."""
    return parse_program(name) or parse_workload(name)


def find(name: str) -> Task | None:
    """The task of that name; None where the name is no valid function."""
    function = parse_function(name)
    return build_task(function) if function is not None else None


def kernels_of(task_name: str) -> tuple[KernelExample, ...]:
    """`kernels`; () where the name is no synthesised task."""
    function = parse_function(task_name)
    return kernels(function) if function is not None else ()


def all_functions() -> tuple[Function, ...]:
    """The whole catalogue: programs, then workloads."""
    return (*catalog(), *workload_catalog())


@lru_cache(maxsize=8)
def catalog(seed: int = 0, per_family: int = 60) -> tuple[Program, ...]:
    """Programs: the primitives, then up to `per_family` composed ones a family, no two equal.

    Deterministic by its arguments, and kept between runs by its names.
    """
    names = kept(f"programs-{seed}-{per_family}", lambda: _drawn_names(seed, per_family))
    return tuple(program for program in map(spelled, names) if program is not None)


def _drawn_names(seed: int, per_family: int) -> list[str]:
    """The catalogue, drawn: most of the time goes into finding on what inputs a program is valid,
    and whether it equals another."""
    chosen = {p.name: p for p in primitives()}
    values = {fingerprint(p) for p in chosen.values()}
    for family in FAMILIES:
        rng = random.Random(f"{family.name}:{seed}")
        found = 0
        for _ in range(200 * per_family):
            if found == per_family:
                break
            program = _draw(family, rng)
            if program.name in chosen or program.input_range() is None:
                continue
            if _family_of_program(program) is not family or fingerprint(program) in values:
                continue
            chosen[program.name] = program
            values.add(fingerprint(program))
            found += 1
    return list(chosen)


def _draw(family: Family, rng: random.Random) -> Program:
    """A random program of the family's form; not yet known to be valid."""
    before = _draw_steps(family.kinds, rng.randint(*family.lengths), family.operands, rng)
    layout = rng.choice(family.layouts)
    after = _draw_steps(family.kinds, rng.randint(0, family.after), family.after_operands, rng)
    return Program(before, layout, after)


def _draw_steps(
    kinds: tuple[str, ...], count: int, operands: tuple[Operand, ...], rng: random.Random
) -> tuple[Step, ...]:
    steps = [_draw_step(kinds, rng) for _ in range(count)]
    for operand in operands:
        op = rng.choice(list(OPERAND_OPS.values()))
        steps.insert(rng.randint(0, len(steps)), Step(op, operand=operand))
    return tuple(steps)


def _draw_step(kinds: tuple[str, ...], rng: random.Random) -> Step:
    pool = [op for op in (*UNARY_OPS.values(), *SCALAR_OPS.values()) if op.kind in kinds]
    op = rng.choice(pool)
    return Step(op, rng.choice(op.constants))
