"""The device process on a real GPU: memory, launches, the clock, what it survives and what not."""

from __future__ import annotations

import os
import signal
import struct
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch

from coding_framework.cuda.compiler import CUDACompiler
from coding_framework.cuda.device.gpu_sharing import ROOM_BYTES, gpus
from coding_framework.cuda.gpu.device import CudaDevice, end_idle
from coding_framework.cuda.gpu.event_cost import event_cost_ms
from coding_framework.cuda.gpu.exchange import exchanged_bytes
from coding_framework.cuda.gpu.place import place_of
from coding_framework.cuda.gpu.settings import GpuSettings
from coding_framework.cuda.plan.launch_plan import CandidateFault, Launch, LaunchPlan
from coding_framework.cuda.timing.statistics import TimingProtocol, summary
from coding_framework.errors import DeviceError
from coding_framework.types import Status

pytestmark = [pytest.mark.integration, pytest.mark.cuda]

SOURCE = """
#include <cstdio>
__device__ int counter;
__constant__ float factor = 2.0f;
extern "C" __global__ void twice(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = factor * x[i];
}
extern "C" __global__ void spin(const float* x, float* y, int n) {
  while (*(volatile int*)&counter >= 0) { }
}
extern "C" __global__ void fault(const float* x, float* y, int n) { *(volatile int*)0 = 1; }
extern "C" __global__ void says(const float* x, float* y, int n) {
  printf("%d says", n);
  atomicAdd(&counter, 1);
}
"""
N = 1 << 20
SHORT = GpuSettings(launch_wall_s=1.0)


@pytest.fixture(scope="module")
def build() -> Path:
    result = CUDACompiler().compile_source(SOURCE)
    assert result.binary_path is not None, result.reason
    return Path(result.binary_path)


