"""Describes the GPU for a prompt, from the data file that the emulator's time model reads too."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

import yaml

from coding_framework.errors import UsageError

DEFAULT_DEVICE = "NVIDIA H200"


@cache
def _entries() -> dict[str, dict[str, Any]]:
    """The file's entries by GPU. It is read as data: agents import nothing of `cuda`."""
    file = resources.files("coding_framework").joinpath("cuda/emulator/gpus.yaml")
    entries: dict[str, dict[str, Any]] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return entries


def device_line(name: str = DEFAULT_DEVICE) -> str:
    """One sentence of facts for a prompt. Raises UsageError for a GPU that is not in the file;
    the message lists those that are."""
    try:
        facts = _entries()[name]
    except KeyError:
        raise UsageError(
            f"nothing is known of the GPU {name!r}: choose one of {', '.join(_entries())}"
        ) from None
    return (
        f"{name} (compute capability {facts['compute_capability']}): "
        f"{facts['multiprocessors']} SMs, {32 * facts['max_warps']} threads and "
        f"{facts['registers']} registers an SM, {facts['shared_bytes_per_block'] // 1024} KiB of "
        f"shared memory a block at most, {facts['l2_bytes'] >> 20} MiB L2, "
        f"{facts['dram_gbps']} GB/s of DRAM bandwidth."
    )
