"""What an answer's `import` finds: this package as `torch`, Python's own modules, nothing else."""

from __future__ import annotations

import importlib.machinery
import struct
import sys
import types
from collections.abc import Sequence
from typing import Any

from . import _host, _triton
from ._names import is_package

_OWN = __package__ or "handle_torch"


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
        first = name.partition(".")[0]
        if first == "torch" or is_package(first):
            return importlib.machinery.ModuleSpec(name, _LOADER, is_package=True)
        return None


def from_memory(name: str, source: str) -> None:
    """From here on modules are imported from the archive in memory, and the lines of `source`, in
    warnings, come from there: no file is opened. What lies outside of the archive is not found."""
    import linecache
    import mmap
    import zipimport

    paths: list[str] = [path for path in sys.path if path.endswith(".zip")]
    kept = {}
    for path in paths:
        with open(path, "rb") as file:
            kept[path] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def stored(archive: str, entry: Sequence[Any]) -> bytes:
        data, size, at = kept[archive], entry[2], entry[4]
        start = at + 30 + sum(struct.unpack_from("<2H", data, at + 26))
        return data[start : start + size]

    def importer(path: str) -> Any:
        found: Any = zipimport.zipimporter.__new__(zipimport.zipimporter)
        for archive in kept:
            if path.startswith(archive):
                found.archive, found.prefix = archive, f"{path[len(archive) + 1 :]}/".lstrip("/")
                found._files = readers[0]._zip_directory_cache[archive]
                return found
        raise ImportError(path)

    readers: Any = zipimport, linecache
    readers[0]._get_data = stored
    readers[1].updatecache = lambda filename, module_globals=None: []
    readers[1].checkcache = lambda filename=None: None
    linecache.cache[name] = len(source), None, source.splitlines(keepends=True), name
    sys.path[:] = paths
    sys.path_hooks[:] = [importer]


def install() -> None:
    """From here on `import torch` is this package. Aliases come first: importing must not rename
    the modules that are there already."""
    sys.meta_path.insert(0, Finder())
    for name, module in list(sys.modules.items()):
        if name == _OWN or name.startswith(_OWN + "."):
            sys.modules["torch" + name.removeprefix(_OWN)] = module
    sys.modules["torch.cuda.amp"] = sys.modules["torch.amp"]
    _triton.install(Gap)
