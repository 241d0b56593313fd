"""What a whole evaluation came to: `summary.json`, made from the sample records and nothing else.

records.jsonl -> EvalOutcome -> summary.json, report.html, gates, exit status
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from coding_framework.evaluation.compare import Comparison
from coding_framework.evaluation.estimates import MIN_TASKS_FOR_A_RATE, Estimate, Share
from coding_framework.evaluation.eval_run import EvalIdentity
from coding_framework.evaluation.eval_summary import Block, EvalSummary, summarize
from coding_framework.evaluation.gates import Gate, GateResult
from coding_framework.evaluation.samples import SampleRecord, once
from coding_framework.evaluation.suites import EvalSuite
from coding_framework.types import Record

MANY_CUT = 0.01
"""Share of the answers from which on it is said that they were cut off."""
INDICATIVE = 20
"""With fewer tasks an interval is a hint."""


class EvalOutcome(Record):
    """summary.json. Maker: `summarize_run`. Consumers: `cuda-rl eval`, the report, gates."""

    schema_version: Literal[1] = 1
    eval: EvalIdentity
    complete: bool
    """Whether every sample that was asked for is there."""
    overall: EvalSummary
    """Over all suites together."""
    suites: tuple[EvalSummary, ...]
    ks: tuple[int, ...]
    thresholds: tuple[float, ...]
    leak: Mapping[str, str]
    """Suite -> what is known of its tasks in the model's training."""
    not_applicable: Mapping[str, Mapping[str, str]]
    """Suite -> problems that cannot become tasks, with the reason."""
    unanswered: Mapping[str, tuple[str, ...]]
    """Suite -> tasks to which the given answers have none."""
    faults: Mapping[str, int]
    """What kept samples from a verdict -> how many."""
    notes: tuple[str, ...]
    """What a reader has to know before the numbers."""
    compared: Comparison | None = None
    gates: tuple[GateResult, ...] = ()

    @property
    def masked_share(self) -> float:
        """Samples that faults of ours kept from a verdict, of those that could have had one."""
        block = self.overall.overall
        return block.masked / max(1, block.masked + block.samples)


def summarize_run(
    identity: EvalIdentity,
    suites: Sequence[EvalSuite],
    records: Sequence[SampleRecord],
    ks: Sequence[int],
    thresholds: Sequence[float],
    **more: Any,
) -> EvalOutcome:
    """more: the other fields of the outcome."""
    summaries = summaries_of([s.name for s in suites], records, ks, thresholds)
    return EvalOutcome(
        eval=identity,
        overall=summaries[0],
        suites=tuple(summaries[1:]),
        ks=tuple(ks),
        thresholds=tuple(thresholds),
        not_applicable={s.name: s.not_applicable for s in suites if s.not_applicable},
        faults=dict(sorted(Counter(r.masked for r in records if r.masked is not None).items())),
        notes=(
            *_notes(summaries[0].overall),
            *_cut(once(records), identity.sampling.get("max_new_tokens")),
            *_repeats(once(records)),
        ),
        **more,
    )


def summaries_of(
    suites: Sequence[str],
    records: Sequence[SampleRecord],
    ks: Sequence[int],
    thresholds: Sequence[float],
) -> list[EvalSummary]:
    """Of all suites together (a task that several have counts once), then of each."""
    whole = summarize(" + ".join(suites), once(records), ks, thresholds)
    parts = [
        summarize(name, [r for r in records if r.suite == name], ks, thresholds) for name in suites
    ]
    return [whole, *parts]


def _notes(block: Block) -> list[str]:
    notes = []
    if 0 < block.tasks < INDICATIVE:
        notes.append(f"{block.tasks} tasks: the intervals are indicative")
    if len(block.speeds) > 1:
        kinds = "; ".join(f"{s.timed} {s.basis} on {s.device}" for s in block.speeds)
        notes.append(f"times of different kinds are told apart ({kinds})")
    for speeds in block.speeds:
        if speeds.basis == "modelled":
            notes.append("times are modelled by the emulator: only their order is to be trusted")
        if speeds.suspects:
            notes.append(f"{len(speeds.suspects)} times cannot be believed, and enter no mean")
    return notes


