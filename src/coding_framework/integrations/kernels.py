"""A model's answers, judged and rewarded: what every trainer's part here is made of."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from coding_framework.agents.extraction import extract_kernel
from coding_framework.agents.prompts import build_messages
from coding_framework.data.registry import find_task, problem_as_task
from coding_framework.errors import InfrastructureError, UsageError
from coding_framework.explanation.verdicts import ExplainedVerdict
from coding_framework.integrations.client import JudgeClient
from coding_framework.orchestration.turn import (
    ConversationConfig,
    judge_or_reason,
    no_code_verdict,
)
from coding_framework.paths import cache_dir
from coding_framework.types import (
    CUDAConversationState,
    JudgeFn,
    PromptVersion,
    Role,
    Status,
    Task,
    Verdict,
    source_text,
)
from coding_framework.wiring import make_judge, make_reward

if TYPE_CHECKING:
    from torch import Tensor, nn

T = TypeVar("T")
TaskLike: TypeAlias = "str | Path | Task | nn.Module"
Inputs: TypeAlias = "str | Sequence[Tensor | float]"
Init: TypeAlias = "str | Mapping[str, Any]"
DRIVEN = ConversationConfig()
KEPT_BYTES = 256 << 20
"""Of verdicts that `judge` keeps."""


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
    """Judges many kernels and answers, in a script, a notebook or an event loop: each method has an
    async form. Close it, use it in a `with`, or let it end with the process."""

    def __init__(
        self, url: str | None = None, token: str = "", reward: str = "weighted", **settings: Any
    ) -> None:
        """url: of a judge server; None: judge here, with the `settings` of `make_judge`. reward: a
        preset. Raises UsageError for one that does not exist."""
        self._reward = make_reward(reward)
        self._pool = None if url is not None else make_judge(**settings)
        self._judge: JudgeFn = self._pool or RemoteJudge(JudgeClient(url or "", token))
        self.capacity = self._pool.capacity if self._pool is not None else 1
        """Kernels that are judged at a time."""

    def verdict(
        self, task: TaskLike, kernel: str | Path, *, inputs: Inputs = "", init: Init = ""
    ) -> ExplainedVerdict:
        """As `coding_framework.judge`."""
        return _blocking(self.verdict_async(task, kernel, inputs=inputs, init=init))

    async def verdict_async(
        self, task: TaskLike, kernel: str | Path, *, inputs: Inputs = "", init: Init = ""
    ) -> ExplainedVerdict:
        """As `verdict`, from an event loop."""
        found = await asyncio.to_thread(task_of, task, inputs, init)
        code = source_text(kernel.read_bytes()) if isinstance(kernel, Path) else kernel
        return ExplainedVerdict.of(await self._judge(found, code), found, code)

    def judge(self, pairs: Sequence[tuple[str, str]]) -> list[Judged]:
        """What each (task, answer) is worth, in order. Raises UsageError for an unknown task."""
        return _blocking(self._all(pairs))

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

    def __enter__(self) -> KernelJudge:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def judge(
    task: TaskLike, kernel: str | Path, *, inputs: Inputs = "", init: Init = "", **settings: Any
) -> ExplainedVerdict:
    """The verdict on one kernel. It judges in a process of its own, which the next call finds.

    task: a name ("relu"), a file, FILE.py:CLASS, a `Task`, or a `torch.nn.Module`.
    kernel: the source of a torch extension or of a KernelBench answer, or the path of its file.
    inputs: of a module: example tensors, or text as `--inputs` has it ("4x128x256").
    init: what a module was made with, where it does not keep it: {"dim": 256}, or as `--init`.
    settings: those of `make_judge`, for example backend="emulator". Verdicts of equal settings are
    kept, and an equal kernel gets the one that is there.

    Raises UsageError for a task that is not known or lacks something, which it names, and
    InfrastructureError for a fault of ours; never for anything that the kernel does.
    """
    return _shared(**settings).verdict(task, kernel, inputs=inputs, init=init)


async def judge_async(
    task: TaskLike, kernel: str | Path, *, inputs: Inputs = "", init: Init = "", **settings: Any
) -> ExplainedVerdict:
    """As `judge`, from an event loop."""
    judging = await asyncio.to_thread(_shared, **settings)
    return await judging.verdict_async(task, kernel, inputs=inputs, init=init)


def kept_judge(**settings: Any) -> KernelJudge:
    """A judge that keeps its verdicts in the cache folder, and finds there those of before."""
    kept = {"run_folder": cache_dir() / "judged", "kept_bytes": KEPT_BYTES}
    return KernelJudge(**{**kept, **settings})


_shared = lru_cache(maxsize=4)(kept_judge)


def task_of(given: TaskLike, inputs: Inputs = "", init: Init = "") -> Task:
    """The task that `judge` is given. Raises UsageError."""
    if isinstance(given, Task):
        return given
    if isinstance(given, str | Path):
        if not isinstance(inputs, str) or not isinstance(init, str):
            raise UsageError("inputs and init are texts where the task is one, as in '4x128x256'")
        return find_task(str(given), inputs, init)
    from coding_framework.data.kernelbench.own_module import problem_of_module
    from coding_framework.reference_model import in_tf32, product_precision

    source = problem_of_module(given, inputs, init)
    if product_precision() != "highest":
        source = in_tf32(source)  # as the program that it comes from rounds
    return problem_as_task(source, type(given).__name__)


def _blocking(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine, also where an event loop runs already, as in a notebook."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


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
