"""A tester's probes: one host run each on inputs that it asked for, compared like any other.

No verdict comes of it. What a candidate does here it does in the same sandbox and on the same
device as before a judge; a probe that the task's own reference cannot take says nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from coding_framework.cuda.expected.inputs import draw_probe
from coding_framework.cuda.expected.reference import STEADY_RUNS, Expectation, expect, task_digest
from coding_framework.cuda.model_new.build import ExtensionWanted
from coding_framework.cuda.plan.launch_plan import CandidateFault
from coding_framework.cuda.trial.setup import TrialSetting, open_setup
from coding_framework.cuda.trial.trial import CaseTrial
from coding_framework.cuda.trial.verdict_draft import TrialLog
from coding_framework.errors import UsageError
from coding_framework.task_shapes import case_of_probe
from coding_framework.types import Probe, ProbeResult, Task, TestCase

MAX_PROBES = 8
"""Of one request; more are refused."""


def run_probes(
    setting: TrialSetting, task: Task, probes: Sequence[Probe], secret: bytes
) -> tuple[ProbeResult, ...]:
    """Results in the order of the probes. Raises UsageError for too many of them, and for a task
    whose reference fails on a shape set of its own."""
    if len(probes) > MAX_PROBES:
        raise UsageError(f"{len(probes)} probes at once: {MAX_PROBES} are allowed")
    return tuple(
        _run(setting, task, probe, secret, seed=number) for number, probe in enumerate(probes)
    )


def _run(setting: TrialSetting, task: Task, probe: Probe, secret: bytes, seed: int) -> ProbeResult:
    case = case_of_probe(task, probe)
    if case is None:
        return ProbeResult(probe=probe, passed=None, detail="outside the task's declared domain")
    try:
        expectation = _expect(task, case, probe, secret, seed)
    except UsageError as e:
        return ProbeResult(probe=probe, passed=None, detail=str(e))
    log = TrialLog()
    try:
        with open_setup(setting, expectation) as setup:
            CaseTrial(task, case, setup, Only(expectation), (seed,), log).call_once()
    except ExtensionWanted:
        return ProbeResult(
            probe=probe, passed=None, detail="for these inputs it asks for kernels not built yet"
        )
    except CandidateFault as fault:
        failed = next((t.detail for t in log.tests if not t.passed), "")
        return ProbeResult(probe=probe, passed=False, detail=failed or fault.reason)
    return ProbeResult(probe=probe, passed=True)


class Only:
    """The expectation of the one draw there is."""

    def __init__(self, expectation: Expectation) -> None:
        self._expectation = expectation

    def get(self, task: Task, case: TestCase, seed: int) -> Expectation:
        return self._expectation

    def edges(self, task: Task, case: TestCase) -> tuple[int, ...]:
        return ()

    def of_other_inputs(
        self, task: Task, case: TestCase, seed: int, inputs: Sequence[torch.Tensor]
    ) -> torch.Tensor | None:
        return None  # nobody reads why

    steadier = get  # its tolerance rests on as many runs as any


def _expect(task: Task, case: TestCase, probe: Probe, secret: bytes, seed: int) -> Expectation:
    digest = task_digest(task)
    inputs = draw_probe(case, probe.values, secret, digest, seed)
    return expect(task, digest, case, secret, seed, inputs=inputs, runs=STEADY_RUNS)
