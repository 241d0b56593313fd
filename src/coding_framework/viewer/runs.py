"""Which runs lie below a path, of what kind each is, and whether it is still at work.

A run is known by the files that our commands leave. Symbolic links are not followed, and nothing is
written.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import orjson

from coding_framework.store.folder import (
    EvalFolder,
    RLFolder,
    RunFolder,
    SFTFolder,
    SolveFolder,
    evaluations_in,
)
from coding_framework.store.records import StepRecord
from coding_framework.store.run_status import run_state
from coding_framework.store.training_log import read_steps

RunKind = Literal["whole run", "RL", "SFT", "evaluation", "solve", "file", "deployment", "registry"]
PLACES: tuple[RunKind, ...] = ("deployment", "registry")
"""What is found beside runs and is none."""
RunState = Literal["alive", "finished", "failed", "stopped"]
LEVELS = 4
"""How deep below a given folder runs are looked for."""
DATABASE, REGISTRY = "deployment.sqlite", "registry.sqlite"
_STEP = re.compile(r"step_(\d+)\.jsonl")
_GETLK = "hhqqi4x"
"""`struct flock` of 64-bit Linux."""


@dataclass(frozen=True, slots=True)
class FoundRun:
    """A run on the disk."""

    id: str
    """Names it in addresses; the same path has the same one."""
    name: str
    """Its path below the folder that was given."""
    group: str
    """The folder that it lies in, likewise."""
    kind: RunKind
    root: Path


@dataclass(frozen=True, slots=True)
class Source:
    """A file of conversations."""

    path: Path
    label: str
    """What they are of: "rl", the role of a run with a policy a role, or the evaluation's name, of
    a whole run after "eval "."""
    step: int | None = None
    attempt: int = 0
    """Which start of the trainer wrote it; of a repeated step the latest one counts."""


def find_runs(paths: Sequence[Path]) -> list[FoundRun]:
    """The runs at and below the paths, each once; those within a run come after it."""
    return [found for found in find_all(paths) if found.kind not in PLACES]


def find_all(paths: Sequence[Path]) -> list[FoundRun]:
    """The runs, the databases of deployments and the registries of kernels."""
    found: dict[Path, FoundRun] = {}
    for path in paths:
        given = path.resolve()
        for root, kind in _walk(given, LEVELS):
            found.setdefault(root, _named(root, kind, given))
    return list(found.values())


def sources_of(run: FoundRun) -> Iterator[Source]:
    """The files of conversations that a run has now."""
    root = run.root
    if run.kind == "file":
        yield Source(root, root.stem)
    elif run.kind == "solve":
        yield Source(SolveFolder(root).transcript, "solve")
    elif run.kind == "evaluation":
        yield from _existing(Source(EvalFolder(root).conversations, root.name))
    elif run.kind == "SFT":
        yield from _evaluations(SFTFolder(root).evaluations, "")
    elif run.kind == "RL":
        yield from _rollouts(RLFolder(root), "rl")
    else:
        folder = RunFolder(root)
        yield from _evaluations(folder.evaluations, "eval ")  # one of them is named "rl"
        yield from _evaluations(folder.sft.evaluations, "sft ")
        yield from _existing(Source(EvalFolder(folder.rft.samples).conversations, "rft"))
        yield from _rollouts(folder.rl, "rl")


def newest_evaluation(run: FoundRun) -> str:
    """Of a whole run, which has several kinds of conversations: the label of its newest evaluation,
    by which it is judged. "" of other runs."""
    if run.kind != "whole run":
        return ""
    found = [source for source in sources_of(run) if source.label.startswith("eval ")]
    return max(found, key=lambda s: s.path.stat().st_mtime).label if found else ""


def config_of(run: FoundRun) -> Mapping[str, Any]:
    """What it was started with; empty where nothing says it."""
    files = {
        "whole run": RunFolder(run.root).stages,
        "RL": RLFolder(run.root).config,
        "SFT": SFTFolder(run.root).config,
        "evaluation": EvalFolder(run.root).manifest,
    }
    try:
        told = orjson.loads(files[run.kind].read_bytes())
        found = told.get("config", told)
    except (KeyError, OSError, AttributeError, orjson.JSONDecodeError):
        return {}
    return found if isinstance(found, dict) else {}


def state_of(run: FoundRun) -> RunState:
    """alive: by its heartbeat, else since a process holds the run's lock; whatever a dead one left
    behind is not believed."""
    root = run.root
    if run.kind == "file":
        return "finished"
    told = run_state(root)
    if told in ("alive", "finished", "failed"):
        return told
    locks = (RunFolder(root).lock, RLFolder(root).lock, EvalFolder(root).lock)
    if any(_is_held(lock) for lock in locks):
        return "alive"
    ends = (RunFolder(root).summary, RLFolder(root).result, SolveFolder(root).verdict)
    if any(path.is_file() for path in ends) or (
        run.kind == "SFT" and SFTFolder(root).model.is_dir()
    ):
        return "finished"
    return "stopped"


def rl_folders(run: FoundRun) -> list[tuple[str, RLFolder]]:
    """(label, folder) of the RL runs that it is or has."""
    if run.kind not in ("whole run", "RL"):
        return []
    folder = RLFolder(run.root) if run.kind == "RL" else RunFolder(run.root).rl
    roles = [(role.root.name, role) for role in folder.roles()]
    return roles or [("rl", folder)]


def steps_of(folder: RLFolder) -> list[StepRecord]:
    """What a run's own file says of its steps; a link leads out of the run and is not followed."""
    return [] if folder.steps.is_symlink() else read_steps(folder.steps)


