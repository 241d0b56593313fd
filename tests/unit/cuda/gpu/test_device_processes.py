"""Which device process a candidate gets; the processes serve no GPU here."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from coding_framework.cuda.device import gpu_sharing as sharing
from coding_framework.cuda.device.gpu_sharing import (
    ROOM_BYTES,
    GpuRooms,
    parse_gpus,
    quarantine,
)
from coding_framework.cuda.gpu import device, exchange, place
from coding_framework.cuda.gpu.device import CudaDevice, end_idle, free_unmapped
from coding_framework.cuda.gpu.place import GpuPlace
from coding_framework.cuda.gpu.settings import GpuSettings
from coding_framework.cuda.plan.launch_plan import CandidateFault, Launch
from coding_framework.errors import DeviceError
from coding_framework.types import Status
from support.waiting import PATIENCE_S

pytestmark = pytest.mark.unit

(GPU,) = parse_gpus("0, GPU-aaaa-1, NVIDIA H200, 143771, 580.159.04")
COMES_UP_S = 0.5

SERVER = """
import os, socket, sys, time
from types import SimpleNamespace
from coding_framework.cuda.device.server import DeviceBroken, serve
from coding_framework.cuda.plan.launch_plan import CandidateFault, ModuleInfo
from coding_framework.types import Status

def launch(launch, checks=False):
    raise DeviceBroken("ended", CandidateFault(Status.TIMEOUT, "it does not end"))

def machine():
    time.sleep(float(sys.argv[2]))
    return SimpleNamespace(memory=None, load=lambda build: ModuleInfo({}, {}), launch=launch)

