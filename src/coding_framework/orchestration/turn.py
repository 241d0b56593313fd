"""The ONE turn loop: answer -> candidate -> verdict -> reward -> next state.

Training, evaluation and serving drive these plain functions; nothing else in the package decides
who speaks next, what an answer without code is worth or when a conversation ends.

Guaranteed: every turn of a returned state has a verdict or a reason why it is masked; a fault of
ours never becomes a score. Not guaranteed: that the policy answers. A `PolicyError` passes through
to the driver, which knows whether to retry the conversation, drop its group or stop.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Container, Mapping, Sequence
from typing import Protocol
from uuid import uuid4

from pydantic import Field

from coding_framework.errors import InfrastructureError, RewardError, TaskError
from coding_framework.store.events import log
from coding_framework.types import (
    BackendName,
    Candidate,
    ConversationTurn,
    CUDAConversationState,
    Extraction,
    Generation,
    JudgeFn,
    Message,
    ProbeResult,
    Record,
    RewardComponents,
    Role,
    Status,
    Task,
    Verdict,
)

NO_CODE_REASON = "the answer contains no CUDA code block"
UNSUPPORTED_REASON = "unsupported"
"""Prefix of `ConversationTurn.masked` where our judge has a gap."""
JUDGE_PAUSES_S = (0.0,)
"""One retry, at once: a second fault in a row is seldom the sample's bad luck."""
MIN_GAIN = 1e-3
"""Rise of the best reward below which a turn counts as without gain: timing noise makes as much."""
MIN_SPEEDUP_GAIN = 0.01


class Answer(Protocol):
    """What an agent hands over (`types.AgentAnswer`)."""

    @property
    def messages(self) -> tuple[Message, ...]: ...
    @property
    def generation(self) -> Generation: ...
    @property
    def extraction(self) -> Extraction: ...


class Agent(Protocol):
    """A speaker of the conversation (agents: `GeneratorAgent`, `OptimizerAgent`)."""

    async def answer(self, state: CUDAConversationState, *, sample: int = 0) -> Answer:
        """Answer to the state so far; `sample` tells candidates of one turn apart. Raises
        PolicyError where the model fails."""
        ...


class Tester(Protocol):
    """Looks for inputs that break the last kernel (agents: `TesterAgent`)."""

    async def probe(self, state: CUDAConversationState) -> tuple[ProbeResult, ...]:
        """What came of its probes of the last turn; empty where it has nothing to say. Raises
        nothing that would end the conversation."""
        ...


class RewardFn(Protocol):
    """A reward as a pure function (training: `CUDAPerformanceReward`)."""

    def __call__(self, state: CUDAConversationState) -> RewardComponents | None:
        """Reward of the state's last turn; None where that turn is masked."""
        ...


Agents = Mapping[Role, Agent]


class ConversationConfig(Record):
    """When a conversation ends."""

    max_turns: int = Field(default=3, ge=1, le=16)
    """Turns at most: one of the generator, the others of the optimizer."""
    stop_reward: float | None = 0.8
    """A correct turn whose total reward reaches this ends the conversation; None: never."""
    stop_after_repeats: int | None = Field(default=2, ge=1)
    """Answers in a row with code or device code that was there before, until "no_progress" ends
    it; None: never."""
    stop_without_gain: int | None = Field(default=None, ge=1)
    """Turns in a row that raised the best reward by nothing worth the name, until "no_progress"
    ends it; None: never."""
    stop_without_code: bool = False
    """Whether an answer without code ends it ("no_kernel"): there is nothing to optimise."""
    max_response_tokens: int | None = Field(default=None, ge=1)
    """Response tokens of all turns together before "budget" ends it; None: no budget."""
    judge_pauses_s: tuple[float, ...] = JUDGE_PAUSES_S
    """Before each further try of a verdict that a fault of ours kept; then the turn is masked."""
    backend: BackendName = "emulator"
    """Named in the verdicts that are made here without asking the judge."""


