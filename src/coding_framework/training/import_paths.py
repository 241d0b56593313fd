"""Things that text names for other processes: "module:name", or "FILE.py:name"."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from coding_framework.errors import UsageError


def build(import_path: str, *args: Any, **kwargs: Any) -> Any:
    """Import what a path names and call it.

    Raises:
        UsageError: where the path has another form, or names nothing that can be used.
    """
    return named(import_path)(*args, **kwargs)


def named(import_path: str) -> Any:
    """What a path names. Raises UsageError, as `build`."""
    place, _, name = import_path.rpartition(":")
    if not place or not name:
        raise UsageError(
            f"import path {import_path!r}: write it as 'module:callable' or 'FILE.py:callable'"
        )
    try:
        module = _file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
        return getattr(module, name)
    except Exception as e:  # the module is the user's: what it raises is said and not ours
        why = f"{type(e).__name__}: {e}"
        raise UsageError(
            f"import path {import_path!r} names nothing that can be used ({why})"
        ) from e


def absolute(import_path: str) -> str:
    """The path for a process that runs in another folder."""
    place, _, name = import_path.rpartition(":")
    return f"{Path(place).resolve()}:{name}" if place.endswith(".py") else import_path


def _file(file: Path) -> ModuleType:
    """The module in a file, imported once; what lies beside it can be imported too."""
    path = file.resolve()
    name = f"_user_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None, "a name that ends in .py has a loader"
    assert spec.loader is not None
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
