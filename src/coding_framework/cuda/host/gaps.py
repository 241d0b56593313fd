"""The gaps that a host process may name, so that its verdict is `unsupported`.

Training leaves such a verdict out, and what the process says is a claim of the candidate's. So the
judge takes a name only from these lists: functions of the CUDA toolkit, names of torch, packages
that answers import. Whoever else says that something is missing has failed by itself.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

from coding_framework.cuda.toolchain.toolkit import find_toolkit

_NAMES = Path(__file__).parents[1] / "model_new" / "handle_torch" / "torch_names.txt"
_HEADERS = ("cuda_runtime_api.h", "cuda.h", "crt/host_runtime.h", "crt/host_defines.h")
_FUNCTION = re.compile(rb"\b(?:__cuda|cuda|cu)[A-Z]\w*")
_NAMED = frozenset(
    {
        "thread block clusters (cudaLaunchAttributeClusterDimension)",
        "torch.Tensor.numpy",
        "torch.Tensor.view (as another dtype)",
        "torch.utils.cpp_extension.load (use load_inline)",
        "a compiled function called with names of arguments",
    }
)


def is_listed(text: str) -> bool:
    """Whether a claim names a gap of ours."""
    return text in _NAMED or text in _torch_names() or _members().fullmatch(text) is not None


def is_toolkit_function(name: str) -> bool:
    """Whether the CUDA toolkit declares this function."""
    toolkit = find_toolkit()
    return name in _functions(str(toolkit.include), toolkit.version)


@lru_cache(maxsize=4)
def _functions(include: str, version: str) -> frozenset[str]:
    texts = [path.read_bytes() for name in _HEADERS if (path := Path(include) / name).is_file()]
    return frozenset(name.decode() for text in texts for name in _FUNCTION.findall(text))


def _rows() -> list[list[str]]:
    """The table of what the torch of answers names as missing: kind, where, names."""
    return [line.split("\t") for line in _NAMES.read_text(encoding="utf-8").splitlines()]


@lru_cache(maxsize=1)
def _torch_names() -> frozenset[str]:
    layers = {f"torch.nn.{where}" for kind, where, _ in _rows() if kind == "layer"}
    others = (
        f"{where}.{name}"
        for kind, where, names in _rows()
        if kind == "others"
        for name in names.split()
    )
    return frozenset(layers.union(others))


@lru_cache(maxsize=1)
def _members() -> re.Pattern[str]:
    """Of the packages that answers import, and of what else ends a run by its name."""
    packages = next(names.split() for kind, _, names in _rows() if kind == "packages")
    named = "|".join(map(re.escape, ("the module torch", "torch.utils.cpp_extension", *packages)))
    return re.compile(rf"(?:{named})(?:\.\w{{1,80}}){{1,8}}")
