"""Which functions are tasks: families, names, the catalogue, the split.

To add a core: a row in the module of its kind in `cores/`, its family here; then
`scripts/draw_tasks.py` draws the names of the catalogue (`functions.txt`). The tests check its
source, its kernels and its split against each other.

Guaranteed: a task's split is a function of its canonical key alone, so no draw and no constant
moves a function across; every op of a held-out task also occurs in training, alone.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from coding_framework.data.synthesis.canonical import canonical_key
from coding_framework.data.synthesis.cores import places, products, rows
from coding_framework.data.synthesis.cores.rows import LAYOUTS, MAP
from coding_framework.data.synthesis.function import (
    DTYPE_TOKENS,
    Core,
    Function,
    Params,
)
from coding_framework.data.synthesis.steps import OPERANDS, UNARY, Operand, Step, ops_of, parse_step
from coding_framework.data.synthesis.tasks import describe, make_task
from coding_framework.types import Split, Task

HELD_OUT_SHARE = 0.25
"""Share of canonical keys, beyond the primitive ones, that are held out."""
_SPLIT_SALT = "coding-framework split 1"
NAMES_PATH = Path(__file__).with_name("functions.txt")
"""The catalogue by name: programs, then workloads."""


# --- families -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Family:
    """A kind of task: cores that are learnt together. Where `kinds` says so, it is drawn as a
    program: operands first to be placed, then steps of these kinds."""

    name: str
    tier: int
    cores: tuple[Core, ...]
    kinds: tuple[str, ...] = ()
    """Kinds of the other steps: "math", "activation", "scalar"."""
    lengths: tuple[int, int] = (0, 0)
    """Fewest and most other steps before the core."""
    operands: tuple[Operand, ...] = ()
    after: int = 0
    """Most other steps after the core."""
    after_operands: tuple[Operand, ...] = ()
    """Inputs that steps after the core read."""
    needs: tuple[str, ...] = ()
    """At least one step must be of these kinds, where given."""
    held_out: bool = False
    """Whether no member is ever trained on: what is learnt must carry over to a new kind."""


_ANY = ("math", "activation", "scalar")
_MAP = (MAP,)
_LAYOUT = {core.name: core for core in LAYOUTS}


def _of(layouts: str) -> tuple[Core, ...]:
    return tuple(_LAYOUT[layout] for layout in layouts.split())


_REDUCTIONS = _of("rowsum rowmean rowmax rowmin")
_NORMS = _of("layernorm rmsnorm unitnorm center")
_SOFTMAX = _of("softmax logsoftmax")

PROGRAMS: tuple[Family, ...] = (
    Family("unary", 0, _MAP, ("math",), (1, 2)),
    Family("activation", 0, _MAP, ("activation", "math"), (1, 2), needs=("activation",)),
    Family("scalar", 0, _MAP, ("scalar", "math"), (1, 3), needs=("scalar",)),
    Family("binary", 0, _MAP, ("math",), (0, 1), operands=("full",)),
    Family("ternary", 0, _MAP, ("math", "scalar"), (0, 1), operands=("full", "full")),
    Family("chain", 0, _MAP, _ANY, (2, 4)),
    Family("fused_binary", 0, _MAP, _ANY, (2, 3), operands=("full",)),
    Family("broadcast_row", 0, _MAP, _ANY, (0, 2), operands=("row",)),
    Family("broadcast_col", 0, _MAP, _ANY, (0, 2), operands=("col",)),
    Family("broadcast_scalar", 0, _MAP, _ANY, (0, 2), operands=("scalar",)),
    Family("row_sum", 1, _of("rowsum"), _ANY, (0, 2), after=1),
    Family("row_mean", 1, _of("rowmean"), _ANY, (0, 2), after=1),
    Family("row_extremum", 1, _of("rowmax rowmin"), _ANY, (0, 2), after=1),
    Family("row_dot", 1, _REDUCTIONS, ("math", "scalar"), (0, 1), operands=("full",)),
    Family("transpose", 1, _of("transpose"), _ANY, (0, 2), after=1),
    Family("scan", 1, _of("cumsum cummax"), _ANY, (0, 2), after=1),
    Family("column", 1, _of("colsum colmean colmax"), _ANY, (0, 2), after=1),
    Family("row_statistic", 1, _of("rowvar rownorm logsumexp"), _ANY, (0, 2), after=1),
    Family("loss", 1, _of("allmean"), ("math", "scalar"), (1, 2), operands=("full",)),
    Family("softmax", 2, _SOFTMAX, _ANY, (0, 2), after=1),
    Family("normalization", 2, _NORMS, _ANY, (0, 2), after=1),
    Family("matmul", 2, _of("matmul"), _ANY, (0, 1), after=1),
    Family("masked_softmax", 3, _SOFTMAX, ("scalar",), (1, 1), operands=("full",)),
    Family("affine_norm", 3, _NORMS, _ANY, (0, 2), after=1, after_operands=("row", "row")),
    Family("residual_norm", 3, _NORMS, _ANY, (0, 1), operands=("full",), after=1),
    Family("linear", 3, _of("matmul"), _ANY, (0, 1), after=2, after_operands=("row",)),
)
WORKLOADS: tuple[Family, ...] = (
    Family("select", 0, places.SELECT),
    Family("multiply_add", 0, places.MULTIPLY_ADD),
    Family("integer", 0, places.INTEGER),
    Family("low_precision", 0, places.LOW_PRECISION),
    Family("argmax", 1, rows.ARGMAX),
    Family("matvec", 1, rows.MATVEC),
    Family("similarity", 1, rows.SIMILARITY),
    Family("permute", 1, places.PERMUTE),
    Family("middle_reduction", 1, places.MIDDLE_REDUCTION, held_out=True),
    Family("gather", 1, places.GATHER),
    Family("histogram", 1, places.HISTOGRAM),
    Family("batched_matmul", 2, products.BATCHED_MATMUL),
    Family("matmul_transposed", 2, products.MATMUL_TRANSPOSED),
    Family("attention_scores", 2, products.ATTENTION_SCORES),
    Family("pool_1d", 2, products.POOL_1D),
    Family("pool_2d", 2, products.POOL_2D),
    Family("conv_1d", 2, products.CONV_1D),
    Family("conv_2d", 2, products.CONV_2D),
    Family("depthwise_conv", 2, products.DEPTHWISE_CONV, held_out=True),
    Family("group_norm", 2, rows.GROUP_NORM),
    Family("channel_norm", 2, places.CHANNEL_NORM),
    Family("upsample", 2, places.UPSAMPLE),
    Family("glu", 2, places.GLU),
    Family("activation_backward", 3, places.ACTIVATION_BACKWARD),
    Family("optimizer_step", 3, places.OPTIMIZER_STEP),
    Family("cross_entropy", 3, rows.CROSS_ENTROPY),
    Family("row_loss", 3, rows.ROW_LOSS),
    Family("softmax_backward", 3, rows.SOFTMAX_BACKWARD),
    Family("norm_backward", 3, rows.NORM_BACKWARD, held_out=True),
    Family("attention", 3, products.ATTENTION),
    Family("gated_linear", 3, products.GATED_LINEAR),
    Family("conv_block", 3, products.CONV_BLOCK),
    Family("rotary", 3, places.ROTARY),
)
FAMILIES = (*PROGRAMS, *WORKLOADS)
CORES: dict[str, Core] = {c.name: c for f in WORKLOADS for c in f.cores} | _LAYOUT


@lru_cache(maxsize=65536)
def family_of(function: Function) -> Family:
    """The first family whose form the function has, else the nearest: by its core alone."""
    found = [f for f in FAMILIES if function.core in f.cores]
    return next((f for f in found if _belongs(function, f)), found[-1])


def _belongs(function: Function, family: Family) -> bool:
    before, after = (
        sorted(s.operand for s in half if s.operand is not None)
        for half in (function.before, function.after)
    )
    kinds = {s.op.kind for s in (*function.before, *function.after) if s.operand is None}
    return (
        before == sorted(family.operands)
        and after == sorted(family.after_operands)
        and kinds <= set(family.kinds)
        and family.lengths[0] <= len(function.before) - len(before) <= family.lengths[1]
        and len(function.after) - len(after) <= family.after
        and (not family.needs or bool(kinds & set(family.needs)))
    )


def parse_function(name: str) -> Function | None:
    """The function of that name; None where a token, the form or the domain is wrong."""
    function = spelled(name)
    return function if function is not None and function.input_range() is not None else None


def spelled(name: str) -> Function | None:
    """The function of that name, not yet known to be valid; None where a token is wrong."""
    tokens = name.split("_")
    dtype = next((d for d, token in DTYPE_TOKENS.items() if token == tokens[-1]), None)
    if dtype is not None and dtype != "float32":
        tokens = tokens[:-1]
    found = [(i, made) for i, token in enumerate(tokens) if (made := _parse_core(token))]
    if len(found) > 1:
        return None
    place, (core, params) = found[0] if found else (len(tokens), (MAP, ()))
    before, after = _steps(tokens[:place]), _steps(tokens[place + 1 :])
    if before is None or after is None:
        return None
    return Function(before, core, after, params, dtype or "float32")


def _steps(tokens: Sequence[str]) -> tuple[Step, ...] | None:
    found = [parse_step(token) for token in tokens]
    known = tuple(step for step in found if step is not None)
    return known if len(known) == len(found) else None


def _parse_core(token: str) -> tuple[Core, Params] | None:
    if token in CORES and not CORES[token].letters:
        return CORES[token], ()
    for name, core in CORES.items():
        if not core.letters or not token.startswith(name):
            continue
        pattern = "".join(f"{letter}([1-9][0-9]{{0,3}})" for letter in core.letters)
        match = re.fullmatch(pattern, token.removeprefix(name))
        if match is not None:
            return core, tuple(int(value) for value in match.groups())
    return None


# --- the split ----------------------------------------------------------------------------------


def primitives() -> tuple[Function, ...]:
    """Every op alone and every layout alone: always in training."""
    unary = ops_of(*UNARY).values()
    steps = [Step(op) for op in unary if op.constants == ((),)]
    steps += [
        Step(op, constants)
        for op in (*ops_of("scalar").values(), *unary)
        if op.constants != ((),)
        for constants in op.constants
    ]
    steps += [Step(op, operand=kind) for kind in OPERANDS for op in ops_of("operand").values()]
    functions = [Function((step,), MAP) for step in steps]
    functions += [Function((), core) for core in LAYOUTS]
    return tuple(f for f in functions if f.input_range() is not None)


@cache
def _keys_of_training() -> frozenset[tuple[str, ...]]:
    """Of primitives, and of cores alone, unless their family is held out."""
    cores = ((core.name,) for core in CORES.values() if core.atoms is None)
    return frozenset((*map(canonical_key, primitives()), *cores, ()))


@cache
def _never_trained() -> frozenset[str]:
    return frozenset(core.name for f in FAMILIES if f.held_out for core in f.cores)


@lru_cache(maxsize=65536)
def split_of(function: Function) -> Split:
    """The side on which every function with this canonical key is."""
    key = canonical_key(function)
    if not _never_trained().isdisjoint(key):
        return Split.HELD_OUT
    if key in _keys_of_training():
        return Split.TRAIN
    digest = hashlib.sha256("|".join((_SPLIT_SALT, *key)).encode()).digest()
    drawn = int.from_bytes(digest[:8], "big") / 2**64
    return Split.HELD_OUT if drawn < HELD_OUT_SHARE else Split.TRAIN


def family_names() -> tuple[str, ...]:
    """All families, of programs and of workloads."""
    return tuple(family.name for family in FAMILIES)


def facts_of(function: Function) -> dict[str, Any]:
    """What a list of tasks tells of it: fields of `Task`."""
    family = family_of(function)
    return {
        "name": function.name,
        "tier": family.tier,
        "family": family.name,
        "ops": function.ops,
        "description": describe(function),
        "split": split_of(function),
        "source": "synthesis",
    }


@lru_cache(maxsize=4096)
def build_task(function: Function) -> Task:
    """The task of a function, without a kernel: reading it takes some tenths of a second."""
    return make_task(function, facts_of(function))


def find(name: str) -> Task | None:
    """The task of that name; None where the name is no valid function."""
    function = parse_function(name)
    return build_task(function) if function is not None else None


@lru_cache(maxsize=1)
def all_functions() -> tuple[Function, ...]:
    """The whole catalogue: programs, then workloads."""
    names = NAMES_PATH.read_text(encoding="utf-8").split()
    return tuple(function for function in map(spelled, names) if function is not None)


@lru_cache(maxsize=1)
def catalog() -> tuple[Function, ...]:
    """Programs: the primitives, then composed ones."""
    return tuple(f for f in all_functions() if f.core in (MAP, *LAYOUTS))


@lru_cache(maxsize=1)
def workload_catalog() -> tuple[Function, ...]:
    """Every core alone with every choice of parameters and dtypes, then compositions."""
    return tuple(f for f in all_functions() if f.core not in (MAP, *LAYOUTS))
