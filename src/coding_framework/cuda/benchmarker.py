"""Times a build for a task. A time belongs to a correct kernel, so this goes through the judge."""

from __future__ import annotations

import asyncio
from pathlib import Path

from coding_framework.cuda.compiler import CUDACompiler
from coding_framework.cuda.judge import Judge
from coding_framework.errors import UsageError
from coding_framework.types import BenchmarkResult, Candidate, JudgeFn, Task, Verdict


class CUDABenchmarker:
    """Times builds for one task, on the judge's path: what is not correct gets no time."""

    def __init__(self, task: Task | None = None, judge: Judge | None = None) -> None:
        """task: what `benchmark_kernel` times builds for. judge: None: one of its own."""
        self._task = task
        self._judge = judge

    async def benchmark_kernel(
        self, binary_path: str, kernel_name: str | None = None
    ) -> BenchmarkResult:
        """Time a successful build (`CompilationResult.binary_path`) on the task's main shape set.

        kernel_name: where given, one of the build's kernels that must be among the launches.
        Raises CandidateFault (with the status) for a build that is not correct there, UsageError
        where the benchmarker was made without a task.
        """
        if self._task is None:
            raise UsageError("a build is timed for a task: make it as CUDABenchmarker(task)")
        judge = self._own_judge(None)
        return await asyncio.to_thread(judge.benchmark, self._task, Path(binary_path), kernel_name)

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
