"""Workloads: functions whose inputs are no plain matrix, or are several that play different parts.

Convolutions, pooling, attention, batched products, losses with labels, backward passes. A workload
is one operation of a table with its parameters, elementwise steps of the algebra around it, and a
dtype; its name is the function, as with programs: `relu_conv2dk3_mul2`, `maxpool2dk3s2_f16`.

Guaranteed: steps stay inside their domain for the declared inputs (the intervals of `interval`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from coding_framework.data.synthesis.interval import Interval
from coding_framework.data.synthesis.ops import Step, through
from coding_framework.data.synthesis.program import INPUT_RANGES, is_redundant
from coding_framework.types import DType, TensorSpec

Params = tuple[int, ...]
Size = tuple[int, ...]
FLOATS: tuple[DType, ...] = ("float32", "float16", "bfloat16")

DTYPE_TOKENS: dict[DType, str] = {"float32": "", "float16": "f16", "bfloat16": "bf16"}
"""Last token of a workload's name; float32 has none."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The shape sets of an operation: main, odd, tiny."""

    axes: str
    """A letter for each number of a size."""
    emulator: tuple[Size, Size, Size]
    gpu: tuple[Size, Size, Size]
    fixed: str = ""
    """Axes that other shapes must share, e.g. channels that come in groups."""


@dataclass(frozen=True, slots=True)
class Given:
    """An input of a workload."""

    name: str
    axes: str = ""
    """Its extents, as `count` reads them; "": those of x."""
    dtype: DType = "float32"
    """float32 stands for the workload's own dtype."""
    low: float = -2.0
    high: float | str = 2.0
    """The largest value; as a text, the extent below which it is."""


def weight(name: str, axes: str) -> Given:
    """A parameter: values in [-1, 1]."""
    return Given(name, axes, low=-1.0, high=1.0)


def count(said: str, known: Mapping[str, int]) -> int:
    """The number that a text says: sums of products of letters and digits, and whole quotients of
    these, as "hwc/g"."""
    total = 0
    for term in said.split("+"):
        above, _, below = term.partition("/")
        numbers = [[known[c] if c in known else int(c) for c in part] for part in (above, below)]
        total += math.prod(numbers[0]) // math.prod(numbers[1])
    return total


@dataclass(frozen=True, slots=True, eq=False)
class WorkloadOp:
    """One operation of the table."""

    name: str
    """Letters and digits; the parameters follow it in a task's name: `maxpool2d` + `k3s2`."""
    torch: str | tuple[str, ...]
    """Lines of `forward`, parameters by letter in braces; the last one is an expression."""
    spoken: str
    """With {v} for x."""
    sizes: Sizes
    others: tuple[Given, ...] = ()
    """The inputs behind x."""
    x: str = ""
    """Extents of x; "": all of the size."""
    x_dtype: DType = "float32"
    x_range: tuple[float, float] | None = None
    """Declared domain of x where the operation itself needs one."""
    interval: Callable[[Interval], Interval] | None = None
    """Of the result, for steps after it; None: no step may follow."""
    steps_before: bool = True
    letters: str = ""
    """One a parameter."""
    choices: tuple[Params, ...] = ((),)
    """That the catalogue draws from; names may carry any others that `check` allows."""
    dtypes: tuple[DType, ...] = FLOATS[:1]
    output: DType | None = None
    """None: the workload's dtype."""
    terms: str = "1"
    """Length of the longest reduction, as `count` reads it."""
    atoms: tuple[str, ...] | None = None
    """For the canonical key: () for the identity, None for an atom of its own name."""
    check: Callable[[Params], bool] = lambda params: all(p >= 1 for p in params)


