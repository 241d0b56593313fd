"""Static pages of runs, to share: no server, no script, nothing fetched but their style sheet."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from coding_framework.errors import UsageError
from coding_framework.evaluation.charts import Series, line_chart
from coding_framework.evaluation.report import STYLE
from coding_framework.paths import write_atomic
from coding_framework.viewer import charts, pages, search
from coding_framework.viewer.conversation import conversation_page
from coding_framework.viewer.library import Library
from coding_framework.viewer.rendering import render
from coding_framework.viewer.runs import FoundRun
from coding_framework.viewer.search import filter_from

MOST = 500
"""Conversations of a run."""
SHOWN = ("diff", "prompt", "compiler", "tests", "profile", "reward")


def write_pages(library: Library, target: Path, query: str) -> int:
    """Pages of all runs in a new folder; returns how many. Raises UsageError."""
    if target.exists() and any(target.iterdir()):
        raise UsageError(f"{target} is not empty: give a new folder to --export")
    target.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(STYLE, target / "style.css")
    wanted = filter_from(dict(parse_qsl(query)))
    count = 1
    found = []
    for run in library.runs():
        folder = target / run.id
        with library.index(run) as db:
            rows = search.listed(db, wanted, limit=MOST).rows
        for row in rows:
            write_atomic(folder / f"{row['key']}.html", _conversation(library, run, row["key"]))
        drawn = [(c["title"], _chart(c)) for c in charts.charts_of(run, charts.Options())]
        overview = pages.run_page(library, {}, run.id)
        more = {"export": True, "root": "../", "home": "../index.html", "exported": rows}
        write_atomic(
            folder / "index.html", render("export_run.html.j2", overview, drawn=drawn, **more)
        )
        count += len(rows) + 1
        found.append((run, overview["row"], len(rows)))
    values = {"runs": found, "export": True, "root": "", "home": "index.html"}
    write_atomic(target / "index.html", render("export.html.j2", values))
    return count


def _conversation(library: Library, run: FoundRun, key: str) -> str:
    first = conversation_page(library, {}, run.id, key)
    turns = [
        [conversation_page(library, {"turn": str(i + 1), "view": v}, run.id, key) for v in SHOWN]
        for i in range(len(first["turns"]))
    ]
    more: dict[str, Any] = {"export": True, "root": "../", "home": "../index.html"}
    return render("export_conversation.html.j2", first, shown=turns, **more)


def _chart(chart: Mapping[str, Any]) -> Any:
    x, columns = chart["x"], [line["values"] for line in chart["series"]]
    bands = {low - 1: _points(x, columns[low], columns[high]) for low, high in chart["bands"]}
    edges = {i for pair in chart["bands"] for i in pair}
    lines = [
        Series(
            name=line["name"],
            points=_points(x, columns[i]),
            colour=i % 5 + 2,
            band=bands.get(i, ()),
        )
        for i, line in enumerate(chart["series"])
        if i not in edges
    ]
    return line_chart(lines, x_label=chart["x_label"], y_label=chart["unit"] or chart["title"])


def _points(*columns: Sequence[float | None]) -> tuple[Any, ...]:
    """The rows that have a value in every column."""
    return tuple(row for row in zip(*columns, strict=True) if None not in row)
