"""Where inputs lie in a call, and what of the rest a replay leaves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
import torch

from coding_framework.cuda.emulator.device import EmulatorDevice
from coding_framework.cuda.host.case_run import CaseRun
from coding_framework.cuda.host.plan_recorder import PlanRecorder, RunLimits
from coding_framework.cuda.host.wire import HostArg
from coding_framework.cuda.plan.launch_plan import Alloc, Copy, TensorRef

pytestmark = pytest.mark.unit

INPUT, WEIGHT = torch.arange(8.0), torch.arange(4.0) + 0.5
NBYTES = INPUT.numel() * INPUT.element_size()


class CopyingHost:
    """`forward` as host code would ask for it: memory, a copy of the input, and that returned."""

    def __init__(self, recorder: PlanRecorder) -> None:
        self._recorder = recorder
        self.functions: dict[str, int] = {}

    def call(
        self, arguments: Sequence[HostArg], *, function: str = "forward"
    ) -> tuple[TensorRef, ...]:
        given = arguments[0]
        assert isinstance(given, TensorRef)
        made = self._recorder.malloc(NBYTES)
        self._recorder.copy(made, given.address, NBYTES)
        return (TensorRef(made, given.shape, given.strides, given.dtype),)


@pytest.fixture(scope="module")
def device() -> Iterator[EmulatorDevice]:
    with EmulatorDevice() as made:
        yield made


@pytest.fixture
def recorder(device: EmulatorDevice) -> PlanRecorder:
    return PlanRecorder(device, RunLimits())


@pytest.fixture
def run(device: EmulatorDevice, recorder: PlanRecorder) -> CaseRun:
    return CaseRun(device, recorder, [INPUT, WEIGHT], 1)


def test_a_moved_call_has_its_inputs_elsewhere_and_its_parameters_where_they_were(
    run: CaseRun, recorder: PlanRecorder
) -> None:
    host = CopyingHost(recorder)
    first, _ = run.host_run(host, [INPUT, WEIGHT], ())
    moved, execution = run.host_run(host, [2 * INPUT, WEIGHT], (), moved=True)
    assert moved.inputs[0].address != first.inputs[0].address
    assert moved.inputs[1] == first.inputs[1]
    assert torch.equal(execution.outputs[0].tensor, 2 * INPUT)


def test_a_replay_poisons_the_places_that_inputs_had_in_other_calls(
    run: CaseRun, recorder: PlanRecorder, device: EmulatorDevice
) -> None:
    host = CopyingHost(recorder)
    first, _ = run.host_run(host, [INPUT, WEIGHT], ())
    moved, _ = run.host_run(host, [INPUT, WEIGHT], (), moved=True)
    elsewhere = moved.inputs[0].address
    execution = run.replay(first, [3 * INPUT, WEIGHT])
    assert torch.equal(execution.outputs[0].tensor, 3 * INPUT)
    assert device.download(elsewhere, NBYTES) == b"\xff" * NBYTES
    run.replay(first, [INPUT, WEIGHT], fill=0x7B)
    assert device.download(elsewhere, NBYTES) == b"\x7b" * NBYTES
    assert torch.equal(run.replay(moved, [INPUT, WEIGHT]).outputs[0].tensor, INPUT)


def test_all_of_a_case_s_memory_is_listed_in_the_order_in_which_it_was_allocated(
    run: CaseRun, recorder: PlanRecorder, device: EmulatorDevice
) -> None:
    host = CopyingHost(recorder)
    plan, _ = run.host_run(host, [INPUT, WEIGHT], ())
    regions = run.contents(plan, [INPUT, WEIGHT])
    assert [nbytes for _, nbytes, _ in regions] == [NBYTES, 16, NBYTES, NBYTES]
    assert [contents is not None for _, _, contents in regions] == [True, True, False, False]
    made = [op.address for op in plan.ops if isinstance(op, Alloc)]
    assert [address for address, _, _ in regions][-1:] == made
    assert Copy(made[0], regions[0][0], NBYTES) in plan.ops
    with EmulatorDevice() as other:  # the same allocations there give the same distances
        again = [other.alloc(nbytes) for _, nbytes, _ in regions]
    assert [b - again[0] for b in again] == [a - regions[0][0] for a, _, _ in regions]
