"""The page that compares runs: two of them task by task, up to eight in figures and curves, those
that differ only in their seed as one line with a band."""

from __future__ import annotations

import os
import sqlite3
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from coding_framework.errors import UsageError
from coding_framework.evaluation.compare import compare_runs
from coding_framework.evaluation.samples import SampleRecord, sample_record
from coding_framework.monitoring.text import one_line
from coding_framework.store.conversations import read_conversations
from coding_framework.viewer import search
from coding_framework.viewer.charts import Column, Options, chart, charts_of, options_in
from coding_framework.viewer.library import Library
from coding_framework.viewer.pages import Query, pass_rate
from coding_framework.viewer.runs import (
    FoundRun,
    config_of,
    newest_evaluation,
    rl_folders,
    sources_of,
)
from coding_framework.viewer.search import Filter, Row

MOST_RUNS = 8
MAX_COMPARED = 20_000
MAX_TASKS = 200
LETTERS = "ABCDEFGH"
GROUPS = {
    "": "each run alone",
    "seed": "runs that differ only in their seed",
    "folder": "runs of one folder",
}
"""How runs are drawn together."""
CURVES = {
    "solved": ("solved",), "reward": ("all turns",), "funnel": ("compiles", "correct"),
    "speedup": ("p50",), "groups": ("share",), "kl": ("KL", "entropy"), "gradient": ("norm",),
    "length": ("mean",), "sft-loss": ("loss",),
    "sft-held-out": ("held-out loss", "held-out pass rate"),
}  # fmt: skip
"""Of a run's charts what is compared: the end of a chart's id -> its series."""


@dataclass(frozen=True, slots=True)
class Side:
    """What is compared: a run, or the conversations of one label of it."""

    value: str
    """Names it in an address: a run's id, or id:label."""
    run: FoundRun
    label: str
    letter: str
    group: str
    """Sides of one group are drawn together."""

    @property
    def name(self) -> str:
        return f"{self.run.name} · {self.label}" if self.label else self.run.name


def compare_page(library: Library, query: Query) -> dict[str, Any]:
    """Sets of conversations (`runs`, or `a` and `b`: a run's id, or id:label): two are paired by
    task. Raises NotThereError, and UsageError where there are too many."""
    sides = _sides(library, query)
    shown: dict[str, Any] = {
        "choices": _choices(library), "sides": sides, "rows": [_row(library, s) for s in sides],
        "groups": GROUPS, "group": query.get("group", ""), "options": options_in(query),
        "found": None, "fault": "", "joined": _joined(sides), "grid": _grid(library, sides),
        "has_charts": sum(_has_curves(s) for s in sides) > 1,
    }  # fmt: skip
    if len(sides) != 2:
        return shown
    a, b = sides
    try:
        return {**shown, "found": compare_runs(_samples(a), _samples(b))}
    except UsageError as e:
        return {**shown, "fault": str(e)}


def _grid(library: Library, sides: Sequence[Side]) -> list[tuple[str, list[Row | None]]]:
    """(task, what each side's conversations about it came to), those first that differ most."""
    if len(sides) < 2:
        return []
    tasks: dict[str, list[Row | None]] = defaultdict(lambda: [None] * len(sides))
    for i, side in enumerate(sides):
        with suppress(sqlite3.Error), library.index(side.run) as db:
            for row in search.by_group(db, "task", Filter(label=side.label)):
                tasks[row["name"]][i] = row

    def apart(cells: list[Row | None]) -> float:
        rates = [(c["correct"] or 0) / c["judged"] for c in cells if c is not None and c["judged"]]
        return max(rates) - min(rates) if len(rates) > 1 else -1.0

    return sorted(tasks.items(), key=lambda item: (-apart(item[1]), item[0]))[:MAX_TASKS]


def compare_charts(library: Library, query: Query, options: Options) -> list[dict[str, Any]]:
    """The curves that several runs have, each run's (or each group's) in a part of its own: runs
    have points at different places of the axis."""
    sides = [side for side in _sides(library, query) if _has_curves(side)]
    lines: dict[tuple[str, str], dict[str, list[_Line]]] = {}
    told: dict[tuple[str, str], Mapping[str, Any]] = {}
    plain = replace(options, smooth=0.0, low=None, high=None)
    for side in sides:
        for made in charts_of(side.run, plain):
            wanted = next((w for end, w in CURVES.items() if _is(made["id"], end)), ())
            for series in made["series"]:
                if series["name"] in wanted:
                    key = (made["id"], series["name"])
                    told.setdefault(key, made)
                    line = _Line(f"{side.letter} {side.name}", made["x"], series["values"])
                    lines.setdefault(key, defaultdict(list))[side.group].append(line)
    return [
        _compared(told[key], key[1], groups, options)
        for key, groups in lines.items()
        if len(groups) > 1 or any(len(of_group) > 1 for of_group in groups.values())
    ]


@dataclass(frozen=True, slots=True)
class _Line:
    name: str
    x: Sequence[float]
    values: Column


