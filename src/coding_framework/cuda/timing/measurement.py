"""Times the plan of a case on a device that has a clock; its checked calls go back to the trial."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from coding_framework.cuda.expected.inputs import memory_of
from coding_framework.cuda.expected.reference import Expectation
from coding_framework.cuda.host.case_run import CaseRun, Output
from coding_framework.cuda.plan.launch_plan import LaunchPlan
from coding_framework.cuda.timing.statistics import Timing, TimingProtocol, summary

CHECKED_DRAWS = 2
"""Of inputs that no call has seen: one at a random place among the timed calls, one at the end."""

Region = tuple[int, int, int]
"""Address, nbytes, itemsize."""


class TimingDevice(Protocol):
    """A device with a clock. What each method promises stands in `gpu/device.py`."""

    def stage(self, region: Region, draws: int, draw: int, tensor: torch.Tensor) -> None: ...

    def measure(
        self,
        plan: LaunchPlan,
        inputs: Sequence[Region],
        blocks: Sequence[tuple[int, int]],
        outputs: Sequence[tuple[int, int]],
        draws: int,
        protocol: TimingProtocol,
        *,
        fresh: bool = True,
    ) -> dict[str, Any]: ...

    def kept(self, draw: int, output: int, nbytes: int, *, on_gpu: bool) -> torch.Tensor: ...


@dataclass(frozen=True, slots=True)
class Measurement:
    """Maker: `measure_plan`. Consumer: the backend's result. Times are of device work."""

    timing: Timing
    transfer_ms: float
    """Copies from and to the host that the plan makes: apart from `timing`."""
    raw: dict[str, Any]
    """`gpu.replay.Measured` as data: for benchmarks."""


def measure_plan(
    device: TimingDevice,
    run: CaseRun,
    plan: LaunchPlan,
    draws: Sequence[Expectation],
    check: Callable[[Expectation, tuple[Output, ...]], None],
    protocol: TimingProtocol,
    *,
    fresh: bool,
) -> Measurement:
    """Time a plan on inputs like those of `draws`, each of which is used whole in one call.

    check: hears what those calls put out, and raises where it is wrong. fresh: False for a plan
    that is right for its own draw only, which is then the one draw.
    """
    regions = [
        (address, nbytes, tensor.element_size())
        for (address, nbytes), tensor in zip(
            run.regions(plan.inputs), draws[0].tensors, strict=True
        )
    ]
    for number, expectation in enumerate(draws):
        for region, tensor in zip(regions, expectation.tensors, strict=True):
            device.stage(region, len(draws), number, memory_of(tensor))
    outputs = [run.extent(ref) for ref in plan.outputs]
    found = device.measure(
        plan, regions, run.others(plan), outputs, len(draws), protocol, fresh=fresh
    )
    for number, expectation in enumerate(draws):
        bits = [
            device.kept(number, i, nbytes, on_gpu=run.on_gpu)
            for i, (_, nbytes) in enumerate(outputs)
        ]
        check(expectation, run.outputs_of(plan, bits))
    return Measurement(
        timing=summary(found["samples_ms"], protocol),
        transfer_ms=float(found["upload_ms"]) + float(found["read_back_ms"]),
        raw=found,
    )
