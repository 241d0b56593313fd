"""The runs that a viewer shows, and the way from an address to a record."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

from coding_framework.viewer import search
from coding_framework.viewer.index import connect, index_file, read_line
from coding_framework.viewer.runs import (
    PLACES,
    FoundRun,
    RunKind,
    find_all,
    rl_folders,
    sft_folder,
    state_of,
)

T = TypeVar("T")
STATE_FILES = ("stages.json", "heartbeat.json")
FIND_S = 5.0
"""How long a list of runs is believed."""


class NotThereError(Exception):
    """Nothing lies at an address; the message says what is missing."""


class Library:
    """The runs below some paths, and their indexes."""

    def __init__(self, paths: Sequence[Path], folder: Path) -> None:
        """folder: where the indexes lie."""
        self._paths, self._folder = list(paths), folder
        self._found: dict[str, FoundRun] = {}
        self._at = -FIND_S
        self._lock = threading.Lock()
        self._kept: dict[Any, tuple[Any, Any]] = {}

    def runs(self) -> list[FoundRun]:
        """All runs; looked for again when the last look is some seconds old."""
        return [found for found in self._all() if found.kind not in PLACES]

    def found(self, kind: RunKind) -> list[FoundRun]:
        """Runs, databases of deployments or registries of kernels, likewise."""
        return [found for found in self._all() if found.kind == kind]

    def _all(self) -> list[FoundRun]:
        with self._lock:
            if time.monotonic() - self._at > FIND_S:
                self._found = {run.id: run for run in find_all(self._paths)}
                self._at = time.monotonic()
            return list(self._found.values())

    def run(self, run_id: str) -> FoundRun:
        """Raises NotThereError."""
        for run in self.runs():
            if run.id == run_id:
                return run
        raise NotThereError("there is no run of that id here: it may have been moved or deleted")

    def index(self, run: FoundRun) -> closing[sqlite3.Connection]:
        """Its index, to read. Raises sqlite3.Error while there is none."""
        return connect(index_file(self._folder, run.id))

    def notes(self, run: FoundRun) -> Mapping[str, Any]:
        """How far its index is; empty before there is one."""
        return self._told(run, search.notes, {})

    def totals(self, run: FoundRun, label: str = "") -> search.Totals:
        """What its conversations, or those of a label, came to; zeros before there is an index."""
        if label:
            by_label = self._told(run, search.totals_by_label, dict[str, search.Totals]())
            return by_label.get(label, search.Totals())
        return self._told(run, search.totals, search.Totals())

    def facets(
        self, run: FoundRun, wanted: search.Filter, db: sqlite3.Connection
    ) -> dict[str, list[tuple[str, int]]]:
        """Kept for as long as the index stays as it is."""
        found: dict[str, list[tuple[str, int]]] = self._once(
            run, wanted.but(sort=""), db, lambda: search.facets(db, wanted)
        )
        return found

    def conversation(self, run: FoundRun, key: str) -> tuple[search.Row, Mapping[str, Any]]:
        """(row of the index, the whole conversation). Raises NotThereError."""
        with self.index(run) as db:
            row = search.conversation_at(db, key)
        if row is None:
            raise NotThereError("there is no conversation of that id in this run")
        found = read_line(row["path"], row["offset"], row["length"])
        if found is None:
            raise NotThereError("its file was changed: load the page again when it was read anew")
        return row, found

    def neighbours(self, run: FoundRun, wanted: search.Filter, key: str) -> tuple[str, str]:
        """Keys of the conversations before and after within the filter; "" where there is none."""
        with self.index(run) as db:
            row = search.conversation_at(db, key)
            return ("", "") if row is None else search.neighbours(db, wanted, row)

    def restarts(self, run: FoundRun) -> Mapping[str, Sequence[int]]:
        """By label, the first step of each start of the trainer but the first."""
        return self._told(run, search.restarts, {})

    def step_ends(self, run: FoundRun) -> Sequence[float]:
        """When the last conversation of each step ended, seconds since 1970."""
        return self._told(
            run, lambda db: self._once(run, "ends", db, lambda: search.step_ends(db)), list[float]()
        )

    def versions(self, run: FoundRun) -> dict[str, str]:
        """What a page of the run may show -> a text that changes with it."""
        files = [folder.steps for _, folder in rl_folders(run)]
        sft = sft_folder(run)
        files += [] if sft is None else [sft.metrics]
        notes = self.notes(run)
        return {
            "steps": ",".join(stamp(path) for path in files),
            "conversations": f"{notes.get('version', 0)},{notes.get('done', 0)}",
            "state": ",".join((state_of(run), *(stamp(run.root / n) for n in STATE_FILES))),
            "system": ",".join(
                stamp(run.root / n) for n in ("system.jsonl", "judge.jsonl", "alerts.jsonl")
            ),
        }

    def _told(self, run: FoundRun, ask: Callable[[sqlite3.Connection], T], otherwise: T) -> T:
        """What its index says; `otherwise` before there is one."""
        try:
            with self.index(run) as db:
                return ask(db)
        except sqlite3.Error:
            return otherwise

    def _once(self, run: FoundRun, what: Any, db: sqlite3.Connection, make: Any) -> Any:
        """What `make` gives, kept until the index changes; some hundred answers at most."""
        version = (search.notes(db).get("version"), search.notes(db).get("done"))
        kept = self._kept.get((run.id, what))
        if kept is not None and kept[0] == version:
            return kept[1]
        if len(self._kept) > 300:
            self._kept.clear()
        made = make()
        self._kept[(run.id, what)] = (version, made)
        return made


def stamp(path: Path) -> str:
    """A text that differs when the file has changed."""
    try:
        told = path.stat()
    except OSError:
        return "0"
    return f"{told.st_size}.{told.st_mtime_ns % 10**12}"
