"""The numbers behind the charts of a run: from its step records, for the browser to draw.

A chart is columns: x, and a column a series, `None` where there is no value (a gap stays a gap).
Its marks are places on the x axis: starts of the trainer, ends of steps.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from coding_framework.store.folder import SFTFolder
from coding_framework.store.records import StepRecord
from coding_framework.store.run_status import (
    GPUSample,
    JudgeSample,
    ProcessGroup,
    SystemSample,
    read_judge,
    read_system_thinned,
)
from coding_framework.store.training_log import read_sft_records
from coding_framework.viewer.judges import Judges, usual_pause
from coding_framework.viewer.runs import FoundRun, rl_folders, sft_folder, steps_of

MAX_POINTS = 5_000
"""More are cut to the least and the largest of each stretch."""
GAP = 6
"""A pause of so many usual ones is a gap."""
X_LABELS = {"step": "step", "time": "seconds of training", "conversations": "conversations"}
Column = list[float | None]


@dataclass(frozen=True, slots=True)
class Options:
    """What the address says of the charts."""

    x: str = "step"
    """step, time (seconds of training) or conversations."""
    smooth: float = 0.0
    """Weight of what came before, from 0 to 0.99; the raw line stays visible."""
    log: bool = False
    low: float | None = None
    high: float | None = None
    """What is shown of the x axis; None: to its end."""
    axis: str = ""
    """Which axis that is, by its label; "": of `x`."""

    def cut_of(self, x_label: str) -> tuple[float | None, float | None]:
        """(low, high) that a chart over this axis shows."""
        of = self.axis or X_LABELS[self.x]
        return (self.low, self.high) if of == x_label else (None, None)


OPTIONS = ("x", "smooth", "log", "from", "to", "axis")
"""Their names in an address."""


def options_in(query: Mapping[str, str]) -> dict[str, str]:
    """What an address says of the charts, for the page's form."""
    return {name: query.get(name, "") for name in OPTIONS}


def options_from(given: Mapping[str, str]) -> Options:
    """Of a query; what cannot be is left out."""
    smooth = _number(given.get("smooth", "")) or 0.0
    x, low, high = given.get("x", ""), _number(given.get("from", "")), _number(given.get("to", ""))
    if low is not None and high is not None and low >= high:
        low = high = None
    return Options(
        x if x in X_LABELS else "step", min(0.99, max(0.0, smooth)), given.get("log") == "1",
        low, high, given.get("axis", "")[:40],
    )  # fmt: skip


def _number(text: str) -> float | None:
    try:
        found = float(text)
    except ValueError:
        return None
    return found if math.isfinite(found) else None


def charts_of(
    run: FoundRun, options: Options, restarts: Mapping[str, Sequence[int]] | None = None
) -> list[dict[str, Any]]:
    """All charts for which the run has numbers. restarts: of each policy that RL trains, the first
    steps of the trainer's later starts."""
    found: list[dict[str, Any] | None] = []
    sft = sft_folder(run)
    if sft is not None:
        found += _sft_charts(sft, options)
    for label, folder in rl_folders(run):
        records = steps_of(folder)
        if records:
            prefix = "" if label == "rl" else f"{label}: "
            begun = set((restarts or {}).get(label, ()))
            places = _x_of(records, options.x)[0]
            marks = [x for x, record in zip(places, records, strict=True) if record.step in begun]
            found += [
                made
                | {"id": f"{label}-{made['id']}", "title": prefix + made["title"], "marks": marks}
                for made in _rl_charts(records, options)
            ]
    told = _times(run)
    found += [c for c in _system_charts(told, options) if c and c["id"] in _ON_OVERVIEW]
    return [made for made in found if made is not None]


def system_charts(
    run: FoundRun, ends: Sequence[float], options: Options | None = None
) -> list[dict[str, Any]]:
    """What the machine and the judge did, on one time axis. ends: of the steps' conversations,
    seconds since 1970."""
    told = _times(run)
    marks = [end - told.start for end in ends if end >= told.start]
    made = _system_charts(told, options or Options())
    return [c | {"marks": marks} for c in made if c is not None]


