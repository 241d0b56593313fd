"""The ONE turn loop: answer -> candidate -> verdict -> reward -> next state.

Training, evaluation and serving drive these plain functions; nothing else in the package decides
who speaks next, what an answer without code is worth or when a conversation ends.

Guaranteed: every turn of a returned state has a verdict or a reason why it is masked; a fault of
ours never becomes a score. Not guaranteed: that the policy answers. A `PolicyError` passes through
to the driver, which knows whether to retry the conversation, drop its group or stop.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol
from uuid import uuid4

import structlog
from pydantic import Field

from coding_framework.errors import InfrastructureError
from coding_framework.types import (
    Candidate,
    ConversationTurn,
    CUDAConversationState,
    Extraction,
    Generation,
    JudgeFn,
    Message,
    Record,
    RewardComponents,
    Role,
    Status,
    Task,
    Verdict,
)

log = structlog.get_logger(__name__)

NO_CODE_REASON = "the answer contains no CUDA code block"
UNSUPPORTED_REASON = "unsupported"
"""Prefix of `ConversationTurn.masked` where our judge has a gap."""
JUDGE_ATTEMPTS = 2
"""One retry: a second fault in a row is seldom the sample's bad luck."""


class Answer(Protocol):
    """What an agent hands over (agents: `AgentAnswer`)."""

    @property
    def messages(self) -> tuple[Message, ...]: ...
    @property
    def generation(self) -> Generation: ...
    @property
    def extraction(self) -> Extraction: ...


class Agent(Protocol):
    """A speaker of the conversation (agents: `GeneratorAgent`, `OptimizerAgent`)."""

    async def answer(self, state: CUDAConversationState) -> Answer:
        """Answer to the state so far. Raises PolicyError where the model fails."""
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
    """Answers in a row with code already given before "no_progress" ends it; None: never."""
    stop_without_code: bool = False
    """Whether an answer without code ends it ("no_kernel"): there is nothing to optimise."""
    max_response_tokens: int | None = Field(default=None, ge=1)
    """Response tokens of all turns together before "budget" ends it; None: no budget."""
    backend: Literal["cuda", "emulator"] = "emulator"
    """Named in the verdicts that are made here without asking the judge."""


DEFAULT_CONFIG = ConversationConfig()


def next_role(state: CUDAConversationState) -> Role:
    """The generator opens; every later turn, a repair too, is the optimizer's."""
    return Role.OPTIMIZER if state.turns else Role.GENERATOR


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
    if config.stop_after_repeats is not None and repeats(state) >= config.stop_after_repeats:
        return "no_progress"
    if config.max_response_tokens is not None:
        used = sum(len(t.generation.response_ids) for t in state.turns)
        if used >= config.max_response_tokens:
            return "budget"
    return None


def earlier_turn_with(code: str | None, turns: tuple[ConversationTurn, ...]) -> int | None:
    """Index of the first of `turns` that gave exactly this code; None where none did."""
    if code is None:
        return None
    return next((turn.index for turn in turns if turn.code == code), None)


def repeats(state: CUDAConversationState) -> int:
    """How many of the last turns in a row gave code that was already there before them."""
    count = 0
    for turn in reversed(state.turns):
        if earlier_turn_with(turn.code, state.turns[: turn.index]) is None:
            break
        count += 1
    return count


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
    task: Task, code: str, judge: JudgeFn
) -> tuple[Verdict | None, str | None]:
    """(verdict, None), or (None, reason) where our side failed twice on the sample."""
    reason = None
    for attempt in range(1, JUDGE_ATTEMPTS + 1):
        try:
            return await judge(task, code), None
        except InfrastructureError as e:
            reason = f"{type(e).__name__}: {e}"
            log.warning(
                "judge_failed",
                task=task.name,
                candidate=Candidate(code=code).sha256,
                attempt=attempt,
                attempts=JUDGE_ATTEMPTS,
                error=reason,
            )
    return None, reason


async def run_turn(
    state: CUDAConversationState,
    agents: Agents,
    judge: JudgeFn,
    reward: RewardFn,
    config: ConversationConfig = DEFAULT_CONFIG,
) -> CUDAConversationState:
    """One turn: the state with the next answer, its verdict and its reward appended.

    Code equal to an earlier turn's of this conversation gets that turn's verdict again (the same
    source, task, shapes and protocol); the extraction's note says so.
    """
    role = next_role(state)
    answer = await agents[role].answer(state)
    extraction = answer.extraction
    index = len(state.turns)
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
        verdict, masked = await judge_or_reason(state.task, extraction.code, judge)
    if verdict is not None and verdict.status is Status.UNSUPPORTED:
        masked = f"{UNSUPPORTED_REASON}: {verdict.reason}"
    turn = ConversationTurn(
        index=index,
        role=role,
        prompt=answer.messages,
        generation=answer.generation,
        extraction=extraction,
        verdict=verdict,
        masked=masked,
    )
    return _rewarded(state, turn, reward)


async def run_conversation(
    task: Task,
    agents: Agents,
    judge: JudgeFn,
    reward: RewardFn,
    config: ConversationConfig = DEFAULT_CONFIG,
    *,
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
        state = await run_turn(state, agents, judge, reward, config)
    return state


def _rewarded(
    state: CUDAConversationState, turn: ConversationTurn, reward: RewardFn
) -> CUDAConversationState:
    grown = state.model_copy(update={"turns": (*state.turns, turn)})
    components = reward(grown) if turn.masked is None else None
    paid = turn.model_copy(update={"reward": components})
    return state.model_copy(update={"turns": (*state.turns, paid)})
