"""What goes wrong around an evaluation: disks, servers, judges, clocks, other processes, odd names
and impossible times. Nothing of it becomes a score."""

from __future__ import annotations

import asyncio
import fcntl
import math
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest

from coding_framework.commands.evaluate import _status
from coding_framework.errors import (
    BrokenTaskError,
    InfrastructureError,
    PolicyAwayError,
    PolicyError,
    RunFolderError,
    TaskError,
    UsageError,
)
from coding_framework.evaluation import eval_run
from coding_framework.evaluation.eval_run import EvalIdentity, EvalRun
from coding_framework.evaluation.gates import check_gates, junit, parse_gates
from coding_framework.evaluation.outcome import (
    EvalOutcome,
    gate_metrics,
    gate_scopes,
    number_of,
    summarize_run,
)
from coding_framework.evaluation.samples import SampleRecord, sample_record
from coding_framework.evaluation.suites import EvalSuite, SuiteTask
from coding_framework.run.eval_options import EvalOptions
from coding_framework.run.eval_sampling import Sampling, Wanted, sample_all
from coding_framework.run.eval_speakers import weights_digest
from coding_framework.store.lines import JsonlSink
from coding_framework.training.reward_functions.cuda_performance_reward import (
    CUDAPerformanceReward,
)
from coding_framework.types import AgentAnswer, Extraction, Generation, Role, Status
from support.made_conversations import make_state, make_task, make_turn, make_verdict

pytestmark = pytest.mark.unit

IDENTITY = EvalIdentity(
    model="m", model_digest="d", suites={"s": "e"}, samples=1, turns=1, sampling={},
    prompts="v1", seed=0, judge={"protocol": "1"},
)  # fmt: skip
ODD = "a/b\nc\x00" + "x" * 300


class Speaker:
    """Says the task's name as code; raises what is in `faults` first."""

    def __init__(self, *faults: Exception) -> None:
        self.faults = list(faults)

    async def answer(self, state, *, sample=0):
        if self.faults:
            raise self.faults.pop(0)
        code = f"// {state.task.name}"
        return AgentAnswer(
            messages=(), generation=Generation(text=code), extraction=Extraction(code=code, note="")
        )


async def correct(task, code):
    return make_verdict(Status.CORRECT, 2.0, task=task.name)


def evaluated(folder: Path, names: Sequence[str], judge=correct, speaker=None, patience_s=0.0):
    """The samples of a run in `folder`, whose judge has no pauses."""
    suite = EvalSuite(name="s", tasks=tuple(SuiteTask(task=make_task(n)) for n in names))
    agents = {Role.GENERATOR: speaker or Speaker()}
    with EvalRun(folder, IDENTITY, patience_s=patience_s) as run:
        options = EvalOptions(concurrency=4)
        sampling = Sampling(run, judge, CUDAPerformanceReward(), options, (0.0, 0.0, 0.0))
        wanted = [Wanted(suite, entry, 0, agents) for entry in suite.tasks]
        return [record for _, record in asyncio.run(sample_all(sampling, wanted))]


def outcome_of(records: Sequence[SampleRecord], **more) -> EvalOutcome:
    suite = EvalSuite(name="s", tasks=tuple(SuiteTask(task=make_task(r.task)) for r in records))
    more = {"complete": True, "leak": {}, "unanswered": {}} | more
    return summarize_run(IDENTITY, [suite], records, [1], [1.0], **more)


# --- our faults -----------------------------------------------------------------------------------


def failing(error: Exception):
    """A judge that raises it for the task `bad`."""

    async def judge(task, code):
        if task.name == "bad":
            raise error
        return await correct(task, code)

    return judge


def test_a_kernel_that_kills_the_judge_every_time_is_masked_and_the_run_goes_on(
    tmp_path: Path,
) -> None:
    judge = failing(InfrastructureError("a worker was killed: out of memory"))
    records = evaluated(tmp_path, ["good", "bad", "fine"], judge)
    assert [record.correct for record in records] == [True, False, True]
    assert records[1].masked == "InfrastructureError: a worker was killed: out of memory"
    outcome = outcome_of(records)
    assert outcome.faults == {records[1].masked: 1}
    assert _status(outcome, EvalOptions()) == 3
    assert _status(outcome, EvalOptions(max_masked=0.4)) == 0


