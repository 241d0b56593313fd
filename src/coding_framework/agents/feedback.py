"""What an agent is told of its last kernel: short, exact, and with what usually helps.

Every text comes from the verdict's own fields and is bounded in length; text that the candidate can
choose (compiler messages quote its source) stays one line and cannot close a code fence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from coding_framework.ncu_metrics import (
    bank_conflicts,
    divergent_share,
    occupancy_pct,
    sectors_per_request,
    used_share,
)
from coding_framework.types import CompileSummary, ProbeResult, Status, TestResult, Verdict

MAX_DETAIL_CHARS = 240
_SHOWN_ERRORS = 2
_SHOWN_HINTS = 3
_SHOWN_FINDINGS = 2

_UNCOALESCED_SECTORS = 8.0
"""Sectors a request above which loads are called scattered: 4 is ideal for 4-byte elements."""
_NEAR_ROOFLINE = 0.8
_LOW_OCCUPANCY_PCT = 25.0
_DIVERGENT_SHARE = 0.1


def feedback(verdict: Verdict, *, code: str | None = None, full: bool = False) -> str:
    """A few sentences on a verdict, for the next prompt.

    full: for larger models. The time against the roofline, the counters that matter and all that
    usually helps; with `code`, compiler errors quote their line of it.
    """
    if verdict.correct:
        told = [_speed(verdict)]
        told += [_roofline(verdict), _measures(verdict)] if full else []
        told += hints(verdict)[: _SHOWN_HINTS if full else 1]
        return " ".join(text for text in told if text)
    match verdict.status:
        case Status.COMPILE_ERROR:
            lines = code.split("\n") if full and code else []
            errors = _compiler_errors(verdict.compile, verdict.reason, lines)
            return f"It does not compile: {errors}"
        case Status.WRONG_OUTPUT | Status.NONDETERMINISTIC:
            wrong = verdict.status is Status.WRONG_OUTPUT
            what = "is wrong" if wrong else "differs between two runs"
            shown = f" What it shows: {_line(_shown(verdict))}." if full and _shown(verdict) else ""
            return f"Its output {what}{_mismatch(verdict.tests, verdict.reason)}{shown}"
        case Status.TIMEOUT | Status.COMPILE_TIMEOUT:
            return f"It took too long: {_line(verdict.reason)}"
        case _:
            return f"It failed ({verdict.status.replace('_', ' ')}): {_line(verdict.reason)}"


def outcome(verdict: Verdict) -> str:
    """A verdict in a few words, for the history of a conversation."""
    if verdict.correct:
        speedup = verdict.speedup
        return "correct" if speedup is None else f"correct, {speedup:.2f}x"
    return f"{verdict.status.replace('_', ' ')}: {_line(verdict.reason, 80)}"


def findings(probes: Sequence[ProbeResult]) -> str:
    """What a tester's probes showed, for the next prompt; "" where none failed."""
    failed = [p for p in probes if p.passed is False]
    told = []
    for found in failed[:_SHOWN_FINDINGS]:
        shapes = ", ".join(str(list(s)) for s in found.probe.shapes)
        told.append(
            f"A tester found that it fails for inputs of shape {shapes} with {found.probe.values} "
            f"values: {_line(found.detail)}."
        )
    return " ".join(told)


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


def _roofline(verdict: Verdict) -> str:
    timing = verdict.timing
    if timing is None or timing.roofline_fraction is None:
        return ""
    said = " (modelled)" if timing.modelled else ""
    return (
        f"Its {timing.kernel_ms * 1e3:.2f} us{said} reach {timing.roofline_fraction:.0%} of the "
        "memory roofline."
    )


def _measures(verdict: Verdict) -> str:
    """The counters that say where time goes, each only where it is known."""
    told = []
    for op, what in (("ld", "loads"), ("st", "stores")):
        used = used_share(verdict.counters, op)
        if used is not None:
            told.append(f"{what} use {used:.0%} of the bytes moved")
    conflicts = bank_conflicts(verdict.counters)
    if conflicts:
        told.append(f"{conflicts:.0f} bank conflicts")
    occupancy = occupancy_pct(verdict.counters)
    if occupancy is not None:
        told.append(f"occupancy {occupancy:.0f}%")
    if verdict.compile is not None:
        told.append(f"{verdict.compile.registers} registers")
        if verdict.compile.spill_bytes:
            told.append(f"{verdict.compile.spill_bytes} B spilled")
    return f"Counters: {', '.join(told)}." if told else ""


def _compiler_errors(summary: CompileSummary | None, reason: str, source: Sequence[str]) -> str:
    errors = [d for d in (summary.errors if summary else ()) if d.severity == "error"]
    if not errors:
        return _line(reason)
    said = []
    for error in errors[:_SHOWN_ERRORS]:
        place = f"line {error.line}: " if error.line is not None else ""
        quoted = ""
        if error.line is not None and 0 < error.line <= len(source):
            quoted = f" (`{_line(source[error.line - 1].replace('`', chr(39)), 100)}`)"
        said.append(place + _line(error.message) + quoted)
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


def _shown(verdict: Verdict) -> str:
    """What the run showed of the cause, in one sentence; "" where it showed nothing."""
    return next((f.message for f in verdict.pitfalls if f.basis == "run"), "")


def hints(verdict: Verdict) -> list[str]:
    """What usually helps against each counter that is out of order, the costliest first."""
    return [text for wrong, text in _HINTS if wrong(verdict)]


_HINTS: tuple[tuple[Callable[[Verdict], bool], str], ...] = (
    (
        lambda v: v.compile is not None and v.compile.spill_bytes > 0,
        "Registers spill: keep fewer values alive or use smaller tiles.",
    ),
    (
        lambda v: (sectors_per_request(v.counters, "ld") or 0.0) > _UNCOALESCED_SECTORS,
        "Loads are scattered: let neighbouring threads read neighbouring addresses.",
    ),
    (
        lambda v: (sectors_per_request(v.counters, "st") or 0.0) > _UNCOALESCED_SECTORS,
        "Stores are scattered: let neighbouring threads write neighbouring addresses.",
    ),
    (
        lambda v: bank_conflicts(v.counters) > 0,
        "Shared memory has bank conflicts: pad the rows of the tile by one element.",
    ),
    (
        lambda v: 0.0 < (occupancy_pct(v.counters) or 0.0) < _LOW_OCCUPANCY_PCT,
        "Few warps are resident: use larger blocks, fewer registers or less shared memory.",
    ),
    (
        lambda v: divergent_share(v.counters) > _DIVERGENT_SHARE,
        "Threads of a warp take different branches: let whole warps take the same one.",
    ),
    (
        lambda v: v.timing is not None and (v.timing.roofline_fraction or 0.0) > _NEAR_ROOFLINE,
        "It is close to the memory roofline: only fewer bytes moved would help.",
    ),
)  # fmt: skip


def _line(text: str, limit: int = MAX_DETAIL_CHARS) -> str:
    """One line, without fences, at most `limit` characters; a cut is shown."""
    one = " ".join(text.replace("```", "'''").split())
    return one if len(one) <= limit else one[: limit - 4] + " ..."
