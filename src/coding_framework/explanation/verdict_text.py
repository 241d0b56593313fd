"""A verdict for people. Everything that a candidate may have written is made harmless."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from coding_framework.explanation.diagnosis import diagnose, time_texts
from coding_framework.monitoring.text import one_line
from coding_framework.types import PRINTED, Task, Verdict

SHOWN_COUNTERS = {
    "smsp__inst_executed.sum": "instructions of warps",
    "dram__bytes_read.sum": "bytes read from memory",
    "dram__bytes_write.sum": "bytes written to memory",
    "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio": (
        "32-byte sectors a load (4 is ideal for float32)"
    ),
    "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_st.ratio": (
        "32-byte sectors a store (4 is ideal for float32)"
    ),
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum": "bank conflicts of shared loads",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum": "bank conflicts of shared stores",
    "smsp__sass_branch_targets_threads_divergent.sum": "branches at which a warp's threads part",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "% of an SM's warps resident",
    "sm__maximum_warps_per_active_cycle_pct": "% of an SM's warps that could be resident",
}
"""What people look at first, where it is not zero, in plain words; --json has all of them."""
SHOWN_LINES = 20
"""Of what kernels print; --json has all that was kept."""


def at_line(line: int | None, message: str) -> str:
    """What a compiler said, with the line of the candidate's own where it names one."""
    return f"line {line}: {message}" if line else message


def verdict_text(verdict: Verdict, task: Task) -> str:
    """Several lines: the status and the reason, then a row for each thing that is known."""
    rows = [("task", verdict.task), ("backend", verdict.backend)]
    if verdict.compile is not None:
        c = verdict.compile
        rows.append(
            (
                "compile",
                f"{c.latency_s:.2f} s{' (cached)' if c.cache_hit else ''}, {c.registers} registers,"
                f" {c.spill_bytes} B spilled, {c.shared_bytes} B static shared memory",
            )
        )
        rows += [("", at_line(e.line, e.message)) for e in c.errors[:5]]
        rows += _folded(("warning", text) for text in c.warnings)[:3]
    if verdict.tests:
        passed = sum(t.passed for t in verdict.tests)
        rows.append(("tests", f"{passed} of {len(verdict.tests)} passed"))
        rows += _folded(("", f"{t.case}: {t.detail}") for t in verdict.tests if not t.passed)[:3]
    if verdict.timing is not None:
        rows += [("time", text) for text in time_texts(verdict.timing, task)]
    rows += [("counter", text) for text in counter_texts(verdict)]
    printed = [
        line for f in verdict.pitfalls if f.rule == PRINTED for line in f.message.split("\n")
    ]
    rows += [(PRINTED, line) for line in printed[:SHOWN_LINES]]
    observed = [f for f in verdict.pitfalls if f.rule != PRINTED]
    findings = (*verdict.cheats, *observed, *verdict.safety.findings)
    rows += _folded((f.severity, f"{f.rule}: {f.message}") for f in findings)[:10]
    rows.append(("sandbox", verdict.receipt.sandbox or "none"))
    found = diagnose(verdict)
    rows += [("why", found.why)] if found.why else []
    rows += [("try", text) for text in found.tries]
    body = "\n".join(f"  {name:<8}  {one_line(text)}" for name, text in rows)
    return f"{verdict.status.value}: {one_line(verdict.reason, 1000)}\n{body}"


def _folded(rows: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Each row once, with how often it is there: several draws may go wrong alike."""
    return [
        (name, f"{text} ({count} times)" if count > 1 else text)
        for (name, text), count in Counter(rows).items()
    ]


def counter_texts(verdict: Verdict) -> list[str]:
    """Each counter that people look at first: its value, in plain words, and Nsight's name."""
    return [
        f"{value:g} {plain}  [{name}]"
        for name, plain in SHOWN_COUNTERS.items()
        if (value := verdict.counters.get(name))
    ]
