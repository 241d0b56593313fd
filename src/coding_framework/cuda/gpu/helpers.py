"""Builds the kernels of ours that every device process loads beside the candidate's."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from coding_framework.cuda.native import build_once
from coding_framework.cuda.toolkit import find_toolkit


def helpers_cubin(architecture: int) -> Path:
    """`helpers.cu` for a GPU of this compute capability (times ten), compiled once a machine."""
    source = resources.files(__package__).joinpath("helpers.cu").read_text()
    return build_once(
        f"helpers.sm_{architecture}.cubin",
        {"helpers.cu": source},
        ("-O2", "-cubin", f"-arch=sm_{architecture}", "helpers.cu"),
        compiler=str(find_toolkit().nvcc),
    )
