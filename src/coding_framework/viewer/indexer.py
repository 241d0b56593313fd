"""The process that keeps the indexes of all runs up to date; it ends when its standard input does.

    python -m coding_framework.viewer.indexer --index FOLDER [--code] PATH ...

It looks at the files again and again, since notifications of changes work neither on network disks
nor in all containers; the pause is half a second, or three times what a look took. Of two viewers
of one run one writes its index; the other one waits for the lock.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from coding_framework.cuda.toolchain.slots import try_lock
from coding_framework.viewer.index import IndexWriter, index_file, remove_index
from coding_framework.viewer.runs import FoundRun, find_runs, sources_of

PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
LOOK_FOR_RUNS_S = 5.0


class Indexer:
    """The indexes of the runs below some paths."""

    def __init__(self, paths: Sequence[Path], folder: Path, *, code: bool = False) -> None:
        self._paths, self._folder, self._code = paths, folder, code
        self._writers: dict[str, IndexWriter] = {}
        self._locks: dict[str, int] = {}

    def look(self, runs: Sequence[FoundRun]) -> None:
        """Brings all indexes up to date; runs take turns while much is new."""
        looks = [self._updates(run) for run in runs]
        while looks:
            looks = [look for look in looks if next(look, None) is not None]

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()
        for lock in self._locks.values():
            os.close(lock)

    def _updates(self, run: FoundRun) -> Iterator[object]:
        path = index_file(self._folder, run.id)
        if not self._is_mine(run.id):
            return
        try:
            yield from self._writer(run.id, path).update(list(sources_of(run)))
        except sqlite3.DatabaseError:
            writer = self._writers.pop(run.id, None)
            with contextlib.suppress(sqlite3.Error):
                if writer is not None:
                    writer.close()
            remove_index(path)

    def _writer(self, run_id: str, path: Path) -> IndexWriter:
        writer = self._writers.get(run_id)
        if writer is not None and not writer.is_there:
            writer.close()
            writer = None
        if writer is None:
            writer = self._writers[run_id] = IndexWriter(path, code=self._code)
        return writer

    def _is_mine(self, run_id: str) -> bool:
        if run_id in self._locks:
            return True
        lock = try_lock(self._folder / f"{run_id}.lock")
        if lock is not None:
            self._locks[run_id] = lock
        return lock is not None


def main(argv: Sequence[str] | None = None) -> int:
    """Runs until standard input ends, which it does when the viewer does."""
    parser = argparse.ArgumentParser()
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--index", type=Path, required=True)
    parser.add_argument("--code", action="store_true")
    args = parser.parse_args(argv)
    threading.Thread(target=_end_with_input, daemon=True).start()
    os.nice(10)
    indexer = Indexer(args.paths, args.index, code=args.code)
    runs, found_at = find_runs(args.paths), time.monotonic()
    while True:
        began = time.monotonic()
        if began - found_at > LOOK_FOR_RUNS_S:
            runs, found_at = find_runs(args.paths), began
        indexer.look(runs)
        time.sleep(pause_s(time.monotonic() - began))


def pause_s(took_s: float) -> float:
    """Before the next look: of a slow disk's time a quarter is taken at most."""
    return min(LONGEST_PAUSE_S, max(PAUSE_S, 3 * took_s))


def _end_with_input() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
