"""A task's function as data: elementwise steps, at most one core that looks further, steps.

The name is the function: `mul2_add_relu` is relu(x * 2 + y), `exp_rowsum_log` is log(sum(exp(x)))
along rows, `conv2dk3_relu_f16` a convolution in half precision. So every name that parses is a
task, in the catalogue or not. Cores are rows of the tables in `cores/`.

Guaranteed: steps stay inside their domain for the declared inputs, and the answer depends on them.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from coding_framework.data.synthesis.steps import Interval, Operand, Step, has_redundant, through
from coding_framework.types import DType, TensorSpec

Params = tuple[int, ...]
Size = tuple[int, ...]
FLOATS: tuple[DType, ...] = ("float32", "float16", "bfloat16")
DTYPE_TOKENS: Mapping[DType, str] = {"float32": "", "float16": "f16", "bfloat16": "bf16"}
"""Last token of a function's name; float32 has none."""
INPUT_RANGES = ((-4.0, 4.0), (-2.0, 2.0), (-1.0, 1.0), (0.25, 4.0), (0.5, 2.0))
"""Domains of x, widest first: a function gets the first on which all its steps are valid."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The shape sets of a core: the one that agents see, an odd one (no multiple of 2 or 4), a tiny
    one."""

    axes: str
    """A letter for each number of a size."""
    emulator: tuple[Size, Size, Size]
    gpu: tuple[Size, Size, Size]
    fixed: str = ""
    """Axes that other shapes must share, e.g. channels that come in groups."""
    varied: bool = False
    """Whether each task has hidden shapes of its own: those of all tasks could be learnt."""


@dataclass(frozen=True, slots=True)
class Given:
    """An input of a function."""

    name: str
    axes: str | None = None
    """Its extents, as `count` reads them; None: those of x."""
    dtype: DType = "float32"
    """float32 stands for the function's own dtype."""
    low: float = -2.0
    high: float | str = 2.0
    """The largest value; as a text, the extent below which it is."""


def weight(name: str, axes: str) -> Given:
    """A parameter: values in [-1, 1]."""
    return Given(name, axes, low=-1.0, high=1.0)


def count(said: str, known: Mapping[str, int]) -> int:
    """The number that a text says: sums of products of letters and digits, and whole quotients of
    these, as "hwc/g"."""
    if said in known:
        return known[said]
    total = 0
    for term in said.split("+"):
        above, _, below = term.partition("/")
        numbers = [[known[c] if c in known else int(c) for c in part] for part in (above, below)]
        total += math.prod(numbers[0]) // math.prod(numbers[1])
    return total


@dataclass(frozen=True, slots=True, eq=False)
class Core:
    """A row of the tables: what a function computes that looks beyond an element."""

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
    """Declared domain of x where the core itself needs one."""
    interval: Callable[[Interval], Interval] | None = None
    """Of the result, for steps after it; None: no step may follow."""
    steps_before: bool = True
    letters: str = ""
    """One a parameter."""
    choices: tuple[Params, ...] = ((),)
    """That the catalogue draws from; names may carry any others that `check` allows."""
    dtypes: tuple[DType, ...] = FLOATS[:1]
    output: DType | None = None
    """None: the function's dtype."""
    terms: str = "1"
    """Length of the longest reduction, as `count` reads it."""
    atoms: tuple[str, ...] | None = None
    """For the canonical key: () for the identity, None for an atom of its own name."""
    check: Callable[[Params], bool] = lambda params: all(p >= 1 for p in params)
    values: Callable[[Any], Any] | None = None
    """Of the result, in numpy; None: PyTorch says it."""
    operands: tuple[bool, tuple[Operand, ...]] = (False, ())
    """Whether steps before it read other inputs, and which kinds of them those behind it read."""
    any_order: bool = False
    """Whether sums may be joined by atomic additions."""


NAMES: Mapping[Operand, tuple[str, ...]] = {
    "full": ("y", "z"), "row": ("b", "g"), "col": ("c",), "scalar": ("s",),
}  # fmt: skip
"""Names of the inputs of each kind, in the order in which steps read them."""
Bound = tuple[Step, str]
"""A step with the input that it reads beside the value: "y", "b", ..., or ""."""


