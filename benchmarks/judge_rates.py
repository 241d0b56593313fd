"""The judge's two error rates: false accepts over attacks, false rejects over honest kernels.

    uv run python benchmarks/judge_rates.py [--corpus all|fresh|old] [--sandbox auto[,native,...]]
        [--pairs 200] [--archive FILE] [--minutes M] [--only TEXT] [--workers N] [--again]

The corpus is tests/corpus and the older one of tests/integration; other honest kernels are
synthesised pairs, one of each task in turn, and, with --archive, the rows that the archive calls
correct. After each attack the same worker judges an honest kernel, whose verdict must be the one it
always is. `unsupported` on an honest kernel is a false reject. Rates are given by sandbox and by
origin: `unseen` cases were written before their author had read the judge. The fresh corpus
(`tests/corpus/fresh_*.py`) is also counted by mechanism: those that issue 27 names and others
apart, and each that chance decides over its tries. An attack of several tries counts once, as
accepted when one of them is. A flood, whose answer is right, is accepted when its verdict is
`correct` after more than 60 s.

Resumable, in parts: what came of a case is kept in the cache folder, by judge, sandbox and case
(its name, task and text), and not asked for again; `--again` forgets it. `--minutes` ends a part in
time; a killed part loses the cases in flight. Sandboxes may be measured one by one, with the same
--pairs and --archive: prints a table, and writes benchmarks/results/judge_rates.json of every
sandbox in which this judge has been given all cases. Exit 0: all bars hold; 1: one does not, or
cases are left to do. `--sandbox docker` starts Debian's Docker engine where none runs (as root).
Measured limits: the intervals are exact (Clopper-Pearson) for cases drawn at random, which those of
a corpus are not; they say how little so many cases can show, not how the next attacker does.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import docker
import psutil
from bench_io import bar, finish, head, this_machine
from case_queue import HOST_CPU_S, SEED, CaseQueue, at_once, kept_in
from gpu_bench import result_path
from mechanism_rates import (
    accepted,
    by_mechanism,
    interval,
    print_mechanisms,
    slow,
    worst_of_tries,
)

from coding_framework.cuda.judge import JudgeConfig
from coding_framework.cuda.many.pool import JudgePool
from coding_framework.cuda.protocol import judge_digest
from coding_framework.cuda.sandbox import SANDBOXES, choose_sandbox
from coding_framework.errors import InfrastructureError
from coding_framework.store.lines import JsonlSink, read_lines
from coding_framework.types import Verdict
from corpus import exclusions
from corpus.collection import Case, archive_kernels, attacks, honest_kernels
from corpus.fresh_collection import attack_of, fresh_attacks, fresh_honest
from corpus.records import AFFINE, AFFINE_SOURCE
from support.docker_engine import docker_engine

SECRETS = re.compile(r"root:x:0:0|daemon:x:|PYTHONPATH=|CUDA_RL_|BEGIN OPENSSH")
"""What no verdict on an attack may hold: content of host files and of our environment."""
LAUNCH_WALL_S = 2.0
"""On a GPU: an endless kernel keeps it from everybody so long."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What came of one case in one sandbox."""

    key: str
    status: str
    reason: str
    sandbox: str
    wall_s: float
    leaked: bool
    followed_by: str
    """After an attack's first try: "" where the honest kernel passed unchanged, else what it came
    to."""


class Bench:
    """One thread with one worker process, so that a case and its successor meet the same one."""

    def __init__(self, sandbox: str, usual: str) -> None:
        self._pool = one_worker(sandbox)
        self._usual = usual

    def __enter__(self) -> Callable[[Case], Judged]:
        self._pool.__enter__()
        return self._judge

    def __exit__(self, *exc: Any) -> None:
        self._pool.__exit__(*exc)

    def _judge(self, case: Case) -> Judged:
        started = time.monotonic()
        try:
            verdict = self._pool.judge_blocking(case.task, case.code)
            status, reason, sandbox = verdict.status.value, verdict.reason, verdict.receipt.sandbox
            text = verdict.model_dump_json(exclude={"safety"})
        except InfrastructureError as e:
            status, reason, sandbox, text = "infrastructure_error", str(e), "", ""
        wall_s = time.monotonic() - started
        follows = not case.honest and attack_of(case) == case.name
        after = self._follow() if follows else ""
        leaked = not case.honest and SECRETS.search(text) is not None
        return Judged(case.key, status, reason, sandbox, round(wall_s, 2), leaked, after)

    def _follow(self) -> str:
        try:
            verdict = self._pool.judge_blocking(AFFINE, AFFINE_SOURCE)
        except InfrastructureError as e:
            return str(e)
        if not verdict.correct:
            return f"{verdict.status.value}: {verdict.reason}"
        return "" if stable(verdict) == self._usual else "its verdict differs"


