"""A run of an evaluation: every answer and every verdict is durable when it is made.

A run that was killed goes on *inside* its conversations: the turn loop runs again, and whatever was
answered or judged before is given from the run's folder (`store.folder.EvalFolder`). Guaranteed:
no finished answer is generated twice, and no finished verdict is judged twice; a folder of another
identity is refused; equal code of one task is judged once. What was in flight at a kill may be done
again.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import ValidationError

from coding_framework.cuda.expected.rules import Rules
from coding_framework.errors import InfrastructureError, PolicyAwayError, RunFolderError, UsageError
from coding_framework.orchestration.turn import Agent, Agents, Answer
from coding_framework.paths import write_json_atomic
from coding_framework.registry.digests import task_digest
from coding_framework.store.events import log
from coding_framework.store.folder import EvalFolder, locked, require_same_run
from coding_framework.store.lines import JsonlSink, parsed_lines
from coding_framework.types import (
    AgentAnswer,
    Candidate,
    CUDAConversationState,
    JudgeFn,
    Record,
    Task,
    Verdict,
)

AWAY_PAUSE_S = 10.0
"""Between two questions to a server that is away."""


class EvalIdentity(Record):
    """What makes two runs the same run. Equal identities may go on in one folder."""

    model: str
    """Name or path, as it was given."""
    model_digest: str
    """Of weights, configuration and tokenizer; "unverifiable: ..." of a server whose model
    is not a folder here."""
    suites: Mapping[str, str]
    """Suite -> digest."""
    samples: int
    turns: int
    sampling: Mapping[str, Any]
    prompts: str
    seed: int
    judge: Mapping[str, Any]
    """Its settings and its protocol."""
    baseline: Literal["naive"] | None = None
    """Times that are taken for this baseline alone, so that verdicts without them do not serve; as
    in runs of before, None where there are none."""
    rules: Rules | None = None
    """Published rules that are followed beside our own; None, as in runs of before: none."""
    device: str | None = None
    """The GPU that prompts tell of; None, as in runs of before: the default one."""


class EvalRun:
    """Answers and verdicts of one evaluation. A context manager, for one process at a time."""

    def __init__(self, folder: Path, identity: EvalIdentity, *, patience_s: float = 0.0) -> None:
        """patience_s: for how long a policy's server may be away until the run gives up."""
        self.folder = EvalFolder(folder)
        self._identity = identity
        self._patience_s = patience_s
        self._away_since: float | None = None
        self._answers: dict[str, AgentAnswer | str] = {}
        self._begun: set[str] = set()
        self._verdicts: dict[str, Verdict | str] = {}
        self._asking: dict[str, asyncio.Future[AgentAnswer]] = {}
        self._judging: dict[str, asyncio.Future[Verdict]] = {}
        self._open = ExitStack()

    def __enter__(self) -> Self:
        """Raises UsageError where the folder holds a run of another identity, or is in use."""
        with ExitStack() as stack:
            stack.enter_context(locked(self.folder.lock, self._in_use))
            self._require_same_identity()
            self._answers = _unread(self.folder.answers, "answer")
            self._begun = {key.partition(" ")[2].rpartition("#")[0] for key in self._answers}
            self._verdicts = _unread(self.folder.verdicts, "verdict")
            self._answer_sink = stack.enter_context(JsonlSink(self.folder.answers))
            self._verdict_sink = stack.enter_context(JsonlSink(self.folder.verdicts))
            self._open = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def _in_use(self, holder: str) -> str:
        return (
            f"another evaluation (process {holder}) works in {self.folder.root}: wait for it, or "
            "choose another --output-dir"
        )

    def agents(self, agents: Agents, sample: int) -> Agents:
        """The same agents, for one sample of a task: their answers are kept, and given again where
        they are there."""
        return {role: _KeptAgent(agent, self, sample) for role, agent in agents.items()}

    def has_begun(self, task: str, sample: int) -> bool:
        """Whether an earlier start has an answer to a sample of a task."""
        return f"{task}/{sample}" in self._begun

    async def answer(self, state: CUDAConversationState, agent: Agent, sample: int) -> Answer:
        """The answer to the state's next turn, from the file or from the agent."""
        task = state.task
        key = f"{task_digest(task)[:16]} {task.name}/{sample}#{len(state.turns)}"
        kept = self._answers.get(key)
        if isinstance(kept, str):
            kept = _Line.of(kept).answer
        if kept is not None:
            self._answers[key] = kept
            return kept
        if key not in self._asking:  # two suites may have the task: it is asked once
            self._asking[key] = asyncio.ensure_future(self._answered(key, state, agent))
        try:
            return await asyncio.shield(self._asking[key])
        finally:
            if key in self._asking and self._asking[key].done():
                del self._asking[key]

    async def _answered(self, key: str, state: CUDAConversationState, agent: Agent) -> AgentAnswer:
        answer = AgentAnswer.of(await self._asked(state, agent))
        self._answer_sink.write({"key": key, "answer": answer.model_dump(mode="json")})
        self._answers[key] = answer
        return answer

    async def _asked(self, state: CUDAConversationState, agent: Agent) -> Answer:
        """The agent's answer; for a server that is away it waits as long as patience lasts."""
        while True:
            try:
                answer = await agent.answer(state)
            except PolicyAwayError as e:
                now = time.monotonic()
                self._away_since = self._away_since or now
                left = self._away_since + self._patience_s - now
                if left <= 0:
                    raise
                log.warning("policy_away", error=str(e), patience_left_s=round(left))
                await asyncio.sleep(min(AWAY_PAUSE_S, left))
            else:
                self._away_since = None
                return answer

    def judge(self, judge: JudgeFn) -> JudgeFn:
        """The same judge, whose verdicts are kept. A fault of ours is noted and raised: the turn
        loop tries again (`ConversationConfig.judge_pauses_s`)."""

        async def kept(task: Task, code: str) -> Verdict:
            key = f"{task_digest(task)} {Candidate.model_construct(code=code).sha256}"
            known = self._verdicts.get(key)
            if isinstance(known, str):
                known = _Line.of(known).verdict
            if known is not None:
                self._verdicts[key] = known
                return known.model_copy(update={"task": task.name})
            if key not in self._judging:
                self._judging[key] = asyncio.ensure_future(self._judged(key, task, code, judge))
            try:
                return await asyncio.shield(self._judging[key])
            finally:
                if key in self._judging and self._judging[key].done():
                    del self._judging[key]

        return kept

    async def _judged(self, key: str, task: Task, code: str, judge: JudgeFn) -> Verdict:
        try:
            verdict = await judge(task, code)
        except InfrastructureError as e:
            self._keep_verdict({"key": key, "fault": str(e)})
            raise
        self._keep_verdict({"key": key, "verdict": verdict.model_dump(mode="json")})
        self._verdicts[key] = verdict
        return verdict

    def _keep_verdict(self, line: Mapping[str, Any]) -> None:
        try:
            self._verdict_sink.write(line)
        except InfrastructureError as e:  # the folder's fault and not the sample's: the run ends
            raise RunFolderError(str(e)) from e

    def _require_same_identity(self) -> None:
        path = self.folder.manifest
        mine = json.loads(self._identity.model_dump_json())
        if not path.exists():
            write_json_atomic(path, {"identity": mine})
            return
        try:
            found = json.loads(path.read_text(encoding="utf-8"))["identity"]
        except (OSError, ValueError, KeyError, TypeError) as e:
            raise UsageError(
                f"{path} is no evaluation's manifest: choose another --output-dir"
            ) from e
        require_same_run(self.folder.root, found, mine)


