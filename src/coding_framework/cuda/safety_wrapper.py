"""Safety findings of a candidate's source, with a risk score; advice for people and prompts.

Guaranteed: no verdict depends on anything here. A static check cannot keep hostile code out, and
what it would keep out the boundary (sandbox, device process, replay) stops anyway.
"""

from __future__ import annotations

from coding_framework.cuda.advice.findings import static_findings
from coding_framework.cuda.advice.pitfalls import CUDAPitfallDetector
from coding_framework.cuda.sandbox.docker import DockerSandbox
from coding_framework.errors import UsageError
from coding_framework.types import Candidate, Finding, Record, SafetyReport, Verdict

__all__ = [
    "CUDASafetyAnalyzer",
    "DockerSandbox",
    "SafetyAnalysis",
    "SafetyWrapper",
    "SecurityValidator",
]

_RISK = {"info": 0.0, "low": 0.05, "medium": 0.2, "high": 0.5}
_ACTING: dict[int, None] = dict.fromkeys(
    (
        *(c for c in range(32) if chr(c) not in "\n\t\r"),
        *range(0x7F, 0xA0),
        *(0x061C, *range(0x200B, 0x2010), *range(0x2028, 0x202F), *range(0x2060, 0x206A), 0xFEFF),
    )
)
"""Characters that move a cursor, change colours, reorder a line, or cannot be seen."""


class SecurityValidator:
    """Static inspection of one source."""

    def validate(self, code: str) -> SafetyReport:
        """Findings with lines, and the risk: the chance that at least one of them matters, each
        rule counted once and all taken as independent."""
        findings = static_findings(code)
        return SafetyReport(risk_score=_risk_score(findings), findings=findings)

    def sanitize(self, code: str) -> str:
        """The source as it may be shown in a terminal, a report or a prompt: control, bidirectional
        and invisible characters and lone surrogates gone. Never what is compiled: that is the
        candidate's own bytes."""
        return code.translate(_ACTING).encode("utf-8", "ignore").decode("utf-8")


class SafetyWrapper:
    """What the judge asks first. Holds no state; one object serves any number of threads."""

    def inspect(self, code: str) -> SafetyReport:
        """The safety part of a verdict."""
        return SecurityValidator().validate(code)


class SafetyAnalysis(Record):
    """What is known of a source, before or after it was judged. Maker: CUDASafetyAnalyzer."""

    safety: SafetyReport
    pitfalls: tuple[Finding, ...]
    measured: bool
    """True: pitfalls are those of a run; False: all that is said was guessed from the source."""


class CUDASafetyAnalyzer:
    """Security findings and pitfalls of one source together; holds no state."""

    def analyze(self, code: str, verdict: Verdict | None = None) -> SafetyAnalysis:
        """The pitfalls that `verdict` measured, or, without one, what the source suggests.

        Raises UsageError where the verdict is on another source.
        """
        safety = SafetyWrapper().inspect(code)
        if verdict is None:
            pitfalls = CUDAPitfallDetector().detect(None, {}, (), code)
            return SafetyAnalysis(safety=safety, pitfalls=pitfalls, measured=False)
        if verdict.candidate_sha256 != Candidate.model_construct(code=code).sha256:
            raise UsageError(
                f"the verdict is on another source ({verdict.candidate_sha256[:12]}): give the "
                "verdict of this one, or none"
            )
        return SafetyAnalysis(
            safety=safety,
            pitfalls=verdict.pitfalls,
            measured=any(f.basis in ("counters", "run") for f in verdict.pitfalls)
            or bool(verdict.counters),
        )


def _risk_score(findings: tuple[Finding, ...]) -> float:
    worst: dict[str, float] = {}
    for finding in findings:
        worst[finding.rule] = max(worst.get(finding.rule, 0.0), _RISK[finding.severity])
    harmless = 1.0
    for risk in worst.values():
        harmless *= 1.0 - risk
    return round(1.0 - harmless, 4)
