"""The LangGraph workflow: same turns, several candidates, events, and going on after a stop."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from coding_framework.agents.generator import GeneratorAgent
from coding_framework.agents.optimizer import OptimizerAgent
from coding_framework.commands import solve_conversation
from coding_framework.errors import (
    DeviceFullError,
    InfrastructureError,
    PolicyError,
    UsageError,
)
from coding_framework.orchestration import beam
from coding_framework.orchestration.beam import MOST_CONFIRMED, Confirmed, confirmed, parent_of
from coding_framework.orchestration.turn import ConversationConfig, judge_or_reason
from coding_framework.orchestration.workflow import CUDAKernelWorkflow
from coding_framework.training.reward_functions.cuda_performance_reward import (
    CUDAPerformanceReward,
)
from coding_framework.types import (
    AgentAnswer,
    CompileSummary,
    CUDAConversationState,
    Extraction,
    Generation,
    Probe,
    ProbeResult,
    Role,
    SamplingParams,
    Status,
)
from coding_framework.wiring import JudgeSettings
from support.made_conversations import make_state, make_task, make_turn, make_verdict

pytestmark = pytest.mark.unit

TASK = make_task()
CONFIG = ConversationConfig(max_turns=3, stop_reward=None)


class Judging:
    """A judge that can be closed."""

    def __init__(self, ask: Callable[..., Any]) -> None:
        self._ask = ask

    async def __call__(self, task: Any, code: str) -> Any:
        return await self._ask(task, code)

    def close(self) -> None:
        pass


class Policy:
    """The next kernel of a script; an exception in it is raised once."""

    def __init__(self, *names: Any) -> None:
        self.names = list(names)
        self.seeds: list[int | None] = []

    async def generate(self, messages: Any, sampling: SamplingParams) -> Generation:
        self.seeds.append(sampling.seed)
        name = self.names.pop(0)
        if isinstance(name, Exception):
            raise name
        return Generation(text=f"```cuda\n__global__ void {name}() {{}} // forward\n```")


class Judge:
    """slow: correct at 0.5x; fast: at 3x; anything else is wrong."""

    def __init__(self) -> None:
        self.judged: list[str] = []

    async def __call__(self, task: Any, code: str) -> Any:
        name = code.split("void ")[1].split("(")[0]
        self.judged.append(name)
        speedup = {"slow": 0.5, "fast": 3.0}.get(name)
        return make_verdict(Status.CORRECT if speedup else Status.WRONG_OUTPUT, speedup)


def workflow(policy: Policy, judge: Judge, opening: Any = None, **how: Any) -> CUDAKernelWorkflow:
    sampling = SamplingParams(seed=7)
    agents = {
        Role.GENERATOR: GeneratorAgent(policy, sampling),
        Role.OPTIMIZER: OptimizerAgent(policy, sampling),
    }
    if opening is not None:
        agents[Role.COMPILER] = opening
    return CUDAKernelWorkflow(agents, judge, CUDAPerformanceReward(), CONFIG, **how)


async def test_the_best_of_the_candidates_goes_on_and_the_others_stay_with_it():
    policy, judge = Policy("bad", "slow", "fast", "worse", "a", "b"), Judge()
    state = await workflow(policy, judge, candidates=2).run(TASK)
    assert [Status.CORRECT if t.verdict.correct else t.verdict.status for t in state.turns] == [
        Status.CORRECT,
        Status.CORRECT,
        Status.WRONG_OUTPUT,
    ]
    assert ["slow" in state.turns[0].code, "fast" in state.turns[1].code] == [True, True]
    assert [len(t.alternatives) for t in state.turns] == [1, 1, 1]
    assert state.end_reason == "max_turns"
    assert sorted(judge.judged) == ["a", "b", "bad", "fast", "slow", "worse"]


class Compiler:
    """Writes one kernel for a task, without a model."""

    async def answer(self, state: CUDAConversationState, *, sample: int = 0) -> AgentAnswer:
        code = "__global__ void slow() {} // forward"
        return AgentAnswer(
            messages=(),
            generation=Generation(text=code),
            extraction=Extraction(code=code, note="written by the compiler"),
        )


async def test_a_compiler_opens_the_conversation_and_the_optimizer_goes_on_from_its_kernel():
    policy, judge = Policy("bad", "fast"), Judge()
    flow = workflow(policy, judge, opening=Compiler())
    events = [e async for e in flow.stream(TASK)]
    state = events[-1].state
    assert [t.role for t in state.turns] == [Role.COMPILER, Role.OPTIMIZER, Role.OPTIMIZER]
    assert [e.role for e in events[:4]] == [Role.COMPILER] * 4
    assert judge.judged == ["slow", "bad", "fast"]
    assert "slow" in state.turns[1].prompt[-1].content
    assert state.turns[0].tokens == 0
    alone = await workflow(Policy("bad", "bad"), Judge(), opening=Compiler()).run(TASK)
    assert alone.best_turn.role is Role.COMPILER, "where no agent found a right one, its own stays"


async def test_candidates_of_a_turn_are_sampled_with_seeds_of_their_own():
    policy = Policy("bad", "slow", "fast", "worse", "a", "b")
    await workflow(policy, Judge(), candidates=2).run(TASK)
    assert policy.seeds[:2] == policy.seeds[2:4]
    assert policy.seeds[0] != policy.seeds[1]


async def test_every_step_is_an_event_and_the_last_one_has_the_conversation():
    events = [e async for e in workflow(Policy("bad", "slow", "fast"), Judge()).stream(TASK)]
    kinds = [e.kind for e in events]
    assert kinds == ["asking", "answered", "judged", "turn"] * 3 + ["ended"]
    assert [e.index for e in events if e.kind == "turn"] == [0, 1, 2]
    assert events[1].answer is not None
    assert events[2].turn is not None
    assert isinstance(events[-1].state, CUDAConversationState)


async def test_after_a_failed_policy_the_same_call_goes_on_without_judging_again(tmp_path: Path):
    judge = Judge()
    first = workflow(
        Policy("bad", PolicyError("the server is gone")), judge, checkpoint=tmp_path / "c.sqlite"
    )
    async with first:
        with pytest.raises(PolicyError, match="gone"):
            await first.run(TASK, conversation_id="c")
    second = workflow(Policy("slow", "fast"), judge, checkpoint=tmp_path / "c.sqlite")
    async with second:
        events = [e async for e in second.stream(TASK, conversation_id="c")]
    assert judge.judged == ["bad", "slow", "fast"]
    assert [e.index for e in events if e.kind == "turn"] == [0, 1, 2]
    assert events[-1].state.end_reason == "max_turns"


async def test_more_candidates_than_a_conversation_was_begun_with_is_one_sentence(tmp_path: Path):
    gone = Policy(PolicyError("the server is gone"))
    async with workflow(gone, Judge(), checkpoint=tmp_path / "c.sqlite") as first:
        with pytest.raises(PolicyError, match="gone"):
            await first.run(TASK, conversation_id="c")
    more = workflow(Policy(*"abcdef"), Judge(), candidates=2, checkpoint=tmp_path / "c.sqlite")
    async with more as second:
        with pytest.raises(UsageError, match="fewer candidates a turn"):
            await second.run(TASK, conversation_id="c")


async def test_a_finished_conversation_is_given_again_without_any_call(tmp_path: Path):
    judge = Judge()
    states = []
    for names in (("bad", "slow", "fast"), ()):
        async with workflow(Policy(*names), judge, checkpoint=tmp_path / "c.sqlite") as graph:
            states.append(await graph.run(TASK, conversation_id="c"))
    assert states[0] == states[1]
    assert len(judge.judged) == 3


async def test_a_file_with_another_tasks_conversation_is_refused(tmp_path: Path):
    for task, refused in ((TASK, False), (make_task("gelu"), True)):
        async with workflow(Policy("a", "b", "c"), Judge(), checkpoint=tmp_path / "c") as graph:
            if refused:
                with pytest.raises(UsageError, match="another task"):
                    await graph.run(task, conversation_id="c")
            else:
                await graph.run(task, conversation_id="c")


async def test_the_tester_helps_in_the_workflow_too():
    found = ProbeResult(probe=Probe(shapes=((1,),)), passed=False, detail="index (0,)")

    class Tester:
        async def probe(self, state: CUDAConversationState) -> tuple[ProbeResult, ...]:
            return (found,)

    state = await workflow(Policy("a", "b", "c"), Judge(), tester=Tester()).run(TASK)
    assert [t.probes for t in state.turns] == [(found,), (found,), ()]


async def test_wrong_use_says_what_to_do(tmp_path: Path):
    with pytest.raises(UsageError, match="give at least 1"):
        workflow(Policy(), Judge(), candidates=0)
    with pytest.raises(UsageError, match="async with"):
        await workflow(Policy(), Judge(), checkpoint=tmp_path / "c").run(TASK)


class Named:
    """A policy whose answers say which kernel of the prompt they go on from."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int | None]] = []

    async def generate(self, messages: Any, sampling: SamplingParams) -> Generation:
        seen = re.findall(r"void (\w+)\(\) \{\} // forward", messages[-1].content)
        parent = seen[-1] if seen else "start"
        self.asked.append((parent, sampling.seed))
        name = f"k{len(self.asked)}"
        return Generation(text=f"```cuda\n__global__ void {name}() {{}} // forward\n```")


