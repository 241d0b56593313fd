"""An evaluation's folder: nothing finished is done twice, whatever stopped the run before."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path

import pytest

from coding_framework.errors import InfrastructureError, UsageError
from coding_framework.evaluation.eval_run import EvalIdentity, EvalRun, sample_seed
from coding_framework.orchestration.turn import ConversationConfig, run_conversation
from coding_framework.training.reward_functions.cuda_performance_reward import (
    CUDAPerformanceReward,
)
from coding_framework.types import AgentAnswer, Extraction, Generation, Message, Role, Status
from support.made_conversations import make_task, make_verdict

pytestmark = pytest.mark.unit

IDENTITY = EvalIdentity(
    model="tiny", model_digest="d1", suites={"held-out": "s1"}, samples=1, turns=3,
    sampling={"temperature": 0.0}, prompts="v1", seed=0, judge={"protocol": "9"},
)  # fmt: skip
TASKS = [make_task(f"task{i}") for i in range(4)]
THREE_TURNS = ConversationConfig(
    max_turns=3, stop_reward=None, stop_after_repeats=None, judge_pauses_s=(0.0, 0.0, 0.0)
)


class Killed(BaseException):
    """What a test stops a run with."""


class Speaker:
    """Writes another kernel each turn; is killed before its answer number `dies_at`."""

    def __init__(self, dies_at: int = 10**9) -> None:
        self.dies_at = dies_at
        self.said: list[str] = []

    async def answer(self, state, *, sample=0):
        await asyncio.sleep(0)
        if len(self.said) == self.dies_at:
            raise Killed
        code = f"{state.task.name} turn {len(state.turns)}"
        self.said.append(code)
        return AgentAnswer(
            messages=(Message(role="user", content="?"),),
            generation=Generation(text=code),
            extraction=Extraction(code=code, note=""),
        )


class CountingJudge:
    """Calls everything wrong; fails as often as `faults` says before each verdict."""

    def __init__(self, faults: int = 0, dies_at: int = 10**9) -> None:
        self.judged: list[str] = []
        self.asked: Counter[str] = Counter()
        self.faults, self.dies_at = faults, dies_at

    async def __call__(self, task, code):
        self.asked[code] += 1
        await asyncio.sleep(0.001)
        if self.asked[code] <= self.faults:
            raise InfrastructureError("the judge's disk is full")
        if len(self.judged) == self.dies_at:
            raise Killed
        self.judged.append(code)
        return make_verdict(Status.WRONG_OUTPUT, None, task=task.name)


async def converse(folder: Path, speaker: Speaker, judge: CountingJudge, tasks=TASKS):
    with EvalRun(folder, IDENTITY) as run:
        agents = run.agents({Role.GENERATOR: speaker, Role.OPTIMIZER: speaker}, 0)
        return [
            await run_conversation(
                task, agents, run.judge(judge), CUDAPerformanceReward(), THREE_TURNS,
                conversation_id=f"held-out/{task.name}/0",
            )
            for task in tasks
        ]  # fmt: skip


@pytest.mark.parametrize("moment", range(12))
def test_a_killed_run_goes_on_inside_its_conversation(tmp_path: Path, moment: int) -> None:
    undisturbed = asyncio.run(converse(tmp_path / "whole", Speaker(), CountingJudge()))
    for first in (Speaker(dies_at=moment), Speaker()):
        dying = CountingJudge() if first.dies_at == moment else CountingJudge(dies_at=moment)
        folder = tmp_path / f"killed{first.dies_at}"
        with pytest.raises(Killed):
            asyncio.run(converse(folder, first, dying))
        speaker, judge = Speaker(), CountingJudge()
        assert asyncio.run(converse(folder, speaker, judge)) == undisturbed
        assert not set(first.said) & set(speaker.said)
        assert not set(dying.judged) & set(judge.judged)
        assert len(first.said) + len(speaker.said) == 12
        assert len(dying.judged) + len(judge.judged) == 12


def test_a_finished_run_asks_nobody(tmp_path: Path) -> None:
    before = asyncio.run(converse(tmp_path, Speaker(), CountingJudge()))
    speaker, judge = Speaker(), CountingJudge()
    assert asyncio.run(converse(tmp_path, speaker, judge)) == before
    assert not speaker.said
    assert not judge.judged


def test_equal_code_of_one_task_is_judged_once(tmp_path: Path) -> None:
    judge = CountingJudge()

    async def twice() -> None:
        with EvalRun(tmp_path, IDENTITY) as run:
            kept = run.judge(judge)
            await asyncio.gather(*(kept(TASKS[0], "same") for _ in range(5)))
            await kept(TASKS[0].model_copy(update={"reference": "another"}), "same")

    asyncio.run(twice())
    assert judge.judged == ["same", "same"]


def test_a_fault_of_ours_is_tried_again_and_never_a_verdict(
    tmp_path: Path,
) -> None:
    [state] = asyncio.run(converse(tmp_path / "a", Speaker(), CountingJudge(faults=3), TASKS[:1]))
    assert all(turn.verdict is not None for turn in state.turns)
    judge = CountingJudge(faults=99)
    [state] = asyncio.run(converse(tmp_path / "b", Speaker(), judge, TASKS[:1]))
    assert state.end_reason == "error"
    assert judge.asked == {"task0 turn 0": 4}
    assert state.turns[-1].masked == "InfrastructureError: the judge's disk is full"
    assert all("fault" in json.loads(line) for line in _lines(tmp_path / "b/verdicts.jsonl"))


def test_another_model_is_refused_with_what_differs(tmp_path: Path) -> None:
    with EvalRun(tmp_path, IDENTITY):
        pass
    other = IDENTITY.model_copy(update={"model_digest": "d2", "seed": 1})
    with pytest.raises(UsageError, match="model_digest was 'd1' and is 'd2' now; seed was 0"):
        EvalRun(tmp_path, other).__enter__()


def test_a_line_that_was_cut_off_is_done_again(tmp_path: Path) -> None:
    asyncio.run(converse(tmp_path, Speaker(), CountingJudge(), TASKS[:1]))
    path = tmp_path / "verdicts.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    judge = CountingJudge()
    asyncio.run(converse(tmp_path, Speaker(), judge, TASKS[:1]))
    assert judge.judged == ["task0 turn 2"]


def test_seeds_differ_by_task_and_sample_and_stay() -> None:
    seeds = {sample_seed(s, t, n) for s in (0, 1) for t in ("a", "b") for n in range(3)}
    assert len(seeds) == 12
    assert sample_seed(0, "a", 0) == sample_seed(0, "a", 0)


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines()
