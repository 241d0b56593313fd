"""Requests for extensions: read with mistrust, and put together to one source."""

from __future__ import annotations

import struct

import pytest

from coding_framework.cuda.host.wire import Malformed
from coding_framework.cuda.model_new.extensions import cuda_source, decode_request

pytestmark = pytest.mark.unit


def text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("<I", len(raw)) + raw


def request(name: str, *lists: list[str]) -> bytes:
    given = [*lists, [], [], [], []][:4]
    return text(name) + b"".join(
        struct.pack("<I", len(texts)) + b"".join(map(text, texts)) for texts in given
    )


def decoded(name: str, *lists: list[str]):  # type: ignore[no-untyped-def]
    return decode_request(memoryview(request(name, *lists)))


def test_a_request_is_read_as_it_was_written() -> None:
    found = decoded("e", ["void f();"], ["void f() {}", "int a;"], ["f"], ["N=2"])
    assert (found.name, found.cpp_sources) == ("e", ("void f();",))
    assert found.cuda_sources == ("void f() {}", "int a;")
    assert (found.functions, found.definitions) == (("f",), ("N=2",))
    assert found.digest != decoded("e", ["void f();"]).digest


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xff\xff\xff\xff",
        text("e") + b"\xff\xff\xff\xff",
        request("e") + b"more",
        request("e")[:-1],
        request("e", [], [], ["f); system(0"]),
        request("e", [], [], [""]),
        request("e", ["x"] * 65),
        text("x" * 200_000) + request("")[4:],
    ],
)
def test_a_request_that_does_not_fit_is_malformed(payload: bytes) -> None:
    with pytest.raises(Malformed):
        decode_request(memoryview(payload))


def test_one_request_is_its_sources_and_its_bindings() -> None:
    source = cuda_source([decoded("e", ["void f();"], ["void f() {}"], ["f", "f"])], "")
    assert source.count('m.def("f", f);') == 1
    assert source.index("void f();") < source.index("void f() {}") < source.index("m.def")
    assert "namespace" not in source
    assert "cf_module_init_0" in source


def test_lines_are_those_of_the_answer() -> None:
    answer = 'import torch\n\nsource = """\nint a;\n"""\n'
    source = cuda_source([decoded("e", [], ["\nint a;\n"])], answer)
    assert '#line 3 "kernel.cu"\n\nint a;' in source


def test_several_requests_have_a_namespace_each_and_share_includes() -> None:
    one = decoded("a", [], ["#include <vector>\nint k;"], ["f"])
    two = decoded("b", [], ["  # include <vector>\n#include <map>\nint k;"], ["f"])
    source = cuda_source([one, two], "")
    head, body = source.split("namespace cf_extension_0 {", 1)
    assert head.count("vector") == 2  # written in two ways
    assert "#include <map>" in head
    assert "include" not in body
    assert "namespace cf_extension_1 {" in body
    assert body.count("PYBIND11_MODULE") == 2


@pytest.mark.parametrize(
    ("flag", "line"),
    [
        ("-DN=2", "#define N 2"),
        ("-DUSE_FAST", "#define USE_FAST 1"),
        ("-DX=1.5f", "#define X 1.5f"),
        ("-DX=a b", None),
        ("-DX=1\n#include </etc/passwd>", None),
        ("-Df(x)=x", None),
        ("-UN=2\n", None),
    ],
)
def test_of_flags_only_plain_definitions_are_taken(flag: str, line: str | None) -> None:
    source = cuda_source([decoded("e", [], [], [], [flag])], "")
    assert "#undef N" not in source
    defined = [text for text in source.split("\n") if text.startswith("#define")][1:]
    assert defined == ([] if line is None else [line])


def test_what_a_flag_takes_back_is_so_before_any_header() -> None:
    source = cuda_source([decoded("e", [], [], [], ["-U__CUDA_NO_HALF_OPERATORS__"])], "")
    assert source.startswith("#undef __CUDA_NO_HALF_OPERATORS__\n#include <torch/extension.h>\n")
