"""Public names of a package, each imported when it is used: the package's own import is light."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def exported(package: str, places: Mapping[str, str]) -> Callable[[str], Any]:
    """The package's `__getattr__`. places: name -> the module below the package that has it."""

    def found(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{places[name]}"), name)

    return found
