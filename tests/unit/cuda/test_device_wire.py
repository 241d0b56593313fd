"""What goes to a device process and comes back is data, whole, or a clean end."""

from __future__ import annotations

import socket
import threading

import pytest

from coding_framework.cuda.device_process import ProcessDevice
from coding_framework.cuda.device_wire import (
    decode_launch,
    decode_module,
    decode_report,
    encode_launch,
    encode_module,
    encode_report,
    receive_message,
    send_message,
)
from coding_framework.cuda.plan import (
    CandidateFault,
    Fault,
    KernelInfo,
    Launch,
    LaunchReport,
    ModuleInfo,
    SymbolInfo,
)
from coding_framework.errors import DeviceError
from coding_framework.types import Status

pytestmark = pytest.mark.unit


def _through_json(value: dict) -> dict:  # type: ignore[type-arg]
    one, two = socket.socketpair()
    with one, two:
        send_message(one, value, b"tail")
        message = receive_message(two)
    assert message is not None
    assert message[1] == b"tail"
    return message[0]


def test_records_come_back_equal() -> None:
    launch = Launch("k", (1, 2, 3), (32, 1, 1), 64, b"\0\1\xff", 5, True)
    assert decode_launch(_through_json(encode_launch(launch)), launch.params) == launch
    report = LaunchReport("k", {"a.sum": 1.5}, 0.25, (Fault("race", "k", 3, "t", None, 1, "m"),))
    assert decode_report(_through_json(encode_report(report))) == report
    module = ModuleInfo(
        {"k": KernelInfo("k", (0, 8), (8, 4), 128)}, {"s": SymbolInfo("s", 4096, 64, "const")}
    )
    assert decode_module(_through_json(encode_module(module))) == module


def test_a_large_message_goes_through_whole() -> None:
    one, two = socket.socketpair()
    data = bytes(range(256)) * 20_000
    with one, two:
        sender = threading.Thread(target=send_message, args=(one, {"op": "upload"}, data))
        sender.start()
        assert receive_message(two) == ({"op": "upload"}, data)
        sender.join()


def test_a_side_that_hangs_up_in_a_message_is_an_end() -> None:
    one, two = socket.socketpair()
    with two:
        with one:
            one.sendall(b"\x08\0\0\0\0\0\0\0\0\0\0\0{")
        assert receive_message(two) is None


def _device(*answers: tuple[dict, bytes]) -> ProcessDevice:  # type: ignore[type-arg]
    """A device whose other side has already said all it will ever say."""
    ours, theirs = socket.socketpair()
    with theirs:
        for head, tail in ({"name": "test"}, b""), *answers:
            send_message(theirs, head, tail)
        theirs.shutdown(socket.SHUT_WR)
        return _held(ProcessDevice(ours), theirs.dup())


_OPEN: list[socket.socket] = []


def _held(device: ProcessDevice, other_side: socket.socket) -> ProcessDevice:
    _OPEN.append(other_side)  # keeps sends from failing
    return device


def test_a_fault_is_the_candidates_and_an_error_or_death_is_ours() -> None:
    device = _device(({"fault": "runtime_error", "reason": "illegal address"}, b""))
    with pytest.raises(CandidateFault) as fault:
        device.fill(1, 0, 4)
    assert fault.value.status is Status.RUNTIME_ERROR
    with pytest.raises(DeviceError, match="ValueError"):
        _device(({"error": "ValueError: x"}, b"")).alloc(4)
    with pytest.raises(DeviceError, match="died"):
        _device().alloc(4)


def test_a_short_download_is_not_taken_for_an_output() -> None:
    with pytest.raises(DeviceError, match="3 bytes for 4"):
        _device(({}, b"abc")).download(1, 4)