def _rl_charts(records: Sequence[StepRecord], options: Options) -> list[dict[str, Any]]:
    x, x_label = _x_of(records, options.x)

    def column(of: Callable[[StepRecord], float | None]) -> Column:
        return [_finite(of(record)) for record in records]

    def keyed(of: Callable[[StepRecord], Mapping[str, float]]) -> dict[str, Column]:
        names = dict.fromkeys(name for record in records for name in of(record))
        return {name: [_finite(of(r).get(name)) for r in records] for name in names}

    shares = {
        "compiles": column(lambda r: r.compile_rate),
        "correct": column(lambda r: r.correct_rate),
        "cheats": column(lambda r: _of_turns(r, r.measures.cheats)),
        "rejected": column(lambda r: _of_turns(r, r.measures.rejected)),
    }
    groups = column(
        lambda r: (
            r.measures.groups_without_advantage / r.measures.groups if r.measures.groups else None
        )
    )
    error = column(lambda r: r.solved_error)
    solved = column(lambda r: r.solved_rate)
    band = {
        "solved": solved,
        "− s.e.": [_sum(a, b, -1) for a, b in zip(solved, error, strict=True)],
        "+ s.e.": [_sum(a, b, 1) for a, b in zip(solved, error, strict=True)],
    }
    charts: list[tuple[str, str, str, dict[str, Column], dict[str, Any]]] = [
        ("solved", "Solved conversations", "share", band, {"bands": [(1, 2)]}),
        ("reward", "Reward", "mean of a turn", {
            "all turns": column(lambda r: r.reward_mean),
            "best turn": column(lambda r: r.reward_best_mean),
        }, {}),
        ("funnel", "How far turns come", "share of judged turns", shares, {}),
        ("parts", "Parts of the reward", "mean of a turn", keyed(lambda r: r.measures.reward_parts),
         {}),
        ("tiers", "Correct, by tier", "share", keyed(
            lambda r: {f"tier {t}": rates.correct_rate for t, rates in r.measures.tiers.items()}
        ), {}),
        ("speedup", "Speedup of correct kernels", "×", keyed(lambda r: r.measures.speedup), {}),
        ("groups", "Groups without advantage", "share", {"share": groups}, {}),
        ("kl", "KL and entropy", "nats a token", {
            "KL": column(lambda r: r.kl),
            "entropy": column(lambda r: r.entropy),
            "KL of the update": column(lambda r: r.ppo_kl),
        }, {}),
        ("gradient", "Gradient norm", "", {"norm": column(lambda r: r.grad_norm)}, {"log": True}),
        ("clip", "Clipped tokens and loss", "", {
            "clip fraction": column(lambda r: r.clip_fraction),
            "loss": column(lambda r: r.loss),
        }, {}),
        ("length", "Length of answers", "tokens", {
            "mean": column(lambda r: r.measures.response_tokens_mean),
            "largest": column(lambda r: r.measures.response_tokens_max or None),
        }, {}),
        ("cut", "Answers cut off, masked turns", "share", {
            "cut off": column(lambda r: r.measures.cut_share),
            "masked": column(lambda r: r.masked_turns / r.turns if r.turns else None),
        }, {}),
        ("times", "Time of a step", "s", keyed(
            lambda r: {name: value for name, value in r.times.items() if name != "step_s"}
        ), {"stack": True}),
        ("verdicts", "Time of a verdict", "s", {
            **{f"all, {k}": v for k, v in keyed(lambda r: r.measures.verdict_s).items()},
            **{f"waiting, {k}": v for k, v in keyed(lambda r: r.measures.verdict_wait_s).items()},
        }, {}),
    ]  # fmt: skip
    return [made for c in charts if (made := chart(*c, x, x_label, options)) is not None]


def _of_turns(record: StepRecord, count: int) -> float | None:
    judged = record.turns - record.masked_turns
    return count / judged if judged > 0 else None


def _sft_charts(folder: SFTFolder, options: Options) -> list[dict[str, Any]]:
    records = read_sft_records(folder.metrics)
    x = [float(entry["step"]) for entry in records.steps]
    charts = []
    for identity, title, unit, key, more in (
        ("sft-loss", "SFT: loss", "nats a token", "loss", {}),
        ("sft-gradient", "SFT: gradient norm", "", "gradient_norm", {"log": True}),
        ("sft-rate", "SFT: learning rate", "", "learning_rate", {}),
    ):
        column = [_finite(entry.get(key)) for entry in records.steps]
        charts.append(chart(identity, title, unit, {key: column}, more, x, "step", options))
    epochs = records.epochs
    if epochs:
        charts.append(
            chart(
                "sft-held-out", "SFT: held-out loss and score", "",
                {
                    "held-out loss": [_finite(e.held_out_loss) for e in epochs],
                    "held-out pass rate": [
                        _finite(e.score.pass_rate) if e.score else None for e in epochs
                    ],
                    "compile rate": [
                        _share(e.score.compiled, e.score.judged) if e.score else None
                        for e in epochs
                    ],
                },
                {}, [e.epoch for e in epochs], "epoch", replace(options, smooth=0.0, log=False),
            )
        )  # fmt: skip
    return [made for made in charts if made is not None]