DEFAULT_CONFIG = ConversationConfig()


def next_role(state: CUDAConversationState, agents: Container[Role] = ()) -> Role:
    """The generator opens, or the compiler where it is among the agents; every later turn, a repair
    too, is the optimizer's."""
    if state.turns:
        return Role.OPTIMIZER
    return Role.COMPILER if Role.COMPILER in agents else Role.GENERATOR


def end_reason(
    state: CUDAConversationState, config: ConversationConfig = DEFAULT_CONFIG
) -> str | None:
    """Why the conversation ends here; None where it goes on."""
    if not state.turns:
        return None
    last = state.turns[-1]
    if last.verdict is None:
        return "error"
    if last.reward is not None and config.stop_reward is not None and last.verdict.correct:
        reached = last.reward.total >= config.stop_reward
    else:
        reached = False
    if reached:
        return "threshold"
    if len(state.turns) >= config.max_turns:
        return "max_turns"
    if config.stop_without_code and last.code is None:
        return "no_kernel"
    if _without_progress(state, config):
        return "no_progress"
    if config.max_response_tokens is not None:
        used = sum(turn.tokens for turn in state.turns)
        if used >= config.max_response_tokens:
            return "budget"
    return None


def earlier_turn_with(code: str | None, turns: tuple[ConversationTurn, ...]) -> int | None:
    """Index of the first of `turns` that gave exactly this code; None where none did."""
    if code is None:
        return None
    return next((turn.index for turn in turns if turn.code == code), None)


def earlier_turn_like(turn: ConversationTurn, turns: tuple[ConversationTurn, ...]) -> int | None:
    """Index of the first of `turns` with this turn's code or device code; None where none has."""
    same = earlier_turn_with(turn.code, turns)
    digest = device_code(turn)
    if same is not None or not digest:
        return same
    return next((other.index for other in turns if device_code(other) == digest), None)


def repeats(state: CUDAConversationState) -> int:
    """How many of the last turns in a row gave code, or device code, that was already there."""
    count = 0
    for turn in reversed(state.turns):
        if earlier_turn_like(turn, state.turns[: turn.index]) is None:
            break
        count += 1
    return count


def turns_without_gain(state: CUDAConversationState) -> int:
    """How many turns have passed since the best reward was raised by more than MIN_GAIN."""
    best, since = -math.inf, 0
    for turn in state.turns:
        reward = turn.reward.total if turn.reward is not None else -math.inf
        since = 0 if reward > best + MIN_GAIN else since + 1
        best = max(best, reward)
    return since


def _without_progress(state: CUDAConversationState, config: ConversationConfig) -> bool:
    repeated, idle = config.stop_after_repeats, config.stop_without_gain
    if repeated is not None and repeats(state) >= repeated:
        return True
    return idle is not None and turns_without_gain(state) >= idle


def device_code(turn: ConversationTurn) -> str:
    compiled = turn.verdict.compile if turn.verdict is not None else None
    return compiled.ptx_sha256 if compiled is not None else ""


def progress_notes(turn: ConversationTurn, turns: tuple[ConversationTurn, ...]) -> tuple[str, ...]:
    """What an agent is told of a turn that brings nothing new compared with the `turns` before."""
    same = earlier_turn_with(turn.code, turns)
    if same is not None:
        return (f"It is the same code as in turn {same + 1}.",)
    alike = earlier_turn_like(turn, turns)
    if alike is not None:
        return (
            f"nvcc makes the same device code of it as in turn {alike + 1}: the change does "
            "nothing on the GPU.",
        )
    verdict = turn.verdict
    tried = verdict.compile.techniques if verdict is not None and verdict.compile else ()
    for other in turns:
        before = other.verdict
        if not tried or before is None or before.compile is None:
            continue
        if before.compile.techniques == tried and not _gained(verdict, before):
            return (
                f"Its techniques ({', '.join(tried)}) are those of turn {other.index + 1}, without "
                "gain: try another idea.",
            )
    return ()


