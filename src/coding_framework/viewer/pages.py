"""What the pages about runs show: a function a page, from the address to the template's values."""

from __future__ import annotations

import contextlib
import math
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import orjson

from coding_framework.evaluation.metrics import wilson
from coding_framework.evaluation.summary import Summary, headline, rl_steps
from coding_framework.store.folder import RunFolder
from coding_framework.store.records import StepRecord
from coding_framework.store.run_status import (
    Alert,
    latest_system,
    read_alerts,
    read_heartbeat,
    read_identity,
)
from coding_framework.viewer import search
from coding_framework.viewer.charts import options_in
from coding_framework.viewer.figures import share_bar
from coding_framework.viewer.index import state_in
from coding_framework.viewer.library import Library, NotThereError
from coding_framework.viewer.runs import (
    FoundRun,
    config_of,
    newest_evaluation,
    rl_folders,
    sft_folder,
    state_of,
    steps_of,
)
from coding_framework.viewer.search import Filter, Row, filter_from

Query = Mapping[str, str]
MAX_GROUPS = 64
FEW_STEPS = 3
"""Of half a course at least, before anything is said of it."""
NEWEST = 8
NEW_BYTES = 4 << 20
"""Of a run that goes on this much may be unread at any moment: that is not told."""


def runs_page(library: Library, query: Query) -> dict[str, Any]:
    """All runs; `q` and `kind` filter, `sort` orders."""
    rows = [_run_row(library, run) for run in library.runs()]
    wanted, kind = query.get("q", "").lower(), query.get("kind", "")
    shown = [
        row for row in rows if wanted in row["run"].name.lower() and kind in ("", row["run"].kind)
    ]
    keys: dict[str, Any] = {
        "name": lambda r: r["run"].name,
        "pass": lambda r: -(r["rate"] or 0.0),
        "speedup": lambda r: -(r["totals"].best or 0.0),
        "conversations": lambda r: -r["totals"].count,
    }
    order = query.get("sort", "newest")
    shown.sort(key=keys.get(order, lambda r: -r["changed"]))
    kinds = sorted({row["run"].kind for row in rows})
    return {"rows": shown, "all": len(rows), "kinds": kinds, "kind": kind, "q": query.get("q", ""),
            "sort": order}  # fmt: skip


def _run_row(library: Library, run: FoundRun) -> dict[str, Any]:
    label = newest_evaluation(run)
    totals = library.totals(run, label)
    notes = library.notes(run)
    changed = _last_change(run)
    return {
        "run": run, "totals": totals, "of": label, "state": state_of(run), "changed": changed,
        "age_s": max(0.0, time.time() - changed),
        "device": notes.get("device", ""), **pass_rate(totals.correct, totals.judged),
        "reading": notes.get("done", 0) < notes.get("total", 1),
    }  # fmt: skip


def _last_change(run: FoundRun) -> float:
    """When the run wrote anything last, by its folder and what tells of it; seconds since 1970."""
    names = ("", "heartbeat.json", "steps.jsonl", "conversations.jsonl")
    found = [0.0]
    for path in [run.root] if run.kind == "file" else [run.root / name for name in names]:
        with contextlib.suppress(OSError):
            found.append(path.stat().st_mtime)
    return max(found)


def head_of(library: Library, run_id: str) -> dict[str, Any]:
    """What every page of a run shows above."""
    run = library.run(run_id)
    notes = library.notes(run)
    total = notes.get("total", 0)
    done = notes.get("done", 0)
    return {
        "run": run,
        "state": state_of(run),
        "has_steps": any(steps_of(folder) for _, folder in rl_folders(run)),
        "is_evaluation": run.kind == "evaluation",
        "has_system": any((run.root / name).exists() for name in ("system.jsonl", "judge.jsonl")),
        "reading": None if notes and total - done < NEW_BYTES else done / max(total, 1),
    }


def run_page(library: Library, query: Query, run_id: str) -> dict[str, Any]:
    """The overview."""
    head = head_of(library, run_id)
    run = head["run"]
    row = _run_row(library, run)
    with library.index(run) as db:
        counts = library.facets(run, Filter(), db)
        by_label = search.totals_by_label(db)
        newest = search.listed(db, Filter(), limit=NEWEST).rows
        best = search.fastest(db, tasks=5)
        broken = search.broken_lines(db)
    return {
        **head,
        "row": row,
        "judgement": judgement(run, row["totals"]),
        "identity": read_identity(run.root),
        "config": config_of(run),
        "counts": counts,
        "bar": share_bar(counts["status"]),
        "parts": _parts(run, by_label),
        "newest": newest,
        "best": best,
        "broken": broken,
        "alerts": _alerts(run),
        "beat": read_heartbeat(run.root) if head["state"] == "alive" else None,
        "steps": _last_steps(run),
        "options": options_in(query),
        "has_charts": head["has_steps"] or _has_sft(run) or read_heartbeat(run.root) is not None,
    }


