"""Finds the CUDA toolkit: $CUDA_RL_NVCC, then PATH if usable, then NVIDIA's PyPI packages.

Guaranteed: the toolkit returned has nvcc, its front ends, ptxas and its headers in one tree, so
that mounting `root` is enough to compile. Not guaranteed: that its nvcc accepts
the host compiler; the first compilation says so.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
import sysconfig
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from coding_framework.errors import MissingToolError
from coding_framework.store.events import log

OLDEST_VERSION = (12, 4)
"""Older front ends lack C++17 features that the small torch headers use."""

Origin = Literal["CUDA_RL_NVCC", "PATH", "PyPI packages"]


@dataclass(frozen=True, slots=True)
class Toolkit:
    """A CUDA toolkit on this machine. Maker: find_toolkit. Consumer: the compiler, the runner."""

    root: Path
    """Top folder; nvcc lies in `root/bin`."""
    include: Path
    """Folder of cuda_runtime.h."""
    version: str
    """Release and build, e.g. "13.0.88"."""
    origin: Origin

    @property
    def nvcc(self) -> Path:
        return self.root / "bin" / "nvcc"

    @property
    def fingerprint(self) -> str:
        """What tells this toolkit from any other, also from itself with other packages in it."""
        return _fingerprint(self, times=True)

    @property
    def contents(self) -> str:
        """As `fingerprint`, without the times of its files: the same where the same toolkit was
        installed on another machine."""
        return _fingerprint(self, times=False)


@lru_cache(maxsize=8)
def _fingerprint(toolkit: Toolkit, times: bool) -> str:
    """Version, the programs, and which headers there are, two folders deep."""
    key = hashlib.sha256(toolkit.version.encode())
    programs = [*toolkit.root.glob("bin/*"), *toolkit.root.glob("nvvm/bin/*")]
    for path in sorted(programs):
        stat = path.stat()
        time = stat.st_mtime_ns if times else ""
        key.update(f"{path.relative_to(toolkit.root)} {stat.st_size} {time}\0".encode())
    for pattern in ("*", "*/*", "*/*/*"):
        for path in sorted(toolkit.include.glob(pattern)):
            key.update(f"{path.relative_to(toolkit.include)}\0".encode())
    return key.hexdigest()


def find_toolkit() -> Toolkit:
    """The toolkit to compile with. Raises MissingToolError where there is none that can be used."""
    return _find(os.environ.get("CUDA_RL_NVCC"), os.environ.get("PATH", ""))


@lru_cache(maxsize=8)
def _find(named: str | None, path: str) -> Toolkit:
    if named:
        if not os.access(named, os.X_OK):
            raise MissingToolError(
                f"CUDA_RL_NVCC is {named!r}, which is not an executable file: set it to the path "
                "of nvcc, or unset it"
            )
        return _inspect(Path(named), "CUDA_RL_NVCC")
    on_path = shutil.which("nvcc", path=path)
    packaged = packaged_nvcc()
    if on_path is not None:
        try:
            return _inspect(Path(on_path), "PATH")
        except MissingToolError as e:
            if packaged is None:
                raise
            log.warning("nvcc on PATH is passed over for that of the packages", reason=str(e))
    if packaged is not None:
        return _inspect(packaged, "PyPI packages")
    raise MissingToolError(
        "nvcc was not found on PATH nor among the installed packages: run `make setup`, which "
        "installs NVIDIA's compiler packages, or set CUDA_RL_NVCC to the path of nvcc"
    )


def packaged_nvcc() -> Path | None:
    """nvcc of the PyPI packages in this environment (site-packages/nvidia/cu13), if it is there."""
    site = Path(sysconfig.get_paths()["purelib"]) / "nvidia"
    for folder in sorted(site.glob("cu[0-9]*"), reverse=True):
        nvcc = folder / "bin" / "nvcc"
        if nvcc.is_file() and (folder / "nvvm" / "bin" / "cicc").is_file():
            return nvcc
    return None


def _inspect(nvcc: Path, origin: Origin) -> Toolkit:
    """Ask nvcc for its own folder and version: what PATH names may be a link or a script."""
    dry = _ask(nvcc, "--dryrun", "-x", "cu", os.devnull)
    top = re.search(r"^#\$ TOP=(.+)$", dry, re.MULTILINE)
    target = re.findall(r"^#\$ _TARGET_DIR_=(.*)$", dry, re.MULTILINE)
    if top is None:
        find_host_compiler()  # without one nvcc does not even tell its folders: say what is missing
        raise MissingToolError(
            f"{nvcc} ({origin}) does not answer as nvcc does: set CUDA_RL_NVCC to a working nvcc"
        )
    root = Path(top.group(1)).resolve()
    release = re.search(r"V(\d+)\.(\d+)\.(\d+)", _ask(nvcc, "--version"))
    version = release.group(0)[1:] if release else "0.0.0"
    if tuple(int(x) for x in version.split(".")[:2]) < OLDEST_VERSION:
        oldest = ".".join(str(x) for x in OLDEST_VERSION)
        raise MissingToolError(
            f"nvcc {version} at {nvcc} is too old: install CUDA {oldest} or newer, or unset PATH's "
            "nvcc to use the PyPI packages"
        )
    include = root / (target[-1] if target else "") / "include"
    for part in (root / "bin" / "nvcc", root / "bin" / "ptxas", include / "cuda_runtime.h"):
        if not part.is_file():
            raise MissingToolError(
                f"the CUDA toolkit at {root} lacks {part.relative_to(root)}: install it whole, or "
                "set CUDA_RL_NVCC to another nvcc"
            )
    return Toolkit(root=root, include=include.resolve(), version=version, origin=origin)


def _ask(nvcc: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            [str(nvcc), *arguments], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as e:
        raise MissingToolError(
            f"{nvcc} cannot be run ({e}): set CUDA_RL_NVCC to a working nvcc"
        ) from e
    return done.stdout + done.stderr


def find_host_compiler() -> Path:
    """g++, which nvcc compiles host code with. Raises MissingToolError where it, or gcc, which nvcc
    asks for the rest, is not there."""
    for tool in ("g++", "gcc"):
        if shutil.which(tool) is None:
            raise MissingToolError(
                f"{tool} is not installed, and nvcc needs it: install your system's g++ package"
            )
    return Path(str(shutil.which("g++"))).resolve()


@lru_cache(maxsize=1)
def host_compiler_fingerprint() -> str:
    """Versions of g++ and of the C library, whose headers every source includes."""
    return " ".join((*platform.libc_ver(), _ask(find_host_compiler(), "--version")))
