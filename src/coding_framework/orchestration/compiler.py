"""The compiler as the speaker that opens a conversation: no model is asked."""

from __future__ import annotations

from coding_framework.types import AgentAnswer, CUDAConversationState, Extraction, Generation, Task

NOTE = "written by the compiler"


class CompilerAgent:
    """Answers with the kernel that the compiler wrote for the task."""

    def __init__(self, kernel: str) -> None:
        self._kernel = kernel

    async def answer(self, state: CUDAConversationState, *, sample: int = 0) -> AgentAnswer:
        return AgentAnswer(
            messages=(),
            generation=Generation(text=self._kernel),
            extraction=Extraction(code=self._kernel, note=NOTE),
        )


def write_kernel(task: Task) -> str:
    """The compiler's kernel for a task; takes seconds. On the main thread, or always on the same
    one: torch.export (2.11) ends the process on a new thread after another has ended. Raises
    UnreadableError, which names the operation that has none and its line."""
    from coding_framework.data.lower.naive import lower
    from coding_framework.data.read import read

    return lower(read(task))
