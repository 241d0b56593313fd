"""What a run tells of itself is there while it runs, and no fault of the telling reaches it."""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from structlog.testing import capture_logs

from coding_framework.monitoring.child import run_in_child
from coding_framework.monitoring.gpu_telemetry import GPUTelemetry
from coding_framework.monitoring.progress import Activity, Progress, activity, set_stage
from coding_framework.monitoring.run_watch import RunWatch, pause_s
from coding_framework.monitoring.sampler import SystemSampler, _role_of
from coding_framework.store.folder import WatchFolder
from coding_framework.store.run_status import (
    read_alerts,
    read_heartbeat,
    read_identity,
    read_system,
    run_state,
)
from support.waiting import until

pytestmark = pytest.mark.unit


def quick(folder: Path, kind: str = "rl") -> RunWatch:
    return RunWatch(folder, kind, {"backend": "emulator"}, beat_s=0.05, sample_s=0.05)


def test_a_run_says_who_it_is_where_it_stands_and_how_the_machine_is(tmp_path: Path) -> None:
    with quick(tmp_path), Progress("RL", 10, "steps", stream=io.StringIO()) as progress:
        progress.update(4, "reward 0.5")
        until(lambda: (beat := read_heartbeat(tmp_path)) and beat.step == 4)
        until(lambda: len(list(read_system(tmp_path))) >= 2)
        assert run_state(tmp_path) == "alive"
    identity, beat = read_identity(tmp_path), read_heartbeat(tmp_path)
    assert (identity.kind, identity.judge, identity.starts) == ("rl", {"backend": "emulator"}, 1)
    assert identity.pid == os.getpid()
    assert run_state(tmp_path) == "finished"
    assert beat.note == ""
    sample = list(read_system(tmp_path))[-1]
    assert sample.processes["run"].rss > 0
    assert sample.ram > 0
    assert sample.disk_free > 0


def test_between_progress_lines_a_run_says_its_stage(tmp_path: Path) -> None:
    set_stage("getting the model")
    try:
        with quick(tmp_path):
            assert read_heartbeat(tmp_path).stage == "getting the model"
    finally:
        set_stage("")


@pytest.mark.parametrize(
    ("error", "state"), [(KeyboardInterrupt, "interrupted"), (ValueError, "failed")]
)
def test_a_run_says_how_it_ended(tmp_path: Path, error: type[BaseException], state: str) -> None:
    with pytest.raises(error), quick(tmp_path):
        raise error
    assert run_state(tmp_path) == state


def test_a_second_start_keeps_when_the_run_began(tmp_path: Path) -> None:
    with quick(tmp_path):
        first = read_identity(tmp_path)
    with quick(tmp_path):
        second = read_identity(tmp_path)
    assert (second.starts, second.started_at) == (2, first.started_at)


def test_a_stage_names_its_run_and_leaves_the_machine_to_it(tmp_path: Path) -> None:
    stage = tmp_path / "rl"
    with quick(tmp_path, "whole"), quick(stage):
        until(lambda: read_heartbeat(stage))
        until(lambda: list(read_system(tmp_path)))
    assert read_identity(stage).parent == ".."
    assert not WatchFolder(stage).system.exists()
    with quick(stage):  # alone: the run above is over
        until(lambda: list(read_system(stage)))


def test_a_folder_that_cannot_be_written_is_said_once_and_the_run_goes_on(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with capture_logs() as logged, quick(tmp_path / "file"):
        until(lambda: logged)
        time.sleep(0.1)  # a second one would come now
    assert [line["event"] for line in logged if line["log_level"] == "warning"] == ["watch_fault"]


def test_a_sampler_that_fails_at_each_look_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []

    def fails(_: SystemSampler) -> None:
        looks.append(1)
        raise RuntimeError("the kernel is gone")

    monkeypatch.setattr(SystemSampler, "sample", fails)
    with capture_logs() as logged, quick(tmp_path):
        until(lambda: len(looks) >= 3)
    assert [line["event"] for line in logged if line["log_level"] == "warning"] == ["watch_fault"]


def test_a_look_that_hangs_does_not_keep_the_run_from_ending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs = []

    def forever(_: SystemSampler) -> None:
        hangs.append(1)
        time.sleep(3600)

    monkeypatch.setattr(SystemSampler, "sample", forever)
    with quick(tmp_path):
        until(lambda: hangs)
    assert run_state(tmp_path) == "finished"


def test_the_alerts_of_the_machine_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = SimpleNamespace(free=10**9)
    monkeypatch.setattr(psutil, "disk_usage", lambda _: full)
    with capture_logs(), quick(tmp_path):
        until(lambda: list(read_alerts(tmp_path)))
    assert [a.rule for a in read_alerts(tmp_path)] == ["disk_nearly_full"]


WORK = """
import io, os, time
from coding_framework.monitoring.progress import Progress

def doing(heard):
    with Progress("in the child", 3, "things", stream=io.StringIO(), training=True) as progress:
        progress.update(2)
        while not os.path.exists(heard):
            time.sleep(0.01)
    return "done"
"""


def test_what_a_child_does_is_what_its_parent_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "work_of_a_child.py").write_text(WORK)
    monkeypatch.syspath_prepend(tmp_path)  # the child has it too
    seen: list[Activity | None] = []

    def hear(told: Activity | None) -> None:
        seen.append(told)
        if told is not None and told.step == 2:
            (tmp_path / "heard").touch()

    monkeypatch.setattr("coding_framework.monitoring.child.adopt_activity", hear)
    monkeypatch.setattr("coding_framework.monitoring.child._TELL_S", 0.05)
    heard = str(tmp_path / "heard")
    assert run_in_child(import_module("work_of_a_child").doing, heard) == "done"
    first = next(told for told in seen if told is not None and told.step == 2)
    assert (first.stage, first.step, first.of, first.training) == ("in the child", 2, 3, True)
    assert seen[-1] is None
    assert activity() is None


