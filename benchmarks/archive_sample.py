"""How much of the AI CUDA Engineer Archive compiles with the small torch header and runs.

    uv run python benchmarks/archive_sample.py --archive FILE.jsonl [--torch] [--again]

Every row is judged for its own PyTorch module: compiled, recorded, replayed. A row counts as run
when its outputs were compared, right or wrong, on the shapes that stand for the published ones; it
may fail on the unseen ones, and those that did not are counted too. A row that calls a library
(cuBLAS, at::linear) ends as `rejected` and is counted apart, by symbol; so is a row that did not
run with the real torch either, by the archive's own log; `--torch` compiles those here (45 s each).
Resumable: verdicts are kept in the cache folder until the judge, the file or this benchmark
changes; `--again` forgets them. Where a GPU judges, rows are timed at their published sizes too.
Prints a table, writes benchmarks/results/archive_sample.json (with a GPU: archive_sample.GPU.json),
which lists where our verdicts and speedups are not the archive's.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import re
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench_io import at_most, bar, finish, head
from gpu_bench import result_path

from coding_framework.commands.header_comparison import torch_compiler
from coding_framework.cuda.choose_backend import choose_backend
from coding_framework.cuda.judge import JudgeConfig
from coding_framework.cuda.many.pool import JudgePool
from coding_framework.cuda.protocol import judge_digest
from coding_framework.data.archive_rows import ArchiveRow
from coding_framework.data.sakana_loader import SakanaDataLoader
from coding_framework.errors import InfrastructureError
from coding_framework.monitoring.progress import Progress
from coding_framework.paths import cache_dir
from coding_framework.store.lines import JsonlSink, read_lines
from coding_framework.types import BenchmarkResult, Status
from coding_framework.wiring import cores

TARGET = 0.95
RAN = (Status.CORRECT, Status.WRONG_OUTPUT, Status.NONDETERMINISTIC, Status.CHEATING)
_SYMBOL = re.compile(r"the kernel calls (.+?): it must")


def main() -> int:
    """Judge all rows and report; 1 where the bar does not hold."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--archive", type=Path, required=True, help="rows of the archive")
    parser.add_argument("--workers", type=int)
    parser.add_argument(
        "--torch",
        action="store_true",
        help="compile the rows that did not run with the real torch headers too (45 s each)",
    )
    parser.add_argument("--again", action="store_true", help="forget what an earlier run found")
    args = parser.parse_args()
    key = hashlib.sha256(f"{judge_digest()} {choose_backend('auto')}".encode())
    key.update(args.archive.read_bytes() + Path(__file__).read_bytes())
    kept = cache_dir() / "benchmarks" / f"archive_sample-{key.hexdigest()[:16]}.jsonl"
    if args.again:
        kept.unlink(missing_ok=True)
    started = time.monotonic()
    asyncio.run(judge_rows(args.archive, kept, args.workers))
    found = read_results(kept)
    if args.torch:
        compile_with_torch(args.archive, found)
    report = make_report(found, args.archive, time.monotonic() - started)
    print_table(report)
    return 0 if finish(report, result_path("archive_sample")) else 1


def read_results(kept: Path) -> dict[str, dict[str, Any]]:
    """Row name -> what was found; a torn last line is left out."""
    found = {}
    for line in read_lines(kept):
        try:
            entry = json.loads(line)
        except json.JSONDecodeError:
            continue
        found[entry["row"]] = entry
    return found


def named_rows(loader: SakanaDataLoader) -> dict[str, ArchiveRow]:
    """Place, operation and kernel -> row."""
    return {f"{i}:{row.op_name}/{row.kernel_name}": row for i, row in enumerate(loader.rows())}


def compile_with_torch(archive: Path, found: dict[str, dict[str, Any]]) -> None:
    """Add to each row that did not run whether the real headers take it: `torch_compiles`. The
    compiler's cache keeps what it found for a second run."""
    rows = named_rows(SakanaDataLoader(archive))
    idle = [e for e in found.values() if e["status"] != Status.REJECTED and not e["compared"]]
    compiler = torch_compiler()
    with (
        Progress("compiling with torch's headers", len(idle), "rows") as progress,
        ThreadPoolExecutor(cores()) as threads,
    ):
        for entry, result in zip(
            idle,
            threads.map(lambda e: compiler.compile_source(rows[e["row"]].code), idle),
            strict=True,
        ):
            entry |= {"torch_compiles": result.success, "torch_says": result.reason[:500]}
            progress.advance()


