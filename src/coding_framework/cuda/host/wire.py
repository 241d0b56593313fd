"""The channel's messages: what is sent to a host process, and how its answers are read.

Everything read here was written by untrusted code: each length, count and number is checked before
it is used, and what does not fit raises Malformed.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from coding_framework.cuda.host.properties import DeviceProperties
from coding_framework.cuda.plan.launch_plan import Launch, Layout, ModuleInfo, TensorRef
from coding_framework.cuda.plan.stream_order import Ordering

HostArg = TensorRef | bool | int | float | str | None | tuple["HostArg", ...] | list["HostArg"]
"""An argument of `forward`. None: an absent optional (an undefined Tensor)."""

MAX_MESSAGE_BYTES = 64 << 20
MAX_DIMS = 16
MAX_OUTPUTS = 256
MAX_NAME_CHARS = 4096
MAX_TEXT_CHARS = 2000


class Kind(IntEnum):
    """Message kinds; the numbers are those of host/channel.hpp."""

    HELLO = 1
    LOADED = 2
    LOAD_FAILED = 3
    MALLOC = 4
    FREE = 5
    UPLOAD = 6
    DOWNLOAD = 7
    COPY = 8
    FILL = 9
    LAUNCH = 10
    SYNCHRONIZE = 11
    RESULT = 12
    RAISED = 13
    REJECTED = 14
    UNSUPPORTED = 15
    CRASHED = 16
    EXTENSION = 17
    ORDER = 18
    ASKED = 19
    KERNEL = 20


class Malformed(Exception):  # noqa: N818 - the candidate's doing, never leaves the session
    """A message that the runner, left alone, would never have sent."""


_FIRST = ("uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64")
DTYPE_CODES = {name: code for code, name in enumerate(_FIRST)} | {"bool": 11, "bfloat16": 15}
"""c10::ScalarType's numbers."""
_DTYPE_NAMES = {code: name for name, code in DTYPE_CODES.items()}
_NONE, _TENSOR, _INT, _FLOAT, _BOOL, _LIST, _STRING = range(7)


class RuntimeHandler(Protocol):
    """Who carries out what host code asks of the device: the judge's recorder.

    Each method may raise CudaCallError, which the host code sees as an error code, or
    CandidateFault, which ends the session. Addresses and sizes are as the candidate gave them, only
    known to be unsigned 64-bit numbers: the handler checks them against its allocations.
    """

    def malloc(self, nbytes: int) -> int: ...
    def free(self, address: int, *, at_once: bool) -> None: ...
    def upload(self, address: int, data: bytes) -> None: ...
    def download(self, address: int, nbytes: int) -> bytes: ...
    def copy(
        self, destination: int, source: int, nbytes: int, layout: Layout | None = None
    ) -> None: ...
    def fill(self, address: int, value: int, nbytes: int) -> None: ...
    def launch(self, launch: Launch) -> None: ...
    def synchronize(self) -> None: ...
    def order(self, what: Ordering, one: int, other: int) -> None: ...


CUDA_ERROR_INVALID_VALUE = 1
CUDA_ERROR_MEMORY_ALLOCATION = 2


class CudaCallError(Exception):
    """A runtime call that fails with a cudaError_t, which the host code may handle."""

    def __init__(self, code: int = CUDA_ERROR_INVALID_VALUE) -> None:
        super().__init__(f"cudaError {code}")
        self.code = code


@dataclass(slots=True)
class Reader:
    """Reads a hostile payload from front to back."""

    data: memoryview
    at: int = 0

    def numbers(self, layout: str) -> tuple[int, ...]:
        try:
            values = struct.unpack_from("<" + layout, self.data, self.at)
        except struct.error as e:
            raise Malformed("a message ends too early") from e
        self.at += struct.calcsize("<" + layout)
        return values

    def text(self, limit: int) -> str:
        (size,) = self.numbers("I")
        if size > limit or size > len(self.data) - self.at:
            raise Malformed(f"a text of {size} bytes")
        raw = bytes(self.data[self.at : self.at + size])
        self.at += size
        return raw.decode("utf-8", "replace")

    def rest(self) -> bytes:
        tail = bytes(self.data[self.at :])
        self.at = len(self.data)
        return tail

    def end(self) -> None:
        if self.at != len(self.data):
            raise Malformed("a message is longer than it should be")


def clean_text(raw: bytes | str) -> str:
    """Text from a candidate as one printable line of bounded length."""
    text = raw if isinstance(raw, str) else raw.decode("utf-8", "replace")
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line[:MAX_TEXT_CHARS]


def encode_setup(properties: DeviceProperties, module: ModuleInfo) -> bytes:
    """The first message: the device, the kernels' parameter layouts and the symbols."""
    parts = [
        _text(properties.name),
        struct.pack(f"<{len(properties.numbers)}q", *properties.numbers),
    ]
    parts.append(struct.pack("<I", len(module.kernels)))
    for kernel in module.kernels.values():
        parts.append(_text(kernel.name))
        parts.append(
            struct.pack(
                "<4I",
                kernel.static_shared_bytes,
                kernel.max_threads,
                kernel.registers,
                len(kernel.param_sizes),
            )
        )
        for offset, size in zip(kernel.param_offsets, kernel.param_sizes, strict=True):
            parts.append(struct.pack("<2I", offset, size))
    parts.append(struct.pack("<I", len(module.symbols)))
    for symbol in module.symbols.values():
        parts.append(_text(symbol.name) + struct.pack("<2Q", symbol.address, symbol.nbytes))
    return b"".join(parts)


