"""The judge split over two machines: what one compiles the other judges, and what it refuses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from coding_framework.cuda.compiler import CompilerConfig, CUDACompiler
from coding_framework.cuda.judge import Judge, JudgeConfig
from coding_framework.cuda.many.remote_builds import Build, BuildRequest, conditions_of
from coding_framework.cuda.many.split_judge import RemoteBuildJudge, RemoteCompiler
from coding_framework.errors import InfrastructureError, UsageError
from coding_framework.types import Candidate, Status, Task, Verdict
from support.judge_tasks import DOUBLE, DOUBLE_TASK
from support.split_cases import BUILDS, CASES, essence, other_cache

pytestmark = pytest.mark.integration

CONFIG = JudgeConfig(backend="emulator", seed=3)


@pytest.fixture(scope="module")
def compiler() -> CUDACompiler:
    """With the builds of this machine, whatever the variable says later."""
    return CUDACompiler()


@pytest.fixture(scope="module")
def conditions(compiler: CUDACompiler) -> dict[str, str]:
    return conditions_of(compiler)


@pytest.fixture(scope="module")
def compiling(conditions: dict[str, str]) -> RemoteCompiler:
    return RemoteCompiler(CONFIG, conditions)


@pytest.fixture(scope="module")
def bench(compiling: RemoteCompiler, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The cache folder of the machine that judges: that of all that is started from here on."""
    cache = other_cache(tmp_path_factory.mktemp("machine") / "bench")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_RL_CACHE", str(cache))
        yield cache


@pytest.fixture(scope="module")
def judging(bench: Path) -> Iterator[RemoteBuildJudge]:
    half = RemoteBuildJudge(CONFIG, 1)
    yield half
    half.close()


async def judged(
    task: Task, code: str, compiling: RemoteCompiler, judging: RemoteBuildJudge
) -> tuple[Verdict, int]:
    """The verdict of both halves, and how many builds it took."""
    wanted: BuildRequest | None = None
    builds: list[Build] = []
    while True:
        built = await compiling.compile(task, code, wanted)
        if isinstance(built, Verdict):
            return built, len(builds)
        builds.append(built)
        answer = await judging.judge(task, code, *builds)
        if isinstance(answer, Verdict):
            return answer, len(builds)
        assert answer not in [build.request for build in builds]
        wanted = answer


@pytest.mark.parametrize("case", CASES)
async def test_both_halves_give_the_verdict_of_the_whole_and_one_alone_compiles(
    case: str,
    compiler: CUDACompiler,
    compiling: RemoteCompiler,
    judging: RemoteBuildJudge,
    bench: Path,
) -> None:
    task, code = CASES[case]
    verdict, builds = await judged(task, code, compiling, judging)
    assert verdict.status.value == case.partition(",")[0]
    whole = Judge(CONFIG, compiler=compiler)
    assert essence(verdict) == essence(whole.judge(task, Candidate(code=code)))
    assert builds >= (2 if case == "correct, asks late" else 0)
    assert list(bench.glob(BUILDS)) == []


async def build_of(code: str, compiling: RemoteCompiler) -> Build:
    built = await compiling.compile(DOUBLE_TASK, code, BuildRequest(code))
    assert isinstance(built, Build)
    return built


async def test_a_damaged_build_is_asked_for_again_and_never_used(
    compiling: RemoteCompiler, judging: RemoteBuildJudge
) -> None:
    build = await build_of(DOUBLE, compiling)
    ptx = build.files["device.ptx"]
    for damaged in (
        replace(build, files={**build.files, "device.ptx": ptx.replace(b"mul", b"add", 1)}),
        replace(build, files={**build.files, "../../device.ptx": ptx}),
        replace(build, files={k: v for k, v in build.files.items() if k != "host.so"}),
        replace(build, result=build.result.model_copy(update={"registers": 1})),
        replace(build, request=BuildRequest(f"{DOUBLE}\n")),
        replace(build, digest=build.digest[::-1]),
    ):
        assert await judging.judge(DOUBLE_TASK, DOUBLE, damaged) == BuildRequest(DOUBLE)
    other = await build_of(f"{DOUBLE}// another source\n", compiling)
    assert await judging.judge(DOUBLE_TASK, DOUBLE, other) == BuildRequest(DOUBLE)
    verdict = await judging.judge(DOUBLE_TASK, DOUBLE, damaged, build)
    assert isinstance(verdict, Verdict)
    assert verdict.status is Status.CORRECT


async def test_builds_of_other_conditions_are_our_fault(
    compiling: RemoteCompiler, judging: RemoteBuildJudge, conditions: dict[str, str]
) -> None:
    assert await judging.conditions() == conditions
    for name in conditions:
        other = "sm_80" if name == "architecture" else "another"
        if name != "architecture":  # that one a machine can change
            with pytest.raises(InfrastructureError, match=f"differ in: {name}"):
                RemoteCompiler(CONFIG, {**conditions, name: other})
    ampere = RemoteCompiler(CONFIG, {**conditions, "architecture": "sm_80"})
    with pytest.raises(InfrastructureError, match=r"differ in: architecture \('sm_80' and"):
        await judging.judge(DOUBLE_TASK, DOUBLE, await build_of(DOUBLE, ampere))
    with pytest.raises(UsageError, match="name its backend"):
        RemoteCompiler(JudgeConfig(), conditions)
    assert CUDACompiler(CompilerConfig(architecture=80)).conditions()["architecture"] == "sm_80"