async def judge_rows(archive: Path, kept: Path, workers: int | None) -> None:
    """A line for each row that `kept` does not have yet."""
    loader = SakanaDataLoader(archive)
    rows = named_rows(loader)
    done = read_results(kept)
    with (
        JsonlSink(kept) as sink,
        JudgePool(JudgeConfig(seed=0), workers=workers) as pool,
        Progress("judging", len(rows), "rows", done=len(done)) as progress,
    ):

        async def one(name: str, row: ArchiveRow) -> None:
            task = loader.task(row)
            entry: dict[str, Any] = {"row": name, "archive": row.outcome, "compared": []}
            if task is None:
                entry |= {"status": "no task", "reason": "its PyTorch module does not run"}
            else:
                try:
                    verdict = await pool.judge(task, row.code)
                except InfrastructureError as e:
                    entry |= {"status": "our fault", "reason": str(e)}
                else:
                    entry |= {"status": verdict.status.value, "reason": verdict.reason}
                    entry["compared"] = sorted({test.case for test in verdict.tests})
                    if verdict.timing is not None and not verdict.timing.modelled:
                        entry |= measured(verdict.timing, row)
            sink.write_line(json.dumps(entry))
            progress.advance()

        async with asyncio.TaskGroup() as group:
            for name, row in rows.items():
                if name not in done:
                    group.create_task(one(name, row))


def measured(timing: BenchmarkResult, row: ArchiveRow) -> dict[str, Any]:
    """Times on this GPU at the published sizes, beside those that the archive gives."""
    return {
        "kernel_ms": timing.kernel_ms,
        "eager_ms": timing.eager_ms,
        "speedup": timing.speedup,
        "archive_ms": row.runtime_ms,
        "archive_speedup": row.speedup_native,
    }


def disagreements(entries: list[dict[str, Any]]) -> dict[str, Any]:
    """Where the verdict is not the archive's `Correct`, and, where times were measured, where the
    speedup is more than twice or less than half of the published one."""
    judged = [e for e in entries if e["status"] not in ("no task", "our fault")]
    far = []
    for entry in judged:
        ours, theirs = entry.get("speedup"), entry.get("archive_speedup")
        if ours and theirs and not 0.5 <= ours / theirs <= 2.0:
            far.append(entry)
    return {
        "correct_here_alone": [
            e for e in judged if e["status"] == Status.CORRECT and e["archive"] != "correct"
        ],
        "correct_in_the_archive_alone": [
            e for e in judged if e["status"] != Status.CORRECT and e["archive"] == "correct"
        ],
        "speedup_off_by_more_than_two": far,
        "speedups": {
            e["row"]: [e["speedup"], e["archive_speedup"]] for e in judged if "speedup" in e
        },
    }


def make_report(found: dict[str, dict[str, Any]], archive: Path, wall_s: float) -> dict[str, Any]:
    """Counts, the rows that did not run, and what they call."""
    entries = list(found.values())
    library = [e for e in entries if e["status"] == Status.REJECTED]
    own = [e for e in entries if e["status"] != Status.REJECTED]
    ran = [e for e in own if e["compared"]]
    idle = [e for e in own if not e["compared"]]
    broken = [e for e in idle if e["archive"] == "failed"]
    ours = [e for e in idle if e["archive"] != "failed"]
    share = len(ran) / (len(ran) + len(ours)) if ran else 0.0
    nameless = [e["row"] for e in entries if not e["reason"].strip()]
    symbols = Counter(symbol for e in library for symbol in set(_SYMBOL.findall(e["reason"])))
    return {
        **head("archive_sample", packages=("torch",)),
        "bars": [
            bar(
                "rows without library calls, not broken with real torch, compile and run",
                TARGET,
                share,
                share >= TARGET,
            ),
            at_most("rows that end without a named reason", 0, len(nameless)),
        ],
        "archive_file": archive.name,
        "rows": len(entries),
        "rejected_for_library_calls": len(library),
        "without_library_calls": len(own),
        "ran": len(ran),
        "ran_on_all_shapes_or_compared_wrong": sum(e["status"] in RAN for e in own),
        "share_of_all_without_library_calls": round(len(ran) / len(own), 4) if own else 0.0,
        "statuses": dict(Counter(e["status"] for e in entries).most_common()),
        "library_symbols": dict(symbols.most_common()),
        "did_not_run": ours,
        "did_not_run_and_broken_with_real_torch_too": broken,
        "disagreements": disagreements(entries),
        "wall_s": round(wall_s, 1),
    }


def print_table(report: dict[str, Any]) -> None:
    for status, count in report["statuses"].items():
        print(f"{status:18}{count:>5}")
    for symbol, count in report["library_symbols"].items():
        print(f"calls {symbol:30}{count:>5} rows")
    for entry in [*report["did_not_run"], *report["did_not_run_and_broken_with_real_torch_too"]]:
        print(f"{entry['status']}: {entry['row']} (archive: {entry['archive']})")
        print(f"    {entry['reason'][:200]}")


if __name__ == "__main__":
    sys.exit(main())