def encode_call(function: str, arguments: Sequence[HostArg]) -> bytes:
    """A call of one of the module's functions."""
    head = _text(function) + struct.pack("<I", len(arguments))
    return head + b"".join(_value(a) for a in arguments)


def _text(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<I", len(raw)) + raw


def _value(value: HostArg) -> bytes:
    match value:
        case None:
            return struct.pack("<I", _NONE)
        case bool():
            return struct.pack("<Iq", _BOOL, value)
        case int():
            return struct.pack("<Iq", _INT, value)
        case float():
            return struct.pack("<Id", _FLOAT, value)
        case str():
            return struct.pack("<I", _STRING) + _text(value)
        case tuple() | list():
            return struct.pack("<2I", _LIST, len(value)) + b"".join(_value(v) for v in value)
        case TensorRef():
            dims = len(value.shape)
            head = struct.pack("<2IQI", _TENSOR, DTYPE_CODES[value.dtype], value.address, dims)
            return head + struct.pack(f"<{2 * dims}q", *value.shape, *value.strides)


def decode_launch(payload: memoryview, module: ModuleInfo) -> Launch:
    """A launch, with everything in CUDA's own bounds."""
    reader = Reader(payload)
    name = reader.text(MAX_NAME_CHARS)
    gx, gy, gz, bx, by, bz = reader.numbers("6I")
    shared, stream = reader.numbers("2Q")
    (cooperative,) = reader.numbers("I")
    params = reader.rest()
    kernel = module.kernels.get(name)
    if kernel is None:
        raise Malformed("a launch of a kernel that is not in the module")
    expected = max(
        (o + s for o, s in zip(kernel.param_offsets, kernel.param_sizes, strict=True)), default=0
    )
    in_bounds = (
        0 < gx < 2**31
        and 0 < gy < 65536
        and 0 < gz < 65536
        and 0 < bx * by * bz <= 1024
        and 0 < bz <= 64
        and shared <= 232_448
    )
    if not in_bounds or len(params) != expected:
        raise Malformed("a launch outside CUDA's limits")
    return Launch(
        kernel=name,
        grid=(gx, gy, gz),
        block=(bx, by, bz),
        shared_bytes=shared,
        params=params,
        stream=stream,
        cooperative=bool(cooperative),
    )


def decode_layout(reader: Reader, nbytes: int) -> Layout | None:
    """How the source of a copy of `nbytes` lies; None: as its destination."""
    if reader.at == len(reader.data):
        return None
    itemsize, dims = reader.numbers("2I")
    if not 0 < dims <= MAX_DIMS or itemsize not in (1, 2, 4, 8):
        raise Malformed("a layout that no tensor has")
    shape, strides = reader.numbers(f"{dims}q"), reader.numbers(f"{dims}q")
    reader.end()
    fits = all(0 <= n < 2**48 for n in (*shape, *strides))
    if not fits or math.prod(shape) * itemsize != nbytes:
        raise Malformed("a copy of another size than its layout")
    return itemsize, shape, strides


def decode_order(reader: Reader) -> tuple[Ordering, int, int]:
    """What host code said of streams and events."""
    what, one, other = reader.numbers("I2Q")
    reader.end()
    if what not in set(Ordering):
        raise Malformed(f"an order of kind {what}")
    return Ordering(what), one, other


def decode_result(payload: memoryview) -> tuple[TensorRef, ...]:
    """The tensors that a call returned, as claimed. What follows them is for `decode_about`."""
    reader = Reader(payload)
    (count,) = reader.numbers("I")
    if count > MAX_OUTPUTS:
        raise Malformed(f"{count} outputs")
    outputs = []
    for _ in range(count):
        code, on_device = reader.numbers("2I")
        (address,) = reader.numbers("Q")
        (dims,) = reader.numbers("I")
        if dims > MAX_DIMS or code not in _DTYPE_NAMES:
            raise Malformed("an output that is no tensor")
        shape = reader.numbers(f"{dims}q")
        strides = reader.numbers(f"{dims}q")
        # axes of length 0 do not excuse the others: nothing may overflow 64 bits later
        extents = (n for n in shape if n != 0)
        if any(not 0 <= n < 2**48 for n in (*shape, *strides)) or math.prod(extents) >= 2**48:
            raise Malformed("an output with an impossible shape")
        outputs.append(
            TensorRef(
                address=address if on_device else 0,
                shape=shape,
                strides=strides,
                dtype=_DTYPE_NAMES[code],
            )
        )
    if len(payload) - reader.at != _ABOUT.size:
        raise Malformed("a result without its end")
    return tuple(outputs)


_ABOUT = struct.Struct("<QI")


@dataclass(frozen=True, slots=True)
class AboutCall:
    """What the runner says of a call beside its outputs, as claimed."""

    variables: int = 0
    """A hash of the module's variables after it; 0 where nobody looked."""
    asked_device: bool = False
    """Whether host code asked what its device is, in this call or before."""


def decode_about(payload: memoryview) -> AboutCall:
    """The end of what a call returned."""
    variables, asked = _ABOUT.unpack_from(payload, len(payload) - _ABOUT.size)
    return AboutCall(variables, bool(asked))
