"""The turn loop with scripted agents: what it promises about turns, masks and endings."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field

import pytest

from coding_framework.agents.generator import GeneratorAgent
from coding_framework.agents.optimizer import OptimizerAgent
from coding_framework.agents.policies import ScriptedPolicy
from coding_framework.errors import DeviceError, PolicyError, UsageError
from coding_framework.orchestration.turn import (
    NO_CODE_REASON,
    ConversationConfig,
    best_candidate,
    end_reason,
    next_role,
    run_conversation,
    run_turn,
)
from coding_framework.training.multi_turn_conversation import MultiTurnConversationManager
from coding_framework.training.reward_functions.cuda_performance_reward import (
    CUDAPerformanceReward,
)
from coding_framework.types import (
    BenchmarkResult,
    CompileSummary,
    ConversationTurn,
    CUDAConversationState,
    Extraction,
    Generation,
    Message,
    Probe,
    ProbeResult,
    RewardComponents,
    RewardPart,
    Role,
    Status,
    Task,
    TestResult,
    Verdict,
)
from support.made_conversations import make_comparison, make_task

pytestmark = pytest.mark.unit

TASK = make_task()


@dataclass(frozen=True)
class ScriptedAnswer:
    messages: tuple[Message, ...]
    generation: Generation
    extraction: Extraction


@dataclass
class ScriptedAgent:
    """Answers with the codes in order; None is an answer without code."""

    codes: list[str | None]
    seen: list[CUDAConversationState] = field(default_factory=list)

    async def answer(self, state, *, sample=0) -> ScriptedAnswer:
        self.seen.append(state)
        code = self.codes.pop(0)
        return ScriptedAnswer(
            messages=(Message(role="user", content="write"),),
            generation=Generation(text=code or "sorry", response_ids=(1, 2, 3)),
            extraction=Extraction(code=code, note="one block" if code else "no block"),
        )


class FailingAgent:
    async def answer(self, state, *, sample=0) -> ScriptedAnswer:
        raise PolicyError("the server is gone: start it again")


@dataclass
class ScriptedJudge:
    """Gives the named status for a code; an exception in the list is raised."""

    script: dict[str, list[Status | Exception]]
    calls: list[str] = field(default_factory=list)

    async def __call__(self, task: Task, code: str) -> Verdict:
        self.calls.append(code)
        answers = self.script[code]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return verdict_of(answer, task.name)


def verdict_of(status: Status, task: str = "relu") -> Verdict:
    return Verdict(
        status=status,
        reason="r",
        task=task,
        candidate_sha256="0" * 64,
        backend="emulator",
        compile=CompileSummary(),
        tests=(make_comparison(status is not Status.WRONG_OUTPUT),),
    )


def one_for_correct(state: CUDAConversationState) -> RewardComponents:
    verdict = state.turns[-1].verdict
    value = 1.0 if verdict and verdict.correct else 0.0
    part = RewardPart(name="correctness", value=value, limit=1.0, why="w")
    return RewardComponents(preset="test", parts=(part,))


def agents(generator: list[str | None], optimizer: list[str | None] | None = None):
    return {
        Role.GENERATOR: ScriptedAgent(generator),
        Role.OPTIMIZER: ScriptedAgent(optimizer or []),
    }


def start() -> CUDAConversationState:
    return CUDAConversationState(conversation_id="c", task=TASK)


async def converse(cast, judge, **config):
    return await run_conversation(TASK, cast, judge, one_for_correct, ConversationConfig(**config))


async def test_the_generator_opens_and_the_optimizer_repairs():
    judge = ScriptedJudge({"a": [Status.WRONG_OUTPUT], "b": [Status.CORRECT]})
    state = await converse(agents(["a"], ["b"]), judge)
    assert [t.role for t in state.turns] == [Role.GENERATOR, Role.OPTIMIZER]
    assert [t.index for t in state.turns] == [0, 1]
    assert state.end_reason == "threshold"


async def test_the_optimizer_sees_the_verdict_and_reward_of_the_turn_before():
    cast = agents(["a"], ["b"])
    judge = ScriptedJudge({"a": [Status.WRONG_OUTPUT], "b": [Status.CORRECT]})
    await converse(cast, judge)
    (seen,) = cast[Role.OPTIMIZER].seen
    assert seen.turns[0].verdict.status is Status.WRONG_OUTPUT
    assert seen.turns[0].reward.total == 0.0


async def test_a_conversation_ends_at_max_turns():
    judge = ScriptedJudge({c: [Status.WRONG_OUTPUT] for c in "abc"})
    state = await converse(agents(["a"], ["b", "c"]), judge, max_turns=3)
    assert (len(state.turns), state.end_reason) == (3, "max_turns")


async def test_an_answer_without_code_is_a_compile_error_and_never_reaches_the_judge():
    judge = ScriptedJudge({})
    state = await converse(agents([None]), judge, max_turns=1)
    (turn,) = state.turns
    assert turn.verdict.status is Status.COMPILE_ERROR
    assert NO_CODE_REASON in turn.verdict.reason
    assert not turn.verdict.compiled
    assert turn.masked is None
    assert judge.calls == []


async def test_an_answer_without_code_can_end_the_conversation():
    state = await converse(agents([None]), ScriptedJudge({}), stop_without_code=True)
    assert (len(state.turns), state.end_reason) == (1, "no_kernel")


async def test_a_fault_of_ours_is_retried_once():
    judge = ScriptedJudge({"a": [DeviceError("died"), Status.CORRECT]})
    state = await converse(agents(["a"]), judge)
    assert judge.calls == ["a", "a"]
    assert state.turns[0].verdict.correct
    assert state.turns[0].masked is None


async def test_a_fault_of_ours_twice_masks_the_turn_and_never_scores_it():
    judge = ScriptedJudge({"a": [DeviceError("died")]})
    state = await converse(agents(["a"]), judge)
    (turn,) = state.turns
    assert len(judge.calls) == 2
    assert turn.verdict is None
    assert turn.reward is None
    assert turn.masked == "DeviceError: died"
    assert state.end_reason == "error"


async def test_unsupported_is_masked_with_its_verdict_and_the_conversation_goes_on():
    judge = ScriptedJudge({"a": [Status.UNSUPPORTED], "b": [Status.CORRECT]})
    state = await converse(agents(["a"], ["b"]), judge)
    assert state.turns[0].masked == "unsupported: r"
    assert state.turns[0].reward is None
    assert state.turns[1].verdict.correct


async def test_code_given_again_is_noticed_and_not_judged_again():
    judge = ScriptedJudge({"a": [Status.WRONG_OUTPUT]})
    state = await converse(agents(["a"], ["a", "a"]), judge, max_turns=5)
    assert judge.calls == ["a"]
    assert state.turns[1].extraction.note == "one block; the same code as turn 1"
    assert state.turns[1].verdict == state.turns[0].verdict
    assert state.end_reason == "no_progress"


async def test_the_token_budget_ends_a_conversation():
    judge = ScriptedJudge({c: [Status.WRONG_OUTPUT] for c in "abc"})
    state = await converse(agents(["a"], ["b", "c"]), judge, max_turns=5, max_response_tokens=6)
    assert (len(state.turns), state.end_reason) == (2, "budget")


async def test_a_conversation_goes_on_from_a_stored_state_without_judging_twice():
    judge = ScriptedJudge({"a": [Status.WRONG_OUTPUT], "b": [Status.CORRECT]})
    first = await run_turn(start(), agents(["a"]), judge, one_for_correct)
    stored = CUDAConversationState.model_validate_json(first.model_dump_json())
    state = await run_conversation(TASK, agents([], ["b"]), judge, one_for_correct, state=stored)
    assert judge.calls == ["a", "b"]
    assert state.turns[0] == first.turns[0]
    assert state.end_reason == "threshold"


async def test_a_finished_conversation_is_returned_as_it_is():
    done = start().model_copy(update={"end_reason": "max_turns"})
    assert await run_conversation(TASK, {}, ScriptedJudge({}), one_for_correct, state=done) == done


async def test_a_policy_that_fails_reaches_the_driver():
    cast = {Role.GENERATOR: FailingAgent()}
    with pytest.raises(PolicyError, match="start it again"):
        await run_turn(start(), cast, ScriptedJudge({}), one_for_correct)


def test_an_empty_conversation_is_the_generators_and_has_no_end():
    assert next_role(start()) is Role.GENERATOR
    assert end_reason(start()) is None


async def test_the_manager_gives_the_same_conversation_as_the_functions():
    script = {"a": [Status.WRONG_OUTPUT], "b": [Status.CORRECT]}
    by_hand = await run_conversation(
        TASK,
        agents(["a"], ["b"]),
        ScriptedJudge(script),
        one_for_correct,
        conversation_id="c",
    )
    manager = MultiTurnConversationManager(
        ScriptedAgent(["a"]),
        ScriptedAgent(["b"]),
        judge=ScriptedJudge(script),
        reward=one_for_correct,
    )
    assert await manager.run(TASK, conversation_id="c") == by_hand


async def test_the_manager_runs_many_conversations_and_loses_none():
    names = [f"task{i}" for i in range(200)]
    tasks = [TASK.model_copy(update={"name": name}) for name in names]
    manager = MultiTurnConversationManager(
        ScriptedAgent(["a"] * 200),
        ScriptedAgent(["b"] * 200),
        judge=ScriptedJudge({"a": [Status.WRONG_OUTPUT], "b": [Status.CORRECT]}),
        reward=one_for_correct,
    )
    states = await asyncio.gather(*(manager.run(task) for task in tasks))
    assert sorted(s.task.name for s in states) == sorted(names)
    assert {len(s.turns) for s in states} == {2}


# --- what the loop notices ------------------------------------------------------------------------


def compiled(
    status: Status, ptx: str, techniques: tuple[str, ...], speedup: float = 1.0
) -> Verdict:
    timing = BenchmarkResult(
        kernel_ms=1.0, kernel_ms_ci95=(1.0, 1.0), speedup_vs_naive=speedup, modelled=True
    )
    return verdict_of(status).model_copy(
        update={
            "compile": CompileSummary(ptx_sha256=ptx, techniques=techniques),
            "timing": timing if status is Status.CORRECT else None,
        }
    )


def judge_giving(*verdicts: Verdict):
    left = list(verdicts)

    async def judge(task: Task, code: str) -> Verdict:
        return left.pop(0)

    return judge


async def test_equal_device_code_is_judged_again_and_told():
    same = compiled(Status.WRONG_OUTPUT, "p", ())
    right = compiled(Status.CORRECT, "p", ())
    state = await converse(agents(["a"], ["b"]), judge_giving(same, right), max_turns=2)
    assert [t.verdict.status for t in state.turns] == [Status.WRONG_OUTPUT, Status.CORRECT]
    assert state.turns[1].notes == (
        "nvcc makes the same device code of it as in turn 1: the change does nothing on the GPU.",
    )


async def test_kernels_of_equal_device_code_count_as_repeats():
    verdicts = [compiled(Status.WRONG_OUTPUT, "p", ()) for _ in range(3)]
    cast = agents(["a"], ["b", "c"])
    state = await converse(cast, judge_giving(*verdicts), max_turns=5, stop_after_repeats=2)
    assert (len(state.turns), state.end_reason) == (3, "no_progress")


async def test_a_strategy_without_gain_is_told_and_one_with_gain_is_not():
    kind = ("shared memory",)
    verdicts = [
        compiled(Status.CORRECT, str(i), kind, speedup) for i, speedup in enumerate((1.0, 1.5, 1.5))
    ]
    cast = agents(["a"], ["b", "c"])
    state = await converse(cast, judge_giving(*verdicts), max_turns=3, stop_reward=None)
    assert [bool(t.notes) for t in state.turns] == [False, False, True]
    assert "shared memory" in state.turns[2].notes[0]
    assert state.optimization_strategies_tried == (kind,)
    assert state.best_speedup == 1.5


async def test_turns_without_gain_end_the_conversation():
    verdicts = [compiled(Status.WRONG_OUTPUT, str(i), ()) for i in range(4)]
    cast = agents(["a"], ["b", "c", "d"])
    state = await converse(cast, judge_giving(*verdicts), max_turns=5, stop_without_gain=2)
    assert (len(state.turns), state.end_reason) == (3, "no_progress")


async def test_the_compilation_cache_is_what_the_compiler_said_of_each_code():
    verdicts = [
        compiled(Status.CORRECT, name, ()).model_copy(update={"candidate_sha256": name})
        for name in ("x", "y")
    ]
    state = await converse(
        agents(["a"], ["b"]), judge_giving(*verdicts), max_turns=2, stop_reward=None
    )
    assert {k: v.ptx_sha256 for k, v in state.compilation_cache.items()} == {"x": "x", "y": "y"}


class NosyTester:
    """Says that everything is broken."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    async def probe(self, state: CUDAConversationState) -> tuple[ProbeResult, ...]:
        self.asked.append(len(state.turns))
        return (ProbeResult(probe=Probe(shapes=((1,),)), passed=False, detail="broken"),)


