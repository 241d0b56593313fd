"""The experiment's tables: each arm on the held-out tasks, the registered comparisons, the bars."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from plans import Plan
from rich.console import Console
from rich.table import Table

from coding_framework.data.modules.catalog import HELD_OUT_FAMILIES
from coding_framework.errors import UsageError
from coding_framework.evaluation.compare import compare_runs
from coding_framework.evaluation.estimates import mean_interval
from coding_framework.evaluation.metrics import stage_metrics
from coding_framework.evaluation.samples import SampleRecord, count_by_task, fastest_by_task, gain
from coding_framework.run.evaluation import read_sample_records
from coding_framework.store.folder import EvalFolder
from coding_framework.store.lines import parsed_lines
from coding_framework.types import CUDAConversationState

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
from bench_io import bar, finish, head

GOAL = 1.05
"""Times eager from which a kernel counts as faster."""
Row = dict[str, Any]


def numbers_of(folder: Path) -> Row:
    """Of a finished evaluation."""
    return numbers(read_sample_records(folder))


def numbers_by_suite(folder: Path) -> dict[str, Row]:
    """Of a finished evaluation, by the last name of a suite's folder."""
    records = read_sample_records(folder)
    suites = sorted({r.suite for r in records})
    return {Path(s).name: numbers([r for r in records if r.suite == s]) for s in suites}


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


def moved(a: Sequence[SampleRecord], b: Sequence[SampleRecord]) -> dict[str, int]:
    """How many samples that a and b have were of one status and are of another, the most first;
    an answer that was cut off has a status of its own."""
    before = {(r.task, r.sample): _ended(r) for r in a}
    found = Counter(
        f"{before[r.task, r.sample]} -> {_ended(r)}" for r in b if (r.task, r.sample) in before
    )
    return {what: n for what, n in found.most_common() if len(set(what.split(" -> "))) > 1}


def _ended(record: SampleRecord) -> str:
    return "cut" if record.cut else record.status


def by_group(records: Sequence[SampleRecord]) -> dict[str, Row]:
    """The numbers of module tasks by level, and of families that no training has."""
    groups: dict[str, list[SampleRecord]] = {}
    for record in records:
        name = f"level {record.level}"
        if record.family in HELD_OUT_FAMILIES:
            name = "families that no training has"
        groups.setdefault(name, []).append(record)
    return {name: numbers(found) for name, found in sorted(groups.items())}


def at_equal_tokens(turns: Path, samples: Path, most: int) -> Row:
    """Correct conversations, less what samples of the first prompt solve with as many tokens; both
    end at the first correct kernel. `samples` has `most` of each conversation of `turns`. Sampling
    spends as much where it may draw k times in a part of its tries, and once more in the others.
    The interval is a BCa bootstrap over tasks."""
    talked, drawn = (_by_task(read_sample_records(folder)) for folder in (turns, samples))
    tasks = sorted(talked.keys() & drawn.keys())
    solved_t = np.array([np.mean([r.correct for r in talked[t]]) for t in tasks])
    spent = float(np.mean([np.mean([r.tokens for r in talked[t]]) for t in tasks]))
    found = np.array([[_within(drawn[t], most, k) for k in range(most + 1)] for t in tasks])
    tokens_k = found[:, :, 1].mean(0)
    k = min(most, int(np.searchsorted(tokens_k, spent, "right")) - 1)
    more = 0.0 if k == most else (spent - tokens_k[k]) / (tokens_k[k + 1] - tokens_k[k])
    equal_t = (1 - more) * found[:, k, 0] + more * found[:, min(k + 1, most), 0]
    gap_t = solved_t - equal_t
    return {
        "tasks": len(tasks),
        "feedback": _rounded(float(solved_t.mean())),
        "resampling": _rounded(float(equal_t.mean())),
        "difference": _rounded(float(gap_t.mean())),
        "difference_ci95": _interval(gap_t),
        "tokens": round(spent),
        "samples_at_equal_tokens": _rounded(k + more),
        "by_samples": [
            {"samples": n, "correct": _rounded(float(found[:, n, 0].mean())),
             "tokens": round(float(tokens_k[n]))}
            for n in range(1, most + 1)
        ],
    }  # fmt: skip


