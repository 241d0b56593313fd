"""The turn functions wired by LangGraph: resumable, with several candidates a turn, and watchable.

    START ─► ask (a node for each candidate) ─► judge (likewise) ─► settle ─► ask ... or END

What happens in a node is `turn.py`'s business; this module decides only what runs after what and
what is kept. Guaranteed with a checkpoint file: after a SIGKILL the conversation goes on at the
node it was in; an answer or a verdict that was reached is in the file before anything follows from
it, and is not asked for or judged again. Not guaranteed: the candidate that was being judged when
the process died starts over.

Conversations travel through the graph as JSON, so that a checkpoint needs no code to be read.
"""

from __future__ import annotations

import operator
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Literal, Self, TypedDict
from uuid import uuid4

from langgraph.config import get_stream_writer
from langgraph.graph import END, START, StateGraph
from langgraph.types import Overwrite

from coding_framework.errors import UsageError
from coding_framework.orchestration.beam import parent_of
from coding_framework.orchestration.turn import (
    DEFAULT_CONFIG,
    Agents,
    ConversationConfig,
    RewardFn,
    Tester,
    ask,
    best_candidate,
    end_reason,
    extended,
    judge_answer,
    next_role,
    rewarded,
    tested,
)
from coding_framework.types import (
    AgentAnswer,
    ConversationTurn,
    CUDAConversationState,
    JudgeFn,
    Record,
    Role,
    Task,
)

_STEPS_A_TURN = 3


class WorkflowEvent(Record):
    """Something to show. Maker: the workflow. Consumer: a user interface."""

    kind: Literal["asking", "answered", "judged", "turn", "ended"]
    """"turn": the chosen candidate, which is now part of the conversation."""
    index: int
    """Of the turn, from 0."""
    role: Role
    sample: int = 0
    """Which candidate of the turn."""
    answer: AgentAnswer | None = None
    turn: ConversationTurn | None = None
    state: CUDAConversationState | None = None
    """The finished conversation, with "ended" only."""


class _State(TypedDict):
    conversation: str
    answers: Annotated[dict[str, str], operator.or_]
    """To the turn's question, by sample."""
    candidates: Annotated[dict[str, str], operator.or_]
    """The same, judged."""