class _KeptAgent:
    """An agent whose answers an `EvalRun` keeps."""

    def __init__(self, agent: Agent, run: EvalRun, sample: int) -> None:
        self._agent = agent
        self._run = run
        self._sample = sample

    async def answer(self, state: CUDAConversationState, *, sample: int = 0) -> Answer:
        return await self._run.answer(state, self._agent, self._sample)


def sample_seed(seed: int, task: str, sample: int) -> int:
    """A seed for one sample of one task: the same in every run, unlike all others."""
    key = f"{seed}\0{task}\0{sample}".encode()
    return int.from_bytes(hashlib.blake2b(key, digest_size=4).digest(), "big")


class _Line(Record):
    """A line of either file. A fault of ours has neither record: it is tried again."""

    key: str
    answer: AgentAnswer | None = None
    verdict: Verdict | None = None
    fault: str = ""

    @classmethod
    def of(cls, line: str) -> _Line:
        """With neither record where it cannot be read: it is then done again."""
        try:
            return cls.model_validate_json(line)
        except ValidationError:
            return cls(key="")


def _unread(path: Path, field: str) -> dict[str, Any]:
    """Key -> the line that has its record, the last one of each. The record itself is read when it
    is needed: 10,000 of them would keep a run from its first question for seconds."""

    def keyed(line: str) -> tuple[str, str]:
        found = json.loads(line)
        return str(found["key"]) if found.get(field) else "", line

    return {key: line for key, line in parsed_lines(path, keyed) if key}
