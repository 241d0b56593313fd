"""The interpreter as a shared library: built once, loaded with ctypes, its structures checked."""

from __future__ import annotations

import ctypes
import re
from functools import cache
from pathlib import Path
from typing import Any

from coding_framework.cuda.emulator.codegen import (
    IN_A_LIBRARY,
    c_source,
    rare_forms,
    rare_sources,
    sources,
)
from coding_framework.cuda.toolchain.native_parts import build_once
from coding_framework.errors import InfrastructureError

_FLAGS = [
    "-O3",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=off",
    "-fno-strict-aliasing",
    "-fwrapv",
    "-std=gnu11",
    "-fPIC",
    "-shared",
    "-pthread",
    "-w",
]
_C_TYPES: dict[str, Any] = {
    "u32": ctypes.c_uint32, "u64": ctypes.c_uint64, "i32": ctypes.c_int32, "i64": ctypes.c_int64,
}  # fmt: skip


def _fields(name: str) -> list[tuple[str, Any]]:
    """The fields of a structure in rt.h."""
    header = re.sub(r"//[^\n]*|const ", "", c_source("rt.h"))
    body = re.search(rf"typedef struct {{([^{{}}]*)}} {name};", header)
    assert body is not None
    found = []
    for declaration in filter(str.strip, body[1].split(";")):
        kind, names = declaration.split(maxsplit=1)
        for pointer, field, count in re.findall(r"(\*?)(\w+)(?:\[(\d+)\])?", names):
            c_type = ctypes.c_void_p if pointer else _C_TYPES[kind]
            found.append((field, c_type * int(count) if count else c_type))
    return found


class Alloc(ctypes.Structure):
    """rt.h: Alloc."""

    _fields_ = _fields("Alloc")


class MemCount(ctypes.Structure):
    """rt.h: MemCount."""

    _fields_ = _fields("MemCount")


class Check(ctypes.Structure):
    """rt.h: Check."""

    _fields_ = _fields("Check")


class Fault(ctypes.Structure):
    """rt.h: Fault."""

    _fields_ = _fields("Fault")


class Func(ctypes.Structure):
    """rt.h: Func."""

    _fields_ = _fields("Func")


_C_TYPES["Fault"] = Fault


class LaunchRecord(ctypes.Structure):
    """rt.h: Launch."""

    _fields_ = _fields("Launch")


def build() -> Path:
    """Path of the library; the first call on a machine compiles it (6 s)."""
    return _build("libemulator.so", sources())


def _build(name: str, files: dict[str, str], *flags: str) -> Path:
    units = sorted(file for file in files if file.endswith(".c"))
    arguments = [*_FLAGS, *_machine_flags(), *flags, *units, "-lm"]
    return build_once(name, files, arguments, compiler="gcc")


def _machine_flags() -> list[str]:
    import platform

    return ["-march=native"] if platform.machine() in ("x86_64", "AMD64") else ["-mcpu=native"]


@cache
def load() -> ctypes.CDLL:
    """The loaded library. Raises InfrastructureError where it does not fit this code."""
    library = ctypes.CDLL(str(build()))
    library.emulator_run.argtypes = [ctypes.c_void_p]
    library.emulator_run.restype = ctypes.c_int
    library.race_range.argtypes = [
        ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_int,
        ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p,
    ]  # fmt: skip
    library.race_range.restype = ctypes.c_uint64
    library.emulator_sizes.argtypes = [ctypes.c_int]
    library.emulator_sizes.restype = ctypes.c_uint64
    for which, record in enumerate((None, Alloc, MemCount, Check, Func, LaunchRecord)):
        expected = 32 if record is None else ctypes.sizeof(record)
        got = library.emulator_sizes(which)
        if got != expected:
            raise InfrastructureError(
                f"the emulator's library disagrees with library.py on structure {which}: {got} "
                f"and {expected} bytes"
            )
    return library


@cache
def load_rare(library: int) -> None:
    """Give the interpreter one library of rare forms; on a new machine gcc compiles it (1 s)."""
    # its functions seldom run: half the compile time counts for more than their speed
    made = ctypes.CDLL(str(_build(f"librare_{library}.so", rare_sources(library), "-O1")))
    numbers = range(len(rare_forms()))[IN_A_LIBRARY * library : IN_A_LIBRARY * (library + 1)]
    table = (ctypes.c_void_p * len(rare_forms())).in_dll(load(), "rare_forms")
    for number in numbers:
        table[number] = ctypes.cast(made[f"rare_{number}"], ctypes.c_void_p).value
