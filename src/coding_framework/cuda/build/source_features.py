"""What a source uses of the standard library and of half precision, seen from its words.

Real torch/extension.h drags in most of the standard library, and kernels rely on it; each header
costs 20 to 150 ms here, as nvcc reads it four times. So the small torch headers include one only
where the source names something of it. A name too many costs time, never correctness.
"""

from __future__ import annotations

import re
import tomllib
from importlib.resources import files

_NAMES = tomllib.loads(files(__package__).joinpath("names.toml").read_text(encoding="utf-8"))
_ALWAYS = frozenset(_NAMES["always"].split())
_WHOLE_CMATH = "WHOLE_CMATH"
"""Wanted by a source with any other name of std: <cmath> as libstdc++ makes it, with the special
functions and what their header brings along. They are half of the work on a small kernel."""

_WORD = re.compile(r"(?:(std)\s*::\s*)?\b([A-Za-z_]\w*)")
_USING_STD = re.compile(
    r"\busing\b[^;]{0,80}\bstd\b(?!\s*::\s*\w)|\busing\s+(?:::\s*)?std\s*::"
    r"|\bnamespace\s+\w+\s*=[^;]{0,80}\bstd\b|#\s*define\b.{0,200}\bstd\b"
    r"|\bstd\s*(?:/\*|//|\\)|\(\s*std\s*\)|\btr1\b"
)
"""std by another name, or in a way that is not looked into. Bounded: a source may be hostile."""
_MINMAX_OF_LIST = re.compile(r"\b(?:min|max)\s*(?:<[^<>]*>)?\s*\(\s*\{")
_TORCH = re.compile(r"#\s*include\s*[<\"](?:torch|ATen|c10|pybind11)/")
_DEVICE_LAMBDA = re.compile(r"\]\s*(?:__device__|__host__)")


def _macros(table: str) -> dict[str, str]:
    """By name, the feature that knows it."""
    return {word: macro for macro, words in _NAMES[table].items() for word in words.split()}


_MACRO_OF_STD, _MACRO_ANYWHERE = _macros("of_std"), _macros("anywhere")
FEATURES = frozenset({*_NAMES["of_std"], *_NAMES["anywhere"], _WHOLE_CMATH})


def uses_torch(source: str) -> bool:
    """Whether the source includes a header of torch."""
    return _TORCH.search(source) is not None


def _first_torch_include(source: str) -> int:
    found = _TORCH.search(source)
    return len(source) if found is None else found.start()


def _other_names_of_std(source: str) -> bool:
    """Whether it uses more of std than every source can."""
    return any(qualifier and word not in _ALWAYS for qualifier, word in _WORD.findall(source))


def uses_device_lambda(source: str) -> bool:
    """Whether a lambda is marked for the device: nvcc then needs a flag, which costs 0.3 s."""
    return _DEVICE_LAMBDA.search(source) is not None


def feature_macros(source: str) -> tuple[str, ...]:
    """Names of the CF_WANT_ macros that the torch headers look at, sorted."""
    if not uses_torch(source):
        return ()
    std_anywhere = _USING_STD.search(source) is not None
    wanted = set()
    if _other_names_of_std(source[: _first_torch_include(source)]):
        wanted.add(_WHOLE_CMATH)  # its own headers come too late
    for match in set(_WORD.findall(source)):
        qualifier, word = match
        if word in _MACRO_ANYWHERE:
            wanted.add(_MACRO_ANYWHERE[word])
        if (qualifier or std_anywhere) and word in _MACRO_OF_STD:
            wanted.add(_MACRO_OF_STD[word])
        elif std_anywhere or (qualifier and word not in _ALWAYS):
            wanted.add(_WHOLE_CMATH)
    if "MINMAX" in wanted and _MINMAX_OF_LIST.search(source):
        wanted.add("ALGORITHM")
    return tuple(f"CF_WANT_{name}" for name in sorted(wanted))
