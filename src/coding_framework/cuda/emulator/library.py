"""The interpreter as a shared library: built once, loaded with ctypes, its structures checked."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

from coding_framework.cuda.emulator.codegen import sources
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


class Alloc(ctypes.Structure):
    """rt.h: Alloc."""

    _fields_ = (
        ("lo", ctypes.c_uint64), ("size", ctypes.c_uint64), ("written", ctypes.c_uint32),
        ("stored", ctypes.c_uint32), ("read_only", ctypes.c_uint32), ("freed", ctypes.c_uint32),
        ("race", ctypes.c_uint64), ("grain", ctypes.c_uint32), ("watched", ctypes.c_uint32),
        ("was_read", ctypes.c_uint32), ("unused", ctypes.c_uint32),
    )  # fmt: skip


class MemCount(ctypes.Structure):
    """rt.h: MemCount."""

    _fields_ = tuple(
        (name, ctypes.c_uint64)
        for name in ("requests", "sectors", "lanes", "wavefronts", "ideal", "l1_misses", "bytes",
                     "tags")
    )  # fmt: skip


class Check(ctypes.Structure):
    """rt.h: Check."""

    _fields_ = (
        ("count", ctypes.c_uint64), ("address", ctypes.c_uint64), ("block", ctypes.c_uint64),
        ("thread", ctypes.c_uint32), ("other", ctypes.c_uint32),
        ("other_block", ctypes.c_uint64), ("stamp", ctypes.c_uint64),
    )  # fmt: skip


class Fault(ctypes.Structure):
    """rt.h: Fault."""

    _fields_ = (
        ("kind", ctypes.c_uint64), ("block", ctypes.c_uint64), ("address", ctypes.c_uint64),
        ("size", ctypes.c_uint64), ("pc", ctypes.c_int64), ("thread", ctypes.c_uint64),
        ("space", ctypes.c_uint64), ("extra", ctypes.c_uint64),
    )  # fmt: skip


class Func(ctypes.Structure):
    """rt.h: Func."""

    _fields_ = (
        ("entry", ctypes.c_uint64), ("frame_bytes", ctypes.c_uint64),
        ("const_at", ctypes.c_uint64), ("const_bytes", ctypes.c_uint64),
        ("local_bytes", ctypes.c_uint64), ("consts", ctypes.c_void_p),
        ("params", ctypes.c_void_p),
    )  # fmt: skip


def _fields(*names: str, kind: type = ctypes.c_uint64) -> tuple[tuple[str, type], ...]:
    return tuple((name, kind) for name in names)


class LaunchRecord(ctypes.Structure):
    """rt.h: Launch."""

    _fields_ = (
        ("code", ctypes.c_void_p), ("funcs", ctypes.c_void_p),
        *_fields("nfuncs", "entry_func"),
        ("ntid", ctypes.c_uint64 * 3), ("nctaid", ctypes.c_uint64 * 3),
        ("params", ctypes.c_void_p),
        *_fields("nparams", "shared_bytes", "dynamic_shared", "local_bytes", "register_bytes",
                 "cooperative", "order", "workspace"),
        *_fields("arena", "shadow", "touched", "allocs", kind=ctypes.c_void_p),
        *_fields("nallocs", "arena_bytes", "count", "checks", "nblocks_code", "ninstructions",
                 "l1_sectors"),
        ("budget", ctypes.c_int64),
        *_fields("cpu_ns", "threads", "max_resident"),
        *_fields("block_warps", "block_lanes", "mem", "check", kind=ctypes.c_void_p),
        ("fault", Fault),
        *_fields("executed", "branches", "divergent", "dram_read", "dram_write", "barriers",
                 "longest_warp", "longest_block", "most_loads_warp", "most_loads_block",
                 "hottest_atomics", "output_bytes"),
        ("output", ctypes.c_void_p),
        *_fields("output_size", "first_tick", "race_since"),
        ("unordered", ctypes.c_void_p),
        *_fields("nunordered", "tick", "noise", "next_block"),
        ("races", ctypes.c_void_p),
        ("stop", ctypes.c_int32),
    )  # fmt: skip


def build() -> Path:
    """Path of the library; the first call on a machine compiles it (17 s on two slow cores)."""
    files = sources()
    units = sorted(name for name in files if name.endswith(".c"))
    return build_once(
        "libemulator.so", files, [*_FLAGS, *_machine_flags(), *units, "-lm"], compiler="gcc"
    )


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
