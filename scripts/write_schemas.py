#!/usr/bin/env python3
"""Writes docs/schemas: the JSON schemas of files that other programs read.

    uv run scripts/write_schemas.py

A test compares them with the records, so that they are never old.
"""

from __future__ import annotations

from pathlib import Path

from coding_framework.evaluation.outcome import EvalOutcome
from coding_framework.evaluation.samples import SampleRecord
from coding_framework.paths import write_json_atomic

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "schemas"
SCHEMAS = {"eval_summary.json": EvalOutcome, "eval_records.json": SampleRecord}


def main() -> int:
    for name, record in SCHEMAS.items():
        write_json_atomic(FOLDER / name, record.model_json_schema(mode="serialization"))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
