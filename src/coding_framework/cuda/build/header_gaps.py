"""What torch or the toolkit have and our small headers lack, by nvcc's first error.

Only what the installed headers have is a gap of ours: a name that is in none of them is the
candidate's own mistake. Who asks for a gap on purpose gets `unsupported`, which earns nothing.
"""

from __future__ import annotations

import re
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

from coding_framework.cuda.toolchain.toolkit import find_toolkit

_HEADER = re.compile(
    r'cannot open source file "(?P<name>[^"]+)"|^(?P<other>[\w./+-]+): No such file or directory'
)
_MEMBER = re.compile(
    r'(?:namespace|class|struct) "(?P<where>(?:at|torch|c10|pybind11)\b[^"]*)" has no (?:actual )?'
    r'member "(?P<name>\w+)"'
)
_MACRO = re.compile(r'identifier "(?P<name>(?:AT|C10|TORCH|CUDA_KERNEL)_\w+)" is undefined')
_TRITON = re.compile(r"(?P<name>type \w+) not supported in this architecture")
"""Of Triton's compiler, which has sm_80 as its target."""
_LIBRARIES = re.compile(
    r"(?:curand|cusparse|cusolver|cufft|cublas|cudnn|nvrtc|nccl|nvshmem)\w*\.h(?:pp)?"
    r"|(?:cutlass|cute|cub|thrust|nvtx3|cuda|nvfunctional|cooperative_groups)/[\w./]+"
)
"""Headers of NVIDIA's libraries, which may not be installed here."""
_NAMED = (
    *("c10/**/*.h", "ATen/*.h", "ATen/core/*.h", "ATen/cuda/**/*.*h", "ATen/native/cuda/*.*h"),
    "torch/library.h",
)
"""Where the names are that kernels in extension form use."""
_WORD = re.compile(rb"[A-Za-z_]\w+")
_COMMENT = re.compile(rb"//[^\n]*|/\*.*?\*/", re.DOTALL)


def gap_in(message: str) -> str | None:
    """The header, member, macro or Triton type that is missing in ours alone; else None."""
    if found := _HEADER.search(message):
        name = found["name"] or found["other"]
        return f"the header {name}" if _is_header(name) else None
    if found := _MEMBER.search(message):
        where = found["where"].partition("<")[0]
        return f"{where}::{found['name']}" if found["name"] in _names() else None
    if found := _MACRO.search(message):
        return found["name"] if found["name"] in _names() else None
    if found := _TRITON.search(message):
        return f"Triton's {found['name']}"
    return None


def _is_header(name: str) -> bool:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        return False
    return _LIBRARIES.fullmatch(name) is not None or any(
        (folder / name).is_file() for folder in _folders()
    )


def _folders() -> list[Path]:
    include = _torch()
    return [include, include / "torch/csrc/api/include", find_toolkit().include]


def _torch() -> Path:
    found = find_spec("torch")
    return Path(found.origin).parent / "include" if found and found.origin else Path("/nonexistent")


@lru_cache(maxsize=1)
def _names() -> frozenset[str]:
    """Every name in the headers of the installed torch that extensions use: some tenths of a
    second, once a process and only after such an error."""
    include = _torch()
    files = [path for pattern in _NAMED for path in include.glob(pattern)]
    found = {word for path in files for word in _WORD.findall(_COMMENT.sub(b"", path.read_bytes()))}
    operators = {path.stem for path in (include / "ATen/ops").glob("*.h")}
    return frozenset({word.decode() for word in found} | operators)