def judgement(run: FoundRun, totals: search.Totals) -> str:
    """Whether it goes well, in one sentence: the report's, once a whole run has one."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return headline(Summary.model_validate_json(RunFolder(run.root).summary.read_bytes()))
    courses = [_course(label, steps_of(folder)) for label, folder in rl_folders(run)]
    if any(courses):
        return " ".join(filter(None, courses))
    if not totals.judged:
        return "No conversation is judged yet." if totals.count else ""
    low, high = wilson(totals.correct, totals.judged)
    share = f"{totals.correct} of {totals.judged}"
    return f"{share} conversations have a correct kernel (95%: {low:.0%} to {high:.0%})."


def _course(label: str, steps: Sequence[StepRecord]) -> str:
    """How the share of solved conversations went, the first third of the steps against the last."""
    rates = [s.solved_rate for s in steps if s.solved_rate is not None]
    of = "" if label == "rl" else f"{label}: "
    if not rates:
        return ""
    if len(rates) < 2 * FEW_STEPS:
        return f"{of}After {rl_steps(len(rates))} it is too early to say whether RL helps."
    third = len(rates) // 3
    first, last = sum(rates[:third]) / third, sum(rates[-third:]) / third
    errors = [s.solved_error or 0.0 for s in steps if s.solved_rate is not None]
    noise = 1.96 * math.hypot(*errors[:third], *errors[-third:]) / third
    word = "no clear change" if abs(last - first) <= noise else "up" if last > first else "down"
    return (
        f"{of}{word}: {first:.0%} solved in the first third of the steps, {last:.0%} in the last."
    )


def newest_page(library: Library, query: Query, run_id: str) -> dict[str, Any]:
    """The last conversations alone: what an open page asks for each time one is added."""
    run = library.run(run_id)
    with library.index(run) as db:
        return {"run": run, "newest": search.listed(db, Filter(), limit=NEWEST).rows}


def conversations_page(library: Library, query: Query, run_id: str) -> dict[str, Any]:
    """A list under a filter, with counts by facet."""
    head = head_of(library, run_id)
    wanted = filter_from(query)
    with library.index(head["run"]) as db:
        page = search.listed(db, wanted, query.get("after", ""))
        counts = library.facets(head["run"], wanted, db)
    matching = sum(n for status, n in counts["status"] if wanted.status in ("", status))
    return {**head, "filter": wanted, "page": page, "facets": counts, "matching": matching,
            "sorts": list(search.SORTS)}  # fmt: skip


def steps_page(library: Library, query: Query, run_id: str) -> dict[str, Any]:
    """All steps as a table, the last one first."""
    head = head_of(library, run_id)
    steps = [
        (label, record)
        for label, folder in rl_folders(head["run"])
        for record in reversed(steps_of(folder))
    ]
    return {**head, "steps": steps[:500], "more": len(steps) > 500}


def step_page(library: Library, query: Query, run_id: str, step: str) -> dict[str, Any]:
    """A step in figures, and its groups by the variance of their returns. Raises NotThereError."""
    head = head_of(library, run_id)
    run = head["run"]
    if not step.isdecimal() or len(step) > 12:
        raise NotThereError("a step is a number")
    label = query.get("label", rl_folders(run)[0][0] if rl_folders(run) else "")
    record = next((r for r in _records(run, label) if r.step == int(step)), None)
    wanted = Filter(step=str(int(step)), label=label)
    with library.index(run) as db:
        groups = sorted(search.by_group(db, "grp", wanted), key=lambda g: -(g["variance"] or 0.0))
        rows = search.listed(db, wanted.but(sort="oldest"), limit=2_000).rows
    members: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        members[row["grp"]].append(row)
    if record is None and not rows:
        raise NotThereError(f"the run has no step {int(step)}")
    known = sorted({r.step for r in _records(run, label)})
    return {
        **head, "step": int(step), "label": label, "record": record,
        "groups": [(g, members[g["name"]]) for g in groups[:MAX_GROUPS]], "count": len(groups),
        "previous": max((s for s in known if s < int(step)), default=None),
        "following": min((s for s in known if s > int(step)), default=None),
    }  # fmt: skip


def system_page(library: Library, query: Query, run_id: str) -> dict[str, Any]:
    """What machine and judge did: its charts, and what the machine is."""
    head = head_of(library, run_id)
    run = head["run"]
    return {
        **head, "identity": read_identity(run.root), "last": latest_system(run.root),
        "alerts": _alerts(run), "options": options_in(query), "has_charts": True,
    }  # fmt: skip


def tasks_page(library: Library, query: Query, run_id: str) -> dict[str, Any]:
    """All tasks with what their conversations came to."""
    head = head_of(library, run_id)
    wanted = filter_from(query)
    with library.index(head["run"]) as db:
        rows = [_rates(row) for row in search.by_group(db, "task", wanted)]
    orders: dict[str, Any] = {
        "name": lambda r: r["name"],
        "hardest": lambda r: (r["rate"] if r["rate"] is not None else 2, r["name"]),
        "speedup": lambda r: -(r["best"] or 0),
    }
    order = query.get("sort", "hardest")
    rows.sort(key=orders.get(order, orders["hardest"]))
    return {**head, "tasks": rows[:1_000], "count": len(rows), "sort": order}


def task_page(library: Library, query: Query, run_id: str) -> dict[str, Any]:
    """A task: what it is, its best kernel, every sample. Raises NotThereError."""
    head = head_of(library, run_id)
    run, name = head["run"], query.get("task", "")
    wanted = Filter(task=name)
    with library.index(run) as db:
        best = search.listed(db, wanted.but(sort="speedup"), limit=1).rows
        rows = search.listed(db, wanted.but(sort="newest"), limit=200).rows
        by_label = [_rates(row) for row in search.by_group(db, "label", wanted)]
    if not rows or not name:
        raise NotThereError("the run has no conversation about that task")
    _, found = library.conversation(run, best[0]["key"] if best else rows[0]["key"])
    task = state_in(found)["task"]
    return {**head, "name": name, "task": task, "rows": rows, "labels": by_label, "best": best[0]}


def code_of(library: Library, run_id: str, key: str, turn: str) -> str:
    """The whole kernel of a turn, to download. Raises NotThereError."""
    _, found = library.conversation(library.run(run_id), key)
    turns = state_in(found)["turns"]
    chosen = int(turn) - 1 if turn.isdecimal() and len(turn) < 6 else len(turns) - 1
    if not 0 <= chosen < len(turns):
        raise NotThereError("the conversation has no such turn")
    extraction = turns[chosen].get("extraction") or {}
    return str(extraction.get("code") or (turns[chosen].get("generation") or {}).get("text") or "")


def _rates(row: Row) -> dict[str, Any]:
    """A group's row with its pass rate and the 95% interval."""
    return {**dict(row), **pass_rate(row["correct"] or 0, row["judged"] or 0)}


