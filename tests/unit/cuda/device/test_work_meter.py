"""A verdict's budget of work: counted on the device and here, over it `timeout`."""

from __future__ import annotations

import pytest

from coding_framework.cuda.device.work_meter import WORK_BYTES, WORK_S, WorkMeter
from coding_framework.cuda.emulator.device import EmulatorDevice
from coding_framework.cuda.plan.launch_plan import CandidateFault
from coding_framework.types import Status

pytestmark = pytest.mark.unit


def test_processor_time_over_the_budget_is_a_timeout() -> None:
    meter = WorkMeter()
    meter.spend(WORK_S)
    with pytest.raises(CandidateFault, match="processor time") as fault:
        meter.spend(0.001)
    assert fault.value.status is Status.TIMEOUT


def test_bytes_over_the_budget_are_a_timeout() -> None:
    with pytest.raises(CandidateFault, match="came to more than 1 TiB") as fault:
        WorkMeter().spend(0.0, WORK_BYTES + 1)
    assert fault.value.status is Status.TIMEOUT


def test_what_a_device_does_is_counted() -> None:
    with EmulatorDevice() as device:
        address = device.alloc(1 << 20)
        device.meter = meter = WorkMeter()
        device.fill(address, 1, 1 << 20)
        device.copy(address, address, 1 << 10)
        device.upload(address, bytes(100))
        assert device.download(address, 4) == bytes(4)
        assert meter.nbytes == (1 << 20) + (1 << 10) + 100 + 4
        assert 0 < meter.seconds < 1
        meter.seconds = WORK_S
        with pytest.raises(CandidateFault):
            device.poison(address)