def _compared(
    like: Mapping[str, Any], series: str, groups: Mapping[str, Sequence[_Line]], options: Options
) -> dict[str, Any]:
    parts = []
    for of_group in groups.values():
        columns: dict[str, Column]
        if len(of_group) > 1:
            name = f"mean of {''.join(line.name[0] for line in of_group)}"
            x, columns = _mean(name, of_group)
        else:
            x, columns = of_group[0].x, {one_line(of_group[0].name, 44): of_group[0].values}
        more = {"log": like["log"], "bands": [(1, 2)] if len(columns) == 3 else []}
        parts.append(
            chart(
                like["id"], like["title"], like["unit"], columns, more, x, like["x_label"], options
            )
        )
    many = len(CURVES[next(end for end in CURVES if _is(like["id"], end))]) > 1
    title = f"{like['title']}: {series}" if many else like["title"]
    return {**like, "id": f"{like['id']}-{series.replace(' ', '-')}", "title": title, "marks": [],
            "series": [], "x": [], "bands": [], "log": options.log or like["log"],
            "cut": options.cut_of(like["x_label"]),
            "parts": [part for part in parts if part is not None]}  # fmt: skip


def _mean(name: str, lines: Sequence[_Line]) -> tuple[Sequence[float], dict[str, Column]]:
    """The mean of lines with their least and largest, as far as all of them have come; between its
    points a line is straight."""
    known = [
        ([x for x, v in zip(line.x, line.values, strict=True) if v is not None],
         [v for v in line.values if v is not None])
        for line in lines
    ]  # fmt: skip
    if not all(xs for xs, _ in known):
        return [], {name: []}
    low, high = max(xs[0] for xs, _ in known), min(xs[-1] for xs, _ in known)
    grid = sorted({x for xs, _ in known for x in xs if low <= x <= high})
    rows = np.array([np.interp(grid, xs, values) for xs, values in known])
    return grid, {
        name: rows.mean(axis=0).tolist(),
        "least": rows.min(axis=0).tolist(),
        "largest": rows.max(axis=0).tolist(),
    }


def _is(identity: str, end: str) -> bool:
    return identity == end or identity.endswith(f"-{end}")


def _sides(library: Library, query: Query) -> list[Side]:
    given = [query.get("a", ""), query.get("b", ""), *query.get("runs", "").split(",")]
    names = list(dict.fromkeys(name for name in given if name))
    if len(names) > MOST_RUNS:
        raise UsageError(f"{len(names)} runs are too many to compare: choose up to {MOST_RUNS}")
    by = query.get("group", "")
    sides = []
    for letter, name in zip(LETTERS, names, strict=False):
        run_id, _, label = name.partition(":")
        run = library.run(run_id)
        label = label or newest_evaluation(run)
        sides.append(Side(name, run, label, letter, _group_of(run, label, by) or name))
    return sides


def _group_of(run: FoundRun, label: str, by: str) -> str:
    """Runs with equal texts are drawn together; "": with no other."""
    if by == "folder":
        return f"{run.root.parent}\n{label}"
    if by != "seed":
        return ""
    told = config_of(run)
    return f"{_without_seed(told, str(run.root.parent))}\n{label}" if told else ""


def _without_seed(value: Any, above: str) -> Any:
    """A configuration without its seeds and without where the run lies."""
    if isinstance(value, dict):
        return {
            name: _without_seed(inner, above)
            for name, inner in sorted(value.items())
            if name not in ("seed", "output_dir")
        }
    if isinstance(value, str) and value.startswith(f"{above}{os.sep}"):
        return value[len(above) :].partition(os.sep)[2].partition(os.sep)[2]
    return value


def _joined(sides: Sequence[Side]) -> list[str]:
    """The letters of each group of several sides."""
    groups: dict[str, str] = defaultdict(str)
    for side in sides:
        groups[side.group] += side.letter
    return [letters for letters in groups.values() if len(letters) > 1]


def _has_curves(side: Side) -> bool:
    return side.run.kind in ("whole run", "RL", "SFT") and (
        not side.label or side.run.kind == "whole run"
    )


def _row(library: Library, side: Side) -> dict[str, Any]:
    """A side in figures."""
    totals = library.totals(side.run, side.label)
    return {
        "side": side, **asdict(totals), **pass_rate(totals.correct, totals.judged),
        "device": library.notes(side.run).get("device"),
    }  # fmt: skip


def _choices(library: Library) -> list[tuple[str, str]]:
    """(value, name) of what can be compared: a run, or one label of a run with several."""
    found = []
    for run in library.runs():
        labels = list(dict.fromkeys(source.label for source in sources_of(run)))
        if len(labels) > 1:
            found += [(f"{run.id}:{label}", f"{run.name} · {label}") for label in labels]
        elif labels or rl_folders(run) or run.kind == "SFT":
            found.append((run.id, run.name))
    return found


def _samples(side: Side) -> list[SampleRecord]:
    """The sample records of a side's conversations."""
    records: list[SampleRecord] = []
    for source in sources_of(side.run):
        if side.label in ("", source.label):
            states = read_conversations(source.path, lambda _: None)
            records += [sample_record(state) for state in states if state.turns]
        if len(records) > MAX_COMPARED:
            raise UsageError(
                f"more than {MAX_COMPARED:,} conversations are compared by `cuda-rl eval compare`"
            )
    if not records:
        raise UsageError(f"{side.name} has no conversation of this version: choose another run")
    return records