class CUDAKernelWorkflow:
    """Conversations of the agents about tasks, as a graph.

    With `checkpoint` (a SQLite file) it is an async context manager, and the same conversation id
    goes on where it was. Any number of conversations may run at once. `candidates`: answers judged
    a turn, the best of which goes on. `beam`: kernels that are gone on from, each by its share of
    the next turn's candidates; 1: the conversation itself, with all its turns.
    """

    def __init__(
        self,
        agents: Agents,
        judge: JudgeFn,
        reward: RewardFn,
        config: ConversationConfig = DEFAULT_CONFIG,
        *,
        tester: Tester | None = None,
        candidates: int = 1,
        beam: int = 1,
        checkpoint: Path | None = None,
    ) -> None:
        """Raises UsageError for fewer than one candidate, or a beam that is wider than a turn."""
        if candidates < 1:
            raise UsageError(f"{candidates} candidates a turn: give at least 1")
        if not 1 <= beam <= candidates:
            raise UsageError(
                f"a beam of {beam} with {candidates} candidates a turn: each parent needs at least "
                "one, so give a beam of at least 1 and at most as many as candidates"
            )
        self._beam = beam
        self._agents = agents
        self._judge_fn = judge
        self._reward = reward
        self._config = config
        self._tester = tester
        self._candidates = candidates
        self._checkpoint = checkpoint
        self._open = AsyncExitStack()
        self._graph: Any = self._compiled(None) if checkpoint is None else None

    async def __aenter__(self) -> Self:
        if self._checkpoint is not None:
            from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

            self._checkpoint.parent.mkdir(parents=True, exist_ok=True)
            kept = AsyncSqliteSaver.from_conn_string(str(self._checkpoint))
            self._graph = self._compiled(await self._open.enter_async_context(kept))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self._open.aclose()
        self._graph = None if self._checkpoint is not None else self._graph

    async def run(self, task: Task, *, conversation_id: str | None = None) -> CUDAConversationState:
        """One conversation to its end, or what is left of the one with this id.

        Raises PolicyError where a model fails; the same call then goes on from there.
        """
        state = None
        async for event in self.stream(task, conversation_id=conversation_id):
            state = event.state or state
        assert state is not None, "a stream ends with `ended`"
        return state

    async def stream(
        self, task: Task, *, conversation_id: str | None = None
    ) -> AsyncIterator[WorkflowEvent]:
        """As `run`, event by event; turns of an earlier run come first, as "turn" events."""
        if self._graph is None:
            raise UsageError("a workflow with a checkpoint is entered first: `async with workflow`")
        name = conversation_id or uuid4().hex
        thread = {
            "configurable": {"thread_id": name},
            "recursion_limit": _STEPS_A_TURN * (self._config.max_turns + 1),
        }
        before = await self._stored(thread, task)
        for turn in before.turns if before is not None else ():
            yield WorkflowEvent(kind="turn", index=turn.index, role=turn.role, turn=turn)
        if before is not None and before.end_reason is not None:
            yield _ended(before)
            return
        given = None if before is not None else _new(name, task)
        durability = "sync" if self._checkpoint is not None else None
        ended = None
        async for event in self._graph.astream(
            given, thread, stream_mode="custom", durability=durability
        ):
            if event.kind == "ended":
                ended = event  # told when it is kept
            else:
                yield event
        if ended is None:
            raise UsageError(
                f"conversation {name!r} was begun with fewer candidates a turn, or by another "
                "version, and cannot go on: give the number it was begun with, or another id"
            )
        yield ended

    async def _stored(self, thread: Mapping[str, Any], task: Task) -> CUDAConversationState | None:
        """The conversation as the checkpoint has it; None where it is new."""
        if self._checkpoint is None:
            return None
        snapshot = await self._graph.aget_state(thread)
        if "conversation" not in snapshot.values:
            return None
        state = _state(snapshot.values["conversation"])
        if state.task != task:
            raise UsageError(
                f"{self._checkpoint} holds a conversation {state.conversation_id!r} about another "
                f"task ({state.task.name}): choose another file or id"
            )
        return state

    # --- the graph --------------------------------------------------------------------------------

    def _compiled(self, saver: Any) -> Any:
        graph: Any = StateGraph(_State)
        asks = [f"ask {sample}" for sample in range(self._candidates)]
        judges = [f"judge {sample}" for sample in range(self._candidates)]
        for sample, (asking, judging) in enumerate(zip(asks, judges, strict=True)):
            graph.add_node(asking, partial(self._ask, sample))
            graph.add_node(judging, partial(self._judge, sample))
            graph.add_edge(asking, judging)
        graph.add_node("settle", self._settle)
        graph.add_edge(judges, "settle")
        graph.add_conditional_edges(START, self._next, [*asks, END])
        graph.add_conditional_edges("settle", self._next, [*asks, END])
        return graph.compile(checkpointer=saver)

    async def _next(self, values: _State) -> list[str]:
        """Ask for the candidates of the next turn, unless the conversation has ended."""
        if _state(values["conversation"]).end_reason is not None:
            return [END]
        return [f"ask {sample}" for sample in range(self._candidates)]

    async def _ask(self, sample: int, values: _State) -> dict[str, Any]:
        state = _state(values["conversation"])
        self._tell("asking", state, sample)
        asked, number = state, sample
        if self._beam > 1 and state.turns:
            asked = parent_of(state, sample, self._beam)
            # The same parent is shown in several turns: its answers are drawn by other seeds.
            number += self._candidates * len(state.turns)
        given = await ask(asked, self._agents, sample=number)
        answer = AgentAnswer.of(given)
        self._tell("answered", state, sample, answer=answer)
        return {"answers": {str(sample): answer.model_dump_json()}}

    async def _judge(self, sample: int, values: _State) -> dict[str, Any]:
        state = _state(values["conversation"])
        answer = AgentAnswer.model_validate_json(values["answers"][str(sample)])
        turn = await judge_answer(state, answer, self._judge_fn, self._config, self._agents)
        turn = rewarded(state, turn, self._reward)
        self._tell("judged", state, sample, turn=turn)
        return {"candidates": {str(sample): turn.model_dump_json()}}

    async def _settle(self, values: _State) -> dict[str, Any]:
        state = _state(values["conversation"])
        candidates = [
            ConversationTurn.model_validate_json(values["candidates"][str(sample)])
            for sample in range(self._candidates)
        ]
        grown = extended(state, best_candidate(candidates))
        grown = await tested(grown, self._tester, self._config)
        grown = grown.model_copy(update={"end_reason": end_reason(grown, self._config)})
        self._tell("turn", state, 0, turn=grown.turns[-1])
        if grown.end_reason is not None:
            get_stream_writer()(_ended(grown))
        return {
            "conversation": grown.model_dump_json(),
            "answers": Overwrite({}),
            "candidates": Overwrite({}),
        }

    def _tell(self, kind: str, state: CUDAConversationState, sample: int, **what: Any) -> None:
        role = next_role(state, self._agents)
        event = {"kind": kind, "index": len(state.turns), "role": role, "sample": sample}
        get_stream_writer()(WorkflowEvent.model_validate({**event, **what}))


def _new(conversation_id: str, task: Task) -> _State:
    state = CUDAConversationState(conversation_id=conversation_id, task=task)
    return _State(conversation=state.model_dump_json(), answers={}, candidates={})


def _state(text: str) -> CUDAConversationState:
    return CUDAConversationState.model_validate_json(text)


def _ended(state: CUDAConversationState) -> WorkflowEvent:
    last = state.turns[-1]
    return WorkflowEvent(kind="ended", index=last.index, role=last.role, state=state)