@dataclass(frozen=True, slots=True)
class Function:
    """`before` on each element of x, the core, `after` on each element of its result."""

    before: tuple[Step, ...]
    core: Core
    after: tuple[Step, ...] = ()
    params: Params = ()
    dtype: DType = "float32"

    @property
    def name(self) -> str:
        token = self.core.name + "".join(f"{k}{value}" for k, value in self.named.items())
        return "_".join(self._tokens([s.name for s in self.before], token,
                                     [s.name for s in self.after]))  # fmt: skip

    @property
    def ops(self) -> tuple[str, ...]:
        """The composition without constants and parameters."""
        return self._tokens([s.key for s in self.before], self.core.name,
                            [s.key for s in self.after])  # fmt: skip

    def _tokens(self, before: list[str], core: str, after: list[str]) -> tuple[str, ...]:
        return tuple(t for t in (*before, core, *after, DTYPE_TOKENS[self.dtype]) if t)

    @property
    def core_atoms(self) -> tuple[str, ...]:
        """What stands for the core in the canonical key."""
        return (self.core.name,) if self.core.atoms is None else self.core.atoms

    @property
    def named(self) -> dict[str, int]:
        """The parameters by letter."""
        return dict(zip(self.core.letters, self.params, strict=True))

    def bind(self) -> tuple[tuple[Bound, ...], tuple[Bound, ...]]:
        """The steps before and after the core with the names of their inputs."""
        names = {kind: iter(given) for kind, given in NAMES.items()}
        before, after = (
            tuple((s, "" if s.operand is None else next(names[s.operand])) for s in half)
            for half in (self.before, self.after)
        )
        return before, after

    @property
    def inputs(self) -> tuple[Given, ...]:
        """The inputs after x, in the order in which they are read."""
        before, after = self.bind()
        return (*self._operands(before), *self.core.others, *self._operands(after))

    def _operands(self, steps: Sequence[Bound]) -> Iterator[Given]:
        last = self.core.sizes.axes[-1]
        axes: Mapping[Operand, str | None] = {
            "full": None, "row": last, "col": "n 1", "scalar": "",
        }  # fmt: skip
        for step, name in steps:
            if step.operand is not None:
                low, high = step.op.operand_range
                yield Given(name, axes[step.operand], low=low, high=high)

    # --- shapes ---

    def sizes(self, gpu: bool) -> tuple[Size, ...]:
        """Of the shape sets: the one that agents see, an odd one, a tiny one."""
        shown, *hidden = self.core.sizes.gpu if gpu else self.core.sizes.emulator
        if not self.core.sizes.varied:
            return (shown, *hidden)
        return (shown, *map(self._varied, hidden, ("odd", "tiny")))

    def _varied(self, size: Size, case: str) -> Size:
        """Odd extents stay odd and lose up to a quarter; tiny ones are 1 to 6. Fixed by the
        name."""
        drawn = hashlib.sha256(f"{self.name} {case}".encode()).digest()
        rows, columns, *right = (
            1 + drawn[4 * i] % 6
            if extent < 8
            else extent - 2 * (int.from_bytes(drawn[4 * i : 4 * i + 4], "big") % (extent // 8))
            for i, extent in enumerate(size)
        )
        return (rows, max(2, columns), *right)

    def _known(self, size: Size) -> dict[str, int]:
        """What the letters of axes and parameters stand for."""
        return {**dict(zip(self.core.sizes.axes, size, strict=True)), **self.named}

    def specs(self, size: Size) -> tuple[TensorSpec, ...]:
        """The inputs at a size, with their declared domains."""
        core, known = self.core, self._known(size)
        own = core.x or " ".join(core.sizes.axes)
        x = Given("x", own, core.x_dtype, *(self.input_range() or (0.0, 1.0)))
        specs = []
        for given in (x, *self.inputs):
            top, axes = given.high, own if given.axes is None else given.axes
            spec = TensorSpec(
                name=given.name,
                shape=tuple(count(axis, known) for axis in axes.split()),
                dtype=self.dtype if given.dtype == "float32" else given.dtype,
                low=given.low,
                high=count(top, known) - 1.0 if isinstance(top, str) else top,
            )
            specs.append(spec)
        return tuple(specs)

    def terms(self, size: Size) -> int:
        """Length of the longest reduction."""
        return max(1, count(self.core.terms, self._known(size)))

    # --- domains ---

    def input_range(self) -> tuple[float, float] | None:
        """The widest declared domain of x on which every step is valid; None: on none, or the
        answer hardly varies there."""
        return _input_range(self)

    def is_well_formed(self) -> bool:
        """Whether its steps may stand where they do, whatever their domains."""
        core = self.core
        reads_before, read_after = core.operands
        halves = (self.before, self.after)
        before, after = ([s.operand for s in half if s.operand] for half in halves)
        used = Counter((*before, *after))
        return not (
            (self.before and not core.steps_before)
            or (self.after and core.interval is None)
            or not (self.before or core.name)
            or self.dtype not in core.dtypes
            or (before and not reads_before)
            or not set(after) <= set(read_after)
            or any(used[kind] > len(names) for kind, names in NAMES.items())
            or any(map(has_redundant, halves))
            or len(self.params) != len(core.letters)
            or not core.check(self.params)
        )

    def is_valid_on(self, value: Interval) -> bool:
        """Whether every step is, for an x that lies there."""
        result, interval = through(self.before, value), self.core.interval
        if result is None or interval is None:
            return result is not None
        return through(self.after, interval(result)) is not None


@lru_cache(maxsize=65536)
def _input_range(function: Function) -> tuple[float, float] | None:
    if not function.is_well_formed():
        return None
    own = function.core.x_range
    ranges = INPUT_RANGES if own is None else (own,)
    widest = next((r for r in ranges if function.is_valid_on(Interval.of(*r))), None)
    return widest if widest is not None and _varies(function, *widest) else None


# --- values, in numpy ---------------------------------------------------------------------------

ROWS, COLUMNS = 8, 48
"""Of the matrix of random values on which an answer must vary."""
MOST_EQUAL = 0.9
"""Largest share of equal elements that an answer may have."""
SAMPLES = 4
"""Rows and columns of the matrix on which functions are compared."""
RIGHT = np.array(
    [[-0.7, 0.3, 0.9, -0.2], [0.5, -0.8, 0.1, 0.6], [0.2, 0.7, -0.4, -0.9], [0.8, 0.1, 0.4, -0.3]]
)
"""The right-hand matrix on which products are compared."""


def _varies(function: Function, low: float, high: float) -> bool:
    """Whether at most MOST_EQUAL of the answer's elements agree to 5 digits: a constant would pass
    for rowmin(relu(x)), which is 0 on almost every row, so its verdicts would mean nothing."""
    if function.core.values is None or not _may_be_flat(function):
        return True
    steps = [s.name for s in (*function.before, *function.after)]
    draws = random.Random(f"{function.core.name} {steps}")

    def drawn(name: str, low: float, high: float, shape: tuple[int, ...]) -> Any:
        values = [draws.uniform(low, high) for _ in range(math.prod(shape))]
        return np.array(values).reshape(shape)

    flat = _computed(function, drawn("x", low, high, (ROWS, COLUMNS)), drawn)
    commonest = Counter(f"{value:.5g}" for value in flat).most_common(1)[0][1]
    return len(flat) < ROWS or commonest <= MOST_EQUAL * len(flat)


def _may_be_flat(function: Function) -> bool:
    """Whether it is worth the milliseconds: a step clips beside a change of shape, or what follows
    a softmax hides its small values. Alone, no step on its declared domain is flat."""
    if function.core.name in ("", "matmul"):
        return False
    clips = any("clip" in s.op.atoms for s in (*function.before, *function.after))
    return clips or (function.core.name == "softmax" and bool(function.after))


def _computed(function: Function, x: Any, other: Callable[..., Any]) -> list[float]:
    """The answer. other: (name, low, high, shape of the value) -> an input that a step reads."""
    assert function.core.values is not None
    before, after = function.bind()

    def through_values(steps: Sequence[Bound], x: Any) -> Any:
        for step, name in steps:
            more = (other(name, *step.op.operand_range, x.shape),) if name else step.constants
            x = step.op.value(x, *more)
        return x

    answer = through_values(after, function.core.values(through_values(before, x)))
    return [float(value) for value in answer.ravel()]


def fingerprint(function: Function) -> tuple[float, ...]:
    """Values of the function on a fixed 4 x 4 input, rounded to 6 digits: equal functions have
    equal fingerprints. Operands are fixed too, by name. Needs a valid function with `values`."""

    def other(name: str, low: float, high: float, shape: tuple[int, ...]) -> Any:
        return as_operand(name, sample_input(name, low, high))

    x = sample_input("x", *(function.input_range() or (0.0, 1.0)))
    return tuple(float(f"{v:.6g}") + 0.0 for v in _computed(function, x, other))


def sample_input(name: str, low: float, high: float) -> Any:
    """The fixed input of that name, as a full matrix."""
    if name == "u":
        return RIGHT
    steps = np.arange(1, SAMPLES * SAMPLES + 1).reshape(SAMPLES, SAMPLES)
    values = 0.61803398875 * steps + 0.3183 * "xyzbgcs".find(name)  # golden ratio: never repeats
    return low + (high - low) * ((0.5 + values) % 1.0)


def as_operand(name: str, matrix: Any) -> Any:
    """Of a full matrix its first row, its first column, its first element, by an input's kind."""
    kept = {"b": matrix[:1], "g": matrix[:1], "c": matrix[:, :1], "s": matrix[:1, :1]}
    return kept.get(name, matrix)
