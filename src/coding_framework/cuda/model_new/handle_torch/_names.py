"""What torch has and this torch has not: named when it is used.

An operator of torch ends the run as `rejected`, anything else that torch has as `unsupported`; what
torch has not either is an AttributeError, as it is there.
"""

from __future__ import annotations

import os
from typing import Any, NoReturn

from . import _host

_FILE = "torch_names.txt"
"""Lines of (kind, where, names): written by scripts/build_torch_names.py."""


def _read() -> dict[tuple[str, str], str]:
    path = os.path.join(os.path.dirname(__file__), _FILE)
    data: bytes = __loader__.get_data(path)  # type: ignore[name-defined] # from the archive too
    rows = (line.split("\t") for line in data.decode().splitlines())
    return {(kind, where): names for kind, where, names in rows}


_ROWS = _read()
_SETS: dict[tuple[str, str], frozenset[str]] = {}


def _has(kind: str, where: str, name: str) -> bool:
    key = (kind, where)
    if key not in _SETS:
        _SETS[key] = frozenset(_ROWS.get(key, "").split())
    return name in _SETS[key]


def is_package(name: str) -> bool:
    """Whether it is one of the packages that answers import and that are not here."""
    return _has("packages", "", name)


def file_of_layer(name: str) -> str | None:
    """Which of torch's own modules defines a class of torch.nn: "" where it is in another place;
    None where torch has no such layer."""
    return _ROWS.get(("layer", name))


class Operator:
    """A function of torch that computes. It may be named, stored and passed on; calling it ends
    the run."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        _host.reject(self._name)

    def __getattr__(self, name: str) -> Operator:
        if name.startswith("__"):
            raise AttributeError(name)
        return Operator(f"{self._name}.{name}")

    def __repr__(self) -> str:
        return f"<{self._name}>"


def look_up(where: str, name: str, what: str) -> Any:
    """The stand-in for `where`.`name`. `what` has no such attribute: AttributeError."""
    if _has("operators", where, name):
        return Operator(f"{where}.{name}")
    if _has("others", where, name):
        _host.unsupported(f"{where}.{name}")
    raise AttributeError(f"{what} has no attribute {name!r}")
