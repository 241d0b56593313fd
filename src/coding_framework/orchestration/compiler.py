"""The compiler as the speaker that opens a conversation: no model is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from coding_framework.types import (
    AgentAnswer,
    CUDAConversationState,
    Extraction,
    Generation,
    JudgeFn,
    KernelExample,
    Task,
)


class CompilerAgent:
    """Answers with what the compiler wrote for the task: the fastest kernel that the judge finds
    correct, and to further candidates with the next fastest ones."""

    def __init__(self, kernels: Sequence[KernelExample], judge: JudgeFn) -> None:
        """kernels: naive first; they are judged at the first answer."""
        self._kernels = kernels
        self._judge = judge
        self._order: asyncio.Task[list[KernelExample]] | None = None

    async def answer(self, state: CUDAConversationState, *, sample: int = 0) -> AgentAnswer:
        if self._order is None:
            self._order = asyncio.create_task(self._ordered(state.task))
        order = await self._order
        kernel = order[sample % len(order)]
        return AgentAnswer(
            messages=(),
            generation=Generation(text=kernel.code),
            extraction=Extraction(
                code=kernel.code, note=f"written by the compiler (level {kernel.level})"
            ),
        )

    async def _ordered(self, task: Task) -> list[KernelExample]:
        """The correct ones, fastest first; the naive one where none is."""
        verdicts = await asyncio.gather(*(self._judge(task, k.code) for k in self._kernels))
        timed = [
            (verdict.timing.kernel_ms if verdict.timing is not None else 0.0, kernel)
            for kernel, verdict in zip(self._kernels, verdicts, strict=True)
            if verdict.correct
        ]
        ordered = [kernel for _, kernel in sorted(timed, key=lambda pair: pair[0])]
        return ordered or [self._kernels[0]]
