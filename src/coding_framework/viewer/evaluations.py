"""Pages of evaluations: what one came to, and two of them compared task by task."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from coding_framework.errors import UsageError
from coding_framework.evaluation.compare import compare_runs
from coding_framework.evaluation.eval_report import eval_charts
from coding_framework.evaluation.outcome import EvalOutcome
from coding_framework.evaluation.samples import SampleRecord, sample_record
from coding_framework.store.conversations import read_conversations
from coding_framework.store.folder import EvalFolder
from coding_framework.store.lines import parsed_lines
from coding_framework.viewer import search
from coding_framework.viewer.library import Library, NotThereError
from coding_framework.viewer.pages import Query, head_of
from coding_framework.viewer.runs import FoundRun, sources_of
from coding_framework.viewer.search import Filter

MAX_COMPARED = 20_000


def evaluation_page(library: Library, query: Query, run_id: str) -> dict[str, Any]:
    """The summary of a finished evaluation, with its charts. Raises NotThereError."""
    head = head_of(library, run_id)
    folder = EvalFolder(head["run"].root)
    if head["run"].kind != "evaluation":
        raise NotThereError("that run is no evaluation: its overview shows it")
    try:
        outcome = EvalOutcome.model_validate_json(folder.summary.read_bytes())
    except FileNotFoundError:
        return {**head, "outcome": None, "charts": [], "fault": "The evaluation goes on."}
    except (OSError, ValidationError):
        text = "Its summary.json is of another version; the conversations can be read."
        return {**head, "outcome": None, "charts": [], "fault": text}
    records = list(parsed_lines(folder.records, SampleRecord.model_validate_json))
    return {**head, "outcome": outcome, "charts": eval_charts(outcome, records), "fault": ""}


def compare_page(library: Library, query: Query) -> dict[str, Any]:
    """Two sets of conversations (`a`, `b`: a run's id, or id:label), paired by task."""
    choices = _choices(library)
    names = [query.get("a", ""), query.get("b", "")]
    names += [part for part in query.get("runs", "").split(",") if part]
    a, b, *_ = [*[n for n in names if n], "", ""]
    shown: dict[str, Any] = {"choices": choices, "a": a, "b": b, "found": None, "fault": "",
                             "kernels": {}}  # fmt: skip
    if not a or not b:
        return shown
    (run_a, label_a), (run_b, label_b) = (_side(library, name) for name in (a, b))
    try:
        found = compare_runs(_samples(run_a, label_a), _samples(run_b, label_b))
    except UsageError as e:
        return {**shown, "fault": str(e)}
    keys = {
        task: (_best(library, run_a, label_a, task), _best(library, run_b, label_b, task))
        for task in (*found.lost[:50], *found.won[:50])
    }
    return {**shown, "found": found, "kernels": keys, "run_a": run_a, "run_b": run_b}


def _choices(library: Library) -> list[tuple[str, str]]:
    """(value, name) of what can be compared: a run, or one label of a run with several."""
    found = []
    for run in library.runs():
        labels = list(dict.fromkeys(source.label for source in sources_of(run)))
        if len(labels) > 1:
            found += [(f"{run.id}:{label}", f"{run.name} · {label}") for label in labels]
        elif labels:
            found.append((run.id, run.name))
    return found


def _side(library: Library, name: str) -> tuple[FoundRun, str]:
    run_id, _, label = name.partition(":")
    return library.run(run_id), label


def _samples(run: FoundRun, label: str) -> list[SampleRecord]:
    """The sample records of a run's conversations."""
    records: list[SampleRecord] = []
    for source in sources_of(run):
        if label in ("", source.label):
            states = read_conversations(source.path, lambda _: None)
            records += [sample_record(state) for state in states if state.turns]
        if len(records) > MAX_COMPARED:
            raise UsageError(
                f"more than {MAX_COMPARED:,} conversations are compared by `cuda-rl eval compare`"
            )
    if not records:
        raise UsageError(f"{run.name} has no conversation of this version: choose another run")
    return records


def _best(library: Library, run: FoundRun, label: str, task: str) -> str:
    with library.index(run) as db:
        rows = search.listed(db, Filter(task=task, label=label, sort="speedup"), limit=1).rows
    return rows[0]["key"] if rows else ""
