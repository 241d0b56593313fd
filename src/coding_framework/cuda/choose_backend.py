"""Chooses the device that a judge judges on, and makes its `Backend`.

Light: neither torch nor a driver is imported before it is needed.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from coding_framework.cuda.device.gpu_sharing import gpus
from coding_framework.errors import UsageError
from coding_framework.types import BackendName, BaselinesName

if TYPE_CHECKING:  # imports torch, which takes a second
    from coding_framework.cuda.timing.backend import Backend


def choose_backend(name: str) -> BackendName:
    """The device that `name` stands for: "auto" is the GPU where there is one. Raises UsageError
    where "cuda" is asked for and is not here."""
    if name == "emulator":
        return "emulator"
    missing = _why_no_gpu()
    if missing is None:
        return "cuda"
    if name == "cuda":
        raise UsageError(
            f"{missing}: use --backend emulator, which needs no GPU, or auto, which takes it here"
        )
    return "emulator"


def make_backend(name: BackendName, baselines: BaselinesName, launch_wall_s: float) -> Backend:
    """The backend of that name. baselines: the times of PyTorch that a GPU's are put beside.
    launch_wall_s: what one launch may take on a GPU. The emulator checks for the GPU."""
    from coding_framework.cuda.emulator.backend import EmulatorBackend

    if name == "emulator":
        return EmulatorBackend()
    from coding_framework.cuda.gpu.backend import CudaBackend

    return CudaBackend(baselines, launch_wall_s=launch_wall_s, make_checker=EmulatorBackend)


def _why_no_gpu() -> str | None:
    """What is missing here to judge on a GPU; None where nothing is."""
    if not gpus():
        return "no NVIDIA GPU is visible here"
    if find_spec("cuda") is None or find_spec("cuda.bindings") is None:
        return "the package cuda-bindings is not installed"
    return None
