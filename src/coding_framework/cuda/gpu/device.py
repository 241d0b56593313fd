"""`CudaDevice`: the `Device` of a machine with an NVIDIA GPU, in a process of its own.

The process outlives the candidate: a context takes a good part of a second to make, so after
`close` it is emptied (memory overwritten, module unloaded) and waits for this process's next
candidate. It is replaced after whatever a CUDA context does not survive, after a fault of ours, and
after some hundreds of candidates: the next one comes up while the old one is ended, which takes
seconds where a kernel still runs. A kernel that does not end is ended with its process; a GPU on
which no process comes up is left alone for a while (`sharing.quarantine`).
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from coding_framework.cuda.device.gpu_sharing import (
    Gpu,
    Seat,
    in_quarantine,
    quarantine,
    seats_taken,
    usable,
)
from coding_framework.cuda.device.remote import RemoteDevice, our_environment
from coding_framework.cuda.expected.inputs import bits_of, tensor_bytes
from coding_framework.cuda.gpu.exchange import (
    Exchange,
    exchange_for,
    free_exchanges,
    torch_device,
)
from coding_framework.cuda.gpu.settings import GpuSettings
from coding_framework.cuda.plan.launch_plan import CandidateFault, LaunchPlan, ModuleInfo
from coding_framework.cuda.timing.statistics import TimingProtocol
from coding_framework.errors import DeviceError, DeviceFullError
from coding_framework.store.events import log
from coding_framework.types import BackendName, Status

if TYPE_CHECKING:
    import torch


_START_S = 90.0
_END_S = 20.0
"""For a killed process to give its GPU back: with a running kernel it takes a few seconds."""
_DEATH_S = 5.0
"""From a process's closed socket to its exit code."""
_FROM_OUTSIDE = (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP)
"""Exit codes that say nothing of the GPU: an operator, or the kernel for want of memory."""
_GRACE_S = 150.0
"""Beyond the limit on a launch, for an answer to come: it may wait for the measurements of all
other judges. What does not end, the device process itself ends much earlier."""
_MEASURE_S = 180.0
_CANDIDATES_A_PROCESS = 500
_SAID_BYTES = 2000
_shares = True
"""Whether device memory can be shared between processes here; found out at the first try."""


_home: Gpu | None = None
"""The GPU that this process judges on: the judge's own PyTorch works there as well."""


def _take_seat() -> Seat:
    global _home
    candidates = usable()
    seat = Seat((_home,) if _home in candidates else candidates)
    _home = seat.gpu
    return seat


class _Process:
    """A device process and its socket. Made by `_start`, held by one device at a time."""

    def __init__(self, settings: GpuSettings) -> None:
        self.settings = settings
        self.seat = _take_seat()
        self.owner = os.getpid()
        self.candidates = 0
        self.exchange: Exchange | None = None
        ours, theirs = socket.socketpair()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by end()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "coding_framework.cuda.gpu.process",
                 str(theirs.fileno()), str(os.getpid()), self.seat.gpu.uuid,
                 json.dumps(asdict(settings))],
                pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=self._log, start_new_session=True, env=environment(self.seat.gpu.uuid),
            )  # fmt: skip
        self.connection = ours
        with _idle_lock:
            _processes.add(self)

    @property
    def alive(self) -> bool:
        return self.owner == os.getpid() and self.process.poll() is None

    def said(self) -> str:
        """The end of what it wrote to its standard error; also what a failed assertion says."""
        self._log.seek(max(0, self._log.seek(0, os.SEEK_END) - _SAID_BYTES))
        return " ".join(self._log.read().decode("utf-8", "replace").split())

    def end(self) -> int | None:
        """Kill it; its exit code. A GPU that keeps a killed process is put into quarantine."""
        self.connection.close()
        if self.owner != os.getpid():
            return None
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGKILL)
        try:
            return self.process.wait(_END_S)
        except subprocess.TimeoutExpired:
            quarantine(self.seat.gpu, f"process {self.process.pid} does not end")
            log.error("gpu_in_quarantine", gpu=self.seat.gpu.uuid, why="a process does not end")
            return None
        finally:
            self.seat.close()
            self._log.close()


def environment(uuid: str) -> dict[str, str]:
    """Of a process that sees one GPU only, and loads all device code when it is asked to."""
    return {
        **our_environment(),
        "CUDA_VISIBLE_DEVICES": uuid,
        "CUDA_MODULE_LOADING": "EAGER",
        "CUDA_CACHE_DISABLE": "1",
    }


