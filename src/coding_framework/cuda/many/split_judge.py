"""The judge split over two machines: `RemoteCompiler` compiles, `RemoteBuildJudge` runs and times.

A GPU's machine should not spend its processors on compilations, and a machine that compiles needs
no GPU. The judge never compiles: it asks for a build that it lacks, or that arrived damaged.
A build that was made under other conditions than its own is a fault of ours. Neither is ever a
verdict.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from coding_framework.cuda.compiler import CompilerConfig, CUDACompiler
from coding_framework.cuda.device.gpu_sharing import claim_gpu
from coding_framework.cuda.judge import JudgeConfig, new_draft
from coding_framework.cuda.many.pool import JudgePool
from coding_framework.cuda.many.remote_builds import (
    Build,
    BuildRequest,
    DamagedBuildError,
    conditions_of,
    pack,
    require_same,
    unpack,
)
from coding_framework.cuda.safety_wrapper import SafetyWrapper
from coding_framework.errors import UsageError
from coding_framework.store.events import log
from coding_framework.types import BackendName, Candidate, CompilationResult, Status, Task, Verdict


class RemoteCompiler:
    """Inspects and compiles for judges on other machines. It needs no GPU, and asks for none."""

    def __init__(self, config: JudgeConfig, conditions: Mapping[str, str]) -> None:
        """config: that of the judges, with their backend by name. conditions: theirs. Raises
        InfrastructureError where this machine cannot compile under them."""
        architecture = int(conditions["architecture"].removeprefix("sm_"))
        self._compiler = CUDACompiler(
            CompilerConfig(architecture=architecture, sandbox=config.sandbox)
        )
        self._conditions = conditions_of(self._compiler)
        require_same(self._conditions, conditions)
        self._backend = _named(config)
        self._config = config

    async def compile(
        self, task: Task, code: str, wanted: BuildRequest | None = None
    ) -> Verdict | Build:
        """The build of a candidate, or the verdict on one that does not compile. wanted: a build
        that judging it needs beside that; it is then the answer also where it failed."""
        return await asyncio.to_thread(self._compile, task, code, wanted)

    def _compile(self, task: Task, code: str, wanted: BuildRequest | None) -> Verdict | Build:
        if wanted is not None:
            return self._build(wanted)
        candidate = Candidate.model_construct(code=code)
        draft = new_draft(task, candidate, self._backend, self._compiler, self._config)
        draft.safety = SafetyWrapper().inspect(code)
        build = self._build(BuildRequest(code))
        if build.result.success:
            return build
        draft.compilation = build.result
        return draft.verdict(build.result.status or Status.COMPILE_ERROR, build.result.reason)

    def _build(self, request: BuildRequest) -> Build:
        return pack(self._compiler, self._conditions, request)


class RemoteBuildJudge:
    """Judges builds that `RemoteCompiler` made, on one GPU of its own."""

    def __init__(self, config: JudgeConfig, workers: int) -> None:
        """workers: candidates at a time. Raises UsageError or DeviceError where no GPU is left to
        be its own and the backend is not the emulator."""
        backend = _named(config)
        self._pool = JudgePool(config, workers=workers, remote_builds=True)  # says what is missing
        if backend == "cuda":
            os.environ["CUDA_VISIBLE_DEVICES"] = claim_gpu().uuid  # of the workers, yet to start
        self._compiler = CUDACompiler(CompilerConfig(sandbox=config.sandbox))
        self._conditions = conditions_of(self._compiler)

    async def conditions(self) -> dict[str, str]:
        """Under what its builds have to be made."""
        return self._conditions

    async def judge(self, task: Task, code: str, *builds: Build) -> Verdict | BuildRequest:
        """The verdict, or a build that is missing, also where one arrived damaged. Raises
        InfrastructureError on a fault of ours."""
        with ExitStack() as stack:
            opened = await asyncio.to_thread(self._open_all, builds, stack)
            answer = await self._pool.judge_builds(task, code, opened)
        return answer if isinstance(answer, Verdict) else BuildRequest.of_data(answer)

    def close(self) -> None:
        """End its processes."""
        self._pool.close()

    def _open_all(self, builds: Sequence[Build], stack: ExitStack) -> dict[str, CompilationResult]:
        opened = {}
        for build in builds:
            folder = stack.enter_context(self._compiler.cache.scratch())
            try:
                result = unpack(build, folder, self._compiler, self._conditions)
            except DamagedBuildError as e:  # the judge will miss it, and it is made again
                log.warning("build_damaged", key=str(e))
            else:
                opened[build.request.digest] = result
        return opened


def _named(config: JudgeConfig) -> BackendName:
    if config.backend == "auto":
        raise UsageError("a split judge is on two machines: name its backend, cuda or emulator")
    return config.backend
