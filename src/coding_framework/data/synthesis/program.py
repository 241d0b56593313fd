"""A task's function as data: steps, at most one change of shape, steps.

The name is the program: `mul2_add_relu` is relu(x * 2 + y), `exp_rowsum_log` is log(sum(exp(x)))
along rows. So every name that parses is a task, in the catalogue or not.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, chain, pairwise
from typing import Literal

from coding_framework.data.synthesis.interval import Interval, Operand
from coding_framework.data.synthesis.ops import Step, parse_step

Layout = Literal["map", "rowsum", "rowmean", "rowmax", "rowmin", "transpose", "cumsum", "cummax"]

REDUCTIONS: tuple[Layout, ...] = ("rowsum", "rowmean", "rowmax", "rowmin")
SCANS: tuple[Layout, ...] = ("cumsum", "cummax")
SHAPE_OPS: tuple[Layout, ...] = (*REDUCTIONS, *SCANS, "transpose")

INPUT_RANGES = ((-4.0, 4.0), (-2.0, 2.0), (-1.0, 1.0), (0.25, 4.0), (0.5, 2.0))
"""Domains of x, widest first: a program gets the first on which all its steps are valid."""

REDUCED_LENGTH = 8192
"""The longest reduction of any shape set: bounds of sums hold for it."""

_FULL_NAMES = ("y", "z", "w")
_OPERAND_NAMES: dict[Operand, str] = {"row": "b", "col": "c", "scalar": "s"}


@dataclass(frozen=True, slots=True)
class Operation:
    """A step with the input that it reads beside the value: "y", "b", ..., or ""."""

    step: Step
    operand: str


@dataclass(frozen=True, slots=True)
class Program:
    """`before` on each element, then `layout`, then `after` on each element."""

    before: tuple[Step, ...]
    layout: Layout = "map"
    after: tuple[Step, ...] = ()

    @property
    def name(self) -> str:
        shape = () if self.layout == "map" else (self.layout,)
        return "_".join((*(s.name for s in self.before), *shape, *(s.name for s in self.after)))

    @property
    def ops(self) -> tuple[str, ...]:
        """The composition without constants."""
        shape = () if self.layout == "map" else (self.layout,)
        return (*(s.key for s in self.before), *shape, *(s.key for s in self.after))

    @property
    def steps(self) -> tuple[Step, ...]:
        return self.before + self.after

    @property
    def operands(self) -> tuple[tuple[str, Step], ...]:
        """(input name, the step that reads it), in the order of `forward` after x."""
        return tuple((o.operand, o.step) for o in self.bind() if o.operand)

    def bind(self) -> tuple[Operation, ...]:
        """The steps of `before` with the names of their inputs: y, z for matrices; b, c, s."""
        full = iter(_FULL_NAMES)
        return tuple(
            Operation(
                s,
                ""
                if s.operand is None
                else (next(full) if s.operand == "full" else _OPERAND_NAMES[s.operand]),
            )
            for s in self.before
        )

    def input_range(self) -> tuple[float, float] | None:
        """The widest declared domain of x on which the program is valid; None: on none."""
        return _input_range(self)

    def find_input_range(self) -> tuple[float, float] | None:
        """`input_range`, computed."""
        if not self._well_formed():
            return None
        return next((r for r in INPUT_RANGES if self._output(Interval.of(*r)) is not None), None)

    def _well_formed(self) -> bool:
        if self.layout == "map" and (self.after or not self.before):
            return False
        if any(s.operand is not None for s in self.after):
            return False
        counts = [s.operand for s in self.before if s.operand is not None]
        single = all(counts.count(kind) <= 1 for kind in _OPERAND_NAMES)
        if counts.count("full") > 2 or not single:
            return False
        halves = (self.before, self.after)
        return not any(_redundant(a, b) for half in halves for a, b in pairwise(half))

    def _output(self, value: Interval) -> Interval | None:
        result: Interval | None = value
        for step in self.before:
            result = step.apply(result) if result is not None else None
        result = _reshape(self.layout, result) if result is not None else None
        for step in self.after:
            result = step.apply(result) if result is not None else None
        return result


@lru_cache(maxsize=65536)
def _input_range(program: Program) -> tuple[float, float] | None:
    return program.find_input_range()


_AFFINE = {"add": "shift", "sub": "shift", "mul": "scale", "div": "scale", "neg": "scale"}
_REDUNDANT = {
    ("exp", "log"), ("log", "exp"), ("square", "sqrt"), ("sqrt", "square"), ("neg", "abs"),
    ("neg", "square"), ("abs", "square"), ("recip", "recip"), ("recip", "rdiv"), ("rdiv", "recip"),
    ("expm1", "log1p"), ("log1p", "expm1"), ("neg", "rsub"), ("rsub", "neg"), ("rsub", "rsub"),
    ("rdiv", "rdiv"), ("mul", "neg"), ("neg", "mul"), ("recip", "mul"), ("mul", "rdiv"),
}  # fmt: skip


def _redundant(first: Step, second: Step) -> bool:
    """Two neighbours that one step says: x * 2 * 3, exp(log(x)), relu(relu(x)), add then sub."""
    if first.op.kind == "operand" or second.op.kind == "operand":
        return False
    a, b = first.op.name, second.op.name
    same_affine = a in _AFFINE and _AFFINE[a] == _AFFINE.get(b)
    both_clip = first.op.atoms == ("clip",) == second.op.atoms
    return a == b or same_affine or both_clip or (a, b) in _REDUNDANT


_SAMPLES = 4
"""Rows and columns of the matrix on which programs are compared."""


def fingerprint(program: Program) -> tuple[float, ...]:
    """Values of the function on a fixed 4 x 4 input, rounded to 6 digits: equal functions have
    equal fingerprints. Operands are fixed too, by name. Needs a valid program."""
    low, high = program.input_range() or (0.0, 1.0)
    grid = [(r, c) for r in range(_SAMPLES) for c in range(_SAMPLES)]
    x = {(r, c): low + (high - low) * _fraction(0, r, c) for r, c in grid}
    for operation in program.bind():
        x = {at: _point(operation.step, x[at], operation.operand, *at) for at in grid}
    values = [_rowwise(program.layout, [x[r, c] for c in range(_SAMPLES)]) for r in range(_SAMPLES)]
    if program.layout == "transpose":
        values = [list(column) for column in zip(*values, strict=True)]
    flat = list(chain.from_iterable(values))
    for step in program.after:
        flat = [_point(step, v, "", 0, 0) for v in flat]
    return tuple(float(f"{v:.6g}") + 0.0 for v in flat)


def _fraction(which: int, r: int, c: int) -> float:
    """A fixed number in (0, 1) for an element of an input; golden-ratio steps never repeat."""
    return (0.5 + 0.61803398875 * (1 + r * _SAMPLES + c) + 0.3183 * which) % 1.0


def _point(step: Step, value: float, operand: str, r: int, c: int) -> float:
    """The step at one point: its span of a degenerate interval."""
    low, high = step.op.operand_range
    place = {"b": (0, c), "c": (r, 0), "s": (0, 0)}.get(operand, (r, c))
    y = low + (high - low) * _fraction(1 + "yzwbcs".find(operand), *place)
    return step.op.span((value, value), step.constants, (y, y))[0]


def _rowwise(layout: Layout, row: list[float]) -> list[float]:
    match layout:
        case "map" | "transpose":
            return row
        case "rowsum":
            return [sum(row)]
        case "rowmean":
            return [sum(row) / len(row)]
        case "rowmax":
            return [max(row)]
        case "rowmin":
            return [min(row)]
        case "cumsum":
            return list(accumulate(row))
        case "cummax":
            return list(accumulate(row, max))


def _reshape(layout: Layout, v: Interval) -> Interval | None:
    """Interval after the change of shape. Typical values assume independent elements."""
    width = v.typical_high - v.typical_low
    middle = (v.typical_high + v.typical_low) / 2
    n = REDUCED_LENGTH
    match layout:
        case "map" | "transpose" | "cummax":
            return v
        case "rowsum" | "cumsum":
            low, high = min(v.low * n, v.low), max(v.high * n, v.high)
            typical = (middle * 256 - 8 * width, middle * 256 + 8 * width)
            return Interval(low, high, *typical)
        case "rowmean":
            return Interval(v.low, v.high, middle - width / 16, middle + width / 16)
        case "rowmax":
            return Interval(v.low, v.high, middle + width / 4, v.typical_high)
        case "rowmin":
            return Interval(v.low, v.high, v.typical_low, middle - width / 4)


def parse_program(name: str) -> Program | None:
    """The valid program of that name; None where a token, the form or the domain is wrong."""
    tokens = name.split("_")
    shape = [(i, t) for i, t in enumerate(tokens) if t in SHAPE_OPS]
    if len(shape) > 1:
        return None
    cut = shape[0][0] if shape else len(tokens)
    before = [parse_step(t) for t in tokens[:cut]]
    after = [parse_step(t) for t in tokens[cut + 1 :]]
    if any(s is None for s in chain(before, after)):
        return None
    program = Program(
        before=tuple(s for s in before if s is not None),
        layout=next((layout for layout in SHAPE_OPS if shape and shape[0][1] == layout), "map"),
        after=tuple(s for s in after if s is not None),
    )
    return program if program.input_range() is not None else None
