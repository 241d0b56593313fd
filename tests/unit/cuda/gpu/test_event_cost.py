"""What events cost is measured once a GPU and driver; where it cannot be, nothing is taken off."""

from __future__ import annotations

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from coding_framework.cuda.device.gpu_sharing import Gpu
from coding_framework.cuda.gpu import event_cost
from coding_framework.paths import cache_dir

pytestmark = pytest.mark.unit

GPU = Gpu(0, "GPU-of-a-test", "NVIDIA H100", 80 << 30, "580.1")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_RL_CACHE", str(tmp_path))
    assert cache_dir().is_relative_to(tmp_path)


def said(monkeypatch: pytest.MonkeyPatch, text: str, code: int = 0) -> list[Any]:
    """The measuring process says this; the commands that were run."""
    runs: list[Any] = []

    def run(command: list[str], **how: Any) -> subprocess.CompletedProcess[str]:
        runs.append(command)
        if code:
            raise subprocess.CalledProcessError(code, command, stderr=text)
        return subprocess.CompletedProcess(command, 0, text, "")

    monkeypatch.setattr(event_cost.subprocess, "run", run)
    return runs


def test_it_is_measured_once_a_gpu_and_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = said(monkeypatch, "a line of torch's\n0.00137\n")
    with ThreadPoolExecutor(6) as judges:
        assert set(judges.map(event_cost.event_cost_ms, [GPU] * 6)) == {0.00137}
    assert len(runs) == 1
    assert runs[0][-1] == GPU.uuid
    other = Gpu(0, GPU.uuid, GPU.name, GPU.memory_bytes, "590.0")
    assert event_cost.protocol_on(other).event_ms == 0.00137
    assert len(runs) == 2


@pytest.mark.parametrize(
    ("text", "code", "why"),
    [("no CUPTI", 1, "ended with 1: no CUPTI"), ("", 0, "IndexError"), ("0.5", 0, "500.00 us"),
     ("-0.001", 0, "-1.00 us"), ("NaN", 0, "nan us")],
)  # fmt: skip
def test_what_cannot_be_measured_or_believed_takes_nothing_off(
    text: str, code: int, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = said(monkeypatch, text, code)
    assert event_cost.event_cost_ms(GPU) == 0.0 == event_cost.event_cost_ms(GPU)
    assert len(runs) == 1
    path = cache_dir() / "gpus" / GPU.uuid / "event_cost.json"
    kept = json.loads(path.read_text())
    assert why in kept["why"]
    path.write_text(json.dumps({**kept, "at": 0.0}))  # long ago: tried again
    said(monkeypatch, "0.0012")
    assert event_cost.event_cost_ms(GPU) == 0.0012


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "{}",
        '{"driver": "580.1", "why": "", "event_ms": "much"}',
        '{"driver": "580.1", "why": "", "event_ms": 5.0}',
        '{"driver": "580.1", "why": "", "event_ms": NaN}',
    ],
)
def test_a_damaged_file_is_measured_again(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = cache_dir() / "gpus" / GPU.uuid / "event_cost.json"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    said(monkeypatch, "0.0012")
    assert event_cost.event_cost_ms(GPU) == 0.0012


def test_without_a_gpu_its_process_says_why() -> None:
    found, why = event_cost._measured(GPU)
    assert found == 0.0
    assert why.startswith("its process ended with 1")
