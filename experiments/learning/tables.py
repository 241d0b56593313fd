"""The experiment's tables: each arm on the held-out tasks, the registered comparisons, the bars."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from plans import Plan
from rich.console import Console
from rich.table import Table

from coding_framework.errors import UsageError
from coding_framework.evaluation.compare import compare_runs
from coding_framework.evaluation.estimates import mean_interval
from coding_framework.evaluation.samples import SampleRecord, count_by_task, fastest_by_task, gain
from coding_framework.run.evaluation import read_sample_records
from coding_framework.store.folder import EvalFolder

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
from bench_io import bar, finish, head

GOAL = 1.05
"""Times eager from which a kernel counts as faster."""
Row = dict[str, Any]


def numbers_of(folder: Path) -> Row:
    """Of a finished evaluation."""
    return numbers(read_sample_records(folder))


def numbers(records: Sequence[SampleRecord]) -> Row:
    """pass@1, pass@k and fast_p as means over tasks of the shares of their samples, with the 95%
    intervals over tasks of those that are compared; speeds of the best kernel of each task."""
    solved = count_by_task(records)
    if not len(solved.tasks):
        raise UsageError("no sample was judged: see the evaluation's report")
    fast = {p: count_by_task(records, p) for p in (1.0, GOAL, 2.0)}
    timed = any(r.basis == "measured" for r in records)
    best = [gain(r) for r in fastest_by_task(records).values()]
    shares = solved.shares_t
    found: Row = {
        "tasks": len(solved.tasks),
        "samples": len(records),
        "masked": sum(r.masked is not None for r in records),
        "pass@1": _rounded(float(shares.mean())),
        "pass@1_ci95": _interval(shares),
        "pass@k": _rounded(float((solved.hits_t > 0).mean())),
        "times": "measured" if timed else "modelled",
        **{f"fast_{p:g}": _rounded(float(c.shares_t.mean())) for p, c in fast.items()},
        f"fast_{GOAL:g}_ci95": _interval(fast[GOAL].shares_t),
        "best_at_least_2x": _rounded(sum(s >= 2.0 for s in best) / len(solved.tasks)),
        "best_geometric_mean": _rounded(float(np.exp(np.mean(np.log(best))))) if best else None,
        "tokens": sum(r.tokens for r in records),
        "cut": sum(r.cut for r in records),
        "different_answers": _rounded(
            len({(r.task, r.code_sha256) for r in records if r.code_sha256})
            / max(1, sum(bool(r.code_sha256) for r in records))
        ),
    }
    return found


def _interval(shares: Any) -> list[float] | None:
    if len(shares) < 3:
        return None
    low, high = mean_interval(shares, "BCa")
    return [_rounded(float(low)), _rounded(float(high))]


def _rounded(value: float) -> float:
    return round(value, 4)


def pooled(runs: Sequence[Sequence[SampleRecord]]) -> list[SampleRecord]:
    """The samples of several seeds as one run's."""
    most = max((r.sample for run in runs for r in run), default=0) + 1
    return [
        r.model_copy(update={"sample": r.sample + most * seed})
        for seed, run in enumerate(runs)
        for r in run
    ]


def difference(a: Sequence[SampleRecord], b: Sequence[SampleRecord]) -> Row | None:
    """b less a in fast_1.05, and in pass@1; None where they cannot be compared."""
    found = compare_runs(a, b, [GOAL])
    return {
        d.metric: {"estimate": _rounded(d.estimate), "ci95": [_rounded(e) for e in d.ci95],
                   "p_holm": _rounded(d.p_holm), "tasks": d.tasks}
        for d in found.differences
    }  # fmt: skip