async def test_the_tester_uses_no_turn_and_changes_no_verdict_and_no_reward():
    def play(tester):
        judge = ScriptedJudge({"a": [Status.WRONG_OUTPUT], "b": [Status.CORRECT]})
        return run_conversation(
            TASK, agents(["a"], ["b"]), judge, one_for_correct, tester=tester, conversation_id="c"
        )

    tester = NosyTester()
    told, untold = await play(tester), await play(None)
    assert [len(t.probes) for t in told.turns] == [1, 0]
    assert tester.asked == [1]  # not after the last turn: nobody would read it
    silent = tuple(t.model_copy(update={"probes": ()}) for t in told.turns)
    assert told.model_copy(update={"turns": silent}) == untold


def test_the_best_candidate_is_the_turn_and_keeps_the_others():
    def candidate(code: str, value: float | None) -> ConversationTurn:
        part = RewardPart(name="p", value=value or 0.0, limit=1.0, why="w")
        return ConversationTurn(
            index=0,
            role=Role.GENERATOR,
            prompt=(),
            generation=Generation(text=code),
            extraction=Extraction(code=code, note=""),
            verdict=verdict_of(Status.WRONG_OUTPUT),
            reward=None if value is None else RewardComponents(preset="t", parts=(part,)),
        )

    chosen = best_candidate(
        [candidate("masked", None), candidate("a", 0.1), candidate("b", 0.3), candidate("c", 0.3)]
    )
    assert chosen.code == "b"
    assert [t.code for t in chosen.alternatives] == ["masked", "a", "c"]


