"""The judge's two error rates: false accepts over attacks, false rejects over honest kernels.

    uv run python benchmarks/judge_rates.py [--pairs 300] [--sandbox auto] [--workers N]

Attacks and part of the honest kernels are those of tests/integration; the other honest kernels are
synthesised pairs, one kernel of each task in turn. `unsupported` on an honest kernel is a false
reject. Prints a table, writes benchmarks/results/judge_rates.json.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from scipy.stats import beta

from coding_framework.cuda.judge import JudgeConfig
from coding_framework.cuda.pool import JudgePool
from coding_framework.data.synthesis import catalog
from coding_framework.types import Status, Task, Verdict

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "integration"))
from judge_attacks import ATTACKS  # noqa: E402
from judge_honest import HONEST  # noqa: E402


@dataclass(frozen=True, slots=True)
class Case:
    """One kernel with what a right verdict is."""

    name: str
    task: Task
    code: str
    honest: bool
    statuses: frozenset[Status]

    def right(self, verdict: Verdict) -> bool:
        return verdict.correct if self.honest else not verdict.correct


def cases(pairs: int) -> Iterator[Case]:
    """Attacks, honest kernels of the tests, then `pairs` synthesised ones."""
    for attack in ATTACKS:
        yield Case(attack.name, attack.task, attack.code, False, attack.statuses)
    correct = frozenset({Status.CORRECT})
    for kernel in HONEST:
        yield Case(kernel.name, kernel.task, kernel.code, True, correct)
    programs = catalog.catalog()
    for i in range(pairs):
        task = catalog.build_task(programs[i * len(programs) // pairs])
        examples = catalog.kernels_of(task.name)
        example = examples[i % len(examples)]
        yield Case(f"{task.name}/{example.level}", task, example.code, True, correct)


async def judge_all(pool: JudgePool, todo: list[Case]) -> list[Verdict]:
    """Every verdict, with progress on stderr."""
    started, done = time.monotonic(), 0

    async def one(case: Case) -> Verdict:
        nonlocal done
        verdict = await pool.judge(case.task, case.code)
        done += 1
        rate = done / (time.monotonic() - started)
        left = (len(todo) - done) / rate
        print(f"\r{done}/{len(todo)}  {rate:.1f}/s  {left:.0f} s left  ", end="", file=sys.stderr)
        return verdict

    verdicts = await asyncio.gather(*(one(case) for case in todo))
    print(file=sys.stderr)
    return verdicts


def upper_bound(count: int, n: int) -> float:
    """Exact (Clopper-Pearson) upper end of the 95% interval of count / n."""
    return 1.0 if count >= n else float(beta.ppf(0.975, count + 1, n - count))


def lower_bound(count: int, n: int) -> float:
    return 0.0 if count == 0 else float(beta.ppf(0.025, count, n - count + 1))


def main() -> int:
    """Judge both corpora and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=300)
    parser.add_argument("--sandbox", default="auto")
    parser.add_argument("--workers", type=int)
    options = parser.parse_args()

    todo = list(cases(options.pairs))
    started = time.monotonic()
    config = JudgeConfig(sandbox=options.sandbox)
    with JudgePool(config, workers=options.workers) as pool:
        verdicts = asyncio.run(judge_all(pool, todo))
    report = make_report(todo, verdicts, time.monotonic() - started)
    target = ROOT / "benchmarks" / "results" / "judge_rates.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(report, indent=2) + "\n")
    print_table(report)
    return 0 if all(bar["holds"] for bar in report["bars"]) else 1


def make_report(todo: list[Case], verdicts: list[Verdict], wall_s: float) -> dict:
    judged = list(zip(todo, verdicts, strict=True))
    rates = {}
    for name, honest in (("false_accepts", False), ("false_rejects", True)):
        rows = [(c, v) for c, v in judged if c.honest is honest]
        wrong = [(c, v) for c, v in rows if not c.right(v)]
        rates[name] = {
            "count": len(wrong),
            "n": len(rows),
            "rate": len(wrong) / len(rows),
            "ci95": [lower_bound(len(wrong), len(rows)), upper_bound(len(wrong), len(rows))],
            "cases": [{"name": c.name, "status": v.status, "reason": v.reason} for c, v in wrong],
        }
    rejects = rates["false_rejects"]
    return {
        "benchmark": "judge_rates",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "versions": {n: version(n) for n in ("coding-framework", "torch", "nvidia-cuda-nvcc")},
        "command": " ".join(["python", *sys.argv]),
        "commit": git_commit(),
        "sandbox": verdicts[0].receipt.sandbox,
        "bars": [
            {
                "bar": "false accepts",
                "target": "0",
                "value": rates["false_accepts"]["count"],
                "holds": rates["false_accepts"]["count"] == 0,
            },
            {
                "bar": "false rejects",
                "target": "<= 1%",
                "value": rejects["rate"],
                "holds": rejects["rate"] <= 0.01,
            },
        ],
        "rates": rates,
        "other_status_than_expected": [
            {"name": c.name, "status": v.status, "expected": sorted(c.statuses)}
            for c, v in judged
            if c.right(v) and v.status not in c.statuses
        ],
        "statuses": dict(Counter(v.status.value for v in verdicts)),
        "wall_s": round(wall_s, 1),
        "verdicts_per_hour": round(3600 * len(verdicts) / wall_s),
    }


def git_commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def print_table(report: dict) -> None:
    print(f"{'rate':<15}{'wrong':>7}{'of':>6}{'95% interval':>22}")
    for name, rate in report["rates"].items():
        low, high = rate["ci95"]
        print(f"{name:<15}{rate['count']:>7}{rate['n']:>6}{low:>13.2%} - {high:.2%}")
        for case in rate["cases"]:
            print(f"    {case['name']}: {case['status']}: {case['reason'][:150]}")
    for case in report["other_status_than_expected"]:
        print(f"    {case['name']}: {case['status']}, expected {case['expected']}")
    print(f"{report['verdicts_per_hour']} verdicts an hour, sandbox {report['sandbox']}")


if __name__ == "__main__":
    sys.exit(main())
