"""A chat request as it is taken, and the task that it is about."""

from __future__ import annotations

import asyncio
import math
import re
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal
from uuid import uuid4

import orjson
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from coding_framework.agents.prompts.contract import Contract, tell_contract
from coding_framework.data.registry import named_task
from coding_framework.deployment.fair_queue import FairQueue
from coding_framework.deployment.http import ApiError, as_json, parsed
from coding_framework.deployment.serve_config import MAX_BUDGET_S, MAX_CANDIDATES, MAX_TURNS
from coding_framework.errors import UsageError
from coding_framework.monitoring.text import one_line
from coding_framework.task_shapes import SHAPE_SETS, UNSEEN_SHAPE_SETS, count_shape_sets
from coding_framework.types import CALLERS, Split, Task

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,199}")
_PROBLEM = (re.compile(r"^class Model\b", re.MULTILINE), re.compile(r"^def get_inputs\b", re.M))
_REFERENCE_S = 60.0
MOST_CASES, MOST_ELEMENTS = 16, 1 << 22
TaskReader = Callable[[dict[str, Any], threading.Event], dict[str, Any]]
"""{"problem": source} or {"task": fields} as {"task", "contract"}, or {"error"}. It may block, and
ends soon after the event is set: nobody waits any more."""
REFERENCES_AT_ONCE, MOST_OF_ONE, MOST_WAITING = 4, 1, 4
"""References of callers that run at a time: of all, of one caller, and that wait of one caller."""


class _Asked(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class TextPart(_Asked):
    """A part of a message; other kinds than text are refused."""

    type: Literal["text"]
    text: str


class ChatMessage(_Asked):
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart] | None = None

    @property
    def text(self) -> str:
        parts = self.content
        return "".join(p.text for p in parts) if isinstance(parts, list) else parts or ""


class KernelOptions(BaseModel):
    """`cuda_rl` of a request (`extra_body` of OpenAI's client)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    task: str | dict[str, Any] | None = None
    """A registered or synthesised task's name, or a `Task` as an object."""
    n: int | None = Field(default=None, ge=1, le=MAX_CANDIDATES)
    turns: int | None = Field(default=None, ge=1, le=MAX_TURNS)
    budget_s: float | None = Field(default=None, ge=1.0, le=MAX_BUDGET_S)
    target: str | None = Field(default=None, max_length=100)
    min_speedup: float | None = Field(default=None, gt=0.0, le=1e6)
    require_verified: bool | None = None
    """None: true with a task."""


class ChatRequest(_Asked):
    """OpenAI's request, as far as it is used."""

    model: str = Field(min_length=1, max_length=200)
    messages: list[ChatMessage] = Field(min_length=1)
    stream: bool = False
    temperature: float | None = Field(default=None, ge=0.0, le=2.0)
    top_p: float | None = Field(default=None, gt=0.0, le=1.0)
    max_tokens: int | None = Field(default=None, ge=1, le=1 << 20)
    max_completion_tokens: int | None = Field(default=None, ge=1, le=1 << 20)
    seed: int | None = Field(default=None, ge=-(2**63), lt=2**63)
    n: int | None = Field(default=None, ge=1, le=1)
    """OpenAI's own n: one choice is given; candidates are `cuda_rl.n`."""
    user: str | None = Field(default=None, max_length=512)
    cuda_rl: KernelOptions = KernelOptions()


def completion(
    model: str, said: Mapping[str, Any], usage: tuple[int, int], finish: str = "stop", **more: Any
) -> dict[str, Any]:
    """An answer as OpenAI's API gives it. said: the message. usage: tokens read and written. more:
    of the choice."""
    read, written = usage
    return {
        "id": f"chatcmpl-{uuid4().hex}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model,
        "choices": [{"index": 0, "message": said, "finish_reason": finish, **more}],
        "usage": {
            "prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written,
        },
    }  # fmt: skip


def listed(names: Iterable[str], **more: Mapping[str, str]) -> Response:
    """The models of a server, as OpenAI's API lists them. more: fields by name."""
    own = {"object": "model", "created": 0, "owned_by": "cuda-rl"}
    known = [
        {"id": name, **own, **{field: by_name.get(name, "") for field, by_name in more.items()}}
        for name in names
    ]
    return as_json({"object": "list", "data": known})


def chunk_of(answer: Mapping[str, Any], delta: Any, finish: str | None, **more: Any) -> str:
    """A piece of an answer's stream, as JSON."""
    kept = {name: answer[name] for name in ("id", "created", "model") if name in answer}
    choice = {"index": 0, "delta": delta, "finish_reason": finish, **more}
    return orjson.dumps({**kept, "object": "chat.completion.chunk", "choices": [choice]}).decode()


class TaskOfRequest:
    """A request's task, and whether the caller brought it."""

    def __init__(self, task: Task, *, from_caller: bool) -> None:
        """from_caller: its reference may run in a sandbox alone."""
        self.task, self.from_caller = task, from_caller


