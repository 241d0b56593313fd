"""What is read from nvcc's output, on text that nvcc 13 printed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coding_framework.cuda.build.diagnostics import MAX_DIAGNOSTICS, MAX_MESSAGE_CHARS, parse_report

pytestmark = pytest.mark.unit

PTXAS = """\
ptxas info    : 0 bytes gmem, 16 bytes cmem[3]
ptxas info    : Compiling entry function '_Z3twoPf' for 'sm_90'
ptxas info    : Function properties for _Z3twoPf
    128 bytes stack frame, 60 bytes spill stores, 68 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 8192 bytes smem, 368 bytes cmem[0]
ptxas info    : Compile time = 12.229 ms
ptxas info    : Compiling entry function '_Z3onePf' for 'sm_90'
ptxas info    : Function properties for _Z3onePf
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 12 registers, used 0 barriers
ptxas info    : Function properties for _Z6helperf
    8 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads
"""


def test_resources_of_every_kernel_are_read() -> None:
    two, one = parse_report(PTXAS).kernels
    assert (two.name, two.registers, two.spill_bytes) == ("_Z3twoPf", 255, 128)
    assert (two.shared_bytes, two.const_bytes) == (8192, 368)
    assert (one.name, one.registers, one.spill_bytes, one.shared_bytes) == ("_Z3onePf", 12, 0, 0)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (
            'kernel.cu(12): error: identifier "foo" is undefined\n    foo();\n    ^\n',
            12,
            'identifier "foo" is undefined',
        ),
        ("kernel.cu(7): error #349: no operator matches\n", 7, "no operator matches"),
        (
            "kernel.cu:3:10: fatal error: thrust/nothing.h: No such file or directory\n",
            3,
            "thrust/nothing.h: No such file or directory",
        ),
        (
            "ptxas error   : Entry function 'k' uses too much shared data\n",
            None,
            "Entry function 'k' uses too much shared data",
        ),
        (
            "ptxas fatal   : Unresolved extern function 'g'\n",
            None,
            "Unresolved extern function 'g'",
        ),
        (
            "ptxas kernel.ptx, line 52; error   : Arguments mismatch for instruction 'mov'\n",
            None,
            "ptxas: Arguments mismatch for instruction 'mov'",
        ),
        ("/work/ccA.s:4: Error: file not found: x\n", None, "assembler: file not found: x"),
        ("/usr/bin/ld: cannot find -lnothing\n", None, "linker: cannot find -lnothing"),
        (
            'At end of source: error: expected a "}"\n'
            'kernel.cu(8): note #3196-D: to match this "{"\n',
            8,
            'the source ends too early: expected a "}" to match this "{"',
        ),
        (
            "At end of source: error: expected a ;\n",
            None,
            "the source ends too early: expected a ;",
        ),
    ],
)
def test_errors_of_every_tool_are_read(text: str, line: int | None, message: str) -> None:
    (error,) = parse_report(text).errors
    assert (error.line, error.message) == (line, message)


def test_warnings_are_kept_apart() -> None:
    text = 'kernel.cu(4): warning #177-D: variable "a" was declared but never referenced\n'
    report = parse_report(text)
    assert report.errors == ()
    assert report.warnings[0].line == 4


def test_an_error_inside_a_header_points_at_the_line_that_uses_it() -> None:
    text = """\
/opt/include/coding_framework/module.h(70): error: static assertion failed with "a parameter type"
          detected during:
            instantiation of class "pybind11::from_value<T> [with T=S]" at line 230
            instantiation of "pybind11::module_::def" at line 33 of kernel.cu
kernel.cu(40): error: expected a ";"
"""
    first, second = parse_report(text, ["/opt/include"]).errors
    assert (first.line, second.line) == (33, 40)


def test_a_file_that_is_not_ours_is_never_quoted() -> None:
    text = '/etc/passwd(1): error: identifier "root" is undefined\n'
    (error,) = parse_report(text, ["/opt/include"]).errors
    assert "root" not in error.message
    assert error.line is None


def test_floods_are_bounded_and_repeats_dropped() -> None:
    flood = "".join(f"kernel.cu({i}): error: {'x' * 9000} {i}\n" for i in range(500))
    errors = parse_report(flood + flood).errors
    assert len(errors) == MAX_DIAGNOSTICS
    assert all(len(e.message) <= MAX_MESSAGE_CHARS + 4 for e in errors)
    assert len(parse_report("kernel.cu(1): error: same\n" * 9).errors) == 1


@given(st.text(max_size=400))
def test_any_text_is_parsed(text: str) -> None:
    parse_report("kernel.cu(3): error: " + text)
    parse_report("ptxas info    : " + text)


def test_a_second_module_is_named_as_the_source_names_it() -> None:
    said = (
        'kernel.cu(30): error: function "cf_module_init" has already been defined '
        "(previous definition at line 25)"
    )
    assert parse_report(said).errors[0].message == (
        "PYBIND11_MODULE has already been defined (previous definition at line 25)"
    )
