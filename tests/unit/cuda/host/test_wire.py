"""Decoding what a hostile process writes: a value in bounds, or Malformed; nothing else."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coding_framework.cuda.host.properties import H200
from coding_framework.cuda.host.wire import (
    MAX_DIMS,
    MAX_OUTPUTS,
    Malformed,
    clean_text,
    decode_launch,
    decode_result,
    encode_call,
    encode_setup,
)
from coding_framework.cuda.plan.launch_plan import KernelInfo, ModuleInfo, SymbolInfo, TensorRef

pytestmark = pytest.mark.unit

MODULE = ModuleInfo(
    {"k": KernelInfo("k", (0, 8, 16), (8, 8, 4), 0)},
    {"c": SymbolInfo("c", 0x1000, 64, "const")},
)


def launch_bytes(
    name: bytes = b"k",
    grid: tuple[int, int, int] = (1, 1, 1),
    block: tuple[int, int, int] = (32, 1, 1),
    shared: int = 0,
    params: bytes = bytes(20),
) -> memoryview:
    head = struct.pack("<I", len(name)) + name + struct.pack("<6I", *grid, *block)
    return memoryview(head + struct.pack("<QQI", shared, 0, 0) + params)


def test_a_launch_is_read_as_it_was_asked() -> None:
    launch = decode_launch(
        launch_bytes(grid=(7, 2, 1), shared=100, params=bytes(range(20))), MODULE
    )
    assert (launch.kernel, launch.grid, launch.block) == ("k", (7, 2, 1), (32, 1, 1))
    assert (launch.shared_bytes, launch.params, launch.cooperative) == (
        100,
        bytes(range(20)),
        False,
    )


@pytest.mark.parametrize(
    "payload",
    [
        launch_bytes(name=b"other"),
        launch_bytes(grid=(0, 1, 1)),
        launch_bytes(grid=(2**31, 1, 1)),
        launch_bytes(grid=(1, 65536, 1)),
        launch_bytes(block=(0, 1, 1)),
        launch_bytes(block=(1025, 1, 1)),
        launch_bytes(block=(2**16, 2**16, 1)),
        launch_bytes(block=(1, 1, 65)),
        launch_bytes(shared=232_449),
        launch_bytes(shared=2**63),
        launch_bytes(params=bytes(19)),
        launch_bytes(params=bytes(2000)),
        memoryview(b""),
        launch_bytes()[:30],
    ],
)
def test_a_launch_outside_the_limits_is_refused(payload: memoryview) -> None:
    with pytest.raises(Malformed):
        decode_launch(payload, MODULE)


def result_bytes(dims: int = 1, shape: tuple[int, ...] = (4,), code: int = 6) -> bytes:
    head = struct.pack("<I2IQI", 1, code, 1, 0x7000, dims)
    return head + struct.pack(f"<{2 * len(shape)}q", *shape, *[1] * len(shape))


def encoded_about() -> bytes:
    return struct.pack("<QI", 0, 0)


def test_a_result_is_read_as_it_was_claimed() -> None:
    payload = result_bytes() + encoded_about()
    assert decode_result(memoryview(payload)) == (TensorRef(0x7000, (4,), (1,), "float32"),)


@pytest.mark.parametrize(
    "payload",
    [
        struct.pack("<I", MAX_OUTPUTS + 1),
        struct.pack("<I", 3),
        result_bytes(dims=MAX_DIMS + 1),
        result_bytes(dims=2**32 - 1),
        result_bytes(shape=(-1,)),
        result_bytes(shape=(2**62,)),
        result_bytes(code=9),
        result_bytes(),
        result_bytes() + b"more",
    ],
)
def test_a_result_that_cannot_be_is_refused(payload: bytes) -> None:
    with pytest.raises(Malformed):
        decode_result(memoryview(payload))


@given(st.binary(max_size=300))
def test_any_bytes_decode_or_are_refused(data: bytes) -> None:
    for decode in (decode_result, lambda view: decode_launch(view, MODULE)):
        try:
            decode(memoryview(data))
        except Malformed:
            continue


@given(st.text(max_size=5000))
def test_text_of_a_candidate_becomes_one_bounded_printable_line(text: str) -> None:
    line = clean_text(text)
    assert len(line) <= 2000
    assert line.isprintable()


def test_calls_and_setup_are_encoded_for_every_kind_of_argument() -> None:
    tensor = TensorRef(0x7000, (2, 3), (3, 1), "float16")
    payload = encode_call("forward", [tensor, True, -3, 2.5, None, (tensor, (1, 2))])
    assert payload.startswith(struct.pack("<I", 7) + b"forward" + struct.pack("<I", 6))
    assert len(encode_setup(H200, MODULE)) > 100
