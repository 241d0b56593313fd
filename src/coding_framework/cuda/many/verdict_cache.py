"""Verdicts on disk, shared only where nothing that a verdict rests on differs.

Key: the bytes of the source, the task, its shape sets, the backend, the judge itself (protocol,
emulator, headers), and the conditions that its pool names: the compiler, the sandbox, the limits,
and a digest of the secret that inputs are drawn from. So a verdict that is found is the one that
judging would give again: a cache saves time and changes nothing. In particular a kernel that passed
by luck on one run's draws is judged afresh by another. Equal PTX shares nothing: the host code may
differ.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from coding_framework.cuda.choose_backend import choose_backend
from coding_framework.cuda.device.gpu_sharing import gpus_here
from coding_framework.cuda.judge import JudgeConfig, secret_of
from coding_framework.cuda.protocol import judge_digest
from coding_framework.cuda.sandbox import choose_sandbox
from coding_framework.cuda.toolchain.toolkit import find_toolkit
from coding_framework.paths import write_atomic
from coding_framework.types import Candidate, Status, Task, Verdict

_BY_THE_MACHINE = frozenset({Status.TIMEOUT, Status.COMPILE_TIMEOUT, Status.MEMORY_LIMIT})
"""Verdicts by CPU time or memory, which another machine may give otherwise: never kept on disk."""
_PRUNED_TO = 0.8
"""A folder that is over its limit is pruned to this share of it."""


class VerdictCache:
    """A folder of verdicts; any number of processes and threads may use it at once."""

    def __init__(self, folder: Path, conditions: str, most_bytes: int | None = None) -> None:
        """conditions: whatever else a verdict depends on, as text; no secret in clear. most_bytes:
        of the folder, from which on the verdicts that were not asked for longest are removed."""
        self._folder = folder
        self._conditions = conditions
        self._most_bytes = most_bytes
        self._bytes: int | None = None
        self._lock = threading.Lock()

    def get(self, task: Task, candidate: Candidate, backend: str) -> Verdict | None:
        """The verdict on the same source; None where there is none."""
        path = self._path(task, candidate, backend)
        try:
            verdict = Verdict.model_validate_json(path.read_text(encoding="utf-8"))
        except (OSError, ValidationError, UnicodeDecodeError):
            return None  # not there, or damaged: judged again
        with suppress(OSError):  # of another user's, or removed meanwhile
            os.utime(path)
        return verdict if verdict.candidate_sha256 == candidate.sha256 else None

    def put(self, task: Task, candidate: Candidate, verdict: Verdict) -> None:
        """Raises InfrastructureError where it cannot be written."""
        text = verdict.model_dump_json()
        write_atomic(self._path(task, candidate, verdict.backend), text)
        if self._most_bytes is not None:
            self._grown_by(len(text), self._most_bytes)

    def _grown_by(self, added: int, most_bytes: int) -> None:
        with self._lock:
            known = self._bytes
            self._bytes = known + added if known is not None else sum(s for _, s, _ in self._kept())
            if self._bytes <= most_bytes:
                return
            oldest_first = sorted(self._kept())
            self._bytes = sum(size for _, size, _ in oldest_first)
            for _, size, path in oldest_first:
                if self._bytes <= _PRUNED_TO * most_bytes:
                    break
                path.unlink(missing_ok=True)
                self._bytes -= size

    def _kept(self) -> Iterator[tuple[float, int, Path]]:
        """(when it was last asked for, bytes, file) of each verdict."""
        for path in self._folder.glob("*/*.json"):
            with suppress(OSError):  # another process removed it
                found = path.stat()
                yield found.st_mtime, found.st_size, path

    def _path(self, task: Task, candidate: Candidate, backend: str) -> Path:
        key = hashlib.sha256()
        for part in (
            judge_digest(),
            self._conditions,
            backend,
            task.model_dump_json(exclude={"split"}),
            candidate.sha256,
        ):
            key.update(part.encode("utf-8", "surrogatepass") + b"\0")
        digest = key.hexdigest()
        return self._folder / digest[:2] / f"{digest}.json"


def comes_again(verdict: Verdict) -> bool:
    """Whether any machine would give this verdict. A compilation that failed without an error of
    the compiler's may have failed of the machine."""
    if verdict.status is Status.COMPILE_ERROR:
        return verdict.compile is not None and bool(verdict.compile.errors)
    return verdict.status not in _BY_THE_MACHINE


def conditions_of(config: JudgeConfig) -> str:
    """What verdicts depend on beside task, source and this package; where the configuration has
    neither a secret nor a seed, whatever the draws were. Raises MissingToolError."""
    limits = config.model_dump_json(exclude={"secret", "backend", "sandbox"})
    drawn = "anew"
    if config.secret is not None or config.seed is not None:
        drawn = hashlib.sha256(b"verdict cache" + secret_of(config)).hexdigest()
    sandbox = choose_sandbox(config.sandbox)
    device = gpus_here() if choose_backend(config.backend) == "cuda" else ""
    tools = f"{sandbox.name} {sandbox.system} {find_toolkit().fingerprint}"
    return f"{limits} {tools} {device} {drawn}"
