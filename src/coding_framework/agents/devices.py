"""Describes the GPU for a prompt, from the data file that the emulator's time model reads too.

A prompt tells of the GPU of the machine that asks, where it has one that the file knows: kernels
are judged there, and what fits an H200 need not fit an A100. Else of the one that is emulated.
"""

from __future__ import annotations

import hashlib
import os
from functools import cache
from importlib import resources
from typing import Any

import yaml

from coding_framework.errors import UsageError

DEFAULT_DEVICE = "NVIDIA H200"
TOLD_DEVICE = "CUDA_RL_TOLD_GPU"
"""Environment variable with the GPU that prompts tell of, where kernels run on another machine."""


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


@cache
def this_device() -> str:
    """The GPU that prompts tell of where nobody names one. Raises UsageError where the environment
    names one that is not in the file."""
    if named := os.environ.get(TOLD_DEVICE):
        device_line(named)
        return named
    return next(
        (known for name in _driver_names() if (known := known_device(name))), DEFAULT_DEVICE
    )


def told_device() -> str | None:
    """The same for what identifies a run; None: the default one."""
    return device if (device := this_device()) != DEFAULT_DEVICE else None


def known_device(name: str) -> str | None:
    """The file's entry of a GPU as its driver names it ("NVIDIA H100 80GB HBM3"); None: none."""
    alike = (
        known
        for known in _entries()
        if name == known or name.startswith((f"{known} ", f"{known}-"))
    )
    return max(alike, key=len, default=None)


def device_of_example(example_id: str) -> str:
    """The GPU that an example's prompt tells of, by its id alone: the default one for half of them,
    so that a policy knows the others too."""
    names = [name for name in _entries() if name != DEFAULT_DEVICE]
    drawn = int.from_bytes(hashlib.sha256(example_id.encode()).digest()[:4], "big")
    return DEFAULT_DEVICE if drawn % 2 else names[drawn // 2 % len(names)]


def _driver_names() -> list[str]:
    """The names of this machine's GPUs; [] where there is none."""
    import pynvml

    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
        handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(count))
        return [str(pynvml.nvmlDeviceGetName(handle)) for handle in handles]
    except pynvml.NVMLError:
        return []
