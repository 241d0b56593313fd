"""A run as KernelBench's files: its numbers can be computed from them, and nothing is made up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coding_framework.errors import UsageError
from coding_framework.evaluation.answers import read_answers
from coding_framework.evaluation.kernelbench_io import write_kernelbench_run
from coding_framework.evaluation.samples import sample_record
from coding_framework.evaluation.suites import EvalSuite, SuiteTask
from coding_framework.types import Status, Verdict
from support.made_conversations import make_state, make_task, make_turn, make_verdict

pytestmark = pytest.mark.unit


def measured(verdict: Verdict, kernel_ms: float, eager_ms: float) -> Verdict:
    assert verdict.timing is not None
    timing = verdict.timing.model_copy(
        update={
            "modelled": False, "kernel_ms": kernel_ms, "eager_ms": eager_ms,
            "speedup": eager_ms / kernel_ms,
        }
    )  # fmt: skip
    return verdict.model_copy(update={"timing": timing})


def made_run(level: int | None = 1):
    """Problem 10 faster than eager, 2 modelled, 3 wrong; of 2 a second sample, masked."""
    verdicts = {
        10: measured(make_verdict(Status.CORRECT), 2.0, 3.0),
        2: make_verdict(Status.CORRECT, 4.0),
        3: make_verdict(Status.WRONG_OUTPUT),
    }
    suite = EvalSuite(
        name="kernelbench:1",
        tasks=tuple(
            SuiteTask(task=make_task(f"{n}_Problem"), level=level, number=n) for n in verdicts
        ),
    )
    states = [
        (make_state(make_turn(0, verdict, f"code {n}"), task=f"{n}_Problem"), 0)
        for n, verdict in verdicts.items()
    ]
    states.append((make_state(make_turn(0, None, "c", "our fault"), task="2_Problem"), 1))
    found = [(s, sample_record(s, sample=number, level=level)) for s, number in states]
    return suite, found


def test_the_files_hold_what_their_scripts_read(tmp_path: Path) -> None:
    suite, found = made_run()
    write_kernelbench_run(tmp_path, [suite], found, "H200")
    results = json.loads((tmp_path / "eval_results.json").read_text())
    assert list(results) == ["2", "3", "10"]
    needed = {"sample_id", "compiled", "correctness", "runtime", "runtime_stats", "metadata"}
    assert all(needed <= entry.keys() for entries in results.values() for entry in entries)
    [fast] = results["10"]
    assert (fast["compiled"], fast["correctness"], fast["runtime"]) == (True, True, 2.0)
    assert [e["correctness"] for e in results["3"]] == [False]
    times = json.loads((tmp_path / "results/timing/H200/baseline_time_torch.json").read_text())
    assert times == {"level1": {"10_Problem.py": {"mean": 3.0, "hardware": "H200"}}}


def test_a_modelled_time_is_no_runtime_and_a_masked_sample_no_entry(tmp_path: Path) -> None:
    suite, found = made_run()
    write_kernelbench_run(tmp_path, [suite], found, "H200")
    [modelled] = json.loads((tmp_path / "eval_results.json").read_text())["2"]
    assert modelled["runtime"] == -1.0
    assert modelled["metadata"]["coding_framework"]["modelled_ms"] == 1.0
    assert not (tmp_path / "results/timing/H200/baseline_time_torch_tf32.json").exists()


def test_the_written_folder_can_be_judged_again(tmp_path: Path) -> None:
    suite, found = made_run()
    write_kernelbench_run(tmp_path, [suite], found, "H200")
    answers = {(a.level, a.number): a.code for a in read_answers(tmp_path)}
    assert answers == {(1, 2): "code 2", (1, 3): "code 3", (1, 10): "code 10"}


def test_suites_of_no_level_are_refused(tmp_path: Path) -> None:
    suite, found = made_run(level=None)
    with pytest.raises(UsageError, match="needs suites of one level"):
        write_kernelbench_run(tmp_path, [suite], found, "H200")