def _not_up(gpu: Gpu, e: DeviceError, *, killed: bool = False) -> DeviceError:
    """What it means that a device process did not come up. One that was killed from outside says
    nothing of its GPU. A GPU on which others of ours work answers: it is full of them, and what a
    driver says of that is not always that its memory ran out. Without others, it is given no work
    for a while."""
    if killed:
        return DeviceError(f"a device process was killed before it was up ({e})")
    others = seats_taken(gpu)
    if others:
        return DeviceFullError(
            f"no device process comes up on {gpu.name} beside {others} others ({e}): judge fewer "
            "kernels at once"
        )
    quarantine(gpu, str(e))
    log.error("gpu_in_quarantine", gpu=gpu.uuid, why=str(e))
    return DeviceError(f"no device process comes up on {gpu.name}: {e}")


_processes: WeakSet[_Process] = WeakSet()
"""All of this process's that have not ended, and maybe more."""
_idle: list[_Process] = []
_coming: list[tuple[GpuSettings, threading.Thread]] = []
"""Processes on their way, with what they will do for."""
_idle_lock = threading.Lock()


def _take_idle(settings: GpuSettings) -> _Process | None:
    """A process that waits, or is on its way."""
    while True:
        coming = _first_coming(settings)
        found = _pop_idle(settings)
        if found is not None or coming is None:
            return found
        coming.join()


def _pop_idle(settings: GpuSettings) -> _Process | None:
    with _idle_lock:
        for process in list(_idle):
            if not process.alive or in_quarantine(process.seat.gpu):
                _idle.remove(process)
                process.end()
            elif process.settings == settings:
                _idle.remove(process)
                return process
    return None


def _first_coming(settings: GpuSettings) -> threading.Thread | None:
    with _idle_lock:
        _coming[:] = [(what, thread) for what, thread in _coming if thread.is_alive()]
        return next((thread for what, thread in _coming if what == settings), None)


def _replace(settings: GpuSettings) -> None:
    """Have a process come up for the next candidate."""
    thread = threading.Thread(target=_bring_up, args=(settings,), daemon=True)
    with _idle_lock, contextlib.suppress(RuntimeError):  # this process may be ending
        thread.start()
        _coming.append((settings, thread))


def _bring_up(settings: GpuSettings) -> None:
    with contextlib.suppress(DeviceError):  # it shows again, to whoever needs the device
        CudaDevice(settings, _Process(settings)).close()


def end_idle() -> None:
    """End the device processes that wait for candidates."""
    with _idle_lock:
        processes, _idle[:] = list(_idle), []
    for process in processes:
        process.end()


def free_unmapped() -> None:
    """Give back the exchange buffers that no device process maps."""
    with _idle_lock:
        processes = list(_processes)
    free_exchanges([process.exchange for process in processes if process.alive])


atexit.register(end_idle)


