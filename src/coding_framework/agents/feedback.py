"""What an agent is told of its last kernel: short, exact, and with what usually helps.

Every text comes from the verdict's own fields and is bounded in length; text that the candidate can
choose (compiler messages quote its source) stays one line and cannot close a code fence.
"""

from __future__ import annotations

from collections.abc import Callable

from coding_framework.types import CompileSummary, Status, TestResult, Verdict

MAX_DETAIL_CHARS = 240
_SHOWN_ERRORS = 2

_UNCOALESCED_SECTORS = 8.0
"""Sectors a request above which loads are called scattered: 4 is ideal for 4-byte elements."""


def feedback(verdict: Verdict) -> str:
    """One to three sentences on a verdict, for the next prompt."""
    if verdict.correct:
        hint = _hint(verdict)
        return _speed(verdict) + (f" {hint}" if hint else "")
    match verdict.status:
        case Status.COMPILE_ERROR:
            return f"It does not compile: {_compiler_errors(verdict.compile, verdict.reason)}"
        case Status.WRONG_OUTPUT | Status.NONDETERMINISTIC:
            wrong = verdict.status is Status.WRONG_OUTPUT
            what = "is wrong" if wrong else "differs between two runs"
            return f"Its output {what}{_mismatch(verdict.tests, verdict.reason)}"
        case Status.TIMEOUT | Status.COMPILE_TIMEOUT:
            return f"It took too long: {_line(verdict.reason)}"
        case _:
            return f"It failed ({verdict.status.replace('_', ' ')}): {_line(verdict.reason)}"


def no_kernel(note: str) -> str:
    """Feedback on an answer in which no kernel was found."""
    return f"The last answer held no kernel ({_line(note)})."


def naive_baseline() -> str:
    """Feedback on a naive kernel that was not judged: by definition as fast as itself."""
    return _speed_sentence(1.0, "the naive kernel", modelled=True)


def _speed(verdict: Verdict) -> str:
    timing = verdict.timing
    if timing is None:
        return "It is correct."
    if timing.speedup is not None:
        return _speed_sentence(timing.speedup, "PyTorch", modelled=timing.modelled)
    if timing.speedup_vs_naive is not None:
        return _speed_sentence(
            timing.speedup_vs_naive, "the naive kernel", modelled=timing.modelled
        )
    return "It is correct."


def _speed_sentence(speedup: float, baseline: str, *, modelled: bool) -> str:
    said = " (modelled)" if modelled else ""
    return f"It is correct, {speedup:.2f}x the speed of {baseline}{said}."


def _compiler_errors(summary: CompileSummary | None, reason: str) -> str:
    errors = [d for d in (summary.errors if summary else ()) if d.severity == "error"]
    if not errors:
        return _line(reason)
    said = [
        (f"line {d.line}: " if d.line is not None else "") + _line(d.message)
        for d in errors[:_SHOWN_ERRORS]
    ]
    more = len(errors) - len(said)
    return "; ".join(said) + (f"; and {more} more" if more else "")


def _mismatch(tests: tuple[TestResult, ...], reason: str) -> str:
    failed = next((t for t in tests if not t.passed), None)
    if failed is None:
        return f": {_line(reason)}"
    shapes = ", ".join(str(list(s)) for s in failed.shapes)
    passed = sum(t.passed for t in tests)
    detail = _line(failed.detail or reason)
    return f" for inputs of shape {shapes} ({passed} of {len(tests)} tests passed): {detail}"


def _hint(verdict: Verdict) -> str:
    """The first counter that is out of order, and what usually helps; "" where none is known."""
    return next((text for wrong, text in _HINTS if wrong(verdict)), "")


def _above(name: str, limit: float) -> Callable[[Verdict], bool]:
    return lambda verdict: (verdict.counters.get(name) or 0.0) > limit


_HINTS: tuple[tuple[Callable[[Verdict], bool], str], ...] = (
    (
        lambda v: v.compile is not None and v.compile.spill_bytes > 0,
        "Registers spill: keep fewer values alive or use smaller tiles.",
    ),
    (
        lambda v: _sectors_per_request(v, "ld") > _UNCOALESCED_SECTORS,
        "Loads are scattered: let neighbouring threads read neighbouring addresses.",
    ),
    (
        lambda v: _sectors_per_request(v, "st") > _UNCOALESCED_SECTORS,
        "Stores are scattered: let neighbouring threads write neighbouring addresses.",
    ),
    (
        _above("l1tex__data_bank_conflicts_pipe_lsu.sum", 0.0),
        "Shared memory has bank conflicts: pad the rows of the tile by one element.",
    ),
)  # fmt: skip


def _sectors_per_request(verdict: Verdict, op: str) -> float:
    """32-byte sectors that one warp's access to global memory touches, on average; 0: unknown."""
    prefix = f"l1tex__t_{{}}_pipe_lsu_mem_global_op_{op}.sum"
    sectors = verdict.counters.get(prefix.format("sectors"))
    requests = verdict.counters.get(prefix.format("requests"))
    return sectors / requests if sectors and requests else 0.0


def _line(text: str) -> str:
    """One line, without fences, at most MAX_DETAIL_CHARS; a cut is shown."""
    one = " ".join(text.replace("```", "'''").split())
    return one if len(one) <= MAX_DETAIL_CHARS else one[: MAX_DETAIL_CHARS - 4] + " ..."