def test_each_conversation_is_in_the_folder_when_it_ends(tmp_path: Path) -> None:
    there = []

    async def judge(task, code):
        path = tmp_path / "conversations.jsonl"
        there.append(len(path.read_text().splitlines()) if path.exists() else 0)
        return await correct(task, code)

    evaluated(tmp_path, list("abcdefgh"), judge)
    assert (there[0], there[-1] > 0) == (0, True)
    evaluated(tmp_path, list("abcdefgh"), judge)
    assert len((tmp_path / "conversations.jsonl").read_text().splitlines()) == 8


def test_a_task_that_nobody_can_judge_is_tried_once(tmp_path: Path) -> None:
    tries = 0

    async def judge(task, code):
        nonlocal tries
        tries += 1
        raise TaskError("a constant answer is right")

    (record,) = evaluated(tmp_path, ["constant"], judge)
    assert (tries, record.masked) == (1, "TaskError: a constant answer is right")


def test_a_task_whose_own_source_fails_costs_its_samples_and_not_the_run(tmp_path: Path) -> None:
    said = "the reference of task 'bad' fails on its shape set 'main'"
    judge = failing(BrokenTaskError(said))
    records = evaluated(tmp_path, ["good", "bad", "fine"], judge)
    assert [record.correct for record in records] == [True, False, True]
    assert (records[1].masked or "").startswith("BrokenTaskError: the reference of task 'bad'")


def test_whose_fault_it_is_that_many_have_no_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    for reason, whose in (
        ("BrokenTaskError: the reference fails", "tasks whose own source fails kept 1 samples"),
        ("SandboxError: it broke", "faults of ours kept 1 samples"),
    ):
        assert (
            _status(outcome_of([SampleRecord(suite="s", task="t", masked=reason)]), EvalOptions())
            == 3
        )
        assert whose in capsys.readouterr().err


