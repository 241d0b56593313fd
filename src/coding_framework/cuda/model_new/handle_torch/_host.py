"""The host library (cuda/host, as a shared library) by ctypes: the channel, functions, tensors.

Nothing here is a boundary: the answer shares this process and may call all of it. What arrives at
the judge is a claim, whoever sent it.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from typing import Any, NoReturn

LOADED, LOAD_FAILED, RESULT, RAISED, REJECTED, UNSUPPORTED = 2, 3, 12, 13, 14, 15
LAUNCH, EXTENSION, ASKED, KERNEL = 10, 17, 19, 20
"""Message kinds; the numbers are those of host/channel.hpp."""
NONE, TENSOR, INT, FLOAT, BOOL, LIST, STRING = range(7)
"""Value kinds; the numbers are those of cf_kind."""
MAX_DIMS = 16


class Value(ctypes.Structure):
    """cf_value of module.h."""


Value._fields_ = [
    ("kind", ctypes.c_int),
    ("count", ctypes.c_int64),
    ("integer", ctypes.c_int64),
    ("floating", ctypes.c_double),
    ("tensor", ctypes.c_void_p),
    ("items", ctypes.POINTER(Value)),
    ("text", ctypes.c_char_p),
]


class Metadata(ctypes.Structure):
    """cf_tensor of tensor.h."""

    _fields_ = (
        ("references", ctypes.c_int32),
        ("dims", ctypes.c_int32),
        ("dtype", ctypes.c_int8),
        ("on_host", ctypes.c_bool),
        ("sizes", ctypes.c_int64 * MAX_DIMS),
        ("strides", ctypes.c_int64 * MAX_DIMS),
        ("data", ctypes.c_uint64),
        ("storage", ctypes.c_void_p),
    )


_library: Any = None


def load_library(path: str) -> None:
    """Load it so that an answer's `host.so` finds its symbols."""
    global _library
    _library = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    _library.cf_receive.restype = ctypes.c_void_p
    _library.cf_said.restype = ctypes.c_char_p
    _library.cf_result.restype = Value
    _library.cf_adopt.restype = ctypes.c_void_p
    _library.cf_adopt.argtypes = [
        ctypes.c_uint64,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.POINTER(ctypes.c_int64),
        ctypes.POINTER(ctypes.c_int64),
        ctypes.c_int,
    ]
    _library.cf_release.argtypes = [ctypes.c_void_p]
    _library.cf_invoke.argtypes = [ctypes.c_char_p, ctypes.POINTER(Value), ctypes.c_int]
    _library.cf_prepare()


def serve_copies(serve: Callable[[], None]) -> NoReturn:
    """Have `serve` called in each copy of this process that is asked for."""
    _library.cf_serve_copies(ctypes.CFUNCTYPE(None)(serve))
    raise SystemExit


# --- the channel ----------------------------------------------------------------------------------


def start(module: str) -> int:
    """Take the channel over; shut everything else but the file `module`. 0, or an exit status."""
    return int(_library.cf_start(module.encode()))


def environment() -> dict[bytes, bytes]:
    """Of the process, as the C library has it."""
    found = {}
    lines: Any = ctypes.POINTER(ctypes.c_char_p).in_dll(ctypes.pythonapi, "environ")
    for line in lines:
        if line is None:
            break
        name, _, value = line.partition(b"=")
        found[name] = value
    return found


def asked_device() -> bool:
    """Whether the answer asked what its device is."""
    return bool(_library.cf_asked_device())


def receive() -> bytes:
    size = ctypes.c_uint64()
    at = _library.cf_receive(ctypes.byref(size))
    return ctypes.string_at(at, size.value)


def post(kind: int, payload: bytes) -> None:
    _library.cf_post(ctypes.c_uint32(kind), payload, ctypes.c_uint64(len(payload)))


def request(kind: int, payload: bytes) -> int:
    """Post and wait; 0 where the judge agrees."""
    size = ctypes.c_uint64(len(payload))
    return int(_library.cf_request(ctypes.c_uint32(kind), payload, size))


def finish(kind: int, text: str) -> NoReturn:
    """End the process and say why: no exception, so nothing in the answer can catch it."""
    raw = text.replace("\0", " ").encode("utf-8", "replace")[:2000]
    _library.cf_finish(ctypes.c_uint32(kind), raw)
    raise SystemExit


def reject(name: str) -> NoReturn:
    """The answer leans on torch for a computation."""
    finish(REJECTED, name)


def ask(what: str) -> NoReturn:
    """The answer asks for what a launch does not need."""
    finish(ASKED, what)


def unsupported(name: str) -> NoReturn:
    """A gap of ours, by name."""
    finish(UNSUPPORTED, name)


def packed_text(text: str) -> bytes:
    raw = text.encode("utf-8", "surrogatepass")
    return struct.pack("<I", len(raw)) + raw


# --- functions ------------------------------------------------------------------------------------


def load_module(path: str) -> None:
    """The answer's compiled host code. Ends the process where it cannot be loaded."""
    _library.cf_load(path.encode())


def initialise(entry_point: str, prefix: str) -> bool:
    """Let one extension define its functions, as `prefix` + name."""
    return bool(_library.cf_initialise(entry_point.encode(), prefix.encode()))


def is_defined(name: str) -> bool:
    return bool(_library.cf_is_defined(name.encode("utf-8", "replace")))


class Failure(Exception):  # noqa: N818 - turned into what Python code expects by the caller
    """What a function threw. trouble: 0 an exception, 1 wrong arguments, 2 no memory."""

    def __init__(self, trouble: int, text: str) -> None:
        super().__init__(text)
        self.trouble = trouble
        self.text = text


def invoke(name: str, arguments: list[Value]) -> list[Value]:
    """Call a function; tensors among the results are owned by the caller. Raises Failure."""
    array = (Value * max(1, len(arguments)))(*arguments)
    trouble = _library.cf_invoke(name.encode(), array, len(arguments))
    if trouble >= 0:
        raise Failure(trouble, _library.cf_said().decode("utf-8", "replace"))
    return [_library.cf_result(i) for i in range(_library.cf_result_count())]


# --- tensors --------------------------------------------------------------------------------------


def metadata(pointer: int) -> Metadata:
    return Metadata.from_address(pointer)


def adopt(
    address: int, dtype: int, sizes: tuple[int, ...], strides: tuple[int, ...], *, exists: bool
) -> int:
    """A tensor at an address that the judge named, or (`exists` false) of no memory at all, with
    its offset in bytes as the address."""
    dims = len(sizes)
    if dims > MAX_DIMS:
        raise RuntimeError(f"a tensor of {dims} dimensions: {MAX_DIMS} are the most here")
    array = ctypes.c_int64 * max(1, dims)
    return int(_library.cf_adopt(address, dtype, dims, array(*sizes), array(*strides), int(exists)))


def release(pointer: int) -> None:
    if _library is not None:
        _library.cf_release(pointer)


def write_memory(address: int, data: bytes) -> None:
    ctypes.memmove(address, data, len(data))


def read_memory(address: int, size: int) -> bytes:
    return ctypes.string_at(address, size)
