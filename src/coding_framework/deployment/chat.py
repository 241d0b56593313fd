"""A chat request as it is taken, and the task that it is about."""

from __future__ import annotations

import asyncio
import re
import sys
from functools import lru_cache
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from coding_framework.data.registry import named_task
from coding_framework.deployment.http import ApiError
from coding_framework.deployment.limits import Limits
from coding_framework.deployment.serve_config import MAX_BUDGET_S, MAX_CANDIDATES, MAX_TURNS
from coding_framework.errors import UsageError
from coding_framework.monitoring.text import one_line
from coding_framework.task_shapes import SHAPE_SETS, UNSEEN_SHAPE_SETS, count_shape_sets
from coding_framework.types import Task

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,199}")
_PROBLEM = (re.compile(r"^class Model\b", re.MULTILINE), re.compile(r"^def get_inputs\b", re.M))
_REFERENCE_S = 60.0


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


class VerifyRequest(BaseModel):
    """A kernel to judge."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    task: str | dict[str, Any]
    code: str = Field(max_length=1 << 20)


def chat_request(body: dict[str, Any], limits: Limits) -> ChatRequest:
    """Raises ApiError 400."""
    asked: ChatRequest = parsed(ChatRequest, body)
    if len(asked.messages) > limits.messages:
        raise ApiError(
            400, "too_many_messages", f"the chat has over {limits.messages} messages: send fewer"
        )
    if any(len(m.text) > limits.message_chars for m in asked.messages):
        raise ApiError(
            400, "message_too_long", f"a message has over {limits.message_chars} characters"
        )
    return asked


def parsed(kind: Any, body: dict[str, Any]) -> Any:
    """`body` as `kind`. Raises ApiError 400 with the first mistake."""
    try:
        return kind.model_validate(body)
    except ValidationError as e:
        first = e.errors(include_url=False, include_input=False)[0]
        where = one_line(".".join(str(part) for part in first["loc"]), 120)
        said = one_line(str(first["msg"]), 200)
        raise ApiError(400, "bad_request", f"{where}: {said}" if where else said) from e


class TaskOfRequest:
    """A request's task, and whether the caller brought it."""

    def __init__(self, task: Task, *, from_caller: bool) -> None:
        self.task, self.from_caller = task, from_caller


async def task_of(asked: ChatRequest, *, trusted: bool) -> TaskOfRequest | None:
    """The task that a chat is about: the one it names or brings, else a problem in its last user
    message; None: no task. trusted: whether this caller's references may run. Raises ApiError."""
    if asked.cuda_rl.task is not None:
        return await named_or_brought(asked.cuda_rl.task, trusted=trusted)
    source = problem_in(next((m.text for m in reversed(asked.messages) if m.role == "user"), ""))
    if source is None:
        return None
    _require_trust(trusted)
    return TaskOfRequest(await _read_problem(source), from_caller=True)


async def named_or_brought(given: str | dict[str, Any], *, trusted: bool) -> TaskOfRequest:
    """The task of a name, or of an object. Raises ApiError."""
    if isinstance(given, str):
        return TaskOfRequest(await asyncio.to_thread(_registered, given), from_caller=False)
    _require_trust(trusted)
    task = parsed(Task, given)
    sets, unseen = count_shape_sets(task)
    if sets < SHAPE_SETS or unseen < UNSEEN_SHAPE_SETS:
        raise ApiError(
            400, "few_shapes",
            f"the task has too few shape sets ({sets}, {unseen} of them unseen): give at least "
            f"{SHAPE_SETS} cases of different shapes, one of them shown",
        )  # fmt: skip
    return TaskOfRequest(task, from_caller=True)


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
def _registered(name: str) -> Task:
    """Never a file: a request names no path. Close names are not looked for: that takes seconds."""
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


def _require_trust(trusted: bool) -> None:
    if not trusted:
        raise ApiError(
            403, "reference_not_trusted",
            "a reference of the caller's is code that would run here: name a registered task, or "
            "ask for a token with the scope tasks:trusted on a server with `references: "
            "trusted-tokens`",
        )  # fmt: skip


async def _read_problem(source: str) -> Task:
    """A trusted caller's problem, read in a process of its own, which may hang or die."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "coding_framework.deployment.read_problem",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        async with asyncio.timeout(_REFERENCE_S):
            out, _ = await process.communicate(source.encode("utf-8", "replace"))
    except TimeoutError:
        raise ApiError(
            400, "bad_reference", f"the reference ran over {_REFERENCE_S:g} s: make it smaller"
        ) from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        said = one_line(out.decode("utf-8", "replace"), 300) if process.returncode == 2 else ""
        raise ApiError(400, "bad_reference", said or "the reference ended its process")
    return Task.model_validate_json(out.splitlines()[-1])
