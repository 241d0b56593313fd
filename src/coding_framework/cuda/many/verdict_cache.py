"""Verdicts on disk, shared only where nothing that a verdict rests on differs.

Key: the full source with line ends and trailing blanks normalised, the task, its shape sets, the
backend, the judge itself (protocol, emulator, headers), and the conditions that its pool names: the
compiler, the sandbox, the limits, and a digest of the secret that inputs are drawn from. So a
verdict that is found is the one that judging would give again: a cache saves time and changes
nothing. In particular a kernel that passed by luck on one run's draws is judged afresh by another.
Equal PTX shares nothing: the host code may differ.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from pydantic import ValidationError

from coding_framework.cuda.protocol import judge_digest
from coding_framework.paths import write_atomic
from coding_framework.types import Candidate, Task, Verdict


class VerdictCache:
    """A folder of verdicts; any number of processes may use it at once."""

    def __init__(self, folder: Path, conditions: str) -> None:
        """conditions: whatever else a verdict depends on, as text; no secret in clear."""
        self._folder = folder
        self._conditions = conditions

    def get(self, task: Task, candidate: Candidate, backend: str) -> Verdict | None:
        """The verdict on an equal candidate, under this candidate's own digest."""
        try:
            text = self._path(task, candidate, backend).read_text(encoding="utf-8")
            verdict = Verdict.model_validate_json(text)
        except (OSError, ValidationError, UnicodeDecodeError):
            return None  # not there, or damaged: judged again
        return verdict.model_copy(update={"candidate_sha256": candidate.sha256})

    def put(self, task: Task, candidate: Candidate, verdict: Verdict) -> None:
        write_atomic(self._path(task, candidate, verdict.backend), verdict.model_dump_json())

    def _path(self, task: Task, candidate: Candidate, backend: str) -> Path:
        lines = candidate.code.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        source = "\n".join(line.rstrip() for line in lines)
        key = hashlib.sha256()
        for part in (
            judge_digest(),
            self._conditions,
            backend,
            task.model_dump_json(exclude={"split"}),
            source,
        ):
            key.update(part.encode("utf-8", "surrogatepass") + b"\0")
        digest = key.hexdigest()
        return self._folder / digest[:2] / f"{digest}.json"