class ReferencePool:
    """Where references of callers run: on threads of their own, in turns, so that no other request
    waits for them."""

    def __init__(self) -> None:
        self._turns = FairQueue(REFERENCES_AT_ONCE, MOST_OF_ONE)
        self._threads = ThreadPoolExecutor(REFERENCES_AT_ONCE, "reference of a caller")

    @asynccontextmanager
    async def turn(self, caller: str) -> AsyncIterator[None]:
        """While one of this caller's runs. Raises ApiError 429 where too many wait."""
        if (waiting := self._turns.waiting_of(caller)) >= MOST_WAITING:
            raise ApiError(
                429, "references_busy", f"{waiting} references of yours wait: ask again later",
                retry_after_s=_REFERENCE_S,
            )  # fmt: skip
        async with self._turns.turn(caller):
            yield

    async def read(self, reader: TaskReader, asked: dict[str, Any]) -> dict[str, Any]:
        """What the reader says. Cancelled, it ends the reader's process, and waits for that."""
        gone = threading.Event()
        reading = asyncio.wrap_future(self._threads.submit(reader, asked, gone))
        try:
            return await asyncio.shield(reading)
        except asyncio.CancelledError:
            gone.set()
            await asyncio.wait([reading])
            raise

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


@dataclass(frozen=True, slots=True)
class Reading:
    """How a caller's references are read."""

    pool: ReferencePool
    reader: TaskReader | None
    """Reads them in a sandbox; None: they are refused."""
    caller: str


async def task_of(asked: ChatRequest, reading: Reading) -> TaskOfRequest | None:
    """The task that a chat is about: the one it names or brings, else a problem in its last user
    message; None: no task. Raises ApiError."""
    if asked.cuda_rl.task is not None:
        return await _named_or_brought(asked.cuda_rl.task, reading)
    source = problem_in(next((m.text for m in reversed(asked.messages) if m.role == "user"), ""))
    return None if source is None else await _in_sandbox({"problem": source}, reading)


async def _named_or_brought(given: str | dict[str, Any], reading: Reading) -> TaskOfRequest:
    """The task of a name, or of an object. Raises ApiError."""
    if isinstance(given, str):
        return TaskOfRequest(await asyncio.to_thread(registered_task, given), from_caller=False)
    if reading.reader is not None:  # its mistakes cost no process
        _require_modest(parsed(Task, given))
    return await _in_sandbox({"task": given}, reading)


def _require_shapes(task: Task) -> None:
    sets, unseen = count_shape_sets(task)
    if sets < SHAPE_SETS or unseen < UNSEEN_SHAPE_SETS:
        raise ApiError(
            400, "few_shapes",
            f"the task has too few shape sets ({sets}, {unseen} of them unseen): give at least "
            f"{SHAPE_SETS} cases of different shapes, one of them shown",
        )  # fmt: skip


async def _in_sandbox(asked: dict[str, Any], reading: Reading) -> TaskOfRequest:
    """The task of a caller; its reference runs in a sandbox alone."""
    if reading.reader is None:
        raise ApiError(
            403, "reference_not_trusted",
            "a reference of the caller's is code that would run here: name a registered task, or "
            "ask for a server with `references: sandboxed`",
        )  # fmt: skip
    try:
        async with reading.pool.turn(reading.caller):
            found = await reading.pool.read(reading.reader, asked)
        if "error" in found:
            raise UsageError(str(found["error"]))
        given = found["task"] | {"source": CALLERS, "gpu_cases": [], "split": Split.OUTSIDE}
        task = Task.model_validate(given)
        contract = found["contract"]
        texts = {
            name: str(contract[name])[:20_000] for name in ("signature", "constants", "varies")
        }
    except (UsageError, ValidationError, KeyError, TypeError) as e:
        raise ApiError(400, "bad_reference", one_line(str(e), 300)) from e
    _require_modest(task)
    tell_contract(task, Contract(**texts, numbers=bool(contract.get("numbers"))))
    return TaskOfRequest(task, from_caller=True)


def _require_modest(task: Task) -> None:
    """Raises ApiError where the judge's own memory would pay for a caller's sizes."""
    _require_shapes(task)
    sizes = [sum(math.prod(spec.shape) for spec in case.inputs) for case in task.cases]
    if len(sizes) > MOST_CASES or max(sizes) > MOST_ELEMENTS:
        raise ApiError(
            400, "too_large",
            f"a task of your own may have {MOST_CASES} shape sets with {MOST_ELEMENTS} elements of "
            "input each: make it smaller",
        )  # fmt: skip


def problem_in(text: str) -> str | None:
    """The last fenced Python block that is a KernelBench problem. In time linear in the text."""
    blocks: list[str] = []
    lines: list[str] | None = None
    for line in text.split("\n"):
        if lines is None:
            lines = [] if line.strip() in ("```python", "```py") else None
        elif line.startswith("```"):
            blocks.append("\n".join(lines))
            lines = None
        else:
            lines.append(line)
    return next((b for b in reversed(blocks) if all(p.search(b) for p in _PROBLEM)), None)


@lru_cache(maxsize=512)
def registered_task(name: str) -> Task:
    """Never a file: a request names no path. Close names are not looked for: that takes seconds.
    Raises ApiError."""
    try:
        task = named_task(name) if _NAME.fullmatch(name) else None
    except UsageError as e:
        raise ApiError(400, "unknown_task", one_line(str(e), 300)) from e
    if task is None:
        raise ApiError(
            400, "unknown_task",
            f"no task is called {one_line(name, 60)!r}: `cuda-rl tasks list` names them",
        )  # fmt: skip
    return task
