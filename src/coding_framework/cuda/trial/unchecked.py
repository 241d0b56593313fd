"""Times a build of no task: on inputs that its `forward` implies. Nothing is checked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from coding_framework.cuda.expected.reference import ReferenceCache
from coding_framework.cuda.host.case_run import Execution
from coding_framework.cuda.plan.launch_plan import CandidateFault
from coding_framework.cuda.timing.results import TimedCase
from coding_framework.cuda.trial.setup import TrialSetting, open_setup
from coding_framework.cuda.trial.trial import CaseTrial
from coding_framework.cuda.trial.verdict_draft import TrialLog
from coding_framework.errors import UsageError
from coding_framework.types import InitArg, Task, TensorSpec, TestCase

Inputs = Sequence[TensorSpec | Sequence[int]]
"""Tensors by their specs, or by their shapes alone (of float32)."""

_FIRST_INPUT = """
import torch

class Model(torch.nn.Module):
    def __init__(self, *numbers):
        super().__init__()

    def forward(self, first, *others):
        return first
"""
"""What stands where a task has its reference: nobody asks what comes of it."""
_SIDES = {2: (64, 4096), 1: (4096, 1 << 24), 4: (8, 64), 3: (16, 256)}
"""By the number of dimensions, in the order in which they are tried: the side of a tensor on the
emulator, and on a GPU."""
_FORWARD = re.compile(rb"\0_Z7forward(\w+)\0")
_TENSOR = re.compile(r"RKN2at6TensorE|N2at6TensorE|RKS\d*_|S\d*_")
_NUMBERS: dict[str, InitArg] = {"d": 1.0, "f": 1.0, "b": True, **dict.fromkeys("ijlmxy", 1)}
_REPLAYS = 5


def tasks_of(build: Path, inputs: Inputs | None) -> Iterator[Task]:
    """What the build may be called with, the likeliest first. Raises UsageError where its `forward`
    does not tell how many tensors it takes, and none were handed over."""
    if inputs is not None:
        given = tuple(
            spec if isinstance(spec, TensorSpec) else TensorSpec(name=f"x{i}", shape=tuple(spec))
            for i, spec in enumerate(inputs)
        )
        yield _task(given, given, (_signature(build) or (0, ()))[1])
        return
    signature = _signature(build)
    if signature is None:
        raise UsageError(
            "forward does not say which tensors it takes: hand them over, as "
            "benchmark_kernel(binary_path, kernel_name, inputs=[(1024, 1024)])"
        )
    tensors, numbers = signature
    for dimensions, sides in _SIDES.items():
        small, large = (
            tuple(TensorSpec(name=f"x{i}", shape=(side,) * dimensions) for i in range(tensors))
            for side in sides
        )
        yield _task(small, large, numbers)


def time_unchecked(
    setting: TrialSetting, task: Task, case: TestCase, references: ReferenceCache
) -> TimedCase:
    """The build's launches on the inputs of `task`. Raises CandidateFault where a call fails."""
    with (
        setting.backend.room(task, case),
        open_setup(setting, references.get(task, case, 0), timed=True) as setup,
    ):
        trial = _Unchecked(task, case, setup, references, range(1 + _REPLAYS), TrialLog())
        return trial.timed()


class _Unchecked(CaseTrial):
    """One shape set, on which every answer is taken as it is."""

    def timed(self) -> TimedCase:
        """Raises CandidateFault where the host code fails, or launches nothing."""
        first, *others = self._seeds
        plan, execution = self._call_host(first)
        self._require_device_work(plan)
        replays = [
            self._setup.run.replay(plan, self._expect(seed).tensors).reports for seed in others
        ]
        made = [output.tensor for output in execution.outputs]
        written = sum(tensor.numel() * tensor.element_size() for tensor in made)
        found = self._timed(plan, replays, first if plan.reads_back else None)
        moved = self._input_bytes() + written
        return self.measured(replace(found, bytes_moved=moved, output_bytes=written))

    def _passes(self, expectation: object, execution: Execution) -> bool:
        return True


def _task(
    small: tuple[TensorSpec, ...], large: tuple[TensorSpec, ...], numbers: tuple[InitArg, ...]
) -> Task:
    return Task(
        name="no task",
        tier=0,
        family="none",
        ops=(),
        description="",
        reference=_FIRST_INPUT,
        init_args=numbers,
        cases=(TestCase(name="main", inputs=small),),
        gpu_cases=(TestCase(name="large", inputs=large),),
    )


def _signature(build: Path) -> tuple[int, tuple[InitArg, ...]] | None:
    """(tensors, numbers) that `forward` takes, from its name in the library; None: other things."""
    library = build / "host.so"
    found = _FORWARD.search(library.read_bytes()) if library.exists() else None
    told = found.group(1).decode() if found is not None else "?"
    tensors = len(_TENSOR.findall(told))
    others = _TENSOR.sub("", told)
    if not tensors or any(letter not in _NUMBERS for letter in others):
        return None
    return tensors, tuple(_NUMBERS[letter] for letter in others)


def hand_over(fault: CandidateFault) -> UsageError:
    """What to do where the build runs on no inputs that were tried."""
    return UsageError(
        f"the build runs on none of the inputs that its signature implies ({fault.reason}): hand "
        "some over, as benchmark_kernel(binary_path, kernel_name, inputs=[(1024, 1024)])"
    )
