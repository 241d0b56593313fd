"""printf on the device: what the host's printf would write, bounded, also before a fault."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from coding_framework.cuda.emulator.machine import MAX_OUTPUT_BYTES
from coding_framework.cuda.plan.launch_plan import CandidateFault
from coding_framework.types import Status
from support.emulator_harness import KERNELS, Gpu, ptx_of

pytestmark = pytest.mark.unit


@pytest.fixture(params=["sm_80", "sm_90", "sm_100"])
def gpu(request: pytest.FixtureRequest) -> Gpu:
    return Gpu(ptx_of("prints.cu", request.param))


def test_each_thread_prints_its_line_and_counts_its_arguments(gpu: Gpu) -> None:
    counts = gpu.put(np.zeros(3, np.int32))
    report = gpu.run("hello", 1, 3, counts, checks=True)
    assert report.output == "thread 0 of 3\nthread 1 of 3\nthread 2 of 3\n"
    assert gpu.get(counts, 3, np.int32).tolist() == [2, 2, 2]
    assert report.faults == ()


def test_every_conversion_is_what_the_host_prints(gpu: Gpu, tmp_path: Path) -> None:
    source = (KERNELS / "prints.cu").read_text()
    start = source.index("every_conversion")
    body = source[source.index("{", start) + 1 : source.index("}", start)]
    (tmp_path / "host.cpp").write_text(
        f"#include <cstdio>\nint main() {{ const char* text = nullptr; {body} }}\n"
    )
    subprocess.run(["g++", "-w", "host.cpp", "-o", "host"], cwd=tmp_path, check=True)
    expected = subprocess.run(
        [tmp_path / "host"], capture_output=True, text=True, check=True
    ).stdout
    assert gpu.run("every_conversion", 1, 1, 0).output == expected


def test_only_active_threads_print(gpu: Gpu) -> None:
    report = gpu.run("diverges", 1, 4, gpu.put(np.array([0, 1, 2, 3], np.int32)))
    assert sorted(report.output.splitlines()) == ["big 3", "one"]


def test_a_flood_is_cut_and_the_rest_counted(gpu: Gpu) -> None:
    lines = [f"line {i} of thread {t}\n" for i in range(40) for t in range(32)]
    report = gpu.run("floods", 1, 32, 40)
    whole = "".join(lines)
    assert report.output.startswith(whole[:MAX_OUTPUT_BYTES])
    over = len(whole) - MAX_OUTPUT_BYTES
    assert report.output[MAX_OUTPUT_BYTES:] == f"\n[{over} bytes more were printed]\n"


def test_a_string_outside_memory_is_an_illegal_read(gpu: Gpu) -> None:
    unterminated = gpu.put(np.full(8, ord("x"), np.uint8))
    for address in (0, 1 << 20, unterminated):
        with pytest.raises(CandidateFault, match="illegal") as caught:
            gpu.run("bad_string", 1, 1, address)
        assert caught.value.status is Status.RUNTIME_ERROR


def test_what_was_printed_before_a_fault_is_kept(gpu: Gpu) -> None:
    with pytest.raises(CandidateFault) as caught:
        gpu.run("prints_and_traps", 1, 2)
    assert caught.value.output == "before the end\n" * 2


def test_a_null_format_prints_nothing(gpu: Gpu) -> None:
    counts = gpu.put(np.zeros(1, np.int32))
    assert gpu.run("null_format", 1, 1, counts, 0).output == ""
    assert gpu.get(counts, 1, np.int32).tolist() == [-1]
    text = gpu.put(np.frombuffer(b"%d!\0", np.uint8))
    assert gpu.run("null_format", 1, 1, counts, text).output == "1!"


def test_a_failed_assertion_says_what_it_asserted() -> None:
    gpu = Gpu(ptx_of("faulty.cu"))
    with pytest.raises(CandidateFault, match=r"the assertion `.+` failed for thread \(5,0,0\)"):
        gpu.run("asserts", 1, 32, gpu.put(np.arange(32, dtype=np.int32)))
