"""Builds the host runner (the C++ sources beside this file), once for a toolkit and compiler."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path

from coding_framework.cuda.native import build_once
from coding_framework.cuda.toolkit import find_toolkit

_HERE = Path(__file__).parent
_INCLUDE = _HERE.parent / "include"
_WANTED = ("VECTOR", "STRING", "OPTIONAL", "TUPLE", "MAP")


def build_runner() -> Path:
    """Path of the runner's executable; the first call on a machine compiles it (about 3 s)."""
    toolkit = find_toolkit()
    return _build(str(toolkit.include), toolkit.version)


@lru_cache(maxsize=4)
def _build(toolkit_include: str, toolkit_version: str) -> Path:
    headers = hashlib.sha256()
    for path in sorted(p for p in _INCLUDE.rglob("*") if p.is_file()):
        headers.update(path.read_bytes())
    sources = {
        path.name: path.read_text()
        for pattern in ("*.cpp", "*.hpp", "exports.list")
        for path in sorted(_HERE.glob(pattern))
    }
    arguments = [
        "-std=c++17",
        "-O2",
        "-w",
        "-fPIE",
        "-pie",
        *(f"-DCF_WANT_{name}" for name in _WANTED),
        f'-DCF_BUILT_WITH="{toolkit_version} {headers.hexdigest()[:16]}"',
        f"-I{_INCLUDE}",
        f"-I{toolkit_include}",
        *(name for name in sorted(sources) if name.endswith(".cpp")),
        "-Wl,--dynamic-list=exports.list",
        "-ldl",
    ]
    return build_once("host_runner", sources, arguments)