class Faster(Judge):
    """k1 to k4 are correct, each with other device code, and the later the faster."""

    async def __call__(self, task: Any, code: str) -> Any:
        number = int(code.split("void k")[1].split("(")[0])
        verdict = make_verdict(Status.CORRECT, float(number))
        return verdict.model_copy(update={"compile": CompileSummary(ptx_sha256=f"{number % 3}")})


async def test_the_best_kernels_with_different_device_code_are_gone_on_from():
    policy = Named()
    state = await workflow(policy, Faster(), candidates=4, beam=2).run(TASK)
    first, second, third = policy.asked[:4], policy.asked[4:8], policy.asked[8:]
    assert {parent for parent, _ in first} == {"start"}
    # Of k1 to k4, k4 and k1 have the same device code, so k4 and k3 are the two parents.
    assert [parent for parent, _ in second] == ["k4", "k3", "k4", "k3"]
    assert [parent for parent, _ in third] == ["k8", "k7", "k8", "k7"]
    assert len({seed for _, seed in policy.asked}) == 12, "each answer is drawn by its own seed"
    assert [turn.verdict.speedup for turn in state.turns] == [4.0, 8.0, 12.0]
    assert [turn.index for turn in state.turns] == [0, 1, 2]


async def test_a_parent_of_an_earlier_turn_is_gone_on_from_where_it_is_still_the_best():
    slow = make_turn(1, make_verdict(Status.CORRECT, 1.0), code="slow")
    fast = make_turn(0, make_verdict(Status.CORRECT, 3.0), code="fast")
    wrong = make_turn(1, make_verdict(Status.WRONG_OUTPUT), code="wrong")
    state = make_state(fast, slow.model_copy(update={"alternatives": (wrong,)}))
    shown = [parent_of(state, sample, 3).turns for sample in range(4)]
    assert [[t.code for t in turns] for turns in shown] == [["fast"], ["slow"], ["wrong"], ["fast"]]
    nothing = make_state(make_turn(0, None, code=None, masked="ours"))
    assert parent_of(nothing, 0, 2) == nothing


