"""What people are told of a verdict beside its reason."""

from __future__ import annotations

import pytest

from coding_framework.explanation.diagnosis import diagnose, time_sentence, time_texts, versus
from coding_framework.types import (
    BenchmarkResult,
    CompileSummary,
    Diagnostic,
    Finding,
    Status,
    TestResult,
    Verdict,
)

pytestmark = pytest.mark.unit


def comparison(case: str, detail: str = "") -> TestResult:
    return TestResult(
        case=case, seed=0, shapes=((49, 207),), dtype="float32", max_abs_error=None,
        max_rel_error=None, tolerance=None, passed=not detail, detail=detail,
    )  # fmt: skip


def verdict(status: Status, reason: str = "", **fields) -> Verdict:
    return Verdict(
        status=status, reason=reason, task="t", candidate_sha256="0" * 64, backend="emulator",
        **fields,
    )  # fmt: skip


def wrong(got: str, want: str, count: int, *before: str, case: str = "main") -> Verdict:
    detail = f"first wrong element [0, 1]: got {got}, expected {want} ({count} of 1000 wrong)"
    tests = (*(comparison(name) for name in before), comparison(case, detail))
    return verdict(Status.WRONG_OUTPUT, detail, tests=tests)


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (wrong("nan", "1", 10), "never written"),
        (wrong("inf", "1", 10), "overflows"),
        (wrong("2", "1.3", 900, "main", case="odd"), "is rounded down"),
        (wrong("-2.5", "0", 500), "a clamp at zero"),
        (wrong("5.3", "2", 10), "so it is an edge"),
        (wrong("1.001", "1", 900), "precision is lost"),
        (wrong("5.3", "2", 900), "the formula or the indexing"),
    ],
)
def test_a_wrong_element_tells_a_likely_cause(found, why):
    said = diagnose(found)
    assert why in said.why
    assert said.tries


def test_every_status_has_a_diagnosis():
    for status in Status:
        if status not in (Status.CORRECT, Status.WRONG_OUTPUT, Status.CHEATING):
            assert diagnose(verdict(status, "whatever")).tries, status


def test_a_compiler_error_that_is_known_is_explained():
    error = Diagnostic(severity="error", line=3, message='identifier "blokIdx" is undefined')
    found = verdict(Status.COMPILE_ERROR, compile=CompileSummary(errors=(error,)))
    assert diagnose(found).tries[0].startswith("blokIdx is declared nowhere")


@pytest.mark.parametrize(
    ("kernel_ms", "share", "said"),
    [
        (0.003, 0.03, "too small to tell"),
        (0.1, 1 / 535, "there is room, 2% of the limit"),
        (1.0, 0.9, "near the limit, at 90%"),
        (1.0, 0.6, "good, 60% of the limit"),
        (1.0, 0.1, "there is room, 10% of the limit"),
        (1.0, None, ""),
    ],
)
def test_a_time_is_held_against_the_roofline(kernel_ms, share, said):
    timing = BenchmarkResult(
        kernel_ms=kernel_ms, kernel_ms_ci95=(kernel_ms, kernel_ms), roofline_fraction=share,
        modelled=True,
    )  # fmt: skip
    assert time_sentence(timing).startswith(said)
    assert bool(said) == bool(time_sentence(timing))


def test_equal_times_are_called_equal():
    assert versus(1.01, "eager") == "as fast as eager (1.01x)"
    assert versus(2.0, "eager") == "2.00x as fast as eager"


def finding(rule: str) -> Finding:
    return Finding(rule=rule, severity="high", line=3, message="m", basis="run")


def test_what_the_run_showed_comes_before_what_the_numbers_suggest():
    found = wrong("nan", "1", 1000)
    raced = found.model_copy(update={"pitfalls": (finding("shared_memory_race"),)})
    said = diagnose(raced)
    assert "shared memory before" in said.why
    assert "__syncthreads()" in said.tries[0]
    assert said.tries[-1].startswith("Less likely: Elements are never written")


def test_an_edge_draw_tells_what_its_values_have_in_common():
    found = wrong("inf", "1", 10)
    reason = "shape set 'main', edge draw 'ties': wrong when called again: " + found.reason
    assert "An epsilon" in diagnose(found.model_copy(update={"reason": reason})).why


def test_a_constant_that_is_off_is_no_matter_of_uneven_sizes():
    said = diagnose(wrong("1.05", "1", 1000, "main", case="tiny"))
    assert said.causes[0] == "scale"


def test_shared_memory_out_of_bounds_is_no_tensor():
    reason = "illegal shared write of 4 bytes at 0x404 by thread (1,0,0) of block (0,0,0)"
    assert "shared memory" in diagnose(verdict(Status.RUNTIME_ERROR, reason)).why


def test_the_first_thread_beyond_the_last_element_lacks_a_guard_in_the_first_block_too():
    reason = (
        "illegal global read of 4 bytes at 0x7e03a9eb9ff4 by thread ({thread},0,0) of block "
        "(0,0,0) in kernel k: 0 bytes past the end of the 1012-byte allocation at 0x7e03a9eb9c00"
    )
    for thread, cause in ((253, "bounds"), (7, "stride")):
        said = diagnose(verdict(Status.RUNTIME_ERROR, reason.format(thread=thread)))
        assert said.causes[0] == cause


def test_a_modelled_time_has_no_interval_and_a_measured_one_has():
    timing = BenchmarkResult(kernel_ms=0.5, kernel_ms_ci95=(0.4, 0.6), modelled=True)
    assert time_texts(timing) == ["0.5 ms modelled"]
    measured = timing.model_copy(update={"modelled": False, "speedup": 2.0})
    assert time_texts(measured) == [
        "0.5 ms measured (95%: 0.4 to 0.6), 2.00x as fast as PyTorch eager"
    ]