def test_of_equally_rewarded_candidates_the_one_nearest_to_right_goes_on() -> None:
    def test_of(passed: bool, error: float | None) -> TestResult:
        return TestResult(
            case="main", seed=1, shapes=((4,),), dtype="float32", max_abs_error=error,
            max_rel_error=error, tolerance=1e-6, passed=passed,
        )  # fmt: skip

    def candidate(code: str, status: Status, *tests: TestResult) -> ConversationTurn:
        verdict = verdict_of(status).model_copy(update={"tests": tests})
        return ConversationTurn(
            index=0, role=Role.GENERATOR, prompt=(), generation=Generation(text=code),
            extraction=Extraction(code=code, note=""), verdict=verdict,
        )  # fmt: skip

    uncompiled = candidate("uncompiled", Status.COMPILE_ERROR)
    far = candidate("far", Status.WRONG_OUTPUT, test_of(False, None))
    near = candidate("near", Status.WRONG_OUTPUT, test_of(False, 2e-6))
    half = candidate("half", Status.WRONG_OUTPUT, test_of(True, 0.0), test_of(False, 1.0))
    for given, wanted in (
        ([uncompiled, far], "far"),
        ([far, near, uncompiled], "near"),
        ([near, half], "half"),
    ):
        assert best_candidate(given).code == wanted