_ON_OVERVIEW = frozenset({"gpu", "gpu-memory", "gpu-power", "cpu", "queue", "judge-times"})


@dataclass(frozen=True, slots=True)
class _Told:
    """What a run wrote of machine and judges."""

    samples: Sequence[SystemSample]
    judges: Judges

    @property
    def judged(self) -> Sequence[JudgeSample]:
        return self.judges.samples

    @property
    def start(self) -> float:
        return min([*(s.t for s in self.samples), *(s.t for s in self.judged)], default=0.0)


def _times(run: FoundRun) -> _Told:
    return _Told(read_system_thinned(run.root), Judges.of(list(read_judge(run.root))))


def _system_charts(told: _Told, options: Options) -> list[dict[str, Any] | None]:
    samples, judged = told.samples, told.judged
    gpus = sorted({gpu.index for s in samples for gpu in s.gpus or ()})
    roles = dict.fromkeys(role for s in samples for role in s.processes)

    def of_gpus(of: Callable[[GPUSample], float | None]) -> dict[str, Column]:
        known = [{gpu.index: gpu for gpu in s.gpus or ()} for s in samples]
        return {f"GPU {i}": [of(row[i]) if i in row else None for row in known] for i in gpus}

    def of_roles(of: Callable[[ProcessGroup], float | None]) -> dict[str, Column]:
        return {
            role: [of(s.processes[role]) if role in s.processes else None for s in samples]
            for role in roles
        }

    def each(of: Callable[[SystemSample], float | None], by: float = 1.0) -> Column:
        return [_scaled(of(s), by) for s in samples]

    memory: Column = [_share(s.ram, s.ram_total) for s in samples]
    cores: Column = [sum(s.cpu) / len(s.cpu) / 100 if s.cpu else None for s in samples]
    system: list[tuple[str, str, str, dict[str, Column]]] = [
        ("gpu", "GPU: use", "share", of_gpus(lambda g: _scaled(g.util, 0.01))),
        ("gpu-memory", "GPU: memory", "GB", of_gpus(lambda g: _scaled(g.mem_used, 1e-9))),
        ("gpu-power", "GPU: power", "W", of_gpus(lambda g: g.power_w)),
        ("gpu-clock", "GPU: clock", "MHz", of_gpus(lambda g: g.sm_clock)),
        ("gpu-temp", "GPU: temperature", "°C", of_gpus(lambda g: g.temp)),
        ("cpu", "CPU and memory", "share", {"all cores": cores, "memory": memory}),
        ("load", "Load", "processes", {"mean of a minute": each(lambda s: s.load)}),
        ("role-cpu", "Cores by role", "busy cores", of_roles(lambda g: g.cpu)),
        ("role-memory", "Memory by role", "GB", of_roles(lambda g: _scaled(g.pss or g.rss, 1e-9))),
        ("disk", "Disk and network", "MB/s", {
            "read": each(lambda s: s.disk_read, 1e-6),
            "written": each(lambda s: s.disk_write, 1e-6),
            "network": each(lambda s: s.net, 1e-6),
        }),
        ("disk-free", "Free on the run's disk, swap", "GB", {
            "free": each(lambda s: s.disk_free, 1e-9), "swap": each(lambda s: s.swap, 1e-9),
        }),
    ]  # fmt: skip
    several = told.judges.most > 1
    all_of = f", {told.judges.most} judges together" if several else ""
    slowest_of = f", the slowest of {told.judges.most} judges" if several else ""
    judge: list[tuple[str, str, str, dict[str, Column]]] = [
        ("queue", f"Judge: queue{all_of}", "verdicts", {
            "queued": [float(s.queued) for s in judged],
            "running": [float(s.running) for s in judged],
        }),
        ("judge-rate", f"Judge: verdicts{all_of}", "a second", {
            "done": [s.done_per_s for s in judged],
        }),
        ("judge-times", f"Judge: times{slowest_of}", "s", {
            f"{name}, {q}": [times(s).get(q) for s in judged]
            for name, times in _JUDGE_TIMES.items() for q in ("p50", "p95")
        }),
    ]  # fmt: skip
    flags, start = replace(options, smooth=0.0), told.start
    found = []
    for charts, times, pause in (
        (system, [s.t for s in samples], None),
        (judge, [s.t for s in judged], told.judges.pause),
    ):
        x = [t - start for t in times]
        for identity, title, unit, columns in charts:
            places, broken = _with_gaps(x, columns, pause)
            found.append(chart(identity, title, unit, broken, {}, places, "seconds", flags))
    return found


