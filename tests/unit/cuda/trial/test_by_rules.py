"""Published rules beside the protocol: their inputs, their tolerance, what they cannot compare."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace

import pytest
import torch

from coding_framework.cuda.emulator import backend
from coding_framework.cuda.expected.rules import RULES
from coding_framework.cuda.host.plan_recorder import RunLimits
from coding_framework.cuda.judge import Judge, JudgeConfig
from coding_framework.cuda.trial.by_rules import _expected
from coding_framework.types import Candidate, Task, Verdict
from support.judge_tasks import make_task

VERIFIED = RULES["kernelbench-verified"]
KERNEL = """
#include <torch/extension.h>
__global__ void k(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { float v = x[i]; y[i] = VALUE; }
}
torch::Tensor forward(torch::Tensor x) {
  auto spare = torch::empty({1000}, x.options());
  auto y = torch::empty_like(x);
  k<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  return y;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
"""
RELU = make_task("relu_ruled", "torch.relu(x)")


@pytest.fixture(scope="module")
def judge() -> Judge:
    return Judge(JudgeConfig(backend="emulator", seed=3, rules="kernelbench-verified"))


def judged(judge: Judge, value: str, task: Task = RELU) -> Verdict:
    return judge.judge(task, Candidate(code=KERNEL.replace("VALUE", value)))


def test_a_right_kernel_passes_both_and_its_memory_is_told(judge: Judge) -> None:
    limited = RELU.model_copy(update={"workspace_limit": 3999})
    verdict = judged(judge, "v > 0 ? v : 0.f", limited)
    assert verdict.correct
    assert verdict.by_rules is not None
    assert verdict.by_rules.passed
    assert verdict.timing is not None
    assert (verdict.timing.workspace_bytes, verdict.timing.eager_workspace_bytes) == (4000, 0)
    [finding] = [f for f in verdict.pitfalls if f.rule == "workspace"]
    assert finding.message == (
        "a call allocates 4000 bytes beyond its inputs and outputs; the task allows 3999"
    )


@pytest.mark.parametrize(
    ("value", "passes", "why"),
    [
        ("v > 0 ? 1.0004f * v : 0.f", True, ""),
        ("v", False, "inputs times 1: first wrong element"),
        ("fabsf(v) > 20 ? 0.f : (v > 0 ? v : 0.f)", True, ""),
        ("v < 0.5f && v > 0 ? 0.f : (v > 0 ? v : 0.f)", False, "inputs times 1: first wrong"),
    ],
)
def test_what_the_protocol_refuses_the_rules_may_accept(
    judge: Judge, value: str, passes: bool, why: str
) -> None:
    verdict = judged(judge, value)
    assert not verdict.correct
    assert verdict.by_rules is not None
    assert verdict.by_rules.passed is passes
    assert verdict.by_rules.reason.startswith(why)


def _with_spare(floats: int) -> Candidate:
    code = KERNEL.replace("VALUE", "v > 0 ? v : 0.f")
    return Candidate(code=code.replace("{1000}", f"{{{floats}}}"))


@pytest.mark.parametrize(("earlier", "status"), [(0, "memory_limit"), (64 << 20, "correct")])
def test_sets_of_inputs_do_not_share_a_limit_on_memory(
    judge: Judge, monkeypatch: pytest.MonkeyPatch, earlier: int, status: str
) -> None:
    """All calls of a shape set do: they are those of one process."""
    limits = partial(RunLimits, memory_bytes=4 << 20, earlier_bytes=earlier)
    monkeypatch.setattr(backend, "RunLimits", limits)
    verdict = judge.judge(RELU, _with_spare(1 << 18))
    assert verdict.status.value == status
    assert verdict.by_rules is not None
    assert verdict.by_rules.passed, verdict.by_rules.reason


def test_a_candidate_that_is_not_built_is_refused_by_both(judge: Judge) -> None:
    verdict = judged(judge, "nothing")
    assert not verdict.compiled
    assert verdict.by_rules is not None
    assert verdict.by_rules.reason == "it was not built"


@pytest.mark.unit
def test_inputs_that_overflow_are_left_out() -> None:
    task = make_task("large", "torch.exp(x.abs() + 80)")
    case = task.cases[0]
    found = [_expected(task, case, VERIFIED, b"s", number, None) for number in range(9)]
    said = [f for f in found if isinstance(f, str)]
    assert said
    assert set(said) == {"the reference's own answer is not finite"}
    assert not isinstance(found[7], str)  # times 0.01


@pytest.mark.unit
def test_inputs_are_the_draws_times_each_scale() -> None:
    tensors = []
    for number, scale in enumerate(VERIFIED.scales):
        found = _expected(RELU, RELU.cases[0], VERIFIED, b"s", number, None)
        assert not isinstance(found, str)
        tensors.append(found.inputs[0])
        assert found.inputs[0].std() == pytest.approx(abs(scale), rel=0.1)
        [output] = found.outputs
        assert torch.equal(output.native, torch.relu(found.inputs[0]))
        assert output.tolerance is not None
        allowed = 1e-3 * (1 + output.native.double().abs())
        assert torch.allclose(output.tolerance, allowed, rtol=1e-12)
    assert len({t.sum().item() for t in tensors}) == len(tensors)


@pytest.mark.unit
@pytest.mark.parametrize("extent", [64, 32])
def test_at_real_size_inputs_are_the_problems_own(
    monkeypatch: pytest.MonkeyPatch, extent: int
) -> None:
    monkeypatch.setattr("torch.random.fork_rng", lambda devices: nullcontext())
    place = SimpleNamespace(device=torch.device("cpu"), working=nullcontext)
    source = f"{RELU.reference}\n\ndef get_inputs():\n    return [torch.rand({extent}, 96), 2.0]\n"
    task = RELU.model_copy(update={"reference": source, "gpu_cases": RELU.cases[:1]})
    found = _expected(task, task.gpu_cases[0], VERIFIED, b"s", 8, place)  # type: ignore[arg-type]
    assert not isinstance(found, str)
    [values] = found.inputs
    assert bool((values <= 0).all()) == (extent == 64)  # times -1; else they have other sizes
