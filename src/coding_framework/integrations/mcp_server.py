"""The judge for coding agents, by the Model Context Protocol: over stdio, or HTTP.

A result is text that an agent can act on, of at most `MOST_CHARS`. Over HTTP callers and tokens
are those of the judge server, callers take turns, and no file of this machine is read: a caller's
tasks are names. Over stdio the caller is this user, who may name files.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import ValidationError

from coding_framework import __version__
from coding_framework.data import listing
from coding_framework.data.kernels import kernels_of
from coding_framework.data.registry import find_task
from coding_framework.deployment.fair_queue import AHEAD, FairQueue
from coding_framework.errors import CodingFrameworkError, UsageError, first_complaint
from coding_framework.explanation.verdict_text import counter_texts
from coding_framework.explanation.verdicts import ExplainedVerdict
from coding_framework.integrations.kernels import KernelJudge
from coding_framework.monitoring.text import one_line
from coding_framework.types import Task, source_text

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.types import Receive, Scope, Send

    from coding_framework.deployment.http import Gate

MOST_CHARS = 6000
"""Of a result: under 2,000 tokens."""
MOST_KERNEL_CHARS = 1 << 20
_CALLER = ContextVar("caller", default="local")
INSTRUCTIONS = """\
Judges CUDA kernels for PyTorch functions: compiled by nvcc, run in a sandbox on inputs that the
kernel has not seen, compared with a float64 reference. A kernel is a torch extension with a bound
`forward`, or Python with a `ModelNew`. Begin with `write` or your own kernel, `judge` it, read
`explain` where it is wrong or slow, change one thing, and judge again."""


class _Server(MCPServer):
    async def call_tool(self, name: str, *arguments: Any, **named: Any) -> Any:
        """A tool's answer. Raises ToolError, of one sentence also where arguments do not fit."""
        try:
            return await super().call_tool(name, *arguments, **named)
        except ToolError as e:
            if isinstance(e.__cause__, ValidationError):
                said = first_complaint(e.__cause__, "")
                raise ToolError(one_line(f"{name}: {said}", 300)) from e
            raise


