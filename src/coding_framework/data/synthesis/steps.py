"""The algebra of elementwise steps: what each computes in PyTorch, and where it may.

A step maps the running value `v` to the next one, alone (`relu`), with constants (`mul2`) or with
another input (`add`: the matrix y; `addrow`: a row vector; ...). Guaranteed by the intervals: in an
accepted function every step stays inside its domain for all declared inputs, and every step changes
the result on a good part of them (no relu of a square, no clamp that never cuts).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Literal

from coding_framework.data.ops.elementwise import LIMIT, Constants, Drawn, drawn_of

Operand = Literal["full", "row", "col", "scalar"]
OPERANDS: tuple[Operand, ...] = ("full", "row", "col", "scalar")


@dataclass(frozen=True, slots=True)
class Interval:
    """Where a value lies: always in [low, high], typically in [typical_low, typical_high].

    They differ after a reduction: the mean of 500 values in [-4, 4] can be 4, and never is.
    """

    low: float
    high: float
    typical_low: float
    typical_high: float

    @classmethod
    def of(cls, low: float, high: float) -> Interval:
        """An interval all of which is typical."""
        return cls(low, high, low, high)

    @property
    def middle(self) -> float:
        """Of the typical values."""
        return (self.typical_low + self.typical_high) / 2

    @property
    def width(self) -> float:
        """Of the typical values."""
        return self.typical_high - self.typical_low

    @property
    def largest(self) -> float:
        """The largest magnitude that a value can have."""
        return max(abs(self.low), abs(self.high))

    @property
    def usual(self) -> float:
        """The largest magnitude that is typical."""
        return max(abs(self.typical_low), abs(self.typical_high))


@cache
def ops_of(*kinds: str) -> Mapping[str, Drawn]:
    """The elementwise operations of these kinds, by name."""
    return {op.name: op for op in drawn_of(*kinds)}


UNARY = ("math", "activation")


@dataclass(frozen=True, slots=True)
class Step:
    """An operation with its constants, or with the kind of its other input."""

    op: Drawn
    constants: Constants = ()
    operand: Operand | None = None

    @property
    def name(self) -> str:
        """Token of the task's name: `relu`, `mul0p5`, `clampm1to1`, `addrow`, `add`."""
        if self.operand is not None:
            return self.op.name + ("" if self.operand == "full" else self.operand)
        return self.op.name + "to".join(_spell(c) for c in self.constants)

    @property
    def key(self) -> str:
        """The operation without its constants, for `Task.ops`."""
        if self.operand is not None:
            return f"{self.op.name}_{self.operand}"
        return f"{self.op.name}_const" if self.op.kind == "scalar" else self.op.name

    def render(self, template: str, value: str, operand: str = "") -> str:
        """One of the op's templates with everything filled in."""
        a, b = (*map(str, self.constants), "", "")[:2]
        return template.format(v=value, a=a, b=b, o=operand)

    def apply(self, value: Interval) -> Interval | None:
        """The result's interval; None where the step leaves its domain or would change nothing."""
        op = self.op
        if value.low < op.domain[0] or value.high > op.domain[1]:
            return None
        if not self._bites(value):
            return None
        low, high = op.span((value.low, value.high), self.constants)
        typical = op.span((value.typical_low, value.typical_high), self.constants)
        if max(abs(low), abs(high)) > LIMIT or typical[1] - typical[0] < 0.02:
            return None
        return Interval(low, high, *typical)

    def _bites(self, value: Interval) -> bool:
        """Whether a good part of the typical values is cut or bent by this step."""
        low, high = value.typical_low, value.typical_high
        margin = 0.1 * (high - low)
        if self.op.name in ("clampmin", "clampmax", "clamp"):
            edges = [c for c in self.constants if low + margin < c < high - margin]
            return len(edges) == len(self.constants)
        if self.op.name in ("max", "min"):
            other_low, other_high = self.op.operand_range
            return low < other_high - margin and high > other_low + margin
        if self.op.live is None:
            return True
        live_low, live_high = self.op.live
        if live_low == live_high:
            return low + margin < live_low < high - margin
        return low < live_high and high > live_low and high - low > 0.25


def through(steps: Iterable[Step], value: Interval | None) -> Interval | None:
    """Where a value lies behind steps; None where one of them leaves its domain."""
    for step in steps:
        value = step.apply(value) if value is not None else None
    return value


_AFFINE = {"add": "shift", "sub": "shift", "mul": "scale", "div": "scale", "neg": "scale"}
_REDUNDANT = {
    ("exp", "log"), ("log", "exp"), ("square", "sqrt"), ("sqrt", "square"), ("neg", "abs"),
    ("neg", "square"), ("abs", "square"), ("recip", "recip"), ("recip", "rdiv"), ("rdiv", "recip"),
    ("expm1", "log1p"), ("log1p", "expm1"), ("neg", "rsub"), ("rsub", "neg"), ("rsub", "rsub"),
    ("rdiv", "rdiv"), ("mul", "neg"), ("neg", "mul"), ("recip", "mul"), ("mul", "rdiv"),
}  # fmt: skip


def has_redundant(steps: Sequence[Step]) -> bool:
    """Whether one step says what two neighbours do: x * 2 * 3, exp(log(x)), relu(relu(x))."""
    return any(_is_redundant(one.op, other.op) for one, other in pairwise(steps))


def _is_redundant(first: Drawn, second: Drawn) -> bool:
    if "operand" in (first.kind, second.kind):
        return False
    a, b = first.name, second.name
    same_affine = a in _AFFINE and _AFFINE[a] == _AFFINE.get(b)
    both_clip = first.atoms == ("clip",) == second.atoms
    return a == b or same_affine or both_clip or (a, b) in _REDUNDANT


def _spell(constant: float) -> str:
    """0.5 as `0p5`, -1.0 as `m1`: safe in file names."""
    text = f"{constant:g}"
    return text.replace("-", "m").replace(".", "p")


def _constant(text: str) -> float | None:
    try:
        value = float(text.replace("m", "-").replace("p", "."))
    except ValueError:
        return None
    return value if _spell(value) == text else None


@cache
def plain_steps() -> Mapping[str, Step]:
    """Those without constants, by name."""
    steps = [Step(op) for op in ops_of(*UNARY).values() if op.constants == ((),)]
    others = ops_of("operand").values()
    steps += [Step(op, operand=kind) for op in others for kind in OPERANDS]
    return {step.name: step for step in steps}


def parse_step(token: str) -> Step | None:
    """The step that a name's token stands for; None where there is none."""
    if token in plain_steps():
        return plain_steps()[token]
    for ops in (ops_of("scalar"), ops_of(*UNARY)):
        for base in sorted(ops, key=len, reverse=True):
            if not token.startswith(base):
                continue
            constants = [_constant(part) for part in token.removeprefix(base).split("to")]
            wanted = len(ops[base].constants[0])
            if wanted == len(constants) and all(c is not None for c in constants):
                return Step(ops[base], tuple(c for c in constants if c is not None))
    return None