# --- roles and GPUs


@pytest.mark.parametrize(
    ("command", "role"),
    [
        ("/usr/bin/python -m coding_framework.cuda.many.worker", "judge"),
        ("python -m coding_framework.cuda.emulator.fork_server", "device"),
        ("ray::TurnRowsWorker.generate", "rollout"),
        ("ray::IDLE", "ray"),
        ("python -m coding_framework.training.verl.main cpu", "trainer"),
        ("/opt/cuda/bin/ptxas -arch=sm_90 a.ptx", "compiler"),
        ("python -c from multiprocessing.spawn import spawn_main; spawn_main()", "stage"),
        ("sleep 5", "other"),
    ],
)
def test_processes_are_told_apart_by_their_work(command: str, role: str) -> None:
    assert _role_of(command) == role


class NVMLError_NotSupported(Exception):  # noqa: N801, N818
    pass


class NVMLError_GpuIsLost(Exception):  # noqa: N801, N818
    pass


def driver(**changes: Any) -> SimpleNamespace:
    """A driver with one GPU."""

    def answers(value: Any) -> Callable[..., Any]:
        return lambda *_: value

    told = {
        "nvmlInit": None,
        "nvmlDeviceGetCount": 1,
        "nvmlSystemGetDriverVersion": b"580.1",
        "nvmlDeviceGetHandleByIndex": "handle",
        "nvmlDeviceGetName": "H200",
        "nvmlDeviceGetUUID": "GPU-1",
        "nvmlDeviceGetMemoryInfo": SimpleNamespace(used=5, total=10),
        "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=40),
        "nvmlDeviceGetPowerUsage": 350_000,
        "nvmlDeviceGetTotalEnergyConsumption": 2_000,
        "nvmlDeviceGetCurrentClocksEventReasons": 0x1 | 0x4 | 0x40,
        "nvmlDeviceGetTotalEccErrors": 0,
        "nvmlDeviceGetComputeRunningProcesses": [1, 2],
        "nvmlDeviceGetClockInfo": 1980,
        "nvmlDeviceGetTemperature": 61,
    }
    constants = (
        "NVML_CLOCK_SM", "NVML_CLOCK_MEM", "NVML_TEMPERATURE_GPU",
        "NVML_MEMORY_ERROR_TYPE_UNCORRECTED", "NVML_VOLATILE_ECC",
    )  # fmt: skip
    functions = {name: answers(value) for name, value in told.items()}
    return SimpleNamespace(**dict.fromkeys(constants, 0), **{**functions, **changes})


def failing(error: type[Exception]) -> Callable[..., Any]:
    def fails(*_: Any) -> Any:
        raise error("no")

    return fails


def test_a_gpu_tells_what_the_driver_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", driver())
    (gpu,) = GPUTelemetry().samples()
    assert (gpu.util, gpu.power_w, gpu.energy_j, gpu.processes) == (40.0, 350.0, 2.0, 2)
    assert gpu.throttle == ("sw_power_cap", "hw_thermal_slowdown")
    (identity,) = GPUTelemetry().identities()
    assert (identity.name, identity.driver, identity.memory_bytes) == ("H200", "580.1", 10)


def test_what_a_gpu_does_not_support_is_none_without_a_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refused = failing(NVMLError_NotSupported)
    monkeypatch.setitem(sys.modules, "pynvml", driver(nvmlDeviceGetTotalEccErrors=refused))
    with capture_logs() as logged:
        (gpu,) = GPUTelemetry().samples()
    assert (gpu.ecc, gpu.util) == (None, 40.0)
    assert logged == []


def test_a_gpu_that_fell_off_the_bus_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = failing(NVMLError_GpuIsLost)
    monkeypatch.setitem(sys.modules, "pynvml", driver(nvmlDeviceGetHandleByIndex=lost))
    telemetry = GPUTelemetry()
    with capture_logs() as logged:
        samples = [telemetry.samples() for _ in range(3)]
    assert [(s[0].index, s[0].util) for s in samples] == [(0, None)] * 3
    assert [line["event"] for line in logged] == ["gpu_telemetry_incomplete"]


@pytest.mark.parametrize("fault", ["nvmlInit", "nvmlDeviceGetCount"])
def test_a_driver_that_does_not_answer_is_no_gpus(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fault: str
) -> None:
    broken = driver(**{fault: failing(RuntimeError)})
    monkeypatch.setitem(sys.modules, "pynvml", broken)
    with capture_logs():
        assert SystemSampler(tmp_path).sample().gpus is None
        assert GPUTelemetry().identities() == ()


def test_it_looks_less_often_where_a_look_costs_more_than_its_share() -> None:
    assert pause_s(2.0, cost_s=0.001) == 2.0
    assert pause_s(2.0, cost_s=0.1) == pytest.approx(10.0)
