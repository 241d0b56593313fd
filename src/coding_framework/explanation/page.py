"""A verdict as a page: what was asked and found, why, where the time goes, what to try next."""

from __future__ import annotations

from collections.abc import Iterator

from coding_framework.explanation.diagnosis import diagnose, time_texts
from coding_framework.explanation.verdict_text import at_line, counter_texts
from coding_framework.monitoring.text import one_line, visible
from coding_framework.ncu_metrics import bank_conflicts, occupancy_pct, used_share
from coding_framework.types import PRINTED, Task, Verdict

_AROUND = 2
"""Lines of the source that are shown before and after one that is named."""


def page(verdict: Verdict, task: Task, code: str) -> str:
    """The whole page; text of the candidate's is made harmless."""
    parts = (
        ("", _headline(verdict)),
        ("What was asked", [one_line(task.description), *visible(task.reference).splitlines()]),
        ("What was found", list(_found(verdict, code))),
        ("Why", [diagnose(verdict).why]),
        ("Time", time_texts(verdict.timing, task) if verdict.timing else []),
        ("Where the time goes", list(_measures(verdict))),
        ("Try next", [f"- {text}" for text in diagnose(verdict).tries]),
    )
    shown = []
    for title, lines in parts:
        if any(lines):
            shown.append("\n".join([*([title] if title else []), *_indented(lines, bool(title))]))
    return "\n\n".join(shown)


def _indented(lines: list[str], deeper: bool) -> list[str]:
    return [f"  {line}".rstrip() for line in lines] if deeper else lines


def _headline(verdict: Verdict) -> list[str]:
    where = "the emulator (times are modelled)" if verdict.backend == "emulator" else "the GPU"
    return [
        f"{verdict.task}: {verdict.status.value.replace('_', ' ')}, judged on {where}",
        one_line(verdict.reason, 1000),
    ]


def _found(verdict: Verdict, code: str) -> Iterator[str]:
    """Compiler errors with their lines, comparisons by shape set, and findings."""
    source = visible(code).split("\n")
    for error in (verdict.compile.errors if verdict.compile is not None else ())[:3]:
        yield at_line(error.line, one_line(error.message))
        yield from _quoted(source, error.line)
    for case in dict.fromkeys(test.case for test in verdict.tests):
        tests = [test for test in verdict.tests if test.case == case]
        failed = next((test for test in tests if not test.passed), None)
        shapes = ", ".join(str(list(shape)) for shape in tests[0].shapes)
        passed = sum(test.passed for test in tests)
        yield f"shape set {case}, inputs {shapes}: {passed} of {len(tests)} comparisons passed"
        if failed is not None:
            yield f"  {one_line(failed.detail)}"
    for finding in dict.fromkeys((*verdict.cheats, *verdict.pitfalls, *verdict.safety.findings)):
        if finding.rule != PRINTED:
            yield f"{finding.rule} ({finding.severity}): {one_line(finding.message)}"
            yield from _quoted(source, finding.line)


def _quoted(source: list[str], line: int | None) -> Iterator[str]:
    """The lines around `line`, which counts from 1 and is marked."""
    if line is None or not 0 < line <= len(source):
        return
    for number in range(max(1, line - _AROUND), min(len(source), line + _AROUND) + 1):
        mark = ">" if number == line else " "
        yield f"  {mark} {number:>4} | {source[number - 1][:120]}"


def _measures(verdict: Verdict) -> Iterator[str]:
    counters, build = verdict.counters, verdict.compile
    for op, what in (("ld", "loads from"), ("st", "stores to")):
        share = used_share(counters, op)
        if share is not None:
            yield f"{share:.0%} of the bytes moved by {what} global memory are used"
    if conflicts := bank_conflicts(counters):
        yield f"{conflicts:.0f} turns of shared memory are lost to bank conflicts"
    if (occupancy := occupancy_pct(counters)) is not None:
        yield f"{occupancy:.0f}% of an SM's warps are, or can be, resident"
    if build is not None and counters:
        spilled = f", {build.spill_bytes} B of them spilled" if build.spill_bytes else ""
        yield f"{build.registers} registers a thread{spilled}"
    yield from counter_texts(verdict)
