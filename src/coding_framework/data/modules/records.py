"""The records of module tasks: a PyTorch module as people write it, as structured data.

    families, epilogues -> ModuleDraft -> writing -> ModuleTask -> tasks (a `Task`)

A draft says what the function is. A module task has its PyTorch source, its parameters and its
sizes as well. Extents are expressions over named sizes ("out_channels / 2"), which `extent` reads.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from coding_framework.types import DType

Value = bool | int | float | str | None | tuple[int, ...]
Part = Literal["train", "validation", "held_out"]
Layout = Literal["channels_first", "features_last"]
Sizes = Mapping[str, int]

CASE_NAMES = ("main", "odd", "tiny")


@dataclass(frozen=True, slots=True)
class Operation:
    """One step of a module: what it does and with which arguments, not how it is spelled."""

    name: str
    """"conv2d", "relu", "mean": a row of the tables in `layers`, `pointwise` and `structural`."""
    arguments: tuple[tuple[str, Value], ...] = ()
    """Those that say what the function is; extents are none of them."""

    def __getitem__(self, argument: str) -> Value:
        return dict(self.arguments)[argument]

    def number(self, argument: str) -> int:
        """An argument that is an integer."""
        value = self[argument]
        assert isinstance(value, int), f"{self.name}: {argument} is {value!r}"
        return value

    def real(self, argument: str) -> float:
        """An argument that is a number."""
        value = self[argument]
        assert isinstance(value, (int, float)), f"{self.name}: {argument} is {value!r}"
        return float(value)

    def integers(self, argument: str) -> tuple[int, ...]:
        """An argument that is a tuple of integers."""
        value = self[argument]
        assert isinstance(value, tuple), f"{self.name}: {argument} is {value!r}"
        return value

    def flag(self, argument: str) -> bool:
        """An argument that is true or false; False where the operation has none of that name."""
        return bool(dict(self.arguments).get(argument, False))

    @property
    def key(self) -> str:
        """`conv2d(kernel_size=(3, 3),stride=(1, 1))`."""
        said = ",".join(f"{name}={value!r}" for name, value in self.arguments)
        return f"{self.name}({said})" if said else self.name


def op(name: str, **arguments: Value) -> Operation:
    """An operation by keyword."""
    return Operation(name, tuple(arguments.items()))


@dataclass(frozen=True, slots=True)
class ModuleInput:
    """One tensor that `forward` takes."""

    name: str
    dims: tuple[str, ...]
    """An expression over the sizes for each axis; () is a scalar tensor."""
    dtype: DType = "float32"
    low: float | None = None
    high: float | str | None = None
    """Bounds of the values; the upper one may be an expression over the sizes (of labels)."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter or buffer, in the order in which a kernel is handed them."""

    name: str
    """As in `state_dict`: "conv.weight"."""
    dims: tuple[str, ...]
    dtype: DType = "float32"

    @property
    def c_name(self) -> str:
        """Its name in a kernel: `conv_weight`."""
        return self.name.replace(".", "_")


@dataclass(frozen=True, slots=True)
class ModuleDraft:
    """What a module computes. Maker: `families` (level 1) and `epilogues` (level 2). Consumer:
    `writing`, which spells it in PyTorch."""

    family: str
    level: Literal[1, 2]
    operations: tuple[Operation, ...]
    inputs: tuple[ModuleInput, ...]
    sizes: tuple[Sizes, Sizes, Sizes]
    """Of the emulator: main, odd, tiny."""
    gpu_sizes: tuple[Sizes, Sizes, Sizes]
    layout: Layout = "channels_first"
    """Where the channels of the first input lie: axis 1, or the last one."""
    part: Part = "train"

    @property
    def rank(self) -> int:
        return len(self.inputs[0].dims)

    @property
    def has_shortcut(self) -> bool:
        """Whether a step reads the module's only input again, as residual connections do."""
        return len(self.inputs) == 1 and any(o.name.endswith("_input") for o in self.operations)

    @property
    def key(self) -> str:
        """What makes two modules the same function at other sizes: the operations in their order
        with their arguments, and the ranks of the inputs."""
        ranks = ",".join(f"{len(given.dims)}{given.dtype[0]}" for given in self.inputs)
        return f"{ranks}:{' '.join(operation.key for operation in self.operations)}"

    @property
    def name(self) -> str:
        """`m2_conv2d_gelu_mean_3f9a1c`: level, operations, and a digest of the key."""
        digest = hashlib.sha256(self.key.encode()).hexdigest()[:6]
        return "_".join((f"m{self.level}", *(o.name for o in self.operations), digest))

    def in_part(self, part: Part) -> ModuleDraft:
        return replace(self, part=part)


@dataclass(frozen=True, slots=True)
class ModuleTask:
    """A module task. Maker: `writing`. Consumer: `tasks`, which makes a `Task` of it."""

    draft: ModuleDraft
    source: str
    """The PyTorch file: class Model, get_inputs, get_init_inputs, at the GPU's main sizes."""
    parameters: tuple[Parameter, ...]
    """In the order of their definition."""
    constructor: tuple[tuple[str, Value | SizeName], ...]
    """The arguments of `Model`: (name, value, or the size that it is)."""
    description: str

    @property
    def name(self) -> str:
        return self.draft.name

    @property
    def operations(self) -> tuple[Operation, ...]:
        return self.draft.operations

    @property
    def inputs(self) -> tuple[ModuleInput, ...]:
        return self.draft.inputs

    def init_args(self, sizes: Sizes) -> tuple[Value, ...]:
        """The values of `Model`'s arguments at these sizes."""
        return tuple(
            extent(v.expression, sizes) if isinstance(v, SizeName) else v
            for _, v in self.constructor
        )


@dataclass(frozen=True, slots=True)
class SizeName:
    """A constructor's argument that is an extent, by its expression."""

    expression: str


def extent(expression: str, sizes: Mapping[str, int]) -> int:
    """The value of an extent's expression: names, integers, + - * / ( ), division rounded down.
    The expressions are those of our own tables."""
    if expression in sizes:
        return sizes[expression]
    value = eval(expression.replace("/", "//"), {"__builtins__": {}}, dict(sizes))
    assert isinstance(value, int)
    return value


def shape_of(dims: tuple[str, ...], sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The extents of a tensor."""
    return tuple(extent(d, sizes) for d in dims)