def sft_folder(run: FoundRun) -> SFTFolder | None:
    """The SFT run that it is or has."""
    if run.kind == "SFT":
        return SFTFolder(run.root)
    return RunFolder(run.root).sft if run.kind == "whole run" else None


def _walk(path: Path, levels: int) -> Iterator[tuple[Path, RunKind]]:
    if path.is_file():
        yield path, "deployment" if path.suffix == ".sqlite" else "file"
        return
    try:
        entries = list(os.scandir(path))
    except OSError:
        return
    names = {entry.name for entry in entries if not entry.is_symlink()}
    if DATABASE in names:
        yield path / DATABASE, "deployment"
    if REGISTRY in names:
        yield path, "registry"
        return
    kind = _kind(names)
    if kind is not None:
        yield path, kind
    if kind == "whole run":
        yield from _walk(RunFolder(path).evaluations, 1)
    elif kind is None and levels > 0:
        for entry in sorted(entries, key=lambda e: e.name):
            if entry.is_dir(follow_symlinks=False) and not entry.name.startswith("."):
                yield from _walk(path / entry.name, levels - 1)


def _kind(names: set[str]) -> RunKind | None:
    if "stages.json" in names:
        return "whole run"
    if "eval.json" in names:
        return "evaluation"
    if names & {"steps.jsonl", "attempts"}:
        return "RL"
    if {"metrics.jsonl", "config.json"} <= names:
        return "SFT"
    return "solve" if "transcript.json" in names else None


def _named(root: Path, kind: RunKind, given: Path) -> FoundRun:
    below = root.relative_to(given)
    name = str(below) if below.parts else root.name
    digest = hashlib.sha256(os.fsencode(root)).hexdigest()[:8]
    slug = re.sub(r"[^A-Za-z0-9]+", "-", root.name)[:40].strip("-") or "run"
    group = "" if len(below.parts) < 2 else str(below.parent)
    return FoundRun(f"{slug}-{digest}", name, group, kind, root)


def _existing(source: Source) -> Iterator[Source]:
    if source.path.is_file() and not source.path.is_symlink():
        yield source


def _evaluations(folder: Path, prefix: str) -> Iterator[Source]:
    for label, path in evaluations_in(folder).items():
        yield from _existing(Source(path, f"{prefix}{label}"))


def _rollouts(folder: RLFolder, label: str) -> Iterator[Source]:
    for role in folder.roles():
        yield from _rollouts(role, role.root.name)
    for attempt in folder.attempts():
        number, rollouts = int(re.sub(r"\D", "", attempt.root.name) or 0), attempt.rollouts
        for name in _files(rollouts):
            step = _STEP.fullmatch(name)
            if step:
                yield Source(rollouts / name, label, int(step[1]), number)


def _files(folder: Path) -> list[str]:
    """The names of a folder's own files, in order; a file is not asked for what its folder tells:
    there may be 100,000 of them, on a network disk."""
    try:
        with os.scandir(folder) as entries:
            return sorted(e.name for e in entries if e.is_file(follow_symlinks=False))
    except OSError:
        return []


def _is_held(lock: Path) -> bool:
    """Whether a process holds a lock on the file; asks, and takes none."""
    try:
        with lock.open("rb") as file:
            asked = struct.pack(_GETLK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            held: int = struct.unpack(_GETLK, fcntl.fcntl(file, fcntl.F_GETLK, asked))[0]
    except OSError:
        return False
    return held != fcntl.F_UNLCK
