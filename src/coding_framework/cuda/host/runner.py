"""Builds the host runner (the C++ sources beside this file), once for a toolkit and compiler.

Two forms of the same sources: an executable that loads a candidate's `host.so`, and a library that
does the same for the Python host of a KernelBench answer.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path

from coding_framework.cuda.toolchain.native_parts import build_once
from coding_framework.cuda.toolchain.toolkit import find_toolkit

_HERE = Path(__file__).parent
_INCLUDE = _HERE.parent / "include"
_JOB_STARTER = _HERE.parent / "sandbox" / "job_starter.h"
_WANTED = ("VECTOR", "STRING", "OPTIONAL", "TUPLE", "MAP")
_EXECUTABLE = ("-fPIE", "-pie", "-Wl,--dynamic-list=exports.list")
_LIBRARY = ("-fPIC", "-shared", "-Wl,--version-script=exports.map")


def build_runner() -> Path:
    """Path of the runner's executable; the first call on a machine compiles it (about 3 s)."""
    toolkit = find_toolkit()
    return _build("host_runner", _EXECUTABLE, str(toolkit.include), toolkit.version)


def build_host_library() -> Path:
    """Path of the runner as a library; compiled like the executable."""
    toolkit = find_toolkit()
    return _build("libhost.so", _LIBRARY, str(toolkit.include), toolkit.version)


@lru_cache(maxsize=4)
def _build(name: str, form: tuple[str, ...], toolkit_include: str, toolkit_version: str) -> Path:
    headers = hashlib.sha256()
    for path in sorted(p for p in _INCLUDE.rglob("*") if p.is_file()):
        headers.update(path.read_bytes())
    sources = {
        path.name: path.read_text()
        for pattern in ("*.cpp", "*.hpp", "exports.list")
        for path in sorted(_HERE.glob(pattern))
    }
    sources[_JOB_STARTER.name] = _JOB_STARTER.read_text()
    parts = sorted(source for source in sources if source.endswith(".cpp"))
    units = {f"unit_{n}.cpp": parts[n::2] for n in range(2)}  # each part reads most headers
    for unit, included in units.items():
        sources[unit] = "".join(f'#include "{part}"\n' for part in included)
    listed = sources["exports.list"].strip().removeprefix("{").removesuffix("};")
    sources["exports.map"] = f"{{ global: {listed} local: *; }};"
    arguments = [
        "-std=c++17",
        "-O2",
        "-w",
        *form,
        *(f"-DCF_WANT_{part}" for part in _WANTED),
        f'-DCF_BUILT_WITH="{toolkit_version} {headers.hexdigest()[:16]}"',
        f"-I{_INCLUDE}",
        f"-I{toolkit_include}",
        *units,
        "-ldl",
    ]
    return build_once(name, sources, arguments)