def test_where_all_samples_are_masked_there_is_no_rate(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = outcome_of([SampleRecord(suite="s", task=f"t{i}", masked="fault") for i in range(3)])
    block = outcome.overall.overall
    assert block.pass_at["pass@1"].value is None
    assert (block.compiled.rate, block.cheats.rate) == (None, None)
    assert _status(outcome, EvalOptions()) == 3
    assert "kept 3 samples from a verdict (100%" in capsys.readouterr().err


def test_what_the_judge_does_not_support_is_counted_and_is_no_fault() -> None:
    gap = SampleRecord(suite="s", task="t", masked="unsupported: Triton")
    outcome = outcome_of([gap, SampleRecord(suite="s", task="u", correct=True, status="correct")])
    assert (outcome.overall.overall.unsupported, outcome.overall.overall.masked) == (1, 0)
    assert _status(outcome, EvalOptions()) == 0


def test_a_full_disk_ends_the_run_and_the_next_one_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, room = JsonlSink.write, [3]

    def limited(self, record):
        if not room[0]:
            with self.path.open("a") as file:
                file.write('{"key": "half a li')  # as a disk that fills leaves it
            raise InfrastructureError("the disk is full: free some space")
        room[0] -= 1
        write(self, record)

    monkeypatch.setattr(JsonlSink, "write", limited)
    with pytest.raises((RunFolderError, InfrastructureError), match="the disk is full"):
        evaluated(tmp_path, ["a", "b", "c"])
    monkeypatch.setattr(JsonlSink, "write", write)
    assert all(record.correct for record in evaluated(tmp_path, ["a", "b", "c"]))


def test_a_verdict_that_cannot_be_written_masks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = JsonlSink.write

    def only_answers(self, record):
        if "verdict" in record:
            raise InfrastructureError("the disk is full")
        write(self, record)

    monkeypatch.setattr(JsonlSink, "write", only_answers)
    with pytest.raises(RunFolderError, match="the disk is full"):
        evaluated(tmp_path, ["a"])


def test_a_second_process_in_the_folder_is_refused(tmp_path: Path) -> None:
    evaluated(tmp_path, ["a"])
    program = (
        "import fcntl, sys\nf = open(sys.argv[1], 'a')\nfcntl.lockf(f, fcntl.LOCK_EX)\n"
        "print('locked', flush=True)\nsys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "eval.lock")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as other:  # fmt: skip
        assert other.stdout is not None
        assert other.stdout.readline() == "locked\n"
        with pytest.raises(UsageError, match="another evaluation"):
            evaluated(tmp_path, ["a"])
        other.communicate("")
    with (tmp_path / "eval.lock").open("a") as file:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_clock_that_is_set_back_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter(range(10**6, 0, -3600))
    monkeypatch.setattr(time, "time", lambda: float(next(times)))
    assert len(evaluated(tmp_path, ["a", "b"])) == 2


# --- the model ------------------------------------------------------------------------------------


def test_a_server_that_comes_back_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eval_run, "AWAY_PAUSE_S", 0.0)
    speaker = Speaker(*[PolicyAwayError("away")] * 3)
    assert evaluated(tmp_path, ["a"], speaker=speaker, patience_s=60.0)[0].correct
    with pytest.raises(PolicyAwayError):
        evaluated(tmp_path / "b", ["a"], speaker=Speaker(PolicyAwayError("away")))
    refused = Speaker(PolicyError("refused"))  # which waiting does not change
    with pytest.raises(PolicyError, match="refused"):
        evaluated(tmp_path / "c", ["a"], speaker=refused, patience_s=60.0)


def test_other_weights_at_the_same_path_have_another_digest(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"one")
    first = weights_digest(tmp_path)
    assert weights_digest(tmp_path) == first
    (tmp_path / "model.safetensors").write_bytes(b"two")
    assert weights_digest(tmp_path) != first


# --- odd times and names --------------------------------------------------------------------------


@pytest.mark.parametrize("kernel_ms", [0.0, math.nan, math.inf])
def test_an_impossible_time_is_no_speedup(kernel_ms: float) -> None:
    verdict = make_verdict(Status.CORRECT, 1.0 / kernel_ms if kernel_ms else math.inf)
    assert verdict.timing is not None
    timing = verdict.timing.model_copy(update={"kernel_ms": kernel_ms})
    made = make_state(make_turn(0, verdict.model_copy(update={"timing": timing})))
    record = sample_record(made)
    assert record.correct
    assert record.speedup is None
    assert bool(record.suspect) is not (kernel_ms == math.inf)


def test_a_speedup_of_a_million_is_flagged_and_enters_no_mean() -> None:
    states = [
        make_state(make_turn(0, make_verdict(Status.CORRECT, gain)), task=f"t{i}")
        for i, gain in enumerate((2.0, 2.0, 1e6))
    ]
    [speeds] = outcome_of([sample_record(s, suite="s") for s in states]).overall.overall.speeds
    assert speeds.geometric_mean.value == pytest.approx(2.0)
    assert speeds.suspects == ("t2/0: a speedup of 1e+06: no kernel gains so much",)


def test_kernels_that_are_correct_and_not_timed_have_no_speed() -> None:
    outcome = outcome_of(
        [SampleRecord(suite="s", task=f"t{i}", correct=True, status="correct") for i in range(9)]
    )
    assert outcome.overall.overall.speeds == ()
    gates = parse_gates("pass@1>=1, fast_1>=0.1", gate_metrics([1], [1.0]), [])
    held = check_gates(gates, lambda gate: number_of(gate, outcome))
    assert [result.holds for result in held] == [True, False]
    assert "no correct kernel was timed" in held[1].sentence


def test_odd_names_do_no_harm(tmp_path: Path) -> None:
    records = evaluated(tmp_path, [ODD, ODD + "y"])
    assert {record.task for record in records} == {ODD, ODD + "y"}
    assert all(path.parent == tmp_path for path in tmp_path.iterdir())
    suite = EvalSuite(
        name=ODD, tasks=(SuiteTask(task=make_task().model_copy(update={"family": "a\x00b"})),)
    )
    gates = parse_gates("family.a\x00b.pass@1>=0", ["pass@1"], gate_scopes([suite], compares=False))
    outcome = outcome_of(records)
    found = check_gates(gates, lambda gate: number_of(gate, outcome))
    ElementTree.fromstring(junit(found))
