"""A real-size answer is wrong only by a tolerance that does not rest on one perturbed run.

Found on a GPU: an honest column sum, clipped to [-1, 1], was wrong in one element of 8,192, whose
summands' perturbations happened to cancel.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from coding_framework.cuda.expected import reference
from coding_framework.cuda.expected.reference import Expectation, ReferenceCache
from coding_framework.cuda.expected.tolerance import ExpectedOutput, Spread, compare, worst_of
from coding_framework.cuda.host.case_run import Output
from coding_framework.cuda.plan.launch_plan import CandidateFault, LaunchPlan
from coding_framework.cuda.timing.results import TimedCase
from coding_framework.cuda.trial.trial import CaseTrial
from coding_framework.cuda.trial.verdict_draft import TrialLog
from coding_framework.types import Status, Task, TensorSpec, TestCase

pytestmark = pytest.mark.unit

CLIPPED_SUM = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.clamp(x.sum(1), -1, 1)
"""
LARGE = TestCase(
    name="gpu main",
    inputs=(TensorSpec(name="x", shape=(2048, 8192), low=-4.0, high=4.0),),
    reduction_length=8192,
)
SMALL = TestCase(name="main", inputs=(TensorSpec(name="x", shape=(8, 4)),), reduction_length=8)
TASK = Task(
    name="clipped_sum", tier=0, family="f", ops=("sum", "clamp"), description="",
    reference=CLIPPED_SUM, cases=(SMALL,), gpu_cases=(LARGE,),
)  # fmt: skip
SEED = 10
"""Of a draw that has sums between -1 and 1 on which the order of summands tells."""


@dataclass
class OnTheCpu:
    """A GPU's place without a GPU: references of real size are made as they are there."""

    device = torch.device("cpu")
    working = staticmethod(nullcontext)
    new_spread = Spread


@pytest.fixture
def unlucky_first_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the first perturbed run of each draw all changes of the summands cancel."""
    outputs, perturbed = reference._expected_outputs, reference.perturbed
    made = 0

    def begun(*arguments: Any) -> tuple[ExpectedOutput, ...]:
        nonlocal made
        made = 0
        return outputs(*arguments)

    def still_at_first(
        model: nn.Module, inputs: tuple[torch.Tensor, ...], eps: float
    ) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
        nonlocal made
        made += 1
        moved = perturbed(model, inputs, eps)
        return moved if made > 1 else (moved[0], inputs)

    monkeypatch.setattr(reference, "_expected_outputs", begun)
    monkeypatch.setattr(reference, "perturbed", still_at_first)


def one_by_one(x: torch.Tensor) -> torch.Tensor:
    """The least accurate honest order."""
    return torch.from_numpy(np.cumsum(x.numpy(), axis=1, dtype=np.float32)[:, -1].copy()).clamp(
        -1, 1
    )


def references() -> ReferenceCache:
    return ReferenceCache(b"s", place=OnTheCpu())  # type: ignore[arg-type]


def passes(out: torch.Tensor, expectation: Expectation) -> bool:
    return compare(out, out.stride(), expectation.outputs[0]).passed


def fault_of_a_timed_call(out: torch.Tensor, cache: ReferenceCache) -> CandidateFault | None:
    """What a trial says of a timed call with this output."""

    def measure(_: Any, __: Any, draws: list[Expectation], check: Any) -> None:
        check(draws[0], (Output(out, out.stride(), out),))

    device = SimpleNamespace(check_guards=lambda: None)
    equipment = SimpleNamespace(
        measure=measure, computing=nullcontext, device=device, find_worst=worst_of
    )
    setup: Any = SimpleNamespace(equipment=equipment, run=None, open_other_schedule=None)
    trial = CaseTrial(TASK, LARGE, setup, cache, (1, 2), TrialLog())
    try:
        trial.measured(TimedCase(LaunchPlan((), (), ()), (), 0, own_seed=SEED))
    except CandidateFault as e:
        return e
    return None


def test_a_tolerance_of_one_unlucky_run_is_too_tight_and_that_of_more_is_not(
    unlucky_first_run: None,
) -> None:
    cache = references()
    first = cache.get(TASK, LARGE, SEED)
    out = one_by_one(first.inputs[0])
    assert not passes(out, first)
    steadier = cache.steadier(TASK, LARGE, SEED)
    assert all(torch.equal(a, b) for a, b in zip(first.tensors, steadier.tensors, strict=True))
    assert passes(out, steadier)
    assert cache.get(TASK, LARGE, SEED) is steadier
    assert cache.steadier(TASK, LARGE, SEED) is steadier


def test_the_tolerance_of_a_small_shape_set_rests_on_more_runs_before_an_answer_is_wrong() -> None:
    cache = references()
    first = cache.get(TASK, SMALL, 0)
    steadier = cache.steadier(TASK, SMALL, 0)
    (narrow,), (wide,) = first.outputs, steadier.outputs
    assert narrow.tolerance is not None
    assert wide.tolerance is not None
    assert bool((wide.tolerance >= narrow.tolerance).all())
    assert bool((wide.tolerance > narrow.tolerance).any())
    assert cache.steadier(TASK, SMALL, 0) is steadier
    assert cache.get(TASK, SMALL, 0) is first, "who is judged later is told the same tolerance"


def test_a_trial_compares_again_before_it_calls_an_answer_wrong(unlucky_first_run: None) -> None:
    cache = references()
    out = one_by_one(cache.get(TASK, LARGE, SEED).inputs[0])
    assert fault_of_a_timed_call(out, cache) is None


def test_a_wrong_answer_stays_wrong(unlucky_first_run: None) -> None:
    cache = references()
    x = cache.get(TASK, LARGE, SEED).inputs[0]
    for wrong in (one_by_one(x[:, :-1]), one_by_one(x.half()), torch.zeros(2048)):
        fault = fault_of_a_timed_call(wrong, cache)
        assert fault is not None
        assert fault.status is Status.WRONG_OUTPUT