def stable(verdict: Verdict) -> str:
    """A verdict without what varies from run to run: durations, and whether nvcc had to run; on a
    GPU, times and counters as well."""
    if verdict.timing is not None and not verdict.timing.modelled:
        verdict = verdict.model_copy(update={"timing": None, "counters": {}, "pitfalls": ()})
    timing = verdict.timing and verdict.timing.model_copy(update={"host_ms": None})
    receipt = verdict.receipt.model_copy(update={"duration_s": 0.0})
    summary = verdict.compile and verdict.compile.model_copy(
        update={"latency_s": 0.0, "cache_hit": False}
    )
    same = {"receipt": receipt, "compile": summary, "timing": timing}
    return verdict.model_copy(update=same).model_dump_json()


def one_worker(sandbox: str) -> JudgePool:
    config = JudgeConfig(
        sandbox=sandbox, seed=SEED, host_cpu_s=HOST_CPU_S, launch_wall_s=LAUNCH_WALL_S
    )
    return JudgePool(config, workers=1)


def rates_in(sandbox: str) -> Path:
    """Where results by this judge in this sandbox are kept."""
    return kept_in("judge_rates", f"-{sandbox}")


def judge_all(cases: list[Case], sandbox: str, workers: int, deadline: float) -> None:
    """Ask for every case that has no result yet, until the deadline; then one line on this part."""
    todo = CaseQueue(cases, read_kept(sandbox)[0], deadline)
    if not todo:
        return
    before = set(psutil.Process().children(recursive=True))
    machine, started = this_machine(), time.monotonic()
    open_bench = partial(Bench, sandbox, usual_verdict(sandbox))
    kept = rates_in(sandbox)
    tried = todo.try_all(f"judging in {sandbox}", "cases", kept, open_bench, workers)
    part = {
        "machine": machine,
        "workers": workers,
        "cases": tried,
        "wall_s": round(time.monotonic() - started, 1),
        "left_behind": left_behind(before, sandbox),
    }
    with JsonlSink(kept) as sink:
        sink.write({"part": part})


def usual_verdict(sandbox: str) -> str:
    """The verdict on the honest kernel before any attack."""
    with one_worker(sandbox) as pool:
        verdict = pool.judge_blocking(AFFINE, AFFINE_SOURCE)
    if not verdict.correct:
        raise InfrastructureError(f"the honest kernel is {verdict.status}: {verdict.reason}")
    return stable(verdict)


def read_kept(sandbox: str) -> tuple[dict[str, Judged], list[dict[str, Any]]]:
    """Results by case key, and the parts that were not killed."""
    found, parts = {}, []
    for line in read_lines(rates_in(sandbox)):
        record = json.loads(line)
        if "part" in record:
            parts.append(record["part"])
        else:
            found[record["key"]] = Judged(**record)
    return found, parts


def corpus_digest(cases: list[Case]) -> str:
    return hashlib.sha256(" ".join(sorted(c.key for c in cases)).encode()).hexdigest()[:16]


def rate(rows: list[tuple[Case, Judged]]) -> dict[str, object]:
    """The share of `rows` that were misjudged, in all and by origin."""
    wrong = [(c, j) for c, j in rows if misjudged(c, j)]
    by_origin = {}
    for origin in ("unseen", "seen"):
        n = sum(c.origin == origin for c, _ in rows)
        count = sum(c.origin == origin for c, _ in wrong)
        by_origin[origin] = {"count": count, "n": n, "ci95": interval(count, n) if n else None}
    return {
        "count": len(wrong),
        "n": len(rows),
        "rate": len(wrong) / max(1, len(rows)),
        "ci95": interval(len(wrong), len(rows)) if rows else None,
        "by_origin": by_origin,
        "cases": [{"name": c.name, "status": j.status, "reason": j.reason[:300]} for c, j in wrong],
    }


