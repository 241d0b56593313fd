"""What goes over the wire of a device comes back as it went in."""

from __future__ import annotations

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coding_framework.cuda.device.wire import packed, receive, send, unpacked
from coding_framework.cuda.plan.launch_plan import (
    Alloc,
    Copy,
    Fill,
    Free,
    KernelInfo,
    Launch,
    ModuleInfo,
    PlanOp,
    ReadBack,
    SymbolInfo,
    Upload,
)

pytestmark = pytest.mark.unit

ADDRESS = st.integers(0, 2**48)
SIZE = st.integers(0, 2**32)
EXTENT = st.tuples(st.integers(1, 1000), st.integers(1, 1000), st.integers(1, 64))
OPS: st.SearchStrategy[PlanOp] = st.one_of(
    st.builds(Alloc, ADDRESS, SIZE),
    st.builds(Free, ADDRESS),
    st.builds(Upload, ADDRESS, st.binary(max_size=64)),
    st.builds(Copy, ADDRESS, ADDRESS, SIZE),
    st.builds(Copy, ADDRESS, ADDRESS, SIZE, st.tuples(st.integers(1, 8), EXTENT, EXTENT)),
    st.builds(Fill, ADDRESS, st.integers(0, 255), SIZE),
    st.builds(ReadBack, ADDRESS, SIZE),
    st.builds(
        Launch,
        st.text(min_size=1, max_size=20),
        EXTENT,
        EXTENT,
        SIZE,
        st.binary(max_size=64),
        st.integers(0, 2**64 - 1),
        st.booleans(),
    ),
)


@given(st.lists(OPS, max_size=20))
def test_a_plan_survives_the_wire(ops: list[PlanOp]) -> None:
    text, parts = packed(ops)
    assert unpacked(text, b"".join(parts)) == ops


@given(st.text())
def test_any_text_goes_over_it(text: str) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        send(ours, {"code": text + "\udc80\0"})
        assert receive(theirs, 0) == {"code": text + "\udc80\0"}
        ours.sendall(bytes(5))
        ours.close()
        with pytest.raises(EOFError):
            receive(theirs, 0)


def test_a_kernel_may_have_any_name() -> None:
    kernels = {
        name: KernelInfo(name, (0, 8), (8, 4), 0) for name in ("Launch", "record", "[1, 2]", "data")
    }
    module = ModuleInfo(kernels, {"x": SymbolInfo("x", 1 << 40, 4, "const")})
    text, parts = packed({"result": module})
    assert unpacked(text, b"".join(parts)) == {"result": module}


def test_numbers_can_be_read_where_they_arrive() -> None:
    given = [b"a", memoryview(b"12345678").cast("d"), None]
    text, parts = packed(given)
    one, two, three = unpacked(text, b"".join(parts))
    assert (bytes(one), bytes(two), three) == (b"a", b"12345678", None)
    assert len(parts[0] + parts[1]) == 16


def test_nothing_but_records_of_a_plan_is_made_of_a_message() -> None:
    with pytest.raises(ValueError, match="no record 'Popen'"):
        unpacked(b'[{"": "Popen", "args": "ls"}]', b"")