async def test_the_fastest_kernels_are_judged_again_side_by_side_and_the_best_by_that_counts():
    speeds = {"lucky": 5.0, "slower": 4.0, "wrong now": 3.0, "steady": 2.0, "fifth": 1.0}
    turns = [
        make_turn(i, make_verdict(Status.CORRECT, speed), code=code)
        for i, (code, speed) in enumerate(speeds.items())
    ]
    here, judged = asyncio.Barrier(MOST_CONFIRMED), []

    async def again(task: Any, code: str) -> Any:
        judged.append(code)
        await asyncio.wait_for(here.wait(), 5)  # for all of them
        if code == "wrong now":
            return make_verdict(Status.WRONG_OUTPUT)
        return make_verdict(Status.CORRECT, {"steady": 2.1}.get(code, 0.5))

    found = await confirmed(make_state(*turns), again)
    assert found.lost == ()
    fastest = found.fastest
    assert fastest is not None
    assert fastest.code == "steady"
    assert fastest.verdict is not None
    assert fastest.verdict.speedup == 2.1
    assert judged == [*speeds][:MOST_CONFIRMED], "the fifth is not asked about"
    nothing = make_state(make_turn(0, make_verdict(Status.WRONG_OUTPUT), code="wrong"))
    assert await confirmed(nothing, again) == Confirmed(None)


@pytest.mark.parametrize("slow_is_judged", [True, False])
async def test_a_second_verdict_that_a_fault_of_ours_prevents_is_told_and_not_taken_for_wrong(
    slow_is_judged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = make_verdict(Status.CORRECT, 2.0)
    state = make_state(make_turn(0, right, code="fast"), make_turn(1, right, code="slow"))

    async def again(task: Any, code: str) -> Any:
        if code == "slow" and slow_is_judged:
            return right
        raise DeviceFullError("the GPU is full")

    monkeypatch.setattr(beam, "judge_or_reason", partial(judge_or_reason, pauses_s=()))
    found = await confirmed(state, again)
    assert [t and t.code for t in (found.fastest,)] == ["slow" if slow_is_judged else None]
    assert found.lost == ("DeviceFullError: the GPU is full",) * (1 if slow_is_judged else 2)
    monkeypatch.setattr(solve_conversation, "make_judge", lambda **_: Judging(again))
    if slow_is_judged:
        chosen = await solve_conversation._confirmed(state, JudgeSettings())
        assert chosen is not None
        assert chosen.code == "slow"
        return
    with pytest.raises(InfrastructureError, match=r"judged again .*the GPU is full"):
        await solve_conversation._confirmed(state, JudgeSettings())


def test_a_beam_is_no_wider_than_a_turn():
    with pytest.raises(UsageError, match="at most as many as candidates"):
        workflow(Policy(), Judge(), candidates=2, beam=3)