class CudaDevice(RemoteDevice):
    """An NVIDIA GPU. See `cuda/device/device.py` for what each method promises."""

    backend: BackendName = "cuda"
    _what = "the GPU's device process"

    def __init__(
        self, settings: GpuSettings | None = None, process: _Process | None = None
    ) -> None:
        """process: a new one of these settings, which may want memory that another still has: that
        it does not come up says nothing of the GPU. None: one that waits, else a new one. Raises
        DeviceError where no GPU can be used."""
        self.settings = settings or GpuSettings()
        self._doubtful = self._killed = self._served = self._full = False
        self._process = process or _take_idle(self.settings) or _Process(self.settings)
        self._connection = self._process.connection
        self._closed = False
        self.gpu: Gpu = self._process.seat.gpu
        try:
            self._connection.settimeout(_START_S)
            self.facts: dict[str, Any] = self._ask("hello")
        except DeviceError as e:
            if not self._closed:
                self._give_up()
            if isinstance(e, DeviceFullError) or process is not None:
                raise
            raise _not_up(self.gpu, e, killed=self._killed) from e
        self._connection.settimeout(self.settings.launch_wall_s + _GRACE_S)
        self.name = str(self.facts["name"])

    def close(self) -> None:
        """The process is emptied and kept, or ended where anything about it is in doubt."""
        if self._closed:
            return
        process = self._process
        process.candidates += 1
        worn = self._doubtful or process.candidates >= _CANDIDATES_A_PROCESS
        try:
            if not worn and process.alive:
                self._ask("reset")
        except (DeviceError, CandidateFault):
            worn = True
        if self._closed:
            return
        if worn or not process.alive:
            self._give_up()
            return
        self._closed = True
        with _idle_lock:
            _idle.append(process)

    def load(self, build: Path) -> ModuleInfo:
        self._served = True
        return super().load(build)

    def _ask(self, operation: str, *arguments: Any) -> Any:
        try:
            return super()._ask(operation, *arguments)
        except DeviceError as e:
            self._doubtful = True
            self._full = isinstance(e, DeviceFullError)
            raise

    def _silent(self, operation: str) -> Exception:
        """It did not even say that the kernel did not end: the driver itself waits."""
        self._give_up()
        if operation in ("launch", "measure"):
            return CandidateFault(Status.TIMEOUT, "a kernel did not end, nor could it be stopped")
        return DeviceError(f"{self._what} is silent in {operation}: judge the candidate again")

    def _died(self, operation: str) -> DeviceError:
        process = self._process
        if process.owner == os.getpid():
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._killed = process.process.wait(_DEATH_S) in _FROM_OUTSIDE
        return super()._died(operation)

    def _end_process(self) -> int | None:
        said = self._process.said()
        if self._served and not self._full:  # else no other would come up
            _replace(self.settings)
        code = self._process.end()
        if code not in (0, -signal.SIGKILL):
            log.warning("device_process_ended", code=code, said=said)
        return code

    # --- large tensors, without a copy through host memory ----------------------------------------

    def take(self, address: int, tensor: torch.Tensor) -> None:
        """The elements of a tensor on the same GPU, in row-major order, to `address`."""
        nbytes = tensor.numel() * tensor.element_size()
        exchange = self._share(nbytes)
        if exchange is None:
            self.upload(address, tensor_bytes(tensor))
            return
        exchange.put(tensor)
        self._ask("take", address, nbytes)

    def give(self, address: int, nbytes: int) -> torch.Tensor:
        """`nbytes` at `address` as a flat uint8 tensor on the same GPU."""
        exchange = self._share(nbytes)
        if exchange is None:
            return bits_of(self.download(address, nbytes)).to(torch_device(self.gpu))
        self._ask("give", address, nbytes)
        return exchange.get(nbytes)

    def holds(self, address: int, data: torch.Tensor) -> bool:
        """Whether the bytes at `address` are those of a flat uint8 tensor on the same GPU."""
        exchange = self._share(len(data))
        if exchange is None:
            return self.download(address, len(data)) == tensor_bytes(data)
        self._ask("give", address, len(data))
        return exchange.holds(data)

    def _share(self, nbytes: int) -> Exchange | None:
        """The buffer that both processes see, with room for `nbytes`; None where the system does
        not let processes share device memory."""
        global _shares
        if not _shares:
            return None
        exchange = exchange_for(self.gpu, nbytes)
        if self._process.exchange is not exchange:
            if not self._ask("share", exchange.handle):
                _shares = False
                log.warning("device_memory_not_shared", gpu=self.gpu.name)
                return None
            self._process.exchange = exchange
            free_unmapped()  # the one before, which was too small
        return exchange

    # --- timing -----------------------------------------------------------------------------------

    def stage(
        self, region: tuple[int, int, int], draws: int, draw: int, tensor: torch.Tensor
    ) -> None:
        """Bring one of `draws` draws of the input at `region` (address, nbytes, itemsize)."""
        exchange = self._share(region[1]) if tensor.is_cuda else None
        if exchange is not None:
            exchange.put(tensor)
        self._ask("stage", region, draws, draw, tensor_bytes(tensor) if exchange is None else None)

    def measure(
        self,
        plan: LaunchPlan,
        inputs: Sequence[tuple[int, int, int]],
        blocks: Sequence[tuple[int, int]],
        outputs: Sequence[tuple[int, int]],
        draws: int,
        protocol: TimingProtocol,
        *,
        fresh: bool = True,
    ) -> dict[str, Any]:
        """Time a plan whose inputs are staged: `gpu.replay.Measured` as data."""
        self._connection.settimeout(_MEASURE_S + self.settings.launch_wall_s + protocol.max_s)
        try:
            found: dict[str, Any] = self._ask(
                "measure", plan.ops, inputs, blocks, outputs, draws, fresh, asdict(protocol)
            )
        finally:
            if not self._closed:
                self._connection.settimeout(self.settings.launch_wall_s + _GRACE_S)
        return found

    def kept(self, draw: int, output: int, nbytes: int, *, on_gpu: bool) -> torch.Tensor:
        """What a checked call put out, as a flat uint8 tensor."""
        exchange = self._share(nbytes) if on_gpu else None
        if exchange is not None:
            self._ask("kept", draw, output, nbytes, True)
            return exchange.get(nbytes)
        bits = bits_of(self._ask("kept", draw, output, nbytes, False))
        return bits.to(torch_device(self.gpu)) if on_gpu else bits

    def bandwidth(self) -> float:
        """Bytes a second that the GPU reads from its memory, measured now."""
        return float(self._ask("bandwidth"))
