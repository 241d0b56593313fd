"""Whose fault a failed compilation is: text is the candidate's to write, kills are not."""

from __future__ import annotations

import pytest

from coding_framework.cuda.build.compile_failure import explain_failure, killed_for_memory
from coding_framework.cuda.build.diagnostics import parse_report
from coding_framework.cuda.sandbox import Exit, Limits
from coding_framework.errors import CompilerKilledError
from coding_framework.types import Status

pytestmark = pytest.mark.unit

LIMITS = Limits(cpu_s=30, memory_bytes=8 << 30)
GCC_KILLED = "gcc: fatal error: Killed signal terminated program cc1plus\ncompilation terminated."


def explain(code: int, text: str, *, cpu_s: float = 1.0, killed: int = 0):  # type: ignore[no-untyped-def]
    return explain_failure(Exit(code, cpu_s), text, parse_report(text), LIMITS, killed)


def test_success_has_no_failure() -> None:
    assert explain(0, "kernel.cu(3): warning #177-D: unused") is None


def test_an_ordinary_error_is_the_sources_and_certain() -> None:
    failure = explain(2, "kernel.cu(3): error: expected a ';'")
    assert (failure.status, failure.certain) == (Status.COMPILE_ERROR, True)
    assert failure.reason == "nvcc: line 3: expected a ';'"


@pytest.mark.parametrize(
    ("error", "gap"),
    [
        (
            "ATen/native/cuda/Loops.cuh: No such file or directory",
            "the header ATen/native/cuda/Loops",
        ),
        ('cannot open source file "curand_kernel.h"', "the header curand_kernel.h"),
        ('cannot open source file "cutlass/gemm/gemm.h"', "the header cutlass/gemm/gemm.h"),
        ('class "at::Tensor" has no member "storage"', "at::Tensor::storage"),
        ('namespace "at" has no member "globalContext"', "at::globalContext"),
        ('identifier "AT_DISPATCH_COMPLEX_TYPES" is undefined', "AT_DISPATCH_COMPLEX_TYPES"),
    ],
)
def test_what_the_installed_torch_has_and_we_lack_is_a_gap_by_name(error: str, gap: str) -> None:
    failure = explain(2, f"kernel.cu(3): error: {error}")
    assert failure.status is Status.UNSUPPORTED
    assert f"not supported yet: {gap}" in failure.reason


@pytest.mark.parametrize(
    "error",
    [
        "ATen/my_own.h: No such file or directory",
        'cannot open source file "/etc/passwd"',
        'cannot open source file "../../torch/extension.h"',
        'class "at::Tensor" has no member "data_pt"',
        'class "c10::ArrayRef<int64_t>" has no member "foo"',
        'namespace "torch" has no member "nothing"',
        'class "Mine" has no member "storage"',
        'identifier "AT_MY_OWN" is undefined',
        'identifier "storage" is undefined',
    ],
)
def test_what_torch_has_not_either_is_the_sources_mistake(error: str) -> None:
    assert explain(2, f"kernel.cu(3): error: {error}").status is Status.COMPILE_ERROR


def test_a_process_killed_before_its_time_is_ours() -> None:
    with pytest.raises(CompilerKilledError, match="killed from outside"):
        explain(-9, "Killed")


@pytest.mark.parametrize("signal", [1, 2, 3, 15])
def test_a_process_ended_by_a_signal_that_no_crash_raises_is_ours(signal: int) -> None:
    with pytest.raises(CompilerKilledError, match=f"killed from outside by signal {signal}:"):
        explain(-signal, "Terminated")


NVCC_ENDED = "kernel.cu(3): warning #177-D: unused\nnvcc: Terminated\n"


@pytest.mark.parametrize(
    ("signal", "text"),
    [
        (15, NVCC_ENDED),
        (2, NVCC_ENDED.replace("Terminated", "Interrupt")),
        (15, NVCC_ENDED + 'Catastrophic error: cannot open source file "./kernel.cpp4.ii"\n\n'),
    ],
)
def test_nvcc_that_was_terminated_is_ours_though_it_exits_as_for_an_error_of_ptxas(
    signal: int, text: str
) -> None:
    with pytest.raises(CompilerKilledError, match=f"killed from outside by signal {signal}:"):
        explain(255, text)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (255, f"{NVCC_ENDED}ptxas kernel.ptx, line 9; error   : Unknown symbol 'y'\n"),
        (255, NVCC_ENDED + "more of what a source may print\n" * 9),
        (1, NVCC_ENDED),
    ],
)
def test_a_source_that_says_nvcc_was_terminated_is_not_masked(code: int, text: str) -> None:
    assert explain(code, text).status is Status.COMPILE_ERROR


def test_a_process_killed_after_its_time_is_a_timeout() -> None:
    assert explain(-9, "Killed", cpu_s=31).status is Status.COMPILE_TIMEOUT
    assert explain(-24, "").status is Status.COMPILE_TIMEOUT


def test_the_kernel_counts_cpu_time_by_ticks_and_may_end_a_process_before_its_time() -> None:
    assert explain(-9, "Killed", cpu_s=27).status is Status.COMPILE_TIMEOUT
    for cpu_s, killed in ((27, 1), (20, 0)):
        with pytest.raises(CompilerKilledError, match="killed from outside"):
            explain(-9, "Killed", cpu_s=cpu_s, killed=killed)


def test_gcc_killed_for_memory_is_ours_where_the_kernel_counted_a_kill() -> None:
    with pytest.raises(CompilerKilledError, match="out of memory"):
        explain(1, GCC_KILLED, killed=1)


@pytest.mark.parametrize(
    "text",
    [
        GCC_KILLED,
        f'a\n{GCC_KILLED}\nb:1:2: error: #error "as #line may say"',
        "kernel.cu(1): error: 'cicc' died due to signal 9",
        "kernel.cu(1): error: 'cicc' died due to signal 15",
        GCC_KILLED.replace("Killed", "Terminated") + "\nnvcc fatal   : Failed to preprocess",
        "collect2: fatal error: ld terminated with signal 15 [Terminated]",
        "\nCompilation terminated.",
        "gcc: fatal error: cannot execute 'cc1plus': posix_spawn: Resource temporarily unavailable",
        "/tmp/x.s: No space left on device",
        "",
    ],
)
def test_what_text_alone_says_is_tried_again_and_never_masked(text: str) -> None:
    failure = explain(1, text)
    assert (failure.status, failure.certain) == (Status.COMPILE_ERROR, False)


@pytest.mark.parametrize(
    ("code", "text"),
    [(-11, "Segmentation fault"), (-6, "Aborted"), (1, "nvcc error : 'cicc' died due to signal 6")],
)
def test_a_crash_of_the_compiler_is_the_sources(code: int, text: str) -> None:
    failure = explain(code, text)
    assert (failure.status, failure.certain) == (Status.COMPILE_ERROR, True)


def test_a_crash_of_the_compiler_is_named() -> None:
    assert "signal 11" in explain(-11, "Segmentation fault").reason


def test_limits_that_the_source_ran_into() -> None:
    assert explain(1, "cicc: std::bad_alloc").status is Status.MEMORY_LIMIT
    assert explain(-25, "").status is Status.OUTPUT_LIMIT


def test_the_kernels_count_is_a_number_that_never_falls() -> None:
    assert 0 <= killed_for_memory() <= killed_for_memory()
