"""A device on paper: what host code asks for is written down, and nothing is done.

Enough for host code that reads nothing back: it cannot tell. What it reads ends the recording.
"""

from __future__ import annotations

from coding_framework.cuda.device.work_meter import WorkMeter
from coding_framework.cuda.plan.launch_plan import Launch, LaunchReport, ModuleInfo
from coding_framework.types import BackendName

_FIRST_ADDRESS = 0x7E1000000000
"""Where no device of ours has memory: blocks of a recording and of a trial do not meet."""
_ALIGNMENT = 256


class ReadsBackError(Exception):
    """The host code reads from the device: without one there is no answer."""


class PaperDevice:
    """A `Device` for `PlanRecorder` alone."""

    backend: BackendName = "emulator"
    name = "paper"
    meter: WorkMeter | None = None

    def __init__(self) -> None:
        self._next = _FIRST_ADDRESS

    def load(self, build: object) -> ModuleInfo:
        raise NotImplementedError("the kernels are known from the device of the trial")

    def alloc(self, nbytes: int) -> int:
        address = self._next
        self._next += (nbytes + _ALIGNMENT - 1) // _ALIGNMENT * _ALIGNMENT + _ALIGNMENT
        return address

    def _nothing(self, *_: object, **__: object) -> None:
        return None

    free = poison = upload = copy = fill = check_guards = close = _nothing

    def download(self, address: int, nbytes: int) -> bytes:
        raise ReadsBackError

    def launch(self, launch: Launch, *, checks: bool = False) -> LaunchReport:
        return LaunchReport(launch.kernel)
