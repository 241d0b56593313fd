"""The two halves of a judge as the tests' nodes make them: real ones, that are watched, held up and
damaged by files in a folder; no test is in here."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray

from coding_framework.cuda.many.remote_builds import Build, BuildRequest
from coding_framework.types import Candidate, Task, Verdict
from coding_framework.wiring import make_compiling_half, make_judging_half


def node_id() -> str:
    """Of the node that this runs on."""
    return str(ray.get_runtime_context().get_node_id())


def note(folder: Path, what: str, code: str) -> None:
    """Write down which process on which node does this to which candidate."""
    with (folder / what).open("a") as file:
        file.write(f"{Candidate(code=code).sha256} {os.getpid()} {node_id()}\n")


class WatchedCompiler:
    """Begins as soon as there is no file `hold_compiler`; damages builds as long as there is a file
    `damage`: one, where that is empty."""

    def __init__(self, folder: str, conditions: Mapping[str, str], arguments: Any) -> None:
        self._folder = Path(folder)
        self._half = make_compiling_half(conditions=conditions, **arguments)

    async def compile(
        self, task: Task, code: str, wanted: BuildRequest | None = None
    ) -> Verdict | Build:
        note(self._folder, "compiled", code if wanted is None else wanted.code)
        while (self._folder / "hold_compiler").exists():
            await asyncio.sleep(0.05)
        built = await self._half.compile(task, code, wanted)
        damage = self._folder / "damage"
        if isinstance(built, Verdict) or not damage.exists():
            return built
        if not damage.read_text():
            damage.unlink()
        return replace(built, files={**built.files, "device.ptx": b"\0" * 8})


class WatchedJudge:
    """Begins to judge as soon as there is no file `hold`."""

    def __init__(self, folder: str, cache: str, workers: int, arguments: Any) -> None:
        os.environ["CUDA_RL_CACHE"] = cache  # another machine has another folder
        self._folder = Path(folder)
        self._half = make_judging_half(workers=workers, **arguments)

    async def conditions(self) -> dict[str, str]:
        return await self._half.conditions()

    async def judge(self, task: Task, code: str, *builds: Build) -> Verdict | BuildRequest:
        note(self._folder, "judged", code)
        while (self._folder / "hold").exists():
            await asyncio.sleep(0.05)
        return await self._half.judge(task, code, *builds)


def make_watched_compiler(
    folder: str, conditions: Mapping[str, str], **arguments: Any
) -> WatchedCompiler:
    return WatchedCompiler(folder, conditions, arguments)


def make_watched_judge(folder: str, cache: str, workers: int, **arguments: Any) -> WatchedJudge:
    return WatchedJudge(folder, cache, workers, arguments)