@dataclass(frozen=True, slots=True)
class Workload:
    """`before` on each element of x, the operation, `after` on each element of its result."""

    op: WorkloadOp
    params: Params = ()
    before: tuple[Step, ...] = ()
    after: tuple[Step, ...] = ()
    dtype: DType = "float32"

    @property
    def name(self) -> str:
        dtype = (DTYPE_TOKENS[self.dtype],) if DTYPE_TOKENS[self.dtype] else ()
        return "_".join(
            (*(s.name for s in self.before), self.token, *(s.name for s in self.after), *dtype)
        )

    @property
    def token(self) -> str:
        """`conv2dk3`."""
        return self.op.name + "".join(
            f"{letter}{value}" for letter, value in zip(self.op.letters, self.params, strict=True)
        )

    @property
    def ops(self) -> tuple[str, ...]:
        """The composition without constants and parameters."""
        dtype = (DTYPE_TOKENS[self.dtype],) if DTYPE_TOKENS[self.dtype] else ()
        return (*(s.key for s in self.before), self.op.name, *(s.key for s in self.after), *dtype)

    @property
    def core_atoms(self) -> tuple[str, ...]:
        """What stands for the operation in the canonical key."""
        return (self.op.name,) if self.op.atoms is None else self.op.atoms

    @property
    def named(self) -> dict[str, int]:
        """The parameters by letter."""
        return dict(zip(self.op.letters, self.params, strict=True))

    def _known(self, size: Size) -> dict[str, int]:
        """What the letters of axes and parameters stand for."""
        return {**dict(zip(self.op.sizes.axes, size, strict=True)), **self.named}

    def specs(self, size: Size) -> tuple[TensorSpec, ...]:
        """The inputs at a size, with their declared domains."""
        op, known = self.op, self._known(size)
        low, high = self.input_range() or (0.0, 1.0)
        own = op.x or " ".join(op.sizes.axes)
        specs = []
        for given in (Given("x", own, op.x_dtype, low, high), *op.others):
            top = given.high
            spec = TensorSpec(
                name=given.name,
                shape=tuple(count(axis, known) for axis in (given.axes or own).split()),
                dtype=self.dtype if given.dtype == "float32" else given.dtype,
                low=given.low,
                high=count(top, known) - 1.0 if isinstance(top, str) else top,
            )
            specs.append(spec)
        return tuple(specs)

    def terms(self, size: Size) -> int:
        """Length of the longest reduction."""
        return max(1, count(self.op.terms, self._known(size)))

    def input_range(self) -> tuple[float, float] | None:
        """The widest declared domain of x on which every step is valid; None: on none."""
        return _input_range(self)

    def find_input_range(self) -> tuple[float, float] | None:
        """`input_range`, computed."""
        if not self._well_formed():
            return None
        ranges = INPUT_RANGES if self.op.x_range is None else (self.op.x_range,)
        return next((r for r in ranges if self._is_valid_on(Interval.of(*r))), None)

    def _well_formed(self) -> bool:
        op = self.op
        steps = (*self.before, *self.after)
        if any(s.operand is not None for s in steps) or self.dtype not in op.dtypes:
            return False
        if (self.before and not op.steps_before) or (self.after and op.interval is None):
            return False
        halves = (self.before, self.after)
        if any(is_redundant(a, b) for half in halves for a, b in pairwise(half)):
            return False
        return len(self.params) == len(op.letters) and op.check(self.params)

    def _is_valid_on(self, value: Interval) -> bool:
        result = through(self.before, value)
        if result is None or self.op.interval is None:
            return result is not None
        return through(self.after, self.op.interval(result)) is not None


@lru_cache(maxsize=65536)
def _input_range(workload: Workload) -> tuple[float, float] | None:
    return workload.find_input_range()


# --- ranges of results ---------------------------------------------------------------------------


def same(v: Interval) -> Interval:
    """The result lies where x does."""
    return v


def sums(terms: int) -> Callable[[Interval], Interval]:
    """Of sums of products with weights in [-1, 1]: bounds hold for up to `terms` terms."""

    def interval(v: Interval) -> Interval:
        bound = terms * max(abs(v.low), abs(v.high))
        usual = 2.0 * max(abs(v.typical_low), abs(v.typical_high))
        return Interval(-bound, bound, -usual, usual)

    return interval


def within(
    low: float, high: float, typical_low: float, typical_high: float
) -> Callable[[Interval], Interval]:
    """The same whatever x is."""
    return lambda v: Interval(low, high, typical_low, typical_high)
