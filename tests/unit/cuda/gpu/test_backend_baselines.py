"""PyTorch's times on a GPU, without one: which are taken, and what cannot be."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from coding_framework.cuda.gpu import backend as module
from coding_framework.cuda.gpu.backend import CudaBackend
from coding_framework.errors import DeviceFullError, UsageError
from coding_framework.reference_model import in_tf32, product_precision
from coding_framework.types import TIMED, BaselineName, BenchmarkResult
from support.judge_tasks import make_task

pytestmark = pytest.mark.unit
TASK = make_task("products", "x @ x.T")
IN_TF32 = TASK.model_copy(update={"reference": in_tf32(TASK.reference)})


def backend(major: int = 9, wanted: str = "all") -> CudaBackend:
    made = CudaBackend.__new__(CudaBackend)
    made._wanted = wanted
    made._properties = SimpleNamespace(major=major)  # type: ignore[assignment]
    made.gpu = SimpleNamespace(name="Tesla V100")  # type: ignore[assignment]
    made.protocol = None  # type: ignore[assignment]
    made.__dict__["place"] = SimpleNamespace(device=torch.device("cpu"), working=nullcontext)
    return made


def test_a_task_in_tf32_is_refused_where_the_gpu_has_none() -> None:
    with pytest.raises(UsageError, match="asks for TF32, which Tesla V100 does not have"):
        backend(major=7).prepared(IN_TF32)
    assert backend(major=7).prepared(TASK) == TASK
    assert backend(major=8).prepared(IN_TF32) == IN_TF32


@pytest.mark.parametrize("mode", TIMED["all"])
def test_a_baseline_that_runs_out_of_memory_is_told_by_name(
    monkeypatch: pytest.MonkeyPatch, mode: BaselineName
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise torch.OutOfMemoryError("20 GiB")

    monkeypatch.setattr(module, "time_model", full)
    monkeypatch.setattr(module, "time_compiled", full)
    with pytest.raises(DeviceFullError, match=f"no room for the baseline {mode} of products"):
        backend().time_reference(TASK, mode)


def test_each_baseline_is_timed_as_its_name_says(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def timed(*_: Any, tune: bool = False) -> None:
        seen.append((product_precision(), tune))

    monkeypatch.setattr(module, "time_model", timed)
    monkeypatch.setattr(module, "time_compiled", timed)
    with _highest():
        for mode in TIMED["all"]:
            backend(wanted="max-autotune").time_reference(TASK, mode)
    high, highest = "high", "highest"
    assert seen == [(highest, False), (high, False), (highest, True), (high, True)]
    assert module._as_asked("eager_tf32", IN_TF32) == "eager"
    assert module._as_asked("compiled_tf32", TASK) == "compiled_tf32"


@contextmanager
def _highest() -> Any:
    was = product_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(was)


def test_the_strongest_baseline_and_the_memory_of_a_result() -> None:
    found = BenchmarkResult(
        kernel_ms=2.0, kernel_ms_ci95=(2.0, 2.0), eager_ms=4.0, eager_tf32_ms=1.0, speedup=2.0,
        bytes_moved=100, workspace_bytes=100, eager_workspace_bytes=0, modelled=False,
    )  # fmt: skip
    assert found.strongest == "eager_tf32"
    assert (found.over("eager"), found.over("eager_tf32"), found.over("compiled")) == (2, 0.5, None)
    assert found.memory_ratio == 0.5
    assert found.model_copy(update={"eager_workspace_bytes": None}).memory_ratio is None
