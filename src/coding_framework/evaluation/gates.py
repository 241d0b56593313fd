"""Gates of an evaluation: `pass@1>=0.5, tier2.pass@1:low>=0.3, delta.pass@1>=-0.02`.

    expression := gate {"," gate}
    gate       := [scope "."] metric [":low" | ":high"] (">=" | "<=") number

A scope is a tier (`tier2`), a level (`level1`), a number of operations (`ops3`), a family
(`family.NAME`) or `delta` (B less A). The suffix tests an end of the 95% interval instead of the
estimate. A metric that cannot be told fails its gate, and says why. A gate on a metric that does
not exist is wrong use, found before any work.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from difflib import get_close_matches
from xml.etree.ElementTree import Element, SubElement, tostring

from coding_framework.errors import UsageError
from coding_framework.evaluation.estimates import Estimate
from coding_framework.monitoring.text import visible
from coding_framework.types import Record

_GATE = re.compile(
    r"(?:(?P<scope>tier\d+|level\d+|ops\d+|delta|family\.[^.\s]+)\.)?(?P<metric>[^:<>=\s]+)"
    r"(?::(?P<end>low|high))?\s*(?P<sign>>=|<=)\s*(?P<bar>-?\d+(?:\.\d+)?(?:[eE]-?\d+)?)"
)


class Gate(Record):
    """One condition on one number."""

    scope: str = ""
    metric: str
    end: str = ""
    """"low" or "high" of the interval; "": the estimate."""
    sign: str
    bar: float

    def __str__(self) -> str:
        scope = f"{self.scope}." if self.scope else ""
        end = f":{self.end}" if self.end else ""
        return f"{scope}{self.metric}{end} {self.sign} {self.bar:g}"


class GateResult(Record):
    """What a gate came to. `sentence` names gate, value, interval and bar."""

    gate: Gate
    holds: bool
    sentence: str
    undecided: bool = False
    """Whether samples are missing that could still turn it."""


def parse_gates(expression: str, metrics: Collection[str], scopes: Collection[str]) -> list[Gate]:
    """The gates of an expression. Raises UsageError, with close names, for what is not one."""
    gates = []
    for text in (part.strip() for part in expression.split(",")):
        match = _GATE.fullmatch(text)
        if match is None:
            raise UsageError(
                f"{text!r} is not a gate: write [SCOPE.]METRIC>=NUMBER, e.g. pass@1>=0.5"
            )
        gate = Gate(
            scope=match["scope"] or "",
            metric=match["metric"],
            end=match["end"] or "",
            sign=match["sign"],
            bar=float(match["bar"]),
        )
        _require_known("metric", gate.metric, metrics)
        if gate.scope:
            _require_known("scope", gate.scope, scopes)
        gates.append(gate)
    return gates


def _require_known(kind: str, name: str, known: Collection[str]) -> None:
    if name in known:
        return
    close = get_close_matches(name, sorted(known), n=3)
    hint = f"did you mean {', '.join(close)}?" if close else f"there are {', '.join(sorted(known))}"
    raise UsageError(f"unknown {kind} {name!r} in a gate: {hint}")


def check_gates(
    gates: Sequence[Gate], look_up: Callable[[Gate], Estimate], *, complete: bool = True
) -> list[GateResult]:
    """Each gate against the number that `look_up` finds for it. complete: whether all samples are
    there; else a gate that does not hold now is undecided."""
    results = [_check(gate, look_up(gate)) for gate in gates]
    return results if complete else [r if r.holds else _undecided(r) for r in results]


def _undecided(result: GateResult) -> GateResult:
    sentence = f"{result.gate} is undecided: samples are missing"
    return result.model_copy(update={"undecided": True, "sentence": sentence})


def _check(gate: Gate, found: Estimate) -> GateResult:
    value = found.value
    if gate.end and value is not None:
        value = None if found.ci95 is None else found.ci95[gate.end == "high"]
    if value is None:
        why = found.why or "it has no interval"
        return GateResult(gate=gate, holds=False, sentence=f"{gate} fails: no value ({why})")
    holds = value >= gate.bar if gate.sign == ">=" else value <= gate.bar
    span = f" (95%: {found.ci95[0]:.4g} to {found.ci95[1]:.4g})" if found.ci95 else ""
    word = "holds" if holds else "fails"
    return GateResult(
        gate=gate, holds=holds, sentence=f"{gate} {word}: it is {found.value:.4g}{span}"
    )


def junit(results: Sequence[GateResult]) -> str:
    """The gates as a JUnit test suite, for a CI that shows such files."""
    failures = sum(not result.holds and not result.undecided for result in results)
    suite = Element(
        "testsuite", name="cuda-rl eval", tests=str(len(results)), failures=str(failures)
    )
    for result in results:
        case = SubElement(suite, "testcase", classname="gate", name=visible(str(result.gate)))
        if result.undecided:
            SubElement(case, "skipped", message=visible(result.sentence))
        elif not result.holds:
            SubElement(case, "failure", message=visible(result.sentence))
    return tostring(suite, encoding="unicode", xml_declaration=True)