def launch(kernel: str, x: int, y: int, n: int = N, threads: int = 256) -> Launch:
    grid = ((n + threads - 1) // threads, 1, 1)
    return Launch(kernel, grid, (threads, 1, 1), 0, struct.pack("<QQi", x, y, n))


def pid_of(device: CudaDevice) -> int:
    return int(device._ask("process"))


def test_it_loads_a_cubin_and_runs_its_kernel(build: Path) -> None:
    with CudaDevice() as device:
        info = device.load(build)
        assert info.kernels["twice"].param_offsets == (0, 8, 16)
        assert info.kernels["twice"].param_sizes == (8, 8, 4)
        assert info.symbols["counter"].nbytes == 4
        assert (info.symbols["factor"].space, info.symbols["factor"].nbytes) == ("const", 4)
        values = np.arange(N, dtype=np.float32)
        x, y = device.alloc(4 * N), device.alloc(4 * N)
        device.upload(x, values.tobytes())
        device.launch(launch("twice", x, y))
        assert np.array_equal(np.frombuffer(device.download(y, 4 * N), np.float32), 2 * values)
        device.upload(info.symbols["factor"].address, struct.pack("<f", 3.0))
        device.launch(launch("twice", x, y))
        assert np.array_equal(np.frombuffer(device.download(y, 4 * N), np.float32), 3 * values)


def test_memory_is_poisoned_guarded_and_at_the_same_place_for_the_next(build: Path) -> None:
    with CudaDevice() as device:
        device.load(build)
        first, pid = device.alloc(1000), pid_of(device)
        assert device.download(first, 1000) == b"\xff" * 1000
        device.fill(first, 7, 1000)
        assert device.check_guards() is None
        source = device.alloc(4 * 300)
        device.fill(source, 0, 4 * 300)
        device.launch(launch("twice", source, first, 255))  # 1020 bytes into 1000
        assert f"{first:#x}" in (device.check_guards() or "")
    with CudaDevice() as device:
        device.load(build)
        assert pid_of(device) == pid
        assert device.alloc(1000) == first
        assert device.download(first, 1000) == b"\xff" * 1000


def test_what_a_kernel_prints_comes_with_its_report(build: Path) -> None:
    with CudaDevice() as device:
        device.load(build)
        report = device.launch(
            Launch("says", (2, 1, 1), (1, 1, 1), 0, struct.pack("<QQi", 0, 0, 7))
        )
        assert report.output == "7 says7 says"


@pytest.mark.parametrize(
    ("kernel", "status"), [("fault", Status.RUNTIME_ERROR), ("spin", Status.TIMEOUT)]
)
def test_a_lost_context_costs_the_candidate_and_nobody_else(
    build: Path, kernel: str, status: Status
) -> None:
    with CudaDevice(SHORT) as device:
        device.load(build)
        pid = pid_of(device)
        x = device.alloc(4 * N)
        with pytest.raises(CandidateFault) as caught:
            device.launch(launch(kernel, x, x))
        assert caught.value.status is status
        with pytest.raises(DeviceError, match="closed"):
            device.alloc(4)
    started = time.monotonic()
    with CudaDevice(SHORT) as device:
        device.load(build)
        assert pid_of(device) != pid
    assert time.monotonic() - started < 3.0


def test_a_launch_that_is_not_allowed_leaves_the_device_as_it_was(build: Path) -> None:
    with CudaDevice() as device:
        device.load(build)
        x = device.alloc(4 * N)
        with pytest.raises(CandidateFault, match="invalid launch"):
            device.launch(launch("twice", x, x, threads=4096))
        device.launch(launch("twice", x, x))


def test_a_time_is_stable_and_its_checked_calls_are_right(build: Path) -> None:
    medians = []
    for _ in range(2):
        with CudaDevice() as device:
            device.load(build)
            x, y = device.alloc(4 * N), device.alloc(4 * N)
            draws = [torch.randn(N) for _ in range(2)]
            for i, draw in enumerate(draws):
                device.stage((x, 4 * N, 4), 2, i, draw)
            plan = LaunchPlan((), (launch("twice", x, y),), ())
            region, out = [(x, 4 * N, 4)], [(y, 4 * N)]
            found = device.measure(plan, region, out, out, 2, TimingProtocol())
            assert found["not_captured"] == ""
            for i, draw in enumerate(draws):
                kept = device.kept(i, 0, 4 * N, on_gpu=False)
                assert torch.equal(kept.view(torch.float32), 2 * draw)
            medians.append(summary(found["samples_ms"], TimingProtocol()).median_ms)
    assert medians[1] == pytest.approx(medians[0], rel=0.05)
    assert 8 * N / 4.9e12 * 1e3 < medians[0] < 0.1


def test_tensors_on_the_gpu_travel_without_the_host(build: Path) -> None:
    with CudaDevice() as device:
        device.load(build)
        x = device.alloc(4 * N)
        tensor = torch.randn(N, device=place_of(device.gpu).device)
        device.take(x, tensor)
        assert device.download(x, 4 * N) == tensor.cpu().numpy().tobytes()
        assert torch.equal(device.give(x, 4 * N).view(torch.float32), tensor)


def test_the_memory_by_which_tensors_travelled_goes_back(build: Path) -> None:
    def used_gib() -> float:
        free, total = torch.cuda.mem_get_info(place.device)
        return float(total - free) / 2**30

    with CudaDevice() as device:  # the contexts; the next one is on the same GPU
        place = place_of(device.gpu)
        device.take(device.alloc(4 * N), torch.randn(N, device=place.device))
    place.empty()
    before = used_gib()
    with place.room(3 * ROOM_BYTES), CudaDevice() as device:
        device.load(build)
        for steps in (1, 2, 4):  # of 256 MiB: each buffer is too small for the next tensor
            at = device.alloc(steps << 28)
            device.take(at, torch.full((steps << 26,), float(steps), device=place.device))
        assert exchanged_bytes() >= 4 << 28
        assert used_gib() - before > 1.75
    assert exchanged_bytes() < 1 << 28
    end = time.monotonic() + 60  # tests beside this one may use this GPU too
    while used_gib() - before > 0.3:
        assert time.monotonic() < end
        time.sleep(0.5)


def test_no_process_is_left_when_the_judge_dies(build: Path) -> None:
    code = (
        "import time\nfrom coding_framework.cuda.gpu.device import CudaDevice\n"
        "device = CudaDevice()\nprint(device._ask('process'), flush=True)\ntime.sleep(60)"
    )
    judge = psutil.Popen([sys.executable, "-c", code], stdout=-1)
    pid = int(judge.stdout.readline())
    os.kill(judge.pid, signal.SIGKILL)
    judge.wait()
    until = time.monotonic() + 5.0
    while psutil.pid_exists(pid) and time.monotonic() < until:
        time.sleep(0.05)
    assert not psutil.pid_exists(pid)
    end_idle()


def test_what_events_cost_is_measured_in_a_process_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_RL_CACHE", str(tmp_path))
    assert 5e-4 < event_cost_ms(gpus()[0]) < 3e-3