def write_tables(work: Path, plan: Plan, output: Path | None) -> bool:
    """Print and write what there is; whether every bar that can be judged holds. Raises UsageError
    where no arm has been tested."""
    tested = {
        folder.name: read_sample_records(folder)
        for folder in sorted((work / "test").glob("*"))
        if EvalFolder(folder).records.exists()
    }
    if not tested:
        raise UsageError(f"{work} holds no tested arm: run one first")
    arms = {name: numbers(records) for name, records in tested.items()}
    rl = [name for name in tested if name.startswith("rl-")]
    pairs = [(f"control-{name.removeprefix('rl-')}", name) for name in rl]
    pairs = [(a, b) for a, b in pairs if a in tested]
    comparisons = {f"{b} - {a}": difference(tested[a], tested[b]) for a, b in pairs}
    if len(pairs) > 1:
        comparisons["rl - control, pooled"] = difference(
            pooled([tested[a] for a, _ in pairs]), pooled([tested[b] for _, b in pairs])
        )
    for before, after in (("sft", "rft"), *((plan.rl_from, name) for name in rl)):
        if before in tested and after in tested:
            comparisons[f"{after} - {before}"] = difference(tested[before], tested[after])
    stages = {
        path.name.removesuffix(".json"): json.loads(path.read_text())
        for path in sorted((work / "stages").glob("*.json"))
    }
    _show(arms)
    report = {
        **head("learning", packages=("torch", "transformers", "trl", "verl", "vllm")),
        "plan": plan.model_dump(mode="json"), "plan_sha256": plan.digest,
        "bars": _bars(arms, comparisons, stages, pairs),
        "arms": arms, "comparisons": comparisons, "stages": stages,
    }  # fmt: skip
    return finish(report, output or work / "tables.json")


def _bars(
    arms: Mapping[str, Row],
    comparisons: Mapping[str, Row | None],
    stages: Mapping[str, Row],
    pairs: Sequence[tuple[str, str]],
) -> list[Row]:
    """The registered ones that there are numbers for."""
    found = []
    measured = all(row["times"] == "measured" for row in arms.values())
    if "sft" in arms:
        found.append(_least("SFT, one sample, correct", 0.65, arms["sft"]["pass@1"]))
        if measured:
            found.append(_least("SFT, one sample, fast_1", 0.35, arms["sft"]["fast_1"]))
    trained = stages.get("sft.train", {}).get("result", {})
    if trained.get("gpu_memory_gib") is not None:
        found.append(_least("SFT, tokens a second", 20_000, trained["tokens_per_s"]))
    metric, whole = f"fast_{GOAL:g}", comparisons.get("rl - control, pooled")
    if whole and metric in whole:
        gain_, low = whole[metric]["estimate"], whole[metric]["ci95"][0]
        found.append(_least("RL - RFT, pooled, fast_1.05", 0.05, gain_))
        found.append(bar("RL - RFT, pooled, lower 95% end", "> 0", low, low > 0))
        each = [comparisons[f"{b} - {a}"] for a, b in pairs]
        least = min(c[metric]["estimate"] for c in each if c is not None)
        found.append(bar("RL - RFT, the smaller of the seeds", "> 0", least, least > 0))
    for a, b in pairs:
        lost = arms[b]["pass@k"] - arms[a]["pass@k"]
        found.append(_least(f"{b}: pass@k less the control's", -0.02, lost))
    search = stages.get("search.search", {}).get("result")
    if search:
        found.append(_least("search, correct", 0.65, search["correct"]))
        found.append(_least("search, fast_1", 0.40, search["fast_1"]))
    return found


def _least(what: str, target: float, value: float) -> Row:
    return bar(what, target, value, value >= target)


def _show(arms: Mapping[str, Row]) -> None:
    table = Table(title="Held-out tasks", title_justify="left")
    columns = ("tasks", "samples", "pass@1", "pass@k", "fast_1", "fast_1.05", "fast_2",
               "best_geometric_mean", "tokens")  # fmt: skip
    for name in ("arm", *columns):
        table.add_column(name, justify="left" if name == "arm" else "right")
    for name, row in arms.items():
        table.add_row(name, *(str(row[c]) for c in columns))
    Console().print(table)
    if any(row["times"] != "measured" for row in arms.values()):
        print("times are the emulator's model: only their order is to be trusted")
