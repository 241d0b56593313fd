"""Builds the kernels of ours: `helpers.cu`, which every device process loads beside the
candidate's, and `tolerance_kernels.cu`, which the judge's own process loads."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from coding_framework.cuda.toolchain.native_parts import build_once
from coding_framework.cuda.toolchain.toolkit import find_toolkit


def our_source(name: str) -> str:
    """Text of `name`.cu."""
    return resources.files(__package__).joinpath(f"{name}.cu").read_text()


def our_cubin(name: str, architecture: int) -> Path:
    """`name`.cu for a GPU of this compute capability (times ten), compiled once a machine."""
    return build_once(
        f"{name}.sm_{architecture}.cubin",
        {f"{name}.cu": our_source(name)},
        ("-O2", "-cubin", f"-arch=sm_{architecture}", f"{name}.cu"),
        compiler=str(find_toolkit().nvcc),
    )
