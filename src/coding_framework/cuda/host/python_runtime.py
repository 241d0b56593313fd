"""The Python that answers run in: an interpreter, a part of its library, and the handle-only torch.

Made once from the interpreter that runs us, as one folder that a sandbox can mount. The library
lies in one archive, precompiled: the host process may read files, but not list folders, and nothing
of this environment's packages (the real torch among them) is in it.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import marshal
import os
import shutil
import sys
import sysconfig
import zipfile
from functools import lru_cache
from pathlib import Path

from coding_framework.cuda.host.torch_source import torch_code, torch_files
from coding_framework.paths import alone, cache_dir, write_error

_HEADER = importlib.util.MAGIC_NUMBER + (0b01).to_bytes(4, "little")
"""Of a .pyc that names the hash of its source, which is not looked at."""
_TORCH = Path(__file__).parents[1] / "model_new" / "handle_torch"
_VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
_LEFT_OUT = frozenset(
    {
        *("__pycache__", "config", "dist-packages", "distutils", "ensurepip", "idlelib", "lib2to3"),
        *("lib-dynload", "pydoc_data", "site-packages", "sqlite3", "test", "tests", "tkinter"),
        *("turtledemo", "unittest", "venv", "xmlrpc"),
    }
)
"""Folders of Python's library that no kernel needs, and everything installed beside it."""


def python_runtime() -> Path:
    """Folder of the runtime; the first call on a machine makes it (a few seconds)."""
    return _runtime(str(cache_dir()))


def python_command(
    runtime: str, library: str, folder: str
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Command and environment that serve the answer in `folder`; all paths as the sandbox has them.
    library: the host library."""
    program = "import sys; from handle_torch._serve import main; main(*sys.argv[1:])"
    command, environment = interpreter(runtime)
    environment["LD_PRELOAD"] = library  # its functions come before those of libc
    return (*command, "-P", "-c", program, library, folder), environment


def interpreter(runtime: str) -> tuple[list[str], dict[str, str]]:
    """Command and environment of the runtime's Python."""
    environment = {
        "PYTHONHOME": runtime,
        "LD_LIBRARY_PATH": f"{runtime}/lib",
        "PYTHONUTF8": "1",
    }
    return [f"{runtime}/bin/python{_VERSION}", "-S", "-s", "-B"], environment


@lru_cache(maxsize=4)
def _runtime(cache: str) -> Path:
    target = Path(cache) / "native" / f"python-{_digest()[:24]}"
    if target.exists():
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with alone(target.parent / f"{target.name}.lock"):
            if not target.exists():
                partial = target.with_name(f"{target.name}.partial")
                shutil.rmtree(partial, ignore_errors=True)  # of a process that was killed
                partial.mkdir(mode=0o700)
                _make(partial)
                partial.chmod(0o755)
                os.rename(partial, target)
    except OSError as e:
        raise write_error(target, e) from e
    return target


@lru_cache(maxsize=1)
def _digest() -> str:
    """Of the interpreter and of our torch: what the runtime is made of."""
    key = hashlib.sha256(f"1 {sys.version} {_interpreter()} {sorted(_LEFT_OUT)}".encode())
    for path, inside in (*_own_files(), *torch_files()):
        key.update(inside.encode() + b"\0" + path.read_bytes())
    return key.hexdigest()


def _own_files() -> list[tuple[Path, str]]:
    """(file, path in the archive) of the torch without arithmetic."""
    found = sorted(p for suffix in ("py", "txt") for p in _TORCH.rglob(f"*.{suffix}"))
    return [(path, f"handle_torch/{path.relative_to(_TORCH)}") for path in found]


def _interpreter() -> Path:
    return Path(os.path.realpath(sys.executable))


def _make(folder: Path) -> None:
    (folder / "bin").mkdir()
    shutil.copy(_interpreter(), folder / "bin" / f"python{_VERSION}")
    library = folder / "lib"
    library.mkdir()
    shared = sysconfig.get_config_var("INSTSONAME")
    found = Path(sysconfig.get_config_var("LIBDIR") or "/usr/lib") / str(shared)
    if ".so" in str(shared) and found.is_file():
        shutil.copy(found, library / str(shared))
    compiled = Path(str(sysconfig.get_config_var("DESTSHARED") or "/nowhere"))
    into = library / f"python{_VERSION}" / "lib-dynload"
    into.mkdir(parents=True)
    for path in compiled.glob("*.so"):
        if "test" not in path.name:
            shutil.copy(path, into / path.name)
    name = f"python{_VERSION.replace('.', '')}.zip"
    with zipfile.ZipFile(library / name, "w", zipfile.ZIP_STORED) as archive:
        for source, inside in _modules():
            if source.suffix == ".py":
                archive.writestr(f"{inside}c", _compiled(source, inside))
            else:
                archive.write(source, inside)
        for source, inside in torch_files():
            text = source.read_bytes()
            code = torch_code(text.decode(), inside)
            archive.writestr(f"handle_torch/{inside}c", _pyc(text, marshal.dumps(code)))


def _modules() -> list[tuple[Path, str]]:
    """(file, path in the archive) of everything that can be imported."""
    found = _own_files()
    root = Path(sysconfig.get_path("stdlib"))
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).parts
        if not any(part in _LEFT_OUT or part.startswith("config-") for part in parts):
            found.append((path, "/".join(parts)))
    return found


def _compiled(source: Path, inside: str) -> bytes:
    """A .pyc that is taken as it is: nobody changes the archive. Python's own is reused where it
    fits, which saves most of the time."""
    text = source.read_bytes()
    cached = Path(importlib.util.cache_from_source(str(source)))
    with contextlib.suppress(OSError):
        made = cached.read_bytes()
        stamp = int(source.stat().st_mtime).to_bytes(8, "little")[:4]
        size = len(text).to_bytes(4, "little")
        if made[:16] == importlib.util.MAGIC_NUMBER + bytes(4) + stamp + size:
            return _pyc(text, made[16:])
    return _pyc(text, marshal.dumps(compile(text, inside, "exec", dont_inherit=True)))


def _pyc(source: bytes, code: bytes) -> bytes:
    return _HEADER + importlib.util.source_hash(source) + code
