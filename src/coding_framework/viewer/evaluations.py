"""The page of an evaluation: what it came to."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from coding_framework.evaluation.eval_report import eval_charts
from coding_framework.evaluation.outcome import EvalOutcome
from coding_framework.evaluation.samples import SampleRecord
from coding_framework.store.folder import EvalFolder
from coding_framework.store.lines import parsed_lines
from coding_framework.viewer.library import Library, NotThereError
from coding_framework.viewer.pages import Query, head_of


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
