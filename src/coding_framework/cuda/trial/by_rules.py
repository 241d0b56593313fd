"""A candidate on the inputs that published rules ask for, compared as they compare.

Beside the protocol, which decides: each set of inputs is one host call on the shape set that is
timed, in the same sandbox as any other. At real size inputs come from the problem's own
`get_inputs`; at smaller sizes from the task's domain, spread evenly over it or normal.
"""

from __future__ import annotations

from contextlib import ExitStack, nullcontext
from functools import partial

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from coding_framework.cuda.expected.inputs import derive_seed, draw_evenly, laid_out
from coding_framework.cuda.expected.model_calls import call
from coding_framework.cuda.expected.reference import (
    Expectation,
    ReferencePlace,
    computed,
    require_trusted,
    task_digest,
    weights_seed,
)
from coding_framework.cuda.expected.rules import Rules
from coding_framework.cuda.expected.tolerance import ExpectedOutput
from coding_framework.cuda.plan.launch_plan import CandidateFault
from coding_framework.cuda.trial.comparing import Comparing
from coding_framework.cuda.trial.probe import Only
from coding_framework.cuda.trial.setup import TrialSetting, TrialSetup, open_setup
from coding_framework.errors import UsageError
from coding_framework.reference_model import run_reference
from coding_framework.types import RulesCheck, Task, TestCase

_HALF = (torch.float16, torch.bfloat16)


def check_by_rules(
    setting: TrialSetting, task: Task, rules: Rules, secret: bytes, place: ReferencePlace | None
) -> RulesCheck:
    """What the rules say of the candidate. Inputs for which the reference fails, or gives what is
    not finite, are left out. Raises ExtensionWanted where an answer's build lacks kernels."""
    case = setting.backend.timed_case(task)
    setup, left_out, compared = None, [], 0
    with ExitStack() as stack:
        for number, scale in enumerate(rules.scales):
            expectation = _expected(task, case, rules, secret, number, place)
            if isinstance(expectation, str):
                left_out.append(f"inputs times {scale:g}: {expectation}")
                continue
            if setup is not None and not setup.recorder.fits_again:
                stack.close()
                setup = None
            try:
                if setup is None:
                    setup = stack.enter_context(open_setup(setting, expectation))
                wrong = _compare(task, case, setup, expectation)
            except CandidateFault as fault:
                wrong = f"{fault.status.value}: {fault.reason}"
            if wrong:
                told = f"inputs times {scale:g}: {wrong}"
                return RulesCheck(rules=rules.name, passed=False, reason=told)
            compared += 1
    return RulesCheck(
        rules=rules.name,
        passed=True if compared else None,
        reason="" if compared else f"nothing can be compared: {left_out[0]}",
        left_out=tuple(left_out),
    )


def _compare(task: Task, case: TestCase, setup: TrialSetup, expectation: Expectation) -> str:
    """What is wrong with one call; "" where nothing is."""
    _, execution = setup.run.host_run(
        setup.host,
        expectation.tensors,
        expectation.scalars,
        expectation.signature.parameter_names,
        counts=False,
    )
    comparing = Comparing(task, case, Only(expectation), setup.equipment)
    return comparing.test(expectation, execution).detail


def _expected(
    task: Task,
    case: TestCase,
    rules: Rules,
    secret: bytes,
    number: int,
    place: ReferencePlace | None,
) -> Expectation | str:
    """What must come out of a set of inputs; why there is nothing to compare, in words."""
    require_trusted(task)
    on_gpu, scale = place if case in task.gpu_cases else None, rules.scales[number]
    weights = weights_seed(secret, task_digest(task), case, number)
    with on_gpu.working() if on_gpu is not None else nullcontext():
        own = _inputs(task, case, secret, number, on_gpu)
        inputs = tuple(
            laid_out(t * scale, spec) if t.is_floating_point() and scale != 1.0 else t
            for t, spec in zip(own, case.inputs, strict=True)
        )
        expected = partial(_as_eager, rules)
        try:
            found = computed(task, case, number, inputs, weights, 0, expected=expected)
        except UsageError as e:
            return str(e)
        if not all(bool(output.native.isfinite().all()) for output in found.outputs):
            return "the reference's own answer is not finite"
    return found


def _as_eager(
    rules: Rules, model: nn.Module, inputs: tuple[torch.Tensor, ...]
) -> tuple[ExpectedOutput, ...]:
    """PyTorch's outputs, compared as by `torch.allclose`: one tolerance, absolute and relative."""
    outputs = []
    for native in call(model, inputs):
        tolerance = rules.half_tolerance if native.dtype in _HALF else rules.tolerance
        exact = native.to(torch.float64) if native.is_floating_point() else native
        allowed = exact.abs().add_(1.0).mul_(tolerance) if native.is_floating_point() else None
        outputs.append(ExpectedOutput(exact, native, allowed))
    return tuple(outputs)


def _inputs(
    task: Task, case: TestCase, secret: bytes, number: int, place: ReferencePlace | None
) -> tuple[torch.Tensor, ...]:
    """Those of the problem itself, where the shape set is of its sizes; else drawn evenly."""
    digest = task_digest(task)
    draw = run_reference(task.reference).get("get_inputs")
    if place is not None and callable(draw):
        with torch.random.fork_rng(devices=[place.device]):
            torch.manual_seed(derive_seed(secret, "rules", digest, number) >> 1)
            own = [t for t in tree_leaves(draw()) if isinstance(t, torch.Tensor)]
        if [tuple(t.shape) for t in own] == [spec.shape for spec in case.inputs]:
            return tuple(t.to(place.device) for t in own)
    device = torch.device("cpu") if place is None else place.device
    return draw_evenly(case, secret, digest, number, device)
