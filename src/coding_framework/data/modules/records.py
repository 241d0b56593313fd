"""The records of module tasks: a PyTorch module as people write it, as structured data.

    catalogue, as data -> ModuleDraft -> spelling -> tasks (a `Task`)

A draft says what the function is and at which sizes; `spelling` writes it in PyTorch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from coding_framework.types import DType

Value = bool | int | float | str | None | tuple[int, ...]
Part = Literal["train", "validation", "held_out"]
Layout = Literal["channels_first", "features_last"]
Sizes = Mapping[str, int]
"""By name: "batch_size"."""
ThreeSizes = tuple[Sizes, Sizes, Sizes]

CASE_NAMES = ("main", "odd", "tiny")


@dataclass(frozen=True, slots=True)
class Operation:
    """One step of a module: what it does and with which arguments, not how it is spelled."""

    name: str
    """"conv2d", "relu", "mean": a row of `operations`."""
    arguments: tuple[tuple[str, Value], ...] = ()
    """Those that say what the function is; extents are none of them."""

    def __getitem__(self, argument: str) -> Any:
        return dict(self.arguments)[argument]

    def get(self, argument: str, default: Value = None) -> Any:
        """An argument, or what stands for it where the operation has none of that name."""
        return dict(self.arguments).get(argument, default)

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
    """The size of each axis, by name; () is a scalar tensor."""
    dtype: DType = "float32"
    low: float | None = None
    high: float | str | None = None
    """Bounds of the values; of labels the upper one is a size's name."""

    def shape(self, sizes: Sizes) -> tuple[int, ...]:
        return tuple(sizes[dim] for dim in self.dims)


@dataclass(frozen=True, slots=True)
class ModuleDraft:
    """What a module computes. Maker: `catalog`, of what was drawn. Consumers: `spelling`, which
    writes it in PyTorch, and `tasks`."""

    family: str
    level: Literal[1, 2]
    operations: tuple[Operation, ...]
    inputs: tuple[ModuleInput, ...]
    sizes: ThreeSizes
    """Of the emulator: main, odd, tiny."""
    gpu_sizes: ThreeSizes
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


def draft_of(row: Mapping[str, Any]) -> ModuleDraft:
    """A draft as JSON has it: its fields, and by name its sizes of the emulator (main, odd, tiny)
    and of a GPU (main, odd)."""
    main, odd, tiny, large, ragged = (
        {name: extents[at] for name, extents in row["sizes"].items()} for at in range(5)
    )
    operations = (
        Operation(name, tuple((n, _value(v)) for n, v in arguments.items()))
        for name, arguments in row["operations"]
    )
    return ModuleDraft(
        row["family"],
        row["level"],
        tuple(operations),
        tuple(ModuleInput(name, tuple(dims), *more) for name, dims, *more in row["inputs"]),
        (main, odd, tiny),
        (large, ragged, tiny),
        row["layout"],
        row["part"],
    )


def _value(stored: Any) -> Value:
    return tuple(stored) if isinstance(stored, list) else stored