def _by_task(records: Sequence[SampleRecord]) -> dict[str, list[SampleRecord]]:
    """The judged ones, in the order in which they were drawn."""
    found: dict[str, list[SampleRecord]] = {}
    for record in sorted(records, key=lambda r: r.sample):
        if record.masked is None:
            found.setdefault(record.task, []).append(record)
    return found


def _within(records: Sequence[SampleRecord], most: int, draws: int) -> tuple[float, float]:
    """(share of tries that are correct, their mean tokens) where a try, `most` samples one after
    the other, may draw so many."""
    tries = [records[n : n + most][:draws] for n in range(0, len(records), most)]
    ends = [next((n + 1 for n, r in enumerate(tried) if r.correct), len(tried)) for tried in tries]
    tokens = [sum(r.tokens for r in t[:end]) for t, end in zip(tries, ends, strict=True)]
    return float(np.mean([any(r.correct for r in t) for t in tries])), float(np.mean(tokens))


def repeated(folder: Path) -> Row:
    """Share of the later turns that give code of an earlier one again."""
    read = CUDAConversationState.model_validate_json
    states = list(parsed_lines(EvalFolder(folder).conversations, read))
    found = stage_metrics("feedback", states)
    later = found.turns - len(states)
    return {
        "later_turns": later,
        "repeats": _rounded(found.repeated_turns / later) if later else None,
        "repaired": found.fixed_by_feedback,
    }


def by_suite(folder: Path, stratum: Mapping[str, str]) -> dict[str, Row]:
    """The numbers of an evaluation by suite, and of each suite by the strata of its tasks."""
    found: dict[str, list[SampleRecord]] = {}
    for record in read_sample_records(folder):
        found.setdefault(record.suite, []).append(record)
    return {
        suite: {
            **numbers(records),
            "strata": {
                name: numbers([r for r in records if stratum[r.task] == name])
                for name in sorted({stratum[r.task] for r in records if r.masked is None})
            },
        }
        for suite, records in found.items()
    }


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
            comparisons[f"{after} - {before}"] = {
                **(difference(tested[before], tested[after]) or {}),
                "moved": moved(tested[before], tested[after]),
            }
    stages = {
        path.name.removesuffix(".json"): json.loads(path.read_text())
        for path in sorted((work / "stages").glob("*.json"))
    }
    _show(arms)
    report = {
        **head("learning", packages=("torch", "transformers", "trl", "verl", "vllm")),
        "plan": plan.model_dump(mode="json"), "plan_sha256": plan.digest,
        "bars": _bars(arms, comparisons, stages, pairs),
        "arms": arms, "groups": {name: by_group(records) for name, records in tested.items()},
        "comparisons": comparisons, "stages": stages,
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
    for stage, name, key, bars in BARS_BY_SUITE:
        for suite, row in stages.get(stage, {}).get("result", {}).items():
            wanted = bars.get(suite, {})
            found += [_least(f"{name}, {suite}, {m}", least, row[key.get(m, m)])
                      for m, least in wanted.items()]  # fmt: skip
    turns = stages.get("feedback.compare", {}).get("result")
    if turns:
        found.append(_least("feedback less resampling, equal tokens", 0.05, turns["difference"]))
        if turns["difference_ci95"] is not None:
            low = turns["difference_ci95"][0]
            found.append(bar("feedback less resampling, lower 95% end", "> 0", low, low > 0))
        if turns["repeats"] is not None:
            found.append(bar("repeats", 0.1, turns["repeats"], turns["repeats"] <= 0.1))
    return found


BARS_BY_SUITE: tuple[tuple[str, str, dict[str, str], dict[str, dict[str, float]]], ...] = (
    ("search.search", "search", {}, {
        "modules:100": {"correct": 0.65, "fast_1": 0.40},
        "kernelbench:1": {"correct": 0.65, "fast_1": 0.40}, "kernelbench:2": {"fast_1": 0.35},
    }),
    ("kernelbench.test", "greedy", {"correct": "pass@1"}, {
        "kernelbench:1": {"correct": 0.45, "fast_1": 0.25},
        "kernelbench:2": {"correct": 0.30, "fast_1": 0.20},
    }),
)  # fmt: skip
"""(stage, what is said, names of metrics there, least values by suite)."""


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
