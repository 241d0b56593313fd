"""A task's function as data: steps, at most one change of shape, steps.

The name is the program: `mul2_add_relu` is relu(x * 2 + y), `exp_rowsum_log` is log(sum(exp(x)))
along rows. So every name that parses is a task, in the catalogue or not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, pairwise

from coding_framework.data.synthesis.interval import Interval, Operand
from coding_framework.data.synthesis.layouts import (
    LAYOUTS,
    MATRIX_RANGE,
    Form,
    Layout,
    Matrix,
    right_matrix,
)
from coding_framework.data.synthesis.ops import Step, parse_step, through
from coding_framework.data.synthesis.variety import answer_varies

INPUT_RANGES = ((-4.0, 4.0), (-2.0, 2.0), (-1.0, 1.0), (0.25, 4.0), (0.5, 2.0))
"""Domains of x, widest first: a program gets the first on which all its steps are valid."""

OPERAND_NAMES: dict[Operand, tuple[str, ...]] = {
    "full": ("y", "z"),
    "row": ("b", "g"),
    "col": ("c",),
    "scalar": ("s",),
}
"""Names of the inputs of each kind, in the order in which steps read them."""

_AFTER: dict[Form, tuple[Operand, ...]] = {
    "normalize": ("full", "row", "scalar"),
    "matmul": ("row",),
}
"""Kinds of inputs that steps after the layout may read; others: none."""


@dataclass(frozen=True, slots=True)
class Operation:
    """A step with the input that it reads beside the value: "y", "b", ..., or ""."""

    step: Step
    operand: str = ""


@dataclass(frozen=True, slots=True)
class Input:
    """An input after x, in the order of `forward`."""

    name: str
    kind: Operand | None
    """None: the right-hand matrix of a product."""
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Program:
    """`before` on each element, then `layout`, then `after` on each element."""

    before: tuple[Step, ...]
    layout: str = "map"
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
    def spec(self) -> Layout:
        return LAYOUTS[self.layout]

    @property
    def steps(self) -> tuple[Step, ...]:
        return self.before + self.after

    @property
    def inputs(self) -> tuple[Input, ...]:
        """The inputs after x, in the order in which they are read."""
        before, after = self.bind()
        found = [_input_of(o) for o in before if o.operand]
        if self.spec.form == "matmul":
            found.append(Input("u", None, *MATRIX_RANGE))
        return (*found, *(_input_of(o) for o in after if o.operand))

    @property
    def core_atoms(self) -> tuple[str, ...]:
        """What stands for the layout in the canonical key."""
        return self.spec.atoms

    def bind(self) -> tuple[tuple[Operation, ...], tuple[Operation, ...]]:
        """The steps before and after the layout with the names of their inputs."""
        names = {kind: iter(given) for kind, given in OPERAND_NAMES.items()}

        def bound(steps: tuple[Step, ...]) -> Iterator[Operation]:
            for step in steps:
                yield Operation(step, "" if step.operand is None else next(names[step.operand]))

        before = tuple(bound(self.before))
        return before, tuple(bound(self.after))

    def input_range(self) -> tuple[float, float] | None:
        """The widest declared domain of x on which the program is valid; None: on none, or its
        answer hardly varies there (see variety.py)."""
        return _input_range(self)

    def find_input_range(self) -> tuple[float, float] | None:
        """`input_range`, computed."""
        if not self._well_formed():
            return None
        widest = next((r for r in INPUT_RANGES if self._output(Interval.of(*r)) is not None), None)
        return widest if widest is not None and self._varies(widest) else None

    def _well_formed(self) -> bool:
        form = self.spec.form
        if form == "map" and (self.after or not self.before):
            return False
        if form == "all" and self.after:
            return False
        before = [s.operand for s in self.before if s.operand is not None]
        after = [s.operand for s in self.after if s.operand is not None]
        if form == "matmul" and before:
            return False
        if not set(after) <= set(_AFTER.get(form, ())):
            return False
        used = before + after
        if any(used.count(kind) > len(names) for kind, names in OPERAND_NAMES.items()):
            return False
        halves = (self.before, self.after)
        return not any(is_redundant(a, b) for half in halves for a, b in pairwise(half))

    def _varies(self, domain: tuple[float, float]) -> bool:
        before, after = (tuple((o.step, o.operand) for o in half) for half in self.bind())
        return answer_varies(before, self.spec, after, domain)

    def _output(self, value: Interval) -> Interval | None:
        result = through(self.before, value)
        return through(self.after, self.spec.interval(result) if result is not None else None)


def _input_of(operation: Operation) -> Input:
    return Input(operation.operand, operation.step.operand, *operation.step.op.operand_range)


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


def is_redundant(first: Step, second: Step) -> bool:
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
    matrix = sample_input("x", *(program.input_range() or (0.0, 1.0)))
    before, after = program.bind()
    matrix = program.spec.values(_applied(before, matrix))
    flat = chain.from_iterable(_applied(after, matrix))
    return tuple(float(f"{v:.6g}") + 0.0 for v in flat)


def sample_input(name: str, low: float, high: float) -> Matrix:
    """The fixed input of that name, as a full matrix: a row vector is its first row, a column
    vector its first column, a scalar its first element."""
    if name == "u":
        return right_matrix()
    which = "xyzbgcs".find(name)
    steps = [
        [0.61803398875 * (1 + r * _SAMPLES + c) + 0.3183 * which for c in range(_SAMPLES)]
        for r in range(_SAMPLES)
    ]  # golden-ratio steps never repeat
    return [[low + (high - low) * ((0.5 + v) % 1.0) for v in row] for row in steps]


_PLACES = {"b": (0, 1), "g": (0, 1), "c": (1, 0), "s": (0, 0)}
"""By which of (row, column) an operand is indexed; others by both."""


def _applied(operations: tuple[Operation, ...], matrix: Matrix) -> Matrix:
    for operation in operations:
        step, name = operation.step, operation.operand
        other = sample_input(name, *step.op.operand_range)
        by_row, by_column = _PLACES.get(name, (1, 1))
        matrix = [
            [
                step.op.span((v, v), step.constants, (y := other[r * by_row][c * by_column], y))[0]
                for c, v in enumerate(row)
            ]
            for r, row in enumerate(matrix)
        ]
    return matrix


def parse_program(name: str) -> Program | None:
    """The valid program of that name; None where a token, the form or the domain is wrong."""
    program = spelled(name)
    return program if program is not None and program.input_range() is not None else None


def spelled(name: str) -> Program | None:
    """The program of that name, not yet known to be valid; None where a token is wrong."""
    tokens = name.split("_")
    shape = [i for i, token in enumerate(tokens) if token in LAYOUTS and token != "map"]
    if len(shape) > 1:
        return None
    cut = shape[0] if shape else len(tokens)
    before = [parse_step(t) for t in tokens[:cut]]
    after = [parse_step(t) for t in tokens[cut + 1 :]]
    if any(s is None for s in chain(before, after)):
        return None
    return Program(
        before=tuple(s for s in before if s is not None),
        layout=tokens[cut] if shape else "map",
        after=tuple(s for s in after if s is not None),
    )
