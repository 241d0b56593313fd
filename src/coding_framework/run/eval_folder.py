"""A finished evaluation in its folder: shown again, and verified.

`verify_folder` believes no derived file: it makes records and summary anew from the conversations,
looks for answers and verdicts that are there twice, and judges a part of the kernels again.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from coding_framework.cuda.protocol import PROTOCOL
from coding_framework.errors import InfrastructureError, UsageError
from coding_framework.evaluation.eval_report import write_eval_report
from coding_framework.evaluation.leaderboard import write_leaderboard
from coding_framework.evaluation.outcome import EvalOutcome, summaries_of
from coding_framework.evaluation.samples import SampleRecord, sample_record
from coding_framework.monitoring.progress import Progress
from coding_framework.run.evaluation import read_sample_records
from coding_framework.store.conversations import read_conversations
from coding_framework.store.folder import EvalFolder
from coding_framework.store.lines import parsed_lines
from coding_framework.types import (
    Candidate,
    ConversationTurn,
    CUDAConversationState,
    JudgeFn,
    Record,
)
from coding_framework.wiring import JudgeSettings, make_judge


class Verification(Record):
    """What `cuda-rl eval verify` found."""

    samples: int
    judged_again: int
    problems: tuple[str, ...]
    """One sentence each; none: everything is as it was said."""


def read_outcome(folder: Path) -> EvalOutcome:
    """The summary of a finished evaluation. Raises UsageError where there is none."""
    path = EvalFolder(folder).summary
    if not EvalFolder(folder).manifest.exists() and not path.exists():
        raise UsageError(f"{folder} is no evaluation: give the folder that `cuda-rl eval` wrote")
    try:
        return EvalOutcome.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, ValidationError, UnicodeDecodeError) as e:
        first = str(e).splitlines()[0]
        raise UsageError(f"{path} is no summary of an evaluation of this version ({first})") from e


def write_report_of(folder: Path) -> Path:
    """Make the report of a finished evaluation anew; gives its path. Raises UsageError."""
    records, states = _samples_of(folder)
    write_eval_report(folder, read_outcome(folder), records, states)
    return EvalFolder(folder).report


def write_leaderboard_of(folders: Sequence[Path], path: Path) -> None:
    """The page of these finished evaluations beside published rows. Raises UsageError."""
    runs = [(folder, read_outcome(folder), read_sample_records(folder)) for folder in folders]
    write_leaderboard(path, runs)


def verify_folder(folder: Path, again: int, workers: int | None) -> Verification:
    """again: how many of the kernels are judged again, with fresh inputs. Raises UsageError where
    the folder is no finished evaluation."""
    outcome = read_outcome(folder)
    records, states = _samples_of(folder)
    problems = [
        *_twice(folder),
        *_changed_records(outcome, records, states),
        *_changed_summary(outcome, records),
    ]
    protocol = outcome.eval.judge.get("protocol")
    if protocol != PROTOCOL:
        problems.append(f"it was judged by protocol {protocol}, and this is {PROTOCOL}")
    judged = [(s, t) for s in states for t in s.turns if t.code is not None and t.verdict]
    chosen = random.Random(0).sample(judged, min(again, len(judged)))
    if chosen:
        settings = {n: v for n, v in outcome.eval.judge.items() if n != "protocol"}
        judge = make_judge(**JudgeSettings(**settings, workers=workers).model_dump())
        try:
            problems += asyncio.run(_other_verdicts(chosen, judge))
        finally:
            judge.close()
    return Verification(samples=len(records), judged_again=len(chosen), problems=tuple(problems))


def _samples_of(folder: Path) -> tuple[list[SampleRecord], list[CUDAConversationState]]:
    """Raises UsageError where the two files are not of one run."""
    records = read_sample_records(folder)
    states = list(read_conversations(EvalFolder(folder).conversations))
    names = [f"{r.suite}/{r.task}/{r.sample}" for r in records]
    if names != [state.conversation_id for state in states]:
        raise UsageError(
            f"records.jsonl and conversations.jsonl in {folder} do not belong together: run the "
            "evaluation's command again, which makes them anew"
        )
    return records, states


def _twice(folder: Path) -> Iterator[str]:
    for path, field in (
        (EvalFolder(folder).answers, "answer"),
        (EvalFolder(folder).verdicts, "verdict"),
    ):
        keys = Counter(e["key"] for e in parsed_lines(path, json.loads) if field in e)
        for key, count in keys.items():
            if count > 1:
                yield f"{path.name} holds the {field} {key} {count} times"


def _changed_records(
    outcome: EvalOutcome,
    records: Sequence[SampleRecord],
    states: Sequence[CUDAConversationState],
) -> Iterator[str]:
    elsewhere = ("holdout_status", "holdout_speedup", "holdout_reason")
    for record, state in zip(records, states, strict=True):
        name = f"{record.task}/{record.sample}"
        made = sample_record(
            state,
            suite=record.suite,
            sample=record.sample,
            baseline=record.baseline,
            level=record.level,
        ).model_copy(update=record.model_dump(include=set(elsewhere)))
        for field in sorted(record.model_fields_set):  # an older version says less
            said, found = getattr(record, field), getattr(made, field)
            if said != found:
                yield f"{name}: {field} is {found!r} in its conversation, and {said!r} was said"
        for turn in state.turns:
            if turn.code is not None and turn.verdict is not None:
                own = Candidate.model_construct(code=turn.code).sha256
                if own != turn.verdict.candidate_sha256:
                    yield f"{name}: the verdict of turn {turn.index + 1} is of another kernel"


def _changed_summary(outcome: EvalOutcome, records: Sequence[SampleRecord]) -> Iterator[str]:
    names = [summary.suite for summary in outcome.suites]
    made = summaries_of(names, records, outcome.ks, outcome.thresholds)
    for said, found in zip((outcome.overall, *outcome.suites), made, strict=True):
        if not _says(
            found.model_dump(mode="json"), said.model_dump(mode="json", exclude_unset=True)
        ):
            yield f"summary.json: the numbers of {said.suite} are not those of the records"


def _says(found: Any, said: Any) -> bool:
    """Whether all that a summary says is found; one of an older version says less."""
    if isinstance(said, dict) and isinstance(found, dict):
        return all(name in found and _says(found[name], said[name]) for name in said)
    if isinstance(said, list) and isinstance(found, list) and len(said) == len(found):
        return all(map(_says, found, said))
    return bool(said == found)


async def _other_verdicts(
    chosen: Sequence[tuple[CUDAConversationState, ConversationTurn]], judge: JudgeFn
) -> list[str]:
    problems = []
    with Progress("  judging again", len(chosen), "kernels") as progress:

        async def one(state: CUDAConversationState, turn: ConversationTurn) -> None:
            assert turn.verdict is not None
            assert turn.code is not None
            name, said = f"{state.conversation_id}, turn {turn.index + 1}", turn.verdict.status
            try:
                verdict = await judge(state.task, turn.code)
            except InfrastructureError as e:
                problems.append(f"{name} could not be judged again: {e}")
            else:
                if verdict.status is not said:
                    problems.append(f"{name} is {verdict.status.value} now, and was {said.value}")
            progress.advance()

        await asyncio.gather(*(one(state, turn) for state, turn in chosen))
    return problems
