"""Gates: what holds, what fails, what cannot be told, what is no gate."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from coding_framework.errors import UsageError
from coding_framework.evaluation.estimates import Estimate
from coding_framework.evaluation.gates import Gate, check_gates, junit, parse_gates

METRICS = ("pass@1", "pass@5", "fast_1", "regressions")
SCOPES = ("tier0", "tier2", "level1", "delta", "family.norms")
FOUND = Estimate(value=0.5, ci95=(0.4, 0.6))


@pytest.mark.parametrize(
    ("expression", "holds"),
    [
        ("pass@1>=0.5", True),
        ("pass@1 >= 0.51", False),
        ("pass@1:low>=0.4", True),
        ("pass@1:low>=0.41", False),
        ("pass@1:high<=0.6", True),
        ("tier2.fast_1>=0.2", True),
        ("level1.pass@5>=0.9", False),
        ("family.norms.pass@1>=0.1", True),
        ("delta.pass@1>=-0.02", True),
        ("regressions<=5e-2", False),
    ],
)
def test_a_gate_compares_its_number_with_its_bar(expression: str, holds: bool) -> None:
    [result] = check_gates(parse_gates(expression, METRICS, SCOPES), lambda gate: FOUND)
    assert result.holds is holds
    assert ("holds: it is 0.5" if holds else "fails: it is 0.5") in result.sentence


@pytest.mark.parametrize("end", ["", ":low", ":high"])
def test_a_number_that_cannot_be_told_fails_its_gate_and_says_why(end: str) -> None:
    gates = parse_gates(f"pass@1{end}>=0", METRICS, SCOPES)
    [result] = check_gates(gates, lambda gate: Estimate(value=None, why="no sample was judged"))
    assert not result.holds
    assert result.sentence.endswith("fails: no value (no sample was judged)")


@pytest.mark.parametrize(
    ("expression", "sentence"),
    [
        ("pas@1>=0.5", "did you mean pass@1"),
        ("tier3.pass@1>=0.5", "unknown scope 'tier3'"),
        ("pass@1>0.5", "is not a gate"),
        ("", "is not a gate"),
        ("pass@1>=high", "is not a gate"),
        ("pass@1>=0.5,,fast_1>=1", "is not a gate"),
    ],
)
def test_what_is_no_gate_is_wrong_use(expression: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        parse_gates(expression, METRICS, SCOPES)


def test_each_gate_is_asked_with_its_scope() -> None:
    asked: list[Gate] = []
    gates = parse_gates("pass@1>=0.1, tier2.pass@1>=0.1", METRICS, SCOPES)
    check_gates(gates, lambda gate: asked.append(gate) or FOUND)
    assert [gate.scope for gate in asked] == ["", "tier2"]


def test_junit_names_each_gate_and_the_failures() -> None:
    gates = parse_gates("pass@1>=0.1,pass@1>=0.9", METRICS, SCOPES)
    suite = ElementTree.fromstring(junit(check_gates(gates, lambda gate: FOUND)))
    assert suite.attrib["tests"] == "2"
    assert suite.attrib["failures"] == "1"
    assert [case.find("failure") is None for case in suite] == [True, False]