operations = {
    "hello": lambda: {"name": "none"}, "reset": lambda: None, "share": lambda handle: True,
}
serve(socket.socket(fileno=int(sys.argv[1])), machine, lambda m: operations)
"""
LARGE = GpuSettings(memory_limit_bytes=GPU.memory_bytes)
LAUNCH = Launch("k", (1, 1, 1), (1, 1, 1), 0, b"")


@pytest.fixture(autouse=True)
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Pids of all device processes, which come up without a GPU."""
    monkeypatch.setenv("CUDA_RL_CACHE", str(tmp_path))
    monkeypatch.setattr(sharing, "gpus", lambda: (GPU,))
    monkeypatch.setattr(device, "_home", None)
    end_idle()
    start, pids = subprocess.Popen, []

    def popen(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        server = [sys.executable, "-c", SERVER, command[3], str(COMES_UP_S)]
        process = start(server, **options)
        pids.append(process.pid)
        return process

    monkeypatch.setattr(device.subprocess, "Popen", popen)
    yield pids
    while device._coming:
        device._coming.pop()[1].join()
    end_idle()
    assert not [pid for pid in pids if psutil.pid_exists(pid)]


def spoil(one: CudaDevice) -> None:
    """Let a candidate break the device."""
    one.load(Path())
    with pytest.raises(CandidateFault) as caught:
        one.launch(LAUNCH)
    assert caught.value.status is Status.TIMEOUT


def test_a_process_waits_for_the_next_candidate(started: list[int]) -> None:
    for _ in range(3):
        with CudaDevice() as one:
            one.load(Path())
    assert len(started) == 1


def test_the_next_process_comes_up_while_a_broken_one_is_ended(
    started: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    end, up_meanwhile = device._Process.end, []

    def slow_end(process: Any) -> int | None:
        """As where a kernel still runs."""
        deadline = time.monotonic() + PATIENCE_S
        while not device._idle and time.monotonic() < deadline:
            time.sleep(0.02)
        up_meanwhile.append(len(device._idle))
        return end(process)

    with CudaDevice() as one:
        monkeypatch.setattr(device._Process, "end", slow_end)
        spoil(one)
    monkeypatch.setattr(device._Process, "end", end)
    assert up_meanwhile == [1]
    with CudaDevice() as other:
        other.load(Path())
    assert len(started) == 2


def test_a_process_on_its_way_is_waited_for(started: list[int]) -> None:
    with CudaDevice() as one:
        spoil(one)
    with CudaDevice() as other:
        other.load(Path())
    assert len(started) == 2


def test_a_process_that_served_nobody_is_not_replaced(started: list[int]) -> None:
    with CudaDevice() as one:
        psutil.Process(started[0]).kill()
        with pytest.raises(DeviceError):
            one._ask("hello")
    assert not device._coming
    assert len(started) == 1


def test_a_process_that_waits_on_a_gpu_in_quarantine_gets_no_candidate(
    started: list[int],
) -> None:
    with CudaDevice() as one:
        one.load(Path())
    quarantine(GPU, "a process does not end")
    with pytest.raises(DeviceError, match="no GPU answers"):
        CudaDevice()
    assert len(started) == 1


@pytest.fixture
def buffers(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of the exchange buffers that there are, in steps."""
    held: list[int] = []

    def made(gpu: Any, nbytes: int) -> Any:
        steps = nbytes // exchange._STEP_BYTES
        held.append(steps)
        mine = {"gpu": gpu, "nbytes": nbytes, "handle": b"handle", "owner": os.getpid()}
        return SimpleNamespace(**mine, free=lambda: held.remove(steps))

    monkeypatch.setattr(exchange, "Exchange", made)
    monkeypatch.setattr(exchange, "_exchanges", [])
    monkeypatch.setattr(device, "_shares", True)
    return held


def test_a_buffer_that_has_become_too_small_is_given_back(
    started: list[int], buffers: list[int]
) -> None:
    with CudaDevice() as one:
        for nbytes, steps in ((0, 1), (1, 1), (5 * exchange._STEP_BYTES + 1, 6), (9, 6)):
            assert one._share(nbytes) is exchange._exchanges[0]
            assert buffers == [steps]


def test_a_buffer_is_given_back_where_no_process_maps_it(
    started: list[int], buffers: list[int]
) -> None:
    with CudaDevice() as one:
        one._share(1)
        free_unmapped()
        assert buffers == [1], "a candidate's process maps it"
    free_unmapped()
    assert buffers == [1], "the process waits for the next candidate, and maps it"
    end_idle()
    free_unmapped()
    assert buffers == []
    with CudaDevice() as one:
        assert one._share(1) is not None
        psutil.Process(started[-1]).kill()
        with pytest.raises(DeviceError):
            one._ask("hello")
        free_unmapped()
        assert buffers == []


def test_two_processes_of_one_judge_map_buffers_of_their_own_sizes(
    started: list[int], buffers: list[int]
) -> None:
    with CudaDevice() as one, CudaDevice(LARGE) as other:
        one._share(1)
        other._share(2 * exchange._STEP_BYTES)
        assert buffers == [1, 2], "one still maps the small one"
        one._share(1)
        assert buffers == [2]


def test_a_fork_frees_nothing_of_its_parent(
    started: list[int], buffers: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange.exchange_for(GPU, 1)
    monkeypatch.setattr(exchange.os, "getpid", lambda: -1)
    free_unmapped()
    assert buffers == [1]
    assert exchange._exchanges == [], "it would use none of them either"


def test_work_of_several_rooms_gives_its_memory_back_before_its_rooms(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rooms = GpuRooms(GPU)
    here, free = GpuPlace(GPU, None, None, rooms), []  # type: ignore[arg-type]

    def empty(self: Any) -> None:
        held = rooms._free(rooms.count)
        free.append(len(held))
        for handle in held:
            os.close(handle)

    monkeypatch.setattr(GpuPlace, "empty", empty)
    with here.room(ROOM_BYTES):
        pass
    assert free == []
    with pytest.raises(DeviceError), here.room(3 * ROOM_BYTES):
        raise DeviceError("it fails")
    assert free == [rooms.count, rooms.count - 4]


def test_a_judge_at_rest_ends_only_processes_that_map_much(
    started: list[int], buffers: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    emptied: list[bool] = []
    monkeypatch.setattr(place.torch.cuda, "empty_cache", lambda: emptied.append(True))
    resting = GpuPlace(GPU, None, None, None)  # type: ignore[arg-type]
    for steps, left in ((1, [1]), (2, [2]), (3, [])):
        with CudaDevice() as one:
            one._share(steps * exchange._STEP_BYTES)
        resting.rest()
        assert buffers == left
    assert len(emptied) == 3
    assert not device._idle
