"""The report of an evaluation: everything is in it, nothing of it acts or is fetched."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from coding_framework.evaluation.charts import (
    Series,
    StackedBar,
    histogram,
    line_chart,
    stacked_chart,
)
from coding_framework.evaluation.compare import compare_runs
from coding_framework.evaluation.eval_report import write_eval_report
from coding_framework.evaluation.eval_run import EvalIdentity
from coding_framework.evaluation.gates import check_gates, parse_gates
from coding_framework.evaluation.outcome import (
    EvalOutcome,
    gate_metrics,
    number_of,
    summarize_run,
)
from coding_framework.evaluation.samples import SampleRecord, sample_record
from coding_framework.evaluation.suites import EvalSuite, SuiteTask
from coding_framework.types import CUDAConversationState, Status
from support.made_conversations import make_state, make_task, make_turn, make_verdict

pytestmark = pytest.mark.unit

HOSTILE = '</pre><script>alert("x")</script>\x1b[31m\u202e'
IDENTITY = EvalIdentity(
    model=f"m{HOSTILE}", model_digest="d", suites={"s": "e"}, samples=1, turns=1, sampling={},
    prompts="v1", seed=0, judge={"protocol": "1"},
)  # fmt: skip


def made_run() -> tuple[EvalOutcome, list[SampleRecord], list[CUDAConversationState]]:
    """Ten tasks, half of them correct, one broken at other shapes, one masked, one a cheat."""
    states, records = [], []
    for i in range(10):
        correct = i % 2 == 0
        status = Status.CORRECT if correct else Status.WRONG_OUTPUT
        verdict = make_verdict(status, 1.0 + i if correct else None, reason=HOSTILE)
        turn = make_turn(0, verdict, f"int a{i};\n{HOSTILE}")
        if i == 9:
            turn = make_turn(0, None, "int b;", f"DeviceError: {HOSTILE}")
        states.append(make_state(turn, task=f"t{i}{HOSTILE}", name=f"s/t{i}{HOSTILE}/0"))
        record = sample_record(states[-1], suite="s")
        if i == 0:
            broken = {"holdout_status": "wrong_output", "holdout_reason": HOSTILE}
            record = record.model_copy(update=broken)
        records.append(record)
    suite = EvalSuite(
        name="s", tasks=(SuiteTask(task=make_task()),), not_applicable={HOSTILE: HOSTILE}
    )
    outcome = summarize_run(
        IDENTITY, [suite], records, [1, 5], [0.0, 1.0], complete=False, leak={"s": HOSTILE},
        unanswered={"s": (HOSTILE,)}, compared=compare_runs(records, records),
    )  # fmt: skip
    gates = parse_gates("pass@1>=0.5", gate_metrics([1], [1.0]), [])
    held = check_gates(gates, lambda gate: number_of(gate, outcome), complete=False)
    return outcome.model_copy(update={"gates": tuple(held)}), records, states


def test_the_page_has_every_part_and_nothing_that_acts(tmp_path: Path) -> None:
    write_eval_report(tmp_path, *made_run())
    page = (tmp_path / "report.html").read_text()
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert not re.search(r'(?:src|href)="', page)
    assert "default-src 'none'" in page
    assert "\x1b" not in page
    assert "\u202e" not in page
    for part in (
        "Suites", "Speed", "fast_p, with 95% bands", "tier 0", "Gates", "At other shapes",
        "Against the run before", "broken at other shapes", "among the fastest", "a failure",
        "not applicable", "without an answer", "without a verdict", "prefers-color-scheme: dark",
        "The run stopped before all samples were there",
    ):  # fmt: skip
        assert part in page, part


def test_figures_are_files_of_their_own(tmp_path: Path) -> None:
    write_eval_report(tmp_path, *made_run())
    plots = sorted((tmp_path / "plots").iterdir())
    assert len(plots) == 3
    for plot in plots:
        assert ElementTree.parse(plot).getroot().tag.endswith("svg")


def test_a_run_without_any_verdict_has_a_page_too(tmp_path: Path) -> None:
    state = make_state(make_turn(0, None, "int b;", "DeviceError: x"), name="s/relu/0")
    records = [sample_record(state, suite="s")]
    suite = EvalSuite(name="s", tasks=(SuiteTask(task=make_task()),))
    outcome = summarize_run(
        IDENTITY, [suite], records, [1], [1.0], complete=True, leak={}, unanswered={}
    )
    write_eval_report(tmp_path, outcome, records, [state])
    assert "No sample has a verdict" in (tmp_path / "report.html").read_text()
    assert outcome.masked_share == 1.0
    assert outcome.overall.overall.compiled.rate is None


def test_a_logarithmic_axis_puts_ratios_at_equal_distances() -> None:
    line = Series(name="a", points=((0.1, 0.0), (1.0, 0.5), (10.0, 1.0)), band=((0.1, 0, 1),))
    chart = line_chart([line], x_label="p", y_label="share", x_log=True)
    xs = [float(x) for x in re.findall(r'cx="([\d.]+)"', chart)]
    assert xs[1] - xs[0] == pytest.approx(xs[2] - xs[1], abs=0.2)
    assert "polygon" in chart


def test_a_histogram_counts_each_value_once_and_leaves_out_what_is_no_speedup() -> None:
    chart = histogram([0.5, 1.0, 1.1, 9.0, 0.0, float("inf")], x_label="x", y_label="n")
    assert sum(int(n) for n in re.findall(r": (\d+)</title>", chart)) == 4
    assert histogram([], x_label="x", y_label="n") == ""


def test_a_stacked_bar_is_cut_by_shares() -> None:
    chart = stacked_chart([StackedBar(name="t", counts=(1, 3, 0))], ["a", "b", "c"], title="t")
    wide = [float(w) for w in re.findall(r'width="([\d.]+)" height="24"', chart)]
    assert wide[1] == pytest.approx(3 * wide[0], abs=0.2)
    assert wide[2] == 0


def test_a_sample_counts_the_answers_that_the_limit_cut() -> None:
    whole, cut = make_turn(0, make_verdict(Status.WRONG_OUTPUT)), make_turn(1, None, None, "ours")
    generation = cut.generation.model_copy(update={"finish_reason": "length"})
    state = make_state(whole, cut.model_copy(update={"generation": generation}))
    assert sample_record(state).cut == 1
