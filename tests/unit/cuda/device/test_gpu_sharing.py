"""Who works on which GPU: locks between processes, seats, quarantine; no GPU is touched."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from coding_framework.cuda.device import gpu_sharing as sharing
from coding_framework.cuda.device.gpu_sharing import (
    Gpu,
    GpuLock,
    Seat,
    parse_gpus,
    quarantine,
)
from coding_framework.cuda.gpu import device
from coding_framework.cuda.gpu.device import _not_up
from coding_framework.errors import DeviceError, DeviceFullError
from support.waiting import PATIENCE_S, holders, until

pytestmark = pytest.mark.unit

LISTING = """0, GPU-aaaa-1, NVIDIA H200, 143771, 580.159.04
1, GPU-bbbb-2, NVIDIA H200, 143771, 580.159.04
"""
ONE, TWO = parse_gpus(LISTING)


def gate() -> Path:
    """Whose lock each measurement has that waits."""
    return sharing.cache_dir() / "gpus" / ONE.uuid / "gate"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_RL_CACHE", str(tmp_path))


def test_work_takes_the_rooms_that_it_needs_and_never_more_than_there_are() -> None:
    rooms = sharing.GpuRooms(ONE)
    assert rooms.count == 17
    assert rooms.needed(0) == rooms.needed(8 << 30) == 1
    assert rooms.needed((8 << 30) + 1) == 2
    assert rooms.needed(1 << 40) == 17
    h100 = sharing.GpuRooms(parse_gpus("0, GPU-cccc-3, NVIDIA H100, 81559, 580")[0])
    # a ReLU of 402 million elements: what eight judges keep that wait does not fit beside it
    assert h100.needed(54 << 30) == h100.count == 9
    assert h100.needed(20 << 30) == 4


def test_large_work_waits_for_room_and_later_work_waits_behind_it() -> None:
    first, large, later = (sharing.GpuRooms(ONE) for _ in range(3))
    order: list[str] = []

    def work(rooms: sharing.GpuRooms, count: int, name: str) -> None:
        with rooms.take(count):
            order.append(name)

    with first.take(2):
        threads = [threading.Thread(target=work, args=(large, 17, "large"))]
        threads[0].start()
        until(first.is_wanted)
        threads.append(threading.Thread(target=work, args=(later, 1, "later")))
        threads[1].start()
        time.sleep(0.05)
        assert order == []
    for thread in threads:
        thread.join(PATIENCE_S)
    assert order == ["large", "later"]
    assert not first.is_wanted()


def test_rooms_of_a_process_that_dies_are_free_again() -> None:
    code = (
        "import os; from coding_framework.cuda.device.gpu_sharing import GpuRooms, Gpu\n"
        f"with GpuRooms(Gpu(0, {ONE.uuid!r}, 'x', {ONE.memory_bytes}, '')).take(17): os._exit(1)"
    )
    subprocess.run([sys.executable, "-c", code], timeout=PATIENCE_S, check=False)
    with sharing.GpuRooms(ONE).take(17):
        pass


def test_gpus_are_read_from_the_drivers_listing() -> None:
    assert Gpu(0, "GPU-aaaa-1", "NVIDIA H200", 143771 << 20, "580.159.04") == ONE
    assert parse_gpus("No devices were found\n") == ()
    assert parse_gpus("0, GPU-x, NVIDIA, [N/A], 580\n") == ()


@pytest.mark.parametrize(
    ("allowed", "seen"),
    [(None, [0, 1]), ("1", [1]), ("GPU-aaaa", [0]), ("1,0", [1, 0]), ("", []), ("7", [])],
)
def test_only_visible_gpus_are_used(allowed: str | None, seen: list[int]) -> None:
    assert [gpu.index for gpu in sharing._visible((ONE, TWO), allowed)] == seen


def test_many_share_a_gpu_and_one_may_have_it_alone() -> None:
    one, two = GpuLock(ONE.uuid), GpuLock(ONE.uuid)
    order: list[str] = []

    def measure() -> None:
        with two.alone():
            order.append("alone")

    with one.shared(), GpuLock(ONE.uuid).shared():
        thread = threading.Thread(target=measure)
        thread.start()
        until(lambda: holders(gate()) == 1)
        order.append("shared")
    thread.join(PATIENCE_S)
    assert order == ["shared", "alone"]
    with one.shared():  # it was given back
        pass


def test_who_comes_after_a_measurement_waits_behind_it() -> None:
    first, waiting, late = (GpuLock(ONE.uuid) for _ in range(3))
    order: list[str] = []

    def note(lock: GpuLock, alone: bool, name: str) -> None:
        with lock.alone() if alone else lock.shared():
            order.append(name)

    with first.shared():
        threads = [threading.Thread(target=note, args=(waiting, True, "measurement"))]
        threads[0].start()
        until(lambda: holders(gate()) == 1)
        threads.append(threading.Thread(target=note, args=(late, False, "late")))
        threads[1].start()
        time.sleep(0.05)
        assert order == []
    for thread in threads:
        thread.join(PATIENCE_S)
    assert order == ["measurement", "late"]


def test_measurements_follow_one_another_before_others_go_on() -> None:
    first, late, *measuring = (GpuLock(ONE.uuid) for _ in range(4))
    order: list[str] = []

    def note(lock: GpuLock, alone: bool, name: str) -> None:
        with lock.alone() if alone else lock.shared():
            order.append(name)

    with first.shared():
        threads = []
        for waiting, what in (
            (1, (measuring[0], True, "one")),
            (1, (late, False, "late")),
            (2, (measuring[1], True, "two")),
        ):
            threads.append(threading.Thread(target=note, args=what))
            threads[-1].start()
            until(lambda waiting=waiting: holders(gate()) == waiting)
        assert order == []
    for thread in threads:
        thread.join(PATIENCE_S)
    assert order in (["one", "two", "late"], ["two", "one", "late"])


def test_the_lock_of_a_killed_process_is_free() -> None:
    code = (
        "import sys, time\nfrom coding_framework.cuda.device.gpu_sharing import GpuLock\n"
        f"with GpuLock({ONE.uuid!r}).alone():\n    print('held', flush=True)\n    time.sleep(60)"
    )
    holder = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    holder.kill()
    holder.wait()
    with GpuLock(ONE.uuid).alone():
        pass


def test_seats_go_to_the_gpu_with_the_fewest_processes() -> None:
    seats = [Seat((ONE, TWO)) for _ in range(5)]
    assert [seat.gpu.index for seat in seats] == [0, 1, 0, 1, 0]
    seats[1].close()
    assert Seat((ONE, TWO)).gpu.index == 1


def test_a_gpu_in_quarantine_gets_no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "gpus", lambda: (ONE, TWO))
    quarantine(ONE, "a process does not end")
    assert sharing.usable() == (TWO,)
    quarantine(TWO, "no process comes up")
    with pytest.raises(DeviceError, match=r"no process comes up.*`rm .*quarantine"):
        sharing.usable()


def test_a_process_that_does_not_come_up_beside_others_found_a_full_gpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sharing, "gpus", lambda: (ONE, TWO))
    seat = Seat((ONE,))
    assert sharing.seats_taken(ONE) == 1
    assert isinstance(_not_up(ONE, DeviceError("CUDA_ERROR_UNKNOWN")), DeviceFullError)
    assert sharing.usable() == (ONE, TWO)
    seat.close()
    alone = _not_up(ONE, DeviceError("CUDA_ERROR_UNKNOWN"))
    assert not isinstance(alone, DeviceFullError)
    assert sharing.usable() == (TWO,)


@pytest.mark.parametrize(
    ("ends", "why", "left"),
    [
        ("os.kill(os.getpid(), 9)", "killed before it was up", (ONE,)),
        ("os.kill(os.getpid(), 15)", "killed before it was up", (ONE,)),
        ("os.kill(os.getpid(), 11)", "no device process comes up", ()),
        ("sys.exit(1)", "no device process comes up", ()),
    ],
)
def test_a_process_that_was_killed_before_it_was_up_says_nothing_of_its_gpu(
    monkeypatch: pytest.MonkeyPatch, ends: str, why: str, left: tuple[Gpu, ...]
) -> None:
    monkeypatch.setattr(sharing, "gpus", lambda: (ONE,))
    monkeypatch.setattr(device, "_home", None)
    start = subprocess.Popen

    def popen(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        return start([sys.executable, "-c", f"import os, sys; {ends}"], **options)

    monkeypatch.setattr(device.subprocess, "Popen", popen)
    with pytest.raises(DeviceError, match=why):
        device.CudaDevice()
    if left:
        assert sharing.usable() == left
    else:
        with pytest.raises(DeviceError, match="no GPU answers"):
            sharing.usable()


def test_without_a_gpu_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "gpus", lambda: ())
    with pytest.raises(DeviceError, match="--backend emulator"):
        Seat()
