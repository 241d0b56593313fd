"""Samples of the machine: processors, memory, disk, network, the run's processes, GPUs.

`SystemSampler.sample` never raises for what the system does not tell: the field is None then.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from coding_framework.monitoring.gpu_telemetry import GPUTelemetry
from coding_framework.store.run_status import GPUSample, ProcessGroup, SystemSample

_ROLES = (
    ("judge", ("coding_framework.cuda.many.worker", "NodeJudge", "coding_framework_judge")),
    ("device", ("coding_framework.cuda.emulator", "coding_framework.cuda.gpu", "device_process")),
    ("sandbox", ("bwrap", "coding_framework.cuda.host", "host_process")),
    ("compiler", ("nvcc", "cicc", "ptxas", "cudafe++", "cc1plus", "/as ", "fatbinary")),
    ("trainer", ("coding_framework.training.verl.main", "WorkerDict", "TaskRunner")),
    ("rollout", ("RowsWorker", "AgentLoop", "vLLM", "VLLM", "TransformersServer", "Rollout")),
    ("stage", ("multiprocessing.spawn",)),
    ("ray", ("ray::", "raylet", "gcs_server", "/ray/", "ray/_private", "ray/dashboard")),
)  # fmt: skip
"""By words of the command line; the first role of which one is there counts."""
_MAY_CHANGE = {"ray", "other"}
"""A worker of Ray's is named for its work after it has started."""


class _Counters(NamedTuple):
    """What only grows."""

    t: float
    disk_read: int
    disk_write: int
    net: int


class SystemSampler:
    """Samples of this machine, for the run in a folder and the processes below `pid`."""

    def __init__(self, folder: Path, pid: int | None = None) -> None:
        self._folder = folder
        self._root = psutil.Process(os.getpid() if pid is None else pid)
        self._gpus = GPUTelemetry()
        self._roles: dict[psutil.Process, str] = {}
        self._busy_s: dict[psutil.Process, float] = {}
        self._before = _counters()
        psutil.cpu_percent(percpu=True)  # the first call has nothing to compare with

    def sample(self) -> SystemSample:
        """The machine now; rates since the sample before."""
        before, now = self._before, _counters()
        self._before = now
        dt = max(now.t - before.t, 1e-3)
        memory, swap = _ask(psutil.virtual_memory), _ask(psutil.swap_memory)
        return SystemSample(
            t=round(time.time(), 3),
            cpu=tuple(_ask(lambda: psutil.cpu_percent(percpu=True)) or ()),
            load=_ask(lambda: round(os.getloadavg()[0], 2)),
            ram=memory.total - memory.available if memory else None,
            ram_total=memory.total if memory else None,
            swap=swap.used if swap else None,
            disk_free=_ask(lambda: psutil.disk_usage(str(self._folder)).free),
            disk_read=_rate(now.disk_read - before.disk_read, dt),
            disk_write=_rate(now.disk_write - before.disk_write, dt),
            net=_rate(now.net - before.net, dt),
            processes=_ask(lambda: self._processes(dt)) or {},
            gpus=self._gpu_samples(),
        )

    def _gpu_samples(self) -> tuple[GPUSample, ...] | None:
        found = self._gpus.samples()
        return found or None

    def _processes(self, dt: float) -> dict[str, ProcessGroup]:
        n: dict[str, int] = defaultdict(int)
        rss: dict[str, int] = defaultdict(int)
        busy: dict[str, float] = defaultdict(float)
        roles, spent = {}, {}
        for process in [self._root, *self._root.children(recursive=True)]:
            with contextlib.suppress(psutil.Error), process.oneshot():
                times, memory = process.cpu_times(), process.memory_info().rss
                role = self._role(process)
                roles[process], spent[process] = role, times.user + times.system
                n[role] += 1
                rss[role] += memory
                busy[role] += spent[process] - self._busy_s.get(process, spent[process])
        self._roles, self._busy_s = roles, spent
        return {r: ProcessGroup(n=n[r], rss=rss[r], cpu=round(busy[r] / dt, 3)) for r in sorted(n)}

    def _role(self, process: psutil.Process) -> str:
        if process == self._root:
            return "run"
        known = self._roles.get(process, "other")
        return _role_of(" ".join(process.cmdline())) if known in _MAY_CHANGE else known


def _role_of(command: str) -> str:
    """The role of a process, by its command line."""
    for role, words in _ROLES:
        if any(word in command for word in words):
            return role
    return "other"


def _counters() -> _Counters:
    disk, net = _ask(psutil.disk_io_counters), _ask(psutil.net_io_counters)
    return _Counters(
        time.monotonic(),
        disk.read_bytes if disk else 0,
        disk.write_bytes if disk else 0,
        net.bytes_sent + net.bytes_recv if net else 0,
    )


def _rate(grown: int, dt: float) -> float:
    return round(max(grown, 0) / dt, 1)


def _ask(function: Callable[[], Any]) -> Any:
    """What the system says; None where it does not."""
    try:
        return function()
    except (OSError, psutil.Error, RuntimeError, ValueError, AttributeError):
        return None