class JudgeTools:
    """The tools, and the server that offers them. Close it."""

    def __init__(self, judge: KernelJudge, *, files: bool) -> None:
        """files: whether tasks and kernels may be files of this machine."""
        self._judge, self._files = judge, files
        self._turns = FairQueue(AHEAD * judge.capacity)
        self.server = _Server(
            "cuda-rl", instructions=INSTRUCTIONS, version=__version__, log_level="ERROR"
        )
        for tool in (self.judge, self.explain, self.counters, self.write, self.tasks):
            self.server.add_tool(tool, name=tool.__name__, structured_output=False)

    async def judge(self, task: str, kernel: str, inputs: str = "", init: str = "") -> str:
        """The verdict on a CUDA kernel: correct or what is wrong, its time, and what to try.
        task: a name such as "relu", or FILE.py:CLASS with inputs ("4x128x256") and init
        ("dim=256"). kernel: the source, or the path of its file."""
        return await self._answer(task, kernel, inputs, init, str)

    async def explain(self, task: str, kernel: str, inputs: str = "", init: str = "") -> str:
        """A page on a kernel: which comparisons failed, why, where the time goes, what to try next.
        Arguments as of judge."""
        return await self._answer(task, kernel, inputs, init, ExplainedVerdict.explain)

    async def counters(self, task: str, kernel: str, inputs: str = "", init: str = "") -> str:
        """The hardware counters of a correct kernel, by Nsight Compute's names. Arguments as of
        judge."""
        return await self._answer(task, kernel, inputs, init, _counters)

    async def write(self, task: str, inputs: str = "", init: str = "") -> str:
        """A first kernel for a task, written without a model, and its verdict: right, and simple
        to make faster. Arguments as of judge."""

        async def written() -> str:
            found = await asyncio.to_thread(self._task, task, inputs, init)
            code = (await asyncio.to_thread(kernels_of, found))[-1].code
            verdict = await self._verdict(found, code)
            if len(code) > MOST_CHARS - 500:
                return f"{verdict!r}\n{len(code)} characters: `cuda-rl write` writes it to a file"
            return f"{verdict!r}\n\n{code}"

        return await _told(written())

    async def tasks(self, words: str = "", count: int = 20) -> str:
        """Names of known tasks that contain all the words, and any function by its name as in
        `mul2_add_relu` (relu(x * 2 + y)); with one name, its PyTorch reference and how a kernel
        is called."""

        def found() -> str:
            wanted = words.lower().split()
            with suppress(UsageError):
                if len(wanted) == 1:
                    return _described(self._task(words.strip(), "", ""))
            names = [n for n in listing.names() if all(w in n for w in wanted)]
            more = len(names) - max(0, count)
            rest = [f"and {more} others"] if more > 0 else []
            return "\n".join([*names[: max(0, count)], *rest]) or "no task has these words"

        return await _told(asyncio.to_thread(found))

    async def _answer(
        self,
        task: str,
        kernel: str,
        inputs: str,
        init: str,
        text: Callable[[ExplainedVerdict], str],
    ) -> str:
        async def answered() -> str:
            found = await asyncio.to_thread(self._task, task, inputs, init)
            code = await asyncio.to_thread(self._kernel, kernel)
            return text(await self._verdict(found, code))

        return await _told(answered())

    async def _verdict(self, task: Task, code: str) -> ExplainedVerdict:
        async with self._turns.turn(_CALLER.get()):
            return await self._judge.verdict_async(task, code)

    def _task(self, task: str, inputs: str, init: str) -> Task:
        if not self._files and ("/" in task or "." in task):
            raise UsageError("a file cannot be named here: give the name of a task")
        return find_task(task, inputs, init)

    def _kernel(self, kernel: str) -> str:
        """The source itself, or that of the file it names."""
        if len(kernel) > MOST_KERNEL_CHARS:
            raise UsageError(f"the kernel has over {MOST_KERNEL_CHARS >> 20} Mi characters")
        if "\n" in kernel or not kernel.endswith((".cu", ".py")):
            return kernel
        if not self._files:
            raise UsageError("a file cannot be named here: give the kernel's source")
        try:
            return source_text(Path(kernel).read_bytes())
        except (OSError, ValueError) as e:
            raise UsageError(f"the kernel file {kernel!r} cannot be read: {e}") from e

    def app(self, gate: Gate, most_bytes: int) -> FastAPI:
        """The server over HTTP, at /mcp, for callers that `gate` lets in with the scope verify.
        most_bytes: of a message."""
        from mcp.server.transport_security import TransportSecuritySettings
        from starlette.requests import Request

        from coding_framework.deployment.http import HttpMetrics, make_app

        inner = self.server.streamable_http_app(
            json_response=True,
            stateless_http=True,
            max_request_body_size=most_bytes,
            transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        )

        async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
            caller = gate.caller(Request(scope, receive), "verify")
            gate.hold(scope, caller)
            _CALLER.set(caller.id)
            await inner(scope, receive, send)

        app = make_app(
            "mcp", gate, HttpMetrics(), lifespan=lambda _: inner.router.lifespan_context(inner)
        )
        app.mount("/", guarded)
        return app


async def _told(work: Awaitable[str]) -> str:
    """The text, within its length; what fails is one sentence that the agent is shown."""
    try:
        text = await work
    except CodingFrameworkError as e:
        raise ToolError(str(e)) from e
    if len(text) <= MOST_CHARS:
        return text
    return f"{text[: MOST_CHARS - 100]}\n... {len(text) - MOST_CHARS + 100} characters more"


def _counters(verdict: ExplainedVerdict) -> str:
    if not verdict.counters:
        return f"no counters, since the verdict is {verdict!r}"
    others = [f"{value:g}  {name}" for name, value in sorted(verdict.counters.items()) if value]
    return "\n".join(
        [repr(verdict), *counter_texts(verdict), "", "all that are not zero:", *others]
    )


def _described(task: Task) -> str:
    from coding_framework.agents.prompts.contract import contract_of

    called = contract_of(task).signature
    return f"{task.name}: {task.description}\n\n{task.reference.rstrip()}\n\nforward: {called}"