def _cut(records: Sequence[SampleRecord], limit: float | None) -> list[str]:
    """Whether answers end at the limit of tokens: a model may be better than it is shown."""
    cut, answers = sum(r.cut for r in records), sum(r.turns for r in records)
    if limit is None or cut < MANY_CUT * answers or not cut:
        return []
    return [
        f"{cut} of {answers} answers were cut off at {limit:g} tokens, which counts as wrong: "
        "--max-new-tokens allows more"
    ]


def _repeats(records: Sequence[SampleRecord]) -> list[str]:
    """Whether several samples of a task are one kernel, which pass@k takes for several chances."""
    codes: dict[str, list[str]] = defaultdict(list)
    for record in records:
        if record.code_sha256:
            codes[record.task].append(record.code_sha256)
    same = [of for of in codes.values() if len(of) > 1 and len(set(of)) == 1]
    if not same or len(same) < len(codes) / 2:
        return []
    return [
        f"all samples of {len(same)} of {len(codes)} tasks are one kernel: pass@k says there no "
        "more than pass@1"
    ]


# --- gates ----------------------------------------------------------------------------------------

_SHARES: Mapping[str, Callable[[Block], Share]] = {
    "compile": lambda block: block.compiled,
    "cheats": lambda block: block.cheats,
    "rejected": lambda block: block.rejected,
}


def gate_metrics(ks: Sequence[int], thresholds: Sequence[float]) -> list[str]:
    """The metrics that gates may name."""
    fast = [f"fast_{p:g}" for p in thresholds]
    at_k = [f"{name}@{k}" for name in fast for k in ks if k > 1]
    return [*(f"pass@{k}" for k in ks), *fast, *at_k, *_SHARES, "regressions"]


def gate_scopes(suites: Sequence[EvalSuite], *, compares: bool) -> list[str]:
    """The scopes that gates may name."""
    entries = [entry for suite in suites for entry in suite.tasks]
    found = {f"tier{e.task.tier}" for e in entries} | {f"family.{e.task.family}" for e in entries}
    found |= {f"ops{len(e.task.ops)}" for e in entries}
    found |= {f"level{e.level}" for e in entries if e.level is not None}
    return sorted(found | ({"delta"} if compares else set()))


def _numbers(block: Block) -> dict[str, Estimate]:
    """What a block tells, by the names that gates have for it."""
    found = {name: as_estimate(take(block)) for name, take in _SHARES.items()} | dict(block.pass_at)
    if len(block.speeds) == 1:
        found |= block.speeds[0].fast
    if block.regressions is not None:
        found["regressions"] = as_estimate(block.regressions.rate)
    return found


def headline(block: Block) -> dict[str, float]:
    """The numbers of a block that have a value, by their names in gates."""
    return {name: e.value for name, e in _numbers(block).items() if e.value is not None}


def number_of(gate: Gate, outcome: EvalOutcome) -> Estimate:
    """What a gate is about; without a value, and with the reason, where there is none."""
    if gate.scope == "delta":
        return _difference(gate.metric, outcome.compared)
    block = outcome.overall.by.get(gate.scope) if gate.scope else outcome.overall.overall
    if block is None:
        why = f"{gate.scope} has fewer than {MIN_TASKS_FOR_A_RATE} tasks"
    elif gate.metric in (found := _numbers(block)):
        return found[gate.metric]
    elif gate.metric == "regressions":
        why = "no kernel was judged at other shapes"
    elif block.speeds:
        why = f"times of {len(block.speeds)} kinds were taken, not of one"
    else:
        why = "no correct kernel was timed"
    return Estimate(value=None, why=why)


def _difference(metric: str, compared: Comparison | None) -> Estimate:
    assert compared is not None  # else the scope is unknown
    for difference in compared.differences:
        if difference.metric == metric:
            return Estimate(value=difference.estimate, ci95=difference.ci95)
    return Estimate(value=None, why="this metric is not compared between the two runs")


def as_estimate(found: Share) -> Estimate:
    """A share as gates and tables take numbers."""
    if found.rate is None:
        return Estimate(value=None, why="nothing was counted")
    return Estimate(value=found.rate, ci95=found.ci95, samples=found.n, method="Wilson")