def _gained(verdict: Verdict | None, before: Verdict) -> bool:
    if verdict is None or not verdict.correct:
        return False
    if not before.correct:
        return True
    return (verdict.speedup or 0.0) > (1.0 + MIN_SPEEDUP_GAIN) * (before.speedup or 0.0)


def no_code_verdict(task: Task, extraction: Extraction, config: ConversationConfig) -> Verdict:
    """The verdict on an answer without code, made here and nowhere else.

    It is a compile error of the candidate, with what the extraction saw as the detail.
    """
    detail = f" ({extraction.note})" if extraction.note else ""
    return Verdict(
        status=Status.COMPILE_ERROR,
        reason=f"{NO_CODE_REASON}{detail}",
        task=task.name,
        candidate_sha256=Candidate(code="").sha256,
        backend=config.backend,
    )


async def judge_or_reason(
    task: Task, code: str, judge: JudgeFn, pauses_s: Sequence[float] = JUDGE_PAUSES_S
) -> tuple[Verdict | None, str | None]:
    """(verdict, None), or (None, reason) where our side failed in every try, or the task is one
    that nobody can judge. pauses_s: before each try but the first."""
    reason = None
    for attempt, pause_s in enumerate((None, *pauses_s), start=1):
        if pause_s is not None:
            await asyncio.sleep(pause_s)
        try:
            return await judge(task, code), None
        except InfrastructureError as e:
            reason = f"{type(e).__name__}: {e}"
            log.warning(
                "judge_failed",
                task=task.name,
                candidate=Candidate(code=code).sha256,
                attempt=attempt,
                attempts=1 + len(pauses_s),
                error=reason,
            )
            if isinstance(e, TaskError):
                break
    return None, reason


async def ask(state: CUDAConversationState, agents: Agents, *, sample: int = 0) -> Answer:
    """The answer of whoever speaks next. Raises PolicyError where the model fails."""
    return await agents[next_role(state, agents)].answer(state, sample=sample)


async def judge_answer(
    state: CUDAConversationState,
    answer: Answer,
    judge: JudgeFn,
    config: ConversationConfig = DEFAULT_CONFIG,
    agents: Container[Role] = (),
) -> ConversationTurn:
    """The next turn with its verdict, or the reason why it is masked; not yet rewarded. agents:
    those that `ask` was given.

    Code equal to an earlier turn's of this conversation gets that turn's verdict again (the same
    source, task, shapes and protocol); the extraction's note says so.
    """
    extraction = answer.extraction
    verdict: Verdict | None
    masked: str | None = None
    same = earlier_turn_with(extraction.code, state.turns)
    if same is not None:
        note = f"{extraction.note}; the same code as turn {same + 1}"
        extraction = extraction.model_copy(update={"note": note})
    known = state.turns[same].verdict if same is not None else None
    if extraction.code is None:
        verdict = no_code_verdict(state.task, extraction, config)
    elif known is not None:
        verdict = known
    else:
        verdict, masked = await judge_or_reason(
            state.task, extraction.code, judge, config.judge_pauses_s
        )
    if verdict is not None and verdict.status is Status.UNSUPPORTED:
        masked = f"{UNSUPPORTED_REASON}: {verdict.reason}"
    turn = ConversationTurn(
        index=len(state.turns),
        role=next_role(state, agents),
        prompt=answer.messages,
        generation=answer.generation,
        extraction=extraction,
        verdict=verdict,
        masked=masked,
        redrawn_tokens=getattr(answer, "redrawn_tokens", 0),
    )
    return turn.model_copy(update={"notes": progress_notes(turn, state.turns)})


async def with_kernel(
    state: CUDAConversationState, agent: Agent, judge: JudgeFn
) -> CUDAConversationState:
    """A conversation that has ended, with the compiler's kernel judged in front of its turns."""
    opened = state.model_copy(update={"turns": ()})
    answer = await agent.answer(opened)
    first = await judge_answer(opened, answer, judge, agents=(Role.COMPILER,))
    later = (t.model_copy(update={"index": t.index + 1}) for t in state.turns)
    return state.model_copy(update={"turns": (first, *later)})


