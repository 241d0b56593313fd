"""A verdict while it is being found: filled step by step, frozen into a `Verdict` once."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from coding_framework.cuda.advice.pitfalls import CUDAPitfallDetector
from coding_framework.cuda.model_new.build import Request
from coding_framework.cuda.plan.launch_plan import Fault
from coding_framework.types import (
    PRINTED,
    BackendName,
    BenchmarkResult,
    Candidate,
    CompilationResult,
    CompileSummary,
    Finding,
    FindingSeverity,
    Receipt,
    RulesCheck,
    SafetyReport,
    Status,
    Task,
    TestResult,
    Verdict,
)

_MAX_REASON_CHARS = 600
_MAX_OUTPUT_CHARS = 8192
NOT_CHECKED = "not_checked"
"""The rule of the note that a shape set was more than the backend's checker can run."""


@dataclass(slots=True)
class TrialLog:
    """What the trials of one candidate found so far; it survives the fault that ends them."""

    tests: list[TestResult] = field(default_factory=list)
    cheats: list[Finding] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    output: list[str] = field(default_factory=list)
    """What the first call on each shape set printed, and a launch that failed."""

    def cheat(self, rule: str, message: str) -> None:
        """Log how the candidate cheats."""
        self.cheats.append(
            Finding(rule=rule, severity="high", line=None, message=message, basis="run")
        )

    def note(self, rule: str, severity: FindingSeverity, message: str) -> None:
        """Log what a run showed beside that, once a rule."""
        if all(note.rule != rule for note in self.notes):
            self.notes.append(
                Finding(rule=rule, severity=severity, line=None, message=message, basis="run")
            )


@dataclass(slots=True)
class VerdictDraft:
    """Maker: the judge, one a candidate. Each step of the judge fills its field."""

    task: Task
    candidate: Candidate
    backend: BackendName
    receipt: Receipt
    started: float = field(default_factory=time.monotonic)
    safety: SafetyReport = field(default_factory=SafetyReport)
    compilation: CompilationResult | None = None
    late_requests: dict[str, Request] = field(default_factory=dict)
    """What an answer asked `load_inline` or Triton for while it ran, by digest; empty for other
    candidates."""
    log: TrialLog = field(default_factory=TrialLog)
    device: str = ""
    driver: str = ""
    timing: BenchmarkResult | None = None
    counters: Mapping[str, float] = field(default_factory=dict)
    by_rules: RulesCheck | None = None

    def verdict(self, status: Status, reason: str) -> Verdict:
        """The draft as a verdict of this status; timing is kept on `correct` only."""
        correct = status is Status.CORRECT
        detector = CUDAPitfallDetector()
        return Verdict(
            status=status,
            reason=_one_line(reason),
            task=self.task.name,
            candidate_sha256=self.candidate.sha256,
            backend=self.backend,
            compile=_summary(self.compilation),
            tests=tuple(self.log.tests),
            timing=self.timing if correct else None,
            counters=self.counters if correct else {},
            safety=self.safety,
            pitfalls=(
                *self.log.notes,
                *_printed("".join(self.log.output)),
                *detector.detect(
                    self.compilation, self.counters, self.log.faults, self.candidate.code
                ),
            ),
            cheats=tuple(self.log.cheats),
            by_rules=self.by_rules,
            receipt=self.receipt.model_copy(
                update={
                    "device": self.device,
                    "driver": self.driver,
                    "duration_s": round(time.monotonic() - self.started, 4),
                }
            ),
        )


def _summary(compilation: CompilationResult | None) -> CompileSummary | None:
    """None where no compiler saw the candidate."""
    if compilation is None:
        return None
    return CompileSummary(
        latency_s=compilation.latency_s,
        cache_hit=compilation.cache_hit,
        registers=compilation.registers,
        spill_bytes=compilation.spill_bytes,
        shared_bytes=compilation.shared_bytes,
        warnings=tuple(_place(w.line) + w.message for w in compilation.warnings),
        errors=compilation.errors,
        ptx_sha256=compilation.ptx_sha256,
        techniques=compilation.techniques,
    )


def _place(line: int | None) -> str:
    return "" if line is None else f"line {line}: "


def _one_line(reason: str) -> str:
    text = " ".join(reason.split())
    return text if len(text) <= _MAX_REASON_CHARS else text[: _MAX_REASON_CHARS - 1] + "…"


def _printed(output: str) -> tuple[Finding, ...]:
    """What the kernels printed, as a finding; none where they printed nothing."""
    if not output:
        return ()
    over = len(output) - _MAX_OUTPUT_CHARS
    text = output if over <= 0 else f"{output[:_MAX_OUTPUT_CHARS]}\n[{over} characters more]"
    return (
        Finding(rule=PRINTED, severity="info", line=None, message=text.rstrip("\n"), basis="run"),
    )
