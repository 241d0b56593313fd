"""Times a build: for a task, if it is correct for that, or unchecked without one."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from coding_framework.cuda.compiler import CUDACompiler
from coding_framework.cuda.judge import Judge
from coding_framework.errors import UsageError
from coding_framework.types import BenchmarkResult, Candidate, JudgeFn, Task, Verdict

if TYPE_CHECKING:
    from coding_framework.cuda.trial.unchecked import Inputs


class CUDABenchmarker:
    """Times builds, on the judge's path: with a task what is not correct gets no time."""

    def __init__(self, task: Task | None = None, judge: Judge | None = None) -> None:
        """task: what `benchmark_kernel` times builds for; None: for whatever they compute. judge:
        None: one of its own."""
        self._task = task
        self._judge = judge

    async def benchmark_kernel(
        self, binary_path: str, kernel_name: str | None = None, inputs: Inputs | None = None
    ) -> BenchmarkResult:
        """Time a successful build (`CompilationResult.binary_path`) on the task's main shape set.

        Without a task it is timed on inputs that its `forward` implies, and nothing is checked: the
        result says `checked=False`. kernel_name: where given, one of the build's kernels that must
        be among the launches. inputs: without a task: shapes of float32 tensors, or TensorSpecs.
        Raises CandidateFault (with the status) for a build that is not correct, or fails, there;
        UsageError for inputs beside a task, and where none are implied.
        """
        judge, build = self._own_judge(None), Path(binary_path)
        if self._task is None:
            return await asyncio.to_thread(judge.benchmark_unchecked, build, kernel_name, inputs)
        if inputs is not None:
            raise UsageError("the inputs are the task's: leave inputs out, or the task")
        return await asyncio.to_thread(judge.benchmark, self._task, build, kernel_name)

    def judging(self, compiler: CUDACompiler | None = None) -> JudgeFn:
        """This benchmarker as a judge of any task, one candidate at a time, compiling with
        `compiler`. A time belongs to a correct kernel, so who times also judges."""
        judge = self._own_judge(compiler)
        one_at_a_time = asyncio.Lock()

        async def verdict(task: Task, code: str) -> Verdict:
            async with one_at_a_time:
                return await asyncio.to_thread(judge.judge, task, Candidate(code=code))

        return verdict

    def _own_judge(self, compiler: CUDACompiler | None) -> Judge:
        if self._judge is None:
            self._judge = Judge(compiler=compiler)
        return self._judge