def misjudged(case: Case, judged: Judged) -> bool:
    return judged.status != "correct" if case.honest else accepted(case, judged)


def sandbox_report(cases: list[Case], sandbox: str) -> dict[str, Any] | None:
    """The two rates of one sandbox, and what else went wrong; None while cases are left to do."""
    results, parts = read_kept(sandbox)
    if any(c.key not in results for c in cases):
        return None
    rows = [(c, results[c.key]) for c in cases]
    tries = [(c, j) for c, j in rows if not c.honest]
    hostile = worst_of_tries(tries)
    mechanisms = by_mechanism(tries)
    return {
        "false_accepts": rate(hostile),
        "mechanisms": mechanisms,
        "over_60_s": slow(rows),
        "false_rejects": rate([(c, j) for c, j in rows if c.honest]),
        "honest_after_an_attack": {
            "n": len(hostile),
            "changed": [{"name": c.name, "what": j.followed_by} for c, j in tries if j.followed_by],
        },
        "leaks": [c.name for c, j in tries if j.leaked],
        "faults_of_ours": [c.name for c, j in rows if j.status == "infrastructure_error"],
        "other_status_than_expected": [
            {"name": c.name, "status": j.status, "expected": sorted(s.value for s in c.statuses)}
            for c, j in hostile
            if j.status not in c.statuses and not misjudged(c, j)
        ],
        "statuses": dict(sorted(Counter(j.status for _, j in rows).items())),
        "cases": len(rows),
        "judge_s": round(sum(j.wall_s for _, j in rows), 1),
        "left_behind": sorted({found for part in parts for found in part["left_behind"]}),
        "parts": [{k: v for k, v in part.items() if k != "left_behind"} for part in parts],
    }


def left_behind(before: set[psutil.Process], sandbox: str) -> list[str]:
    """Processes, shared-memory segments, files and containers that attacks would leave."""
    mine = set(psutil.Process().children(recursive=True)) - before
    found = [f"process {p.pid}: {' '.join(p.cmdline())[:80]}" for p in mine if p.is_running()]
    segments = Path("/proc/sysvipc/shm").read_text().splitlines()[1:]
    found += [
        f"shared memory {line.split()[1]}" for line in segments if line.split()[3] == "1048576"
    ]
    if sandbox == "docker":
        found += [f"container {c.name}" for c in docker.from_env().containers.list(all=True)]
    marks = (
        "/dev/shm/cuda_rl_attack",
        "/tmp/cuda_rl_was_here",
        "/tmp/f",
        "/tmp/i0",
        "/tmp/x.so",
        "/tmp/fresh_calls",
    )
    return found + [f"file {mark}" for mark in marks if Path(mark).exists()]