def rewarded(
    state: CUDAConversationState, turn: ConversationTurn, reward: RewardFn
) -> ConversationTurn:
    """The turn with what the reward says of it after `state`; nothing where it is masked, as it is
    where a reward of the user's fails."""
    if turn.masked is not None:
        return turn
    try:
        return turn.model_copy(update={"reward": reward(extended(state, turn))})
    except RewardError as e:
        log.warning("reward_failed", task=state.task.name, turn=turn.index, error=str(e))
        return turn.model_copy(update={"masked": str(e)})


def extended(state: CUDAConversationState, turn: ConversationTurn) -> CUDAConversationState:
    """The state with one more turn."""
    return state.model_copy(update={"turns": (*state.turns, turn)})


def best_candidate(candidates: Sequence[ConversationTurn]) -> ConversationTurn:
    """The candidate that goes on as the turn: the largest reward, of equals the one that is nearest
    to right, of equals the first; a masked one only where all are. The others stay with it as its
    `alternatives`."""
    chosen = max(
        candidates,
        key=lambda t: (t.reward.total if t.reward is not None else -math.inf, nearness(t)),
    )
    others = tuple(c for c in candidates if c is not chosen)
    return chosen.model_copy(update={"alternatives": others})


def nearness(turn: ConversationTurn) -> tuple[bool, bool, float, float]:
    """How near a candidate is to right, the larger the nearer: that there is code, that it
    compiles, the share of passed comparisons, and the least largest error in tolerances."""
    verdict = turn.verdict
    if verdict is None:
        return turn.code is not None, False, 0.0, -math.inf
    tests = verdict.tests
    share = sum(t.passed for t in tests) / len(tests) if tests else 0.0
    errors = [
        math.inf if t.max_abs_error is None or not t.tolerance else t.max_abs_error / t.tolerance
        for t in tests
    ]
    worst = max((e if math.isfinite(e) else math.inf for e in errors), default=math.inf)
    return turn.code is not None, verdict.compiled, share, -worst


async def tested(
    state: CUDAConversationState, tester: Tester | None, config: ConversationConfig
) -> CUDAConversationState:
    """The state with the tester's findings on its last turn, where somebody will read them.

    The turn's verdict and reward stand as they are: what a tester proposes is no evidence.
    """
    if tester is None or end_reason(state, config) is not None:
        return state
    results = await tester.probe(state)
    if not results:
        return state
    last = state.turns[-1].model_copy(update={"probes": results})
    return state.model_copy(update={"turns": (*state.turns[:-1], last)})


async def run_turn(
    state: CUDAConversationState,
    agents: Agents,
    judge: JudgeFn,
    reward: RewardFn,
    config: ConversationConfig = DEFAULT_CONFIG,
    *,
    tester: Tester | None = None,
) -> CUDAConversationState:
    """One turn: the state with the next answer, its verdict and its reward appended."""
    answer = await ask(state, agents)
    turn = await judge_answer(state, answer, judge, config, agents)
    grown = extended(state, rewarded(state, turn, reward))
    return await tested(grown, tester, config)


async def run_conversation(
    task: Task,
    agents: Agents,
    judge: JudgeFn,
    reward: RewardFn,
    config: ConversationConfig = DEFAULT_CONFIG,
    *,
    tester: Tester | None = None,
    conversation_id: str | None = None,
    state: CUDAConversationState | None = None,
) -> CUDAConversationState:
    """A whole conversation; with `state`, what is left of that one (turns are not done again)."""
    if state is None:
        state = CUDAConversationState(conversation_id=conversation_id or uuid4().hex, task=task)
    while state.end_reason is None:
        reason = end_reason(state, config)
        if reason is not None:
            return state.model_copy(update={"end_reason": reason})
        state = await run_turn(state, agents, judge, reward, config, tester=tester)
    return state
