"""Small types of torch: dtype, device, Size, and tokens that only have a name."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from typing import Any, ClassVar


def names(text: str) -> list[str]:
    """The words of a text."""
    return text.split()


class DType:
    """One element type."""

    def __init__(self, name: str, code: int, itemsize: int, layout: str) -> None:
        self.name = name
        self.code = code
        self.itemsize = itemsize
        self.layout = layout

    @property
    def is_floating_point(self) -> bool:
        return self.name.startswith(("float", "bfloat"))

    @property
    def is_complex(self) -> bool:
        return False

    @property
    def is_signed(self) -> bool:
        return self.name not in ("uint8", "bool")

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def pack(self, values: Iterable[bool | int | float]) -> bytes:
        """The values as they lie in memory."""
        if self.name == "bfloat16":
            return b"".join(_bfloat16(float(v)) for v in values)
        kind = float if self.is_floating_point else bool if self.name == "bool" else int
        return b"".join(struct.pack("<" + self.layout, kind(v)) for v in values)

    def unpack(self, data: bytes) -> list[Any]:
        """The values in these bytes."""
        if self.name == "bfloat16":
            halves = struct.unpack(f"<{len(data) // 2}H", data)
            return [struct.unpack("<f", struct.pack("<I", h << 16))[0] for h in halves]
        return list(struct.unpack(f"<{len(data) // self.itemsize}{self.layout}", data))


def _bfloat16(value: float) -> bytes:
    """Round to nearest even."""
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    return struct.pack("<H", ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) & 0xFFFF)


DTYPES = (
    DType("uint8", 0, 1, "B"),
    DType("int8", 1, 1, "b"),
    DType("int16", 2, 2, "h"),
    DType("int32", 3, 4, "i"),
    DType("int64", 4, 8, "q"),
    DType("float16", 5, 2, "e"),
    DType("float32", 6, 4, "f"),
    DType("float64", 7, 8, "d"),
    DType("bool", 11, 1, "?"),
    DType("bfloat16", 15, 2, ""),
)
BY_CODE = {d.code: d for d in DTYPES}
BY_NAME = {d.name: d for d in DTYPES}
ALIASES = {
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "int": "int32",
    "long": "int64",
    "short": "int16",
}
CASTS = {**ALIASES, "bfloat16": "bfloat16", "bool": "bool", "byte": "uint8", "char": "int8"}
"""The methods of a tensor that give it another type."""


_RANKS = (
    *("bool", "uint8", "int8", "int16", "int32", "int64"),
    *("float16", "bfloat16", "float32", "float64"),
)


def promoted(one: DType, other: DType) -> DType:
    """The type that holds both, as torch has it."""
    names = {one.name, other.name}
    if names in ({"uint8", "int8"}, {"float16", "bfloat16"}):
        return BY_NAME["int16" if "int8" in names else "float32"]
    return max(one, other, key=lambda d: _RANKS.index(d.name))


class Device:
    """Where a tensor lies: "cpu" or "cuda"."""

    type: str
    index: int | None
    default: ClassVar[Device | None] = None
    """Where tensors are made that name no place; None: on the CPU."""
    _outer: Device | None = None

    def __init__(self, kind: Any = "cuda", index: int | None = None) -> None:
        if isinstance(kind, Device):
            kind, index = kind.type, kind.index
        elif isinstance(kind, int):
            kind, index = "cuda", kind
        name, _, number = str(kind).partition(":")
        if name not in ("cpu", "cuda"):
            raise RuntimeError(f"Expected one of cpu, cuda device type, but got {name!r}")
        self.type = name
        self.index = int(number) if number else index

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            other = Device(other)
        if not isinstance(other, Device):
            return NotImplemented
        return self.type == other.type and (self.index or 0) == (other.index or 0)

    def __hash__(self) -> int:
        return hash(self.type)

    def __repr__(self) -> str:
        index = "" if self.index is None else f", index={self.index}"
        return f"device(type='{self.type}'{index})"

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __enter__(self) -> Device:
        """Tensors are made here until the block ends."""
        self._outer, Device.default = Device.default, self
        return self

    def __exit__(self, *_: object) -> None:
        Device.default = self._outer


class Size(tuple[int, ...]):
    """A shape."""

    def numel(self) -> int:
        return math.prod(self)

    def __repr__(self) -> str:
        return f"torch.Size({list(self)})"

    __str__ = __repr__


class Token:
    """A constant that is only compared: a memory format, a layout."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


class Namespace:
    """Settings that answers set and nothing here reads (`torch.backends.cudnn.benchmark`)."""

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)


_LIMITS = {
    "float16": (65504.0, 2.0**-10, 2.0**-14),
    "bfloat16": ((2 - 2.0**-7) * 2.0**127, 2.0**-7, 2.0**-126),
    "float32": ((2 - 2.0**-23) * 2.0**127, 2.0**-23, 2.0**-126),
    "float64": ((2 - 2.0**-52) * 2.0**1023, 2.0**-52, 2.0**-1022),
}


class finfo:  # noqa: N801 - torch's name
    """Limits of a floating-point type."""

    def __init__(self, of: DType | None = None) -> None:
        of = of or BY_NAME["float32"]
        self.max, self.eps, self.tiny = _LIMITS[of.name]
        self.min, self.smallest_normal, self.bits = -self.max, self.tiny, 8 * of.itemsize


class iinfo:  # noqa: N801 - torch's name
    """Limits of an integer type."""

    def __init__(self, of: DType) -> None:
        self.bits = 8 * of.itemsize
        self.max = 2 ** (self.bits - of.is_signed) - 1
        self.min = -(self.max + 1) if of.is_signed else 0
