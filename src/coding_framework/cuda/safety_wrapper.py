"""Safety findings of a candidate's source, with a risk score; advice for people and prompts.

Guaranteed: no verdict depends on anything here. A static check cannot keep hostile code out, and
what it would keep out the boundary (sandbox, device process, replay) stops anyway.
"""

from __future__ import annotations

from coding_framework.cuda.findings import static_findings
from coding_framework.types import Finding, SafetyReport

_RISK = {"info": 0.0, "low": 0.05, "medium": 0.2, "high": 0.5}
_CONTROL = {code: None for code in range(32) if chr(code) not in "\n\t\r"}


class SecurityValidator:
    """Static inspection of one source."""

    def validate(self, code: str) -> SafetyReport:
        """Findings with lines, and the risk: the chance that at least one of them matters, each
        rule counted once and all taken as independent."""
        findings = static_findings(code)
        return SafetyReport(risk_score=_risk_score(findings), findings=findings)

    def sanitize(self, code: str) -> str:
        """The source as it may be shown in a terminal, a report or a prompt: control characters
        and lone surrogates gone. Never what is compiled: that is the candidate's own bytes."""
        return code.translate(_CONTROL).encode("utf-8", "ignore").decode("utf-8")


class SafetyWrapper:
    """What the judge asks first. Holds no state; one object serves any number of threads."""

    def __init__(self, validator: SecurityValidator | None = None) -> None:
        self._validator = validator or SecurityValidator()

    def inspect(self, code: str) -> SafetyReport:
        """The safety part of a verdict."""
        return self._validator.validate(code)


def _risk_score(findings: tuple[Finding, ...]) -> float:
    worst: dict[str, float] = {}
    for finding in findings:
        worst[finding.rule] = max(worst.get(finding.rule, 0.0), _RISK[finding.severity])
    harmless = 1.0
    for risk in worst.values():
        harmless *= 1.0 - risk
    return round(1.0 - harmless, 4)
