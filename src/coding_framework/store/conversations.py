"""Stored conversations: rollouts of RL, states of evaluations, the transcript of `solve`.

Rollouts are written by the rollout workers and read by the trainer's progress, reports and the
curriculum. A rerun repeats the steps after its last checkpoint, so each attempt writes into a
folder of its own and a step's rollouts are those of the latest attempt that reached it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from pydantic import BaseModel, ValidationError

from coding_framework.errors import UsageError
from coding_framework.paths import write_json_atomic
from coding_framework.store.folder import (
    AttemptFolder,
    EvalFolder,
    RejectionFolder,
    RLFolder,
    RunFolder,
    SolveFolder,
    evaluations_in,
    learnt_file,
    rollouts_file,
)
from coding_framework.store.lines import append_line, parsed_lines
from coding_framework.store.records import Rollout
from coding_framework.types import CUDAConversationState

# --- rollouts -----------------------------------------------------------------------------------


def append_rollout(rollouts: Path, rollout: Rollout) -> None:
    """Append one conversation to the file of its step; several workers may do so at once."""
    append_line(rollouts_file(rollouts, rollout.step), rollout.model_dump_json())


def note_learnt(rollouts: Path, step: int, groups: Iterable[str]) -> None:
    """Note the groups that a step learns from, where these are not those that it asked for
    (`one_step_off_policy`)."""
    write_json_atomic(learnt_file(rollouts, step), sorted(groups))


def read_rollouts(rollouts: Path, step: int) -> Iterator[Rollout]:
    """The rollouts that a step learnt from, in the order in which they ended: those of its prompts,
    or of the groups that were noted. Where the answers were asked for by an attempt before, they
    are in the folder of that one."""
    noted = learnt_file(rollouts, step)
    if not noted.exists():
        return parsed_lines(rollouts_file(rollouts, step), Rollout.model_validate_json)
    return _of_groups(rollouts, step, set(json.loads(noted.read_text(encoding="utf-8"))))


class _Grouped(BaseModel):
    group: str


def _of_groups(rollouts: Path, step: int, groups: set[str]) -> Iterator[Rollout]:
    def parse(line: str) -> Rollout | None:
        wanted = _Grouped.model_validate_json(line).group in groups
        return Rollout.model_validate_json(line) if wanted else None

    others = sorted(rollouts.parent.parent.glob(f"*/{rollouts.name}"), reverse=True)
    for folder in (rollouts, *(other for other in others if other < rollouts)):
        for asked in range(step, 0, -1):  # a group's conversations are of one step
            found = [r for r in parsed_lines(rollouts_file(folder, asked), parse) if r is not None]
            groups = groups - {rollout.group for rollout in found}
            yield from found
            if not groups:
                return


def run_rollouts(run: Path) -> Iterator[Rollout]:
    """All rollouts of an RL run, by the step that asked for them; of a repeated step those of its
    last attempt. With a policy a role those of one role's training come before the other's.

    Args:
        run: The run's folder (`MultiTurnRLConfig.output_dir`).
    """
    folder = RLFolder(run)
    for own in folder.roles():
        yield from run_rollouts(own.root)
    latest: dict[int, AttemptFolder] = {}
    for attempt in folder.attempts():
        for path in attempt.rollouts.glob("step_*.jsonl"):
            latest[int(path.stem.removeprefix("step_"))] = attempt
    for step in sorted(latest):
        path = rollouts_file(latest[step].rollouts, step)
        yield from parsed_lines(path, Rollout.model_validate_json)


_NO_FAULT = b'"fault":null'
"""In the line of a rollout without a fault; in a text the quotes would be escaped."""


class _Fault(BaseModel):
    fault: str | None = None


def _fault(line: bytes) -> str | None:
    """Of a rollout's line; None of one that is none, which its readers skip, too."""
    if _NO_FAULT in line:
        return None
    try:
        return _Fault.model_validate_json(line).fault
    except ValidationError:
        return None


class RolloutCounter:
    """How many conversations of a step have ended by now, and the faults that ended some of them;
    reads only what is new."""

    def __init__(self, rollouts: Path) -> None:
        self._rollouts = rollouts
        self._step = -1
        self._offset = 0
        self._count = 0
        self.faults: list[str] = []
        """Of the step that was counted last."""

    def count(self, step: int) -> int:
        """Ended conversations of `step`. Steps are asked for in rising order."""
        if step != self._step:
            self._step, self._offset, self._count, self.faults = step, 0, 0, []
        path = rollouts_file(self._rollouts, step)
        if path.exists():
            with path.open("rb") as file:
                file.seek(self._offset)
                new = file.read()
            new = new[: new.rfind(b"\n") + 1]  # what follows may be taken back by its writer
            self._offset += len(new)
            lines = new.splitlines()
            self._count += len(lines)
            self.faults += filter(None, map(_fault, lines))
        return self._count


# --- conversations of any kind --------------------------------------------------------------------


class _Rollout(BaseModel):
    """A rollout as far as its conversation is concerned: of any version, whatever else it holds."""

    state: CUDAConversationState


def read_conversations(
    path: Path, skipped: Callable[[int], None] | None = None
) -> Iterator[CUDAConversationState]:
    """The conversations of a JSON-lines file, rollouts of RL among them. skipped: as in
    `parsed_lines`."""
    return parsed_lines(path, _conversation, skipped)


def episodes(run: Path) -> Iterator[CUDAConversationState]:
    """The conversations of a run, in the order in which they were stored.

    Args:
        run: What a command of ours left: a folder of `solve`, of `eval`, of `rft`, of the
            quickstart or of RL, or one of their files.

    Raises:
        UsageError: where there is no such run, or nothing of ours in it.
    """
    if not run.exists():
        raise UsageError(f"there is no run {run}: give a folder that one of our commands wrote")
    found = False
    for state in _of_file(run) if run.is_file() else _of_folder(run):
        found = True
        yield state
    if not found and EvalFolder(run).manifest.exists():
        raise UsageError(
            f"{run} is an evaluation that is not finished, and its conversations are written at "
            "its end: the command that began it goes on with it"
        )
    if not found:
        raise UsageError(
            f"{run} holds no conversation of ours: give the --output-dir of solve, of eval, of "
            "rft, of the quickstart or of a training run, or one of their .jsonl files"
        )


def _of_folder(folder: Path) -> Iterator[CUDAConversationState]:
    run = RunFolder(folder)
    samples = (RejectionFolder(folder).samples, run.rft.samples)
    of_evaluations = [EvalFolder(root).conversations for root in (folder, *samples)]
    evaluations = (run.evaluations, run.sft.evaluations)
    of_stages = [path for root in evaluations for path in evaluations_in(root).values()]
    for path in (SolveFolder(folder).transcript, *of_evaluations, *of_stages):
        if path.exists():
            yield from _of_file(path)
    for root in (folder, run.rl.root):
        for rollout in run_rollouts(root):
            yield rollout.state


def _of_file(path: Path) -> Iterator[CUDAConversationState]:
    if path.suffix != ".json":
        yield from read_conversations(path)
        return
    try:
        yield _conversation(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as e:
        first = str(e).splitlines()[0]
        raise UsageError(f"{path} is no conversation of ours ({first})") from e


def _conversation(text: str) -> CUDAConversationState:
    try:
        return _Rollout.model_validate_json(text).state
    except ValidationError:
        return CUDAConversationState.model_validate_json(text)
