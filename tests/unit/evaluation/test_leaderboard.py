"""The page of runs beside published rows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from coding_framework.cuda.expected.rules import RULES
from coding_framework.errors import UsageError
from coding_framework.evaluation.eval_run import EvalIdentity
from coding_framework.evaluation.leaderboard import OF, write_leaderboard
from coding_framework.evaluation.outcome import EvalOutcome, summarize_run
from coding_framework.evaluation.samples import SampleRecord
from coding_framework.types import RulesName

pytestmark = pytest.mark.unit


def outcome_of(folder: Path, rules: RulesName, records: list[SampleRecord]) -> EvalOutcome:
    identity = EvalIdentity(
        model="<b>mine</b>", model_digest="d", suites={"s": "x"}, samples=2, turns=1, sampling={},
        prompts="none", seed=0, judge={}, rules=RULES[rules] if rules != "ours" else None,
    )  # fmt: skip
    found = summarize_run(identity, [], records, [1], [1.0], complete=True, leak={}, unanswered={})
    folder.mkdir(exist_ok=True)
    (folder / "summary.json").write_text(found.model_dump_json())
    return found


def record(task: str, sample: int, speedup: float | None, correct: bool = True) -> SampleRecord:
    return SampleRecord(
        task=task, sample=sample, level=1, correct=correct, speedup=speedup, basis="measured",
        device="NVIDIA H200", memory=2.0 if correct else None, rules=OF,
    )  # fmt: skip


def test_the_best_sample_of_each_problem_stands_beside_published_rows(tmp_path: Path) -> None:
    records = [
        record("a", 0, 0.5), record("a", 1, 2.0), record("b", 0, 0.5), record("b", 1, None, False),
        record("c", 0, None, False), record("d", 0, None, False),
    ]  # fmt: skip
    run = (tmp_path / "r", outcome_of(tmp_path / "r", OF, records), records)
    write_leaderboard(tmp_path / "page.html", [run])
    page = (tmp_path / "page.html").read_text()
    lines = [
        re.sub(r"<[^>]+>", " ", line).split() for line in page.splitlines() if "<tr><td>" in line
    ]
    assert [line[0] for line in lines] == ["1"] * 4 + ["2"] * 3
    assert lines[0][:7] == ["1", "GPT-5.5", "(medium)", "99%", "52%", "0.90×", "1.24×"]
    [mine] = [line for line in lines if "&lt;b&gt;mine&lt;/b&gt;" in line]
    assert mine[2:6] == ["50%", "25%", "1.00×", "2.00×"]
    assert re.search(r"\d{4}-\d\d-\d\d", " ".join(mine))
    assert page.count("2026-07") == 6


@pytest.mark.parametrize("rules", ["ours", "kernelbench"])
def test_a_run_by_other_rules_is_refused(tmp_path: Path, rules: RulesName) -> None:
    records = [record("a", 0, 1.0)]
    run = (tmp_path / "r", outcome_of(tmp_path / "r", rules, records), records)
    with pytest.raises(UsageError, match="two sets of rules are not put beside each other"):
        write_leaderboard(tmp_path / "page.html", [run])
    assert not (tmp_path / "page.html").exists()