def _with_gaps(
    x: Sequence[float], columns: Mapping[str, Column], pause: float | None = None
) -> tuple[list[float], dict[str, Column]]:
    """With a point without a value wherever nothing was written for long: a line must not lead
    over that. pause: the usual one (None: as between the points)."""
    usual = usual_pause(b - a for a, b in itertools.pairwise(x)) if pause is None else pause
    after = [i for i, (a, b) in enumerate(itertools.pairwise(x), 1) if b - a > GAP * usual]
    places, made = list(x), {name: list(column) for name, column in columns.items()}
    for i in reversed(after):
        places.insert(i, (x[i - 1] + x[i]) / 2)
        for column in made.values():
            column.insert(i, None)
    return places, made


_JUDGE_TIMES: dict[str, Callable[[JudgeSample], Mapping[str, float]]] = {
    "compiling": lambda s: s.compile_s,
    "judging": lambda s: s.judge_s,
    "waiting": lambda s: s.wait_s,
}


def _scaled(value: float | None, by: float) -> float | None:
    return None if value is None else value * by


def _share(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


def chart(
    identity: str,
    title: str,
    unit: str,
    series: Mapping[str, Column],
    more: Mapping[str, Any],
    x: Sequence[float],
    x_label: str,
    options: Options,
) -> dict[str, Any] | None:
    """A chart as the browser takes it; None where no series has a value."""
    told = {name: column for name, column in series.items() if any(v is not None for v in column)}
    if not told:
        return None
    bands = more.get("bands", ()) if len(told) == len(series) else ()
    if any(later < earlier for earlier, later in itertools.pairwise(x)):  # a clock was set back
        order = sorted(range(len(x)), key=x.__getitem__)
        x = [x[i] for i in order]
        told = {name: [column[i] for i in order] for name, column in told.items()}
    low, high = options.cut_of(x_label)
    first, last = _cut(x, low, high)
    within = [column[first:last] for column in told.values()]
    keep = [first + i for i in decimated(within, last - first)]
    drawn = [
        {
            "name": name,
            "values": [column[i] for i in keep],
            "raw": False,
            "level": name in more.get("levels", ()),
        }
        for name, column in told.items()
    ]
    if options.smooth > 0 and not more.get("stack") and not bands:
        smooth = [(name, smoothed(column, options.smooth)) for name, column in told.items()]
        drawn = [{**line, "raw": True} for line in drawn] + [
            {"name": name, "values": [column[i] for i in keep], "raw": False, "level": False}
            for name, column in smooth
        ]
    log = options.log or bool(more.get("log"))  # of nothing above 0 such an axis would show nothing
    log = log and any(v is not None and v > 0 for column in told.values() for v in column)
    flags = {"log": log, "stack": bool(more.get("stack"))}
    return {
        "id": identity, "title": title, "unit": unit, "x_label": x_label,
        "x": [x[i] for i in keep], "series": drawn, "bands": bands,
        "marks": [], "cut": [low, high], **flags,
    }  # fmt: skip


def _cut(x: Sequence[float], low: float | None, high: float | None) -> tuple[int, int]:
    """Which of ordered points are shown: those within, and one on each side for the lines there."""
    first = 0 if low is None else max(0, bisect_left(x, low) - 1)
    last = len(x) if high is None else min(len(x), bisect_right(x, high) + 1)
    return first, last


def smoothed(column: Column, weight: float) -> Column:
    """The exponential moving average, without the pull of its start; gaps stay gaps."""
    total = mass = 0.0
    out: Column = []
    for value in column:
        if value is None:
            out.append(None)
            continue
        total, mass = weight * total + (1 - weight) * value, weight * mass + (1 - weight)
        out.append(total / mass)
    return out


def decimated(columns: Sequence[Column], length: int) -> list[int]:
    """Which points to keep: all, or of each stretch the least and the largest of each column."""
    if length <= MAX_POINTS:
        return list(range(length))
    stretch = math.ceil(length * 2 * len(columns) / MAX_POINTS)
    kept = {0, length - 1}
    for start in range(0, length, stretch):
        part = range(start, min(start + stretch, length))
        for column in columns:
            known = sorted((value, i) for i in part if (value := column[i]) is not None)
            if known:
                kept |= {known[0][1], known[-1][1]}
    return sorted(kept)


def _x_of(records: Sequence[StepRecord], kind: str) -> tuple[list[float], str]:
    label = X_LABELS[kind]
    if kind == "conversations":
        return _running(record.conversations for record in records), label
    if kind == "time":
        return _running(r.times.get("step_s", 0.0) for r in records), label
    return [float(record.step) for record in records], label


def _running(values: Any) -> list[float]:
    total, out = 0.0, []
    for value in values:
        total += value
        out.append(total)
    return out


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _sum(value: float | None, error: float | None, sign: int) -> float | None:
    return None if value is None or error is None else value + sign * error
