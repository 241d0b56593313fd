"""A model's answers, judged and rewarded: what every trainer's part here is made of."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from coding_framework.agents.extraction import extract_kernel
from coding_framework.agents.prompts import build_messages
from coding_framework.data.registry import find_task
from coding_framework.errors import InfrastructureError, UsageError
from coding_framework.integrations.client import JudgeClient
from coding_framework.orchestration.turn import (
    ConversationConfig,
    judge_or_reason,
    no_code_verdict,
)
from coding_framework.types import (
    CUDAConversationState,
    JudgeFn,
    PromptVersion,
    Role,
    Status,
    Task,
    Verdict,
)
from coding_framework.wiring import make_judge, make_reward

DRIVEN = ConversationConfig()


@dataclass(frozen=True, slots=True)
class Judged:
    """What an answer is worth."""

    verdict: Verdict | None
    """None where our side failed."""
    reward: float | None
    """None where nothing can be learnt: our side failed, or the judge cannot run the kernel."""
    note: str
    """How the kernel was found in the answer, or why there is no verdict."""


class KernelJudge:
    """Judges answers for tasks that are given by name or file. Close it, or let it end with the
    process."""

    def __init__(
        self, url: str | None = None, token: str = "", reward: str = "weighted", **settings: Any
    ) -> None:
        """url: of a judge server; None: judge here, with the `settings` of `make_judge`. reward: a
        preset. Raises UsageError for one that does not exist."""
        self._reward = make_reward(reward)
        self._pool = None if url is not None else make_judge(**settings)
        self._judge: JudgeFn = self._pool or RemoteJudge(JudgeClient(url or "", token))

    def judge(self, pairs: Sequence[tuple[str, str]]) -> list[Judged]:
        """What each (task, answer) is worth, in order, also where the caller's event loop runs,
        which waits. Raises UsageError for an unknown task."""
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(asyncio.run, self._all(pairs)).result()

    async def judge_one(self, task: str, answer: str) -> Judged:
        """As `judge`, from an event loop."""
        found, extraction = await asyncio.to_thread(find_task, task), extract_kernel(answer)
        if extraction.code is None:
            return self._rewarded(no_code_verdict(found, extraction, DRIVEN), extraction.note)
        verdict, failed = await judge_or_reason(found, extraction.code, self._judge)
        return self._rewarded(verdict, failed or extraction.note)

    async def _all(self, pairs: Sequence[tuple[str, str]]) -> list[Judged]:
        return list(await asyncio.gather(*(self.judge_one(*pair) for pair in pairs)))

    def _rewarded(self, verdict: Verdict | None, note: str) -> Judged:
        if verdict is None or verdict.status is Status.UNSUPPORTED:
            return Judged(verdict, None, note)
        found = self._reward.score(verdict)
        return Judged(verdict, found.total if found is not None else None, note)

    def close(self) -> None:
        """End the processes that judge here."""
        if self._pool is not None:
            self._pool.close()


class RemoteJudge:
    """A judge server as `types.JudgeFn`."""

    def __init__(self, client: JudgeClient) -> None:
        self._client = client

    async def __call__(self, task: Task, code: str) -> Verdict:
        """Raises InfrastructureError with the server's sentence."""
        asked = task.name if _is_named(task) else task.model_dump(mode="json")
        try:
            said = await asyncio.to_thread(self._client.verdict, asked, code)
        except RuntimeError as e:
            raise InfrastructureError(str(e)) from e
        return Verdict.model_validate(said)


def _is_named(task: Task) -> bool:
    """Whether a server finds this very task by its name."""
    try:
        return find_task(task.name) == task
    except UsageError:
        return False


def prompt_of(task: str, version: PromptVersion = "v3") -> list[dict[str, str]]:
    """The chat messages that ask for a first kernel. Raises UsageError for an unknown task."""
    state = CUDAConversationState(conversation_id="prompt", task=find_task(task))
    messages = build_messages(state, Role.GENERATOR, version=version)
    return [message.model_dump(mode="json") for message in messages]


def answer_of(completion: Any) -> str:
    """The text of an answer: as it is, or of the last assistant's message of a chat with its parts
    and the arguments of its tool calls."""
    if isinstance(completion, str):
        return completion
    said = [m for m in completion or () if m.get("role") == "assistant"]
    content = said[-1].get("content") if said else None
    parts = [{"text": content}] if isinstance(content, str) else content or []
    calls = (said[-1].get("tool_calls") or []) if said else []
    texts = [str(part.get("text") or "") for part in parts]
    return "\n".join([*texts, *(str(call["function"]["arguments"]) for call in calls)])
