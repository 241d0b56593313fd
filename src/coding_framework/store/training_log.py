"""What a training wrote down step by step: SFT's metrics.jsonl, RL's steps.jsonl and verl's own."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from coding_framework.errors import UsageError
from coding_framework.paths import write_atomic
from coding_framework.store.lines import parsed_lines
from coding_framework.store.records import SFTEpoch, StepRecord, TaskEvidence, Validation


class SFTRecords(NamedTuple):
    """What the metrics of an SFT run hold."""

    steps: list[dict[str, Any]]
    epochs: list[SFTEpoch]


def read_sft_records(metrics: Path) -> SFTRecords:
    """The lines of the file, by their kind."""
    return _by_kind(parsed_lines(metrics, _entry))


def keep_sft_records(metrics: Path, last_step: int) -> SFTRecords:
    """The records up to a step; later ones, which will be made again, are taken out of the file."""
    entries = list(parsed_lines(metrics, _entry))
    kept = [entry for entry in entries if entry["step"] <= last_step]
    if len(kept) != len(entries):
        write_atomic(metrics, "".join(json.dumps(entry) + "\n" for entry in kept))
    return _by_kind(kept)


def _entry(line: str) -> dict[str, Any]:
    entry: dict[str, Any] = json.loads(line)
    entry["step"] = int(entry["step"])
    return entry


def _by_kind(entries: Iterable[dict[str, Any]]) -> SFTRecords:
    found = SFTRecords([], [])
    for entry in entries:
        if "epoch" in entry:
            found.epochs.append(SFTEpoch.model_validate(entry))
        else:
            found.steps.append(entry)
    return found


def read_steps(path: Path) -> list[StepRecord]:
    """The records of an RL run's steps.jsonl; none where there is no file."""
    return list(parsed_lines(path, StepRecord.model_validate_json))


def write_steps(path: Path, records: Sequence[StepRecord]) -> None:
    """Write them as a whole."""
    write_atomic(path, "".join(r.model_dump_json() + "\n" for r in records))


def read_evidence(path: Path) -> list[TaskEvidence]:
    """What `cuda-rl rft` found of tasks. Raises UsageError where the file holds nothing of it."""
    found = list(parsed_lines(path, TaskEvidence.model_validate_json))
    if not found:
        raise UsageError(
            f"{path} says nothing of any task: give the task_evidence.jsonl of `cuda-rl rft`"
        )
    return found


def read_validations(path: Path) -> list[Validation]:
    """The validations of an RL run; none where there is no file."""
    return list(parsed_lines(path, Validation.model_validate_json))


def write_validations(path: Path, records: Sequence[Validation]) -> None:
    """Write them as a whole."""
    write_atomic(path, "".join(r.model_dump_json() + "\n" for r in records))


def read_metrics(path: Path) -> dict[int, dict[str, float]]:
    """verl's metrics file: numbers by step."""

    def of_step(line: str) -> tuple[int, dict[str, float]]:
        entry = json.loads(line)
        return int(entry["step"]), entry["data"]

    return dict(parsed_lines(path, of_step))
