"""Cases of a corpus, each tried once: by several workers, in parts that go on where the last one
ended. What came of a case is a line of a file in the cache folder, by judge."""

from __future__ import annotations

import hashlib
import sys
import threading
import time
from collections.abc import Callable, Container, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from bench_io import ROOT

from coding_framework.cuda.choose_backend import choose_backend
from coding_framework.cuda.many.pool import judges_at_once
from coding_framework.cuda.protocol import judge_digest
from coding_framework.monitoring.progress import Progress
from coding_framework.paths import cache_dir
from coding_framework.store.lines import JsonlSink

sys.path.insert(0, str(ROOT / "tests"))
from corpus.collection import Case

SEED, HOST_CPU_S = 7, 4
"""Of the judges that try them."""
Bench = AbstractContextManager[Callable[[Case], Any]]
"""Opened by one thread: tries a case, and gives a dataclass of what came of it."""


def at_once(workers: int) -> int:
    """So many workers, each of which opens a judge, or as many as the GPUs' memory holds."""
    return judges_at_once(workers, choose_backend("auto"))


def kept_in(name: str, ending: str = "") -> Path:
    """Where what this judge found is kept."""
    conditions = f"{judge_digest()} {SEED} {HOST_CPU_S} {choose_backend('auto')}"
    key = hashlib.sha256(conditions.encode()).hexdigest()[:16]
    return cache_dir() / "benchmarks" / f"{name}-{key}{ending}.jsonl"


class CaseQueue:
    """Cases of which nothing is known yet."""

    def __init__(self, cases: Sequence[Case], known: Container[str], deadline: float) -> None:
        """known: keys of those that were tried. deadline: by `time.monotonic`; none is begun after
        it."""
        self.total, self._deadline = len(cases), deadline
        self._todo: SimpleQueue[Case] = SimpleQueue()
        for case in cases:
            if case.key not in known:
                self._todo.put(case)

    def __len__(self) -> int:
        return self._todo.qsize()

    def __iter__(self) -> Iterator[Case]:
        """For several threads at once, until none is left or the deadline has passed."""
        while time.monotonic() < self._deadline:
            try:
                yield self._todo.get_nowait()
            except Empty:
                return

    def try_all(
        self, label: str, unit: str, kept: Path, open_bench: Callable[[], Bench], workers: int
    ) -> int:
        """Try them, and write down what came of each; how many were tried."""
        left, one_writer = len(self), threading.Lock()
        with (
            JsonlSink(kept) as sink,
            Progress(label, self.total, unit, done=self.total - left) as progress,
            ThreadPoolExecutor(workers) as threads,
        ):

            def work() -> None:
                with open_bench() as try_one:
                    for case in self:
                        record = asdict(try_one(case))
                        with one_writer:
                            sink.write(record)
                            progress.advance(note=case.name)

            for future in [threads.submit(work) for _ in range(workers)]:
                future.result()
        return left - len(self)
