"""The device as a process: the protocol, its faults, and that nothing is ever left behind."""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from coding_framework.cuda.device import wire
from coding_framework.cuda.device.device import Device, carry_out
from coding_framework.cuda.device.work_meter import WorkMeter
from coding_framework.cuda.emulator import device as device_module
from coding_framework.cuda.emulator import fork_server
from coding_framework.cuda.emulator.counters import EXECUTED
from coding_framework.cuda.emulator.device import EmulatorDevice, current_fork_server
from coding_framework.cuda.emulator.settings import EmulatorSettings
from coding_framework.cuda.plan.launch_plan import CandidateFault, Launch
from coding_framework.errors import DeviceError, UsageError
from coding_framework.types import Status
from support.emulator_harness import ptx_of
from support.waiting import ended, until

pytestmark = pytest.mark.unit
SRC = Path(__file__).parents[4] / "src"


@pytest.fixture
def build(tmp_path: Path) -> Path:
    (tmp_path / "device.ptx").write_text(ptx_of("basic.cu"))
    return tmp_path


def add(a: int, b: int, c: int, n: int) -> Launch:
    params = struct.pack("<QQQi", a, b, c, n)
    return Launch("add", ((n + 255) // 256, 1, 1), (256, 1, 1), 0, params)


def pid_of(device: EmulatorDevice) -> int:
    return int(device._ask("process"))


def test_it_is_a_device_and_adds(build: Path) -> None:
    with EmulatorDevice() as device:
        as_device: Device = device
        info = as_device.load(build)
        assert info.kernels["add"].param_offsets == (0, 8, 16, 24)
        assert info.kernels["softmax"].static_shared_bytes == 0
        assert info.symbols["weights"].nbytes == 36
        a = np.arange(1000, dtype=np.float32)
        x, y, z = device.alloc(4000), device.alloc(4000), device.alloc(4000)
        assert x % 256 == 0
        assert x >= 0x7E00_0000_0000
        device.upload(x, a.data)
        device.upload(y, memoryview(a.reshape(10, 100)))
        report = device.launch(add(x, y, z, 1000))
        assert np.array_equal(np.frombuffer(device.download(z, 4000), np.float32), 2 * a)
        assert report.time_ms
        assert report.time_ms > 0
        assert report.faults == ()
        assert report.counters["launch__block_size"] == 256
        assert (device.backend, device.name) == ("emulator", "emulator of NVIDIA H200")
        assert device.check_guards() is None


def test_registers_of_the_build_limit_occupancy_and_launches(build: Path) -> None:
    kernels = [{"name": "add", "registers": 128}, {"name": "scan", "registers": 255}]
    (build / "result.json").write_text(json.dumps({"kernels": kernels}))
    with EmulatorDevice() as device:
        assert device.load(build).kernels["add"].registers == 128
        a = device.alloc(4000)
        device.fill(a, 0, 4000)
        counters = device.launch(add(a, a, a, 1000)).counters
        assert counters["launch__registers_per_thread"] == 128
        assert counters["sm__maximum_warps_per_active_cycle_pct"] == 25
        too_many = Launch("scan", (1, 1, 1), (512, 1, 1), 0, struct.pack("<QQi", a, a, 4))
        with pytest.raises(CandidateFault, match="registers a block"):
            device.launch(too_many)


def test_fresh_memory_is_poisoned_and_poison_restores_it(build: Path) -> None:
    with EmulatorDevice() as device:
        device.load(build)
        a = device.alloc(100)
        assert device.download(a, 100) == b"\xff" * 100
        device.fill(a, 7, 100)
        device.copy(a + 50, a, 50)
        assert device.download(a, 100) == b"\x07" * 100
        device.poison(a)
        assert device.download(a, 100) == b"\xff" * 100


def test_a_fault_is_the_candidates_and_the_device_goes_on(build: Path) -> None:
    with EmulatorDevice() as device:
        device.load(build)
        a, c = device.alloc(4000), device.alloc(4000)
        device.fill(a, 0, 4000)
        with pytest.raises(CandidateFault) as caught:
            device.launch(add(a, a, c, 2000))
        assert caught.value.status is Status.RUNTIME_ERROR
        device.launch(add(a, a, c, 1000))


def test_operations_by_one_message_give_what_each_gives_alone(build: Path) -> None:
    with EmulatorDevice() as device:
        device.load(build)
        a, b = carry_out(device, [("alloc", 5), ("alloc", 100)])
        asked = [
            ("upload", a, memoryview(b"12345")),
            ("download", a, 5),
            ("fill", b, 7, 100),
            ("check_guards",),
            ("download", b, 3),
            ("poison", b),
            ("download", b, 100),
        ]
        given = carry_out(device, asked)
        assert [given[i] for i in (0, 2, 3, 5)] == [None] * 4
        assert [bytes(given[i]) for i in (1, 4, 6)] == [b"12345", b"\7" * 3, b"\xff" * 100]
        assert device.download(a, 5) == b"12345"
        assert carry_out(device, []) == []


def test_after_a_fault_nothing_more_of_a_message_is_carried_out(build: Path) -> None:
    with EmulatorDevice() as device:
        a = device.alloc(8)
        asked = [("fill", a, 1, 4), ("fill", a, 2, 9), ("fill", a, 3, 8)]
        with pytest.raises(CandidateFault, match="memset of 9 bytes"):
            carry_out(device, asked)
        assert device.download(a, 8) == b"\1" * 4 + b"\xff" * 4


def test_many_bytes_go_by_several_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_module, "_AT_ONCE_BYTES", 100)
    with EmulatorDevice() as device:
        places = carry_out(device, [("alloc", 60)] * 4)
        data = [bytes([i]) * 60 for i in range(4)]
        carry_out(device, [("upload", *pair) for pair in zip(places, data, strict=True)])
        found = carry_out(device, [("download", place, 60) for place in places])
        assert [bytes(part) for part in found] == data


def test_what_operations_by_one_message_move_is_counted() -> None:
    with EmulatorDevice() as device:
        device.meter = WorkMeter()
        (a,) = carry_out(device, [("alloc", 60)])
        carry_out(device, [("upload", a, bytes(60)), ("fill", a, 0, 50), ("download", a, 40)])
        assert device.meter.nbytes == 60 + 60 + 50 + 40
        assert device.meter.seconds > 0


@pytest.mark.parametrize("allowed", [True, False])
def test_launches_count_events_where_that_is_wanted_and_allowed(build: Path, allowed: bool) -> None:
    with EmulatorDevice(EmulatorSettings(count=allowed)) as device:
        device.load(build)
        a = device.alloc(4000)
        device.fill(a, 0, 4000)
        whole = device.launch(add(a, a, a, 1000))
        device.count_events(False)
        few = device.launch(add(a, a, a, 1000))
        device.count_events(True)
        again = device.launch(add(a, a, a, 1000))
        assert few.time_ms is None
        assert few.counters == {EXECUTED: whole.counters[EXECUTED]}
        assert (whole.time_ms is not None) == allowed
        assert again == whole


def test_many_resident_blocks_have_memory_of_their_own(build: Path) -> None:
    n = 300_000
    a = np.arange(n, dtype=np.float32)
    with EmulatorDevice(EmulatorSettings(block_order="interleaved")) as device:
        device.load(build)
        x, z = device.alloc(4 * n), device.alloc(4 * n)
        device.upload(x, a.data)
        for _ in range(2):
            device.poison(z)
            device.launch(add(x, x, z, n))
            assert np.array_equal(np.frombuffer(device.download(z, 4 * n), np.float32), 2 * a)


def test_damaged_guards_are_reported(build: Path) -> None:
    from coding_framework.cuda.emulator.machine import Machine

    machine = Machine()
    address = machine.memory.alloc(100)
    machine.memory._set(address + 120, 0, 1)
    assert f"{address:#x}" in (machine.memory.damage() or "")


def test_close_kills_the_process_also_while_it_computes(tmp_path: Path) -> None:
    (tmp_path / "device.ptx").write_text(ptx_of("faulty.cu"))
    device = EmulatorDevice(EmulatorSettings(instruction_budget=1 << 60, cpu_limit_s=1e6))
    device.load(tmp_path)
    pid = pid_of(device)
    flag = device.alloc(4)
    device.fill(flag, 0, 4)
    launch = Launch("endless", (1, 1, 1), (32, 1, 1), 0, struct.pack("<Q", flag))
    wire.send(device._connection, ("launch", launch, False))
    time.sleep(0.1)
    device.close()
    until(lambda: ended(pid))
    with pytest.raises(DeviceError, match="closed"):
        device.alloc(4)


def test_a_process_that_dies_is_our_fault_and_the_next_device_works(build: Path) -> None:
    device = EmulatorDevice()
    device.load(build)
    os.kill(pid_of(device), signal.SIGKILL)
    with pytest.raises(DeviceError, match="judge the candidate again"):
        device.alloc(4)
    with EmulatorDevice() as other:
        other.load(build)


def test_a_killed_fork_server_is_replaced(build: Path) -> None:
    with EmulatorDevice() as first:
        pid = pid_of(first)
        server = current_fork_server().process
        server.kill()
        server.wait()
        until(lambda: ended(pid))
    with EmulatorDevice() as second:
        second.load(build)


@pytest.mark.parametrize("how", ["SIGKILL", "exit"])
def test_nothing_is_left_when_the_judge_dies(tmp_path: Path, how: str) -> None:
    script = textwrap.dedent(
        """
        import os, sys, threading, time
        from coding_framework.cuda.emulator.device import EmulatorDevice
        devices = []
        thread = threading.Thread(target=lambda: devices.append(EmulatorDevice()))
        thread.start(); thread.join()
        devices.append(EmulatorDevice())
        pids = [d._ask("process") for d in devices] + [devices[0]._server.process.pid]
        print(*pids, flush=True)
        if sys.argv[1] == "exit": sys.exit(0)
        time.sleep(60)
        """
    )
    child = subprocess.Popen(
        [sys.executable, "-c", script, how], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(SRC)},
    )  # fmt: skip
    assert child.stdout is not None
    pids = [int(p) for p in child.stdout.readline().split()]
    assert len(pids) == 3
    if how == "SIGKILL":
        child.kill()
    child.wait()
    until(lambda: all(ended(pid) for pid in pids))