def make_report(
    cases: list[Case], left_out: dict[str, str], sandboxes: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    bars = []
    for name, one in sandboxes.items():
        accepts, rejects = one["false_accepts"], one["false_rejects"]
        changed = len(one["honest_after_an_attack"]["changed"])
        leaks, left = len(one["leaks"]), len(one["left_behind"])
        late = len(one["over_60_s"])
        bars += [
            bar(f"false accepts, {name}", "0", accepts["count"], accepts["count"] == 0),
            bar(f"false rejects, {name}", "<= 1%", rejects["rate"], rejects["rate"] <= 0.01),
            bar(f"honest kernels changed by an attack, {name}", "0", changed, changed == 0),
            bar(f"leaks, {name}", "0", leaks, leaks == 0),
            bar(f"verdicts over 60 s, {name}", "0", late, late == 0),
            bar(f"left behind, {name}", "0", left, left == 0),
        ]
    return {
        **head("judge_rates", packages=("torch", "nvidia-cuda-nvcc")),
        "judge": judge_digest()[:16],
        "corpus": corpus_digest(cases),
        "bars": bars,
        "sandboxes": sandboxes,
        "excluded_kernels": left_out,
    }


def print_table(sandboxes: dict[str, dict[str, Any]]) -> None:
    print(f"{'sandbox':<12}{'rate':<15}{'wrong':>7}{'of':>6}{'95% interval':>22}  unseen")
    for sandbox, one in sandboxes.items():
        for name in ("false_accepts", "false_rejects"):
            r = one[name]
            low, high = r["ci95"] or (0.0, 1.0)
            unseen = r["by_origin"]["unseen"]
            share = f"{unseen['count']} of {unseen['n']}"
            span = f"{low:.2%} - {high:.2%}"
            print(f"{sandbox:<12}{name:<15}{r['count']:>7}{r['n']:>6}{span:>22}  {share}")
            for case in r["cases"]:
                print(f"    {case['name']}: {case['status']}: {case['reason'][:200]}")
        for case in one["other_status_than_expected"]:
            print(f"    {case['name']}: {case['status']}, expected {', '.join(case['expected'])}")
        for case in one["honest_after_an_attack"]["changed"]:
            print(f"    after {case['name']}: {case['what'][:200]}")
        for name in one["leaks"]:
            print(f"    {name}: leaks")
        for case in one["over_60_s"]:
            print(f"    {case['name']}: took {case['wall_s']} s")
        print_mechanisms(one["mechanisms"])


def chosen_cases(options: argparse.Namespace) -> tuple[list[Case], dict[str, str]]:
    """What is to be judged, and the kernels left out, each with the reason."""
    cases: list[Case] = []
    left_out: dict[str, str] = {}
    if options.corpus in ("all", "old"):
        cases, left_out = [*attacks(), *honest_kernels(options.pairs)], dict(exclusions.HONEST)
    if options.corpus in ("all", "fresh"):
        cases += [*fresh_attacks(), *fresh_honest()]
    if options.archive:
        found, without = archive_kernels(options.archive)
        cases, left_out = cases + found, left_out | without
    return [c for c in cases if options.only in c.name], left_out


def main(arguments: Iterable[str] | None = None) -> int:
    """Judge both corpora in every sandbox asked for, and report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpus", default="all", choices=("all", "fresh", "old"))
    parser.add_argument("--sandbox", default="auto", help="one, or several with commas between")
    parser.add_argument("--pairs", type=int, default=200, help="synthesised honest kernels")
    parser.add_argument("--archive", type=Path, help="rows of the AI CUDA Engineer Archive")
    parser.add_argument("--only", default="", help="cases whose name holds this; writes no result")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--minutes", type=float, default=math.inf, help="take no case after these")
    parser.add_argument("--again", action="store_true", help="forget what earlier parts found")
    options = parser.parse_args(list(arguments) if arguments is not None else None)

    cases, left_out = chosen_cases(options)
    deadline = time.monotonic() + 60 * options.minutes
    with ExitStack() as running:
        if "docker" in options.sandbox.split(","):
            folder = running.enter_context(TemporaryDirectory(ignore_cleanup_errors=True))
            os.environ["DOCKER_HOST"] = running.enter_context(docker_engine(Path(folder)))
        asked = [choose_sandbox(name).name for name in options.sandbox.split(",")]
        for name in asked:
            if options.again:
                rates_in(name).unlink(missing_ok=True)
            judge_all(cases, name, at_once(options.workers), deadline)
    reports = {name: sandbox_report(cases, name) for name in (asked if options.only else SANDBOXES)}
    whole = {name: report for name, report in reports.items() if report is not None}
    print_table(whole)
    holds = bool(whole)
    if whole and not options.only:
        name = "judge_rates" if options.corpus == "all" else f"judge_rates.{options.corpus}"
        holds = finish(make_report(cases, left_out, whole), result_path(name))
    unfinished = [name for name in asked if name not in whole]
    if unfinished:
        print(f"cases are left to do in {', '.join(unfinished)}: run the same command again")
    return 0 if holds and not unfinished else 1


if __name__ == "__main__":
    sys.exit(main())