def pass_rate(correct: int, judged: int) -> dict[str, float | None]:
    """The share that is correct with its 95% interval; None where nothing is judged."""
    if not judged:
        return {"rate": None, "low": None, "high": None}
    low, high = wilson(correct, judged)
    return {"rate": correct / judged, "low": low, "high": high}


def _records(run: FoundRun, label: str) -> list[StepRecord]:
    return [r for name, folder in rl_folders(run) if name == label for r in steps_of(folder)]


def _last_steps(run: FoundRun) -> list[tuple[str, StepRecord]]:
    """The last record of each policy that RL trains."""
    found = ((label, steps_of(folder)) for label, folder in rl_folders(run))
    return [(label, records[-1]) for label, records in found if records]


def _has_sft(run: FoundRun) -> bool:
    sft = sft_folder(run)
    return sft is not None and sft.metrics.exists()


def _parts(run: FoundRun, by_label: Mapping[str, search.Totals]) -> list[dict[str, Any]]:
    """What a run consists of: its stages with what their conversations came to, then what else has
    conversations."""
    labels = {name: _rates({"label": name, **asdict(told)}) for name, told in by_label.items()}
    rows = []
    for stage in _stages(run):
        name = str(stage["name"]).replace("_", " ")
        rows.append({**labels.pop(name, {}), **stage, "name": name})
    return rows + [{**told, "name": name} for name, told in labels.items()]


def _stages(run: FoundRun) -> list[dict[str, Any]]:
    """The stages of a whole run: finished ones with their cost, then those that were begun."""
    try:
        manifest = orjson.loads(RunFolder(run.root).stages.read_bytes())
        finished, started = manifest.get("stages", {}), manifest.get("started", {})
    except (OSError, orjson.JSONDecodeError, AttributeError):
        return []
    rows = [{"name": name, **stage} for name, stage in finished.items() if isinstance(stage, dict)]
    return rows + [{"name": name, "wall_s": None} for name in started if name not in finished]


def _alerts(run: FoundRun) -> list[Alert]:
    """The last things that the run itself noticed."""
    folders = dict.fromkeys([run.root, *(folder.root for _, folder in rl_folders(run))])
    return [alert for folder in folders for alert in read_alerts(folder)][-5:]