def test_a_forked_child_gets_a_fork_server_of_its_own(build: Path) -> None:
    with EmulatorDevice() as device:
        device.load(build)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                with EmulatorDevice() as inner:
                    inner.load(build)
                    code = 0 if inner._server.owner == os.getpid() else 2
                    inner._server.process.kill()
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        device.alloc(4)


def test_devices_do_not_share_memory(build: Path) -> None:
    with EmulatorDevice() as one, EmulatorDevice() as two:
        a = one.alloc(16)
        b = two.alloc(16)
        assert a == b
        one.upload(a, b"secret of one   ")
        assert two.download(b, 16) == b"\xff" * 16


def test_the_gpu_is_a_setting() -> None:
    with EmulatorDevice(EmulatorSettings(gpu="a100")) as device:
        assert device.name == "emulator of NVIDIA A100"
    with pytest.raises(UsageError, match="choose one of"):
        EmulatorDevice(EmulatorSettings(gpu="GTX 280"))


def test_a_missing_build_is_our_fault(tmp_path: Path) -> None:
    with EmulatorDevice() as device, pytest.raises(DeviceError, match=r"device\.ptx"):
        device.load(tmp_path)


def test_a_second_device_is_a_fork_and_no_new_interpreter(build: Path) -> None:
    with EmulatorDevice() as first, EmulatorDevice() as second:
        servers = {psutil.Process(pid_of(device)).ppid() for device in (first, second)}
        assert servers == {first._server.process.pid}


def test_the_fork_server_has_loaded_what_its_devices_need() -> None:
    """What a device loads after the fork, every device loads anew."""
    code = """
import sys
import coding_framework.cuda.emulator.fork_server
print(*(m for m in sys.modules if m.startswith("coding_framework.")))
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    folder = Path(fork_server.__file__).parent
    lowerings = {f"coding_framework.cuda.emulator.{p.stem}" for p in folder.glob("*lowering*.py")}
    assert len(lowerings) >= 4
    assert lowerings <= set(found.stdout.split())