async def test_five_thousand_malformed_answers_end_as_verdicts():
    """The real agents and prompts on answers that are cut, spliced and filled with odd bytes."""
    rng = random.Random(0)
    whole = "Reason.\n```cuda\n#include <x>\n__global__ void k() {}\nvoid forward() {}\n```\nDone."
    pieces = ["", "`", "```", "```diff\n@@\n-", "\0", "\n", "é", "\ud800", "<|im_end|>", "}"]

    def malformed(messages: object) -> str:
        text = whole
        for _ in range(rng.randrange(1, 12)):
            at = rng.randrange(len(text)) if text else 0
            text = text[:at] + rng.choice(pieces) + text[at + rng.randrange(20) :]
        return text

    async def judge(task: Task, code: str) -> Verdict:
        return verdict_of(Status.WRONG_OUTPUT)

    policy = ScriptedPolicy(malformed)
    cast = {Role.GENERATOR: GeneratorAgent(policy), Role.OPTIMIZER: OptimizerAgent(policy)}
    config = ConversationConfig(max_turns=10, stop_after_repeats=None)
    for _ in range(500):
        state = await run_conversation(TASK, cast, judge, CUDAPerformanceReward(), config)
        assert [t.verdict is not None for t in state.turns] == [True] * 10


async def test_the_manager_judges_with_compiler_and_benchmarker():
    class Benchmarker:
        def judging(self, compiler: object = None):
            assert compiler == "the compiler"
            return ScriptedJudge({"a": [Status.WRONG_OUTPUT], "b": [Status.CORRECT]})

    manager = MultiTurnConversationManager(
        ScriptedAgent(["a"]), ScriptedAgent(["b"] * 4), NosyTester(), "the compiler", Benchmarker()
    )
    state = await manager.run(TASK.model_copy(update={"name": "relu"}))
    assert [t.verdict.correct for t in state.turns[:2]] == [False, True]
    assert state.turns[0].probes
    with pytest.raises(UsageError, match="needs a judge"):
        MultiTurnConversationManager(ScriptedAgent([]), ScriptedAgent([]))
