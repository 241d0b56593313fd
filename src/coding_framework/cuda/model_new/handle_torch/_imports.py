"""What an answer's `import` finds: this package as `torch`, Python's own modules, nothing else."""

from __future__ import annotations

import importlib.machinery
import sys
import types
from collections.abc import Sequence
from typing import Any

from . import _host

_OWN = __package__ or "handle_torch"
_GAPS = frozenset(
    [
        "numpy",
        "triton",
        "cupy",
        "numba",
        "pycuda",
        "scipy",
        "einops",
        "cutlass",
        "cuda",
        "tvm",
        "tilelang",
    ]
)
"""Packages that answers import, sometimes without need: named when they are used."""


class Gap(types.ModuleType):
    """A package that is not here."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        _host.unsupported(f"{self.__name__}.{name}")


class _Loader:
    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        name = spec.name
        if name.partition(".")[0] != "torch":
            gap = Gap(name)
            gap.__path__ = []
            return gap
        _host.unsupported(f"the module {name}")

    def exec_module(self, module: types.ModuleType) -> None:
        return None


_LOADER: Any = _Loader()  # importlib.abc, whose Loader it would be, takes 30 ms to import


class Finder:
    """`torch` and the gaps."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] in {"torch", *_GAPS}:
            return importlib.machinery.ModuleSpec(name, _LOADER, is_package=True)
        return None


def install() -> None:
    """From here on `import torch` is this package. Aliases come first: importing must not rename
    the modules that are there already."""
    sys.meta_path.insert(0, Finder())
    for name, module in list(sys.modules.items()):
        if name == _OWN or name.startswith(_OWN + "."):
            sys.modules["torch" + name.removeprefix(_OWN)] = module
    sys.modules["torch.cuda.amp"] = sys.modules["torch.amp"]
