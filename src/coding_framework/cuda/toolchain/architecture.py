"""The GPU architecture that candidates are compiled for: that of the GPU here, else sm_90."""

from __future__ import annotations

import re
import shutil
from functools import lru_cache

from coding_framework.cuda.toolchain.tool_output import output_of
from coding_framework.cuda.toolchain.toolkit import Toolkit
from coding_framework.store.events import log

DEFAULT_ARCHITECTURE = 90
"""Where there is no GPU, or none that nvcc compiles for. The emulator runs sm_80, 90 and 100."""


def detect_architecture(toolkit: Toolkit) -> int:
    """Compute capability times ten: of the first GPU that the driver shows and nvcc supports, else
    `DEFAULT_ARCHITECTURE`. Asks the driver once a process."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return DEFAULT_ARCHITECTURE
    here = _of_gpus(tool)
    supported = _of_nvcc(toolkit)
    for architecture in here:
        if architecture in supported:
            return architecture
    if here:
        log.warning("no_supported_gpu", gpus=here, compiled_for=DEFAULT_ARCHITECTURE)
    return DEFAULT_ARCHITECTURE


@lru_cache(maxsize=8)
def _of_gpus(tool: str) -> tuple[int, ...]:
    """Of each GPU, as nvidia-smi lists them; () where it cannot say."""
    found = re.findall(
        r"^\s*(\d+)\.(\d)\s*$",
        output_of(tool, "--query-gpu=compute_cap", "--format=csv,noheader"),
        re.MULTILINE,
    )
    return tuple(int(major) * 10 + int(minor) for major, minor in found)


@lru_cache(maxsize=8)
def _of_nvcc(toolkit: Toolkit) -> frozenset[int]:
    found = re.findall(r"^sm_(\d+)$", output_of(str(toolkit.nvcc), "--list-gpu-code"), re.MULTILINE)
    return frozenset(int(number) for number in found)
