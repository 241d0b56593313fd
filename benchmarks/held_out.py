"""Which share of held-out tasks models solve, and how fast their kernels are, by class of task.

    python benchmarks/held_out.py --part tasks --single-ops 12
    cuda-rl eval sft --server http://127.0.0.1:8000/v1 --tokenizer MODEL_DIR --samples 4 --turns 3
        --stop-when-correct --suite held-out:110 --suite runs/held_out/single_ops
        --backend emulator --output-dir runs/held_out/sft
    cuda-rl eval --answers runs/held_out/sft --suite held-out:110 --suite runs/held_out/single_ops
        --backend cuda --baselines compiled --output-dir runs/held_out/sft.timed
    python benchmarks/held_out.py --part report [--output FILE]

The evaluations are those of `cuda-rl eval`, one folder a model: judged by the emulator, for a GPU
that serves a model cannot be timed on, and then, with the server gone, timed on the GPU. The report
adds what `eval` does not have: speedups by class of task, as PyTorch eager counts kernels
(`eager_kernels`), the bars, and of each two models the paired comparison.

No held-out task is a single elementwise operation: each operation alone is in training, by the
split's rule. `tasks` writes so many of those training tasks as a suite, which is told apart
everywhere; no rate of held-out tasks has them.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, get_args

from bench_io import ROOT, bar, finish, head
from eager_kernels import EagerWork, eager_work

from coding_framework.data.examples import training_tasks
from coding_framework.data.synthesis.catalog import find
from coding_framework.errors import UsageError
from coding_framework.evaluation.compare import compare_runs
from coding_framework.evaluation.estimates import geometric_mean, rate, share
from coding_framework.evaluation.eval_summary import summarize_samples
from coding_framework.evaluation.samples import SampleRecord
from coding_framework.paths import write_atomic
from coding_framework.run.evaluation import read_sample_records
from coding_framework.store.conversations import read_conversations
from coding_framework.store.folder import EvalFolder
from coding_framework.types import CUDAConversationState, Task, TaskScope

SINGLE_OPS, TIMED = "single_ops", ".timed"
"""Names of the suite and of a timed evaluation's folder."""
GAIN, HIGH = 0.15, 0.90
CHAIN_OPS = 3
CHAIN_SPEEDUP, SINGLE_SPEEDUP = 2.0, 0.95
"""Geomeans over PyTorch eager, of the two classes of the bar."""
SINGLE_OP, CHAIN = "single elementwise op", "chains of three or more eager kernels"


def pass_at_1(records: Sequence[SampleRecord], first_turn: bool = False) -> dict[str, Any]:
    """Mean over tasks of the share of a task's samples that passed, with its 95% interval."""
    if first_turn:
        records = [r.model_copy(update={"correct": r.first_correct_turn == 0}) for r in records]
    found = rate(records)
    if found.value is None or found.ci95 is None:
        return {"tasks": 0}
    ends = [round(end, 4) for end in found.ci95]
    return {
        "rate": round(found.value, 4), "ci95": ends, "tasks": found.tasks,
        "samples": found.samples,
    }  # fmt: skip


def timed_rows(states: Sequence[CUDAConversationState]) -> list[dict[str, Any]]:
    """Of each task the fastest kernel that was judged on the GPU."""
    best: dict[str, dict[str, Any]] = {}
    for state in states:
        turn = state.best_turn or state.turns[-1]
        timing = turn.verdict.timing if turn.verdict is not None else None
        row = {
            "task": state.task.name, "ops": len(state.task.ops), "tier": state.task.tier,
            "status": turn.verdict.status.value if turn.verdict is not None else "masked",
            "speedup": timing.speedup if timing is not None else None,
            "speedup_vs_compiled": timing.speedup_vs_compiled if timing is not None else None,
        }  # fmt: skip
        held = best.get(state.task.name)
        if held is None or (row["speedup"] or 0.0) > (held["speedup"] or 0.0):
            best[state.task.name] = row
    return list(best.values())


def speedups(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Of the kernels that were correct and timed on the GPU, over PyTorch eager and, where it was
    timed, torch.compile."""
    kinds: dict[str, Callable[[Mapping[str, Any]], bool]] = {
        "all": lambda row: True,
        "one elementwise op": lambda row: row["ops"] == 1 and row["tier"] == 0,
        f"{CHAIN_OPS} ops or more": lambda row: row["ops"] >= CHAIN_OPS,
    }
    correct = [row for row in rows if row["status"] == "correct"]
    found: dict[str, Any] = {"judged": len(rows), "correct": len(correct)}
    for name, is_one in kinds.items():
        chosen = [row for row in correct if is_one(row)]
        if eager := _ratios(chosen, "speedup"):
            found[name] = eager
            if compiled := _ratios(chosen, "speedup_vs_compiled"):
                found[name]["over torch.compile"] = compiled
    found |= by_class(correct)
    tiers = {tier: [row for row in correct if row["tier"] == tier] for tier in range(4)}
    found["tiers"] = {str(t): eager for t, of in tiers.items() if (eager := _ratios(of, "speedup"))}
    return found


def is_chain_with(product: bool) -> Callable[[EagerWork], bool]:
    return lambda work: work.is_chain and work.has_product is product


CLASSES: dict[str, Callable[[EagerWork], bool]] = {
    SINGLE_OP: lambda work: work.is_single_elementwise,
    CHAIN: lambda work: work.is_chain,
    f"{CHAIN}, with a matrix product or convolution": is_chain_with(True),
    f"{CHAIN}, without": is_chain_with(False),
}


def by_class(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Speedups by what PyTorch eager launches for the task, each class by tier too; a class without
    a timed task is left out, and so are tasks that the catalogue does not have."""
    worked = [(row, work) for row in rows if (work := work_of(row["task"])) is not None]
    found: dict[str, Any] = {}
    for name, is_one in CLASSES.items():
        chosen = [row for row, work in worked if is_one(work)]
        if not (ratios := _over_both(chosen)):
            continue
        tiers = {tier: [r for r in chosen if r["tier"] == tier] for tier in range(4)}
        found[name] = {
            **ratios,
            "below_64_mib": sum(is_one(w) and not w.moves_enough for _, w in worked),
            "tiers": {str(t): both for t, of in tiers.items() if (both := _over_both(of))},
        }
    return found


def work_of(name: str) -> EagerWork | None:
    task = find(name)
    return eager_work(task) if task is not None else None


def _over_both(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    eager, compiled = _ratios(rows, "speedup"), _ratios(rows, "speedup_vs_compiled")
    return {**eager, "over torch.compile": compiled} if eager and compiled else eager


def _ratios(rows: Sequence[Mapping[str, Any]], of: str) -> dict[str, Any]:
    """Empty where none was timed. `faster`: the share above 1."""
    values = [row[of] for row in rows if row.get(of)]
    if not values:
        return {}
    mean = geometric_mean(values)
    assert mean.value is not None
    return {
        "n": len(values),
        "geomean": round(mean.value, 3),
        "ci95": [round(end, 3) for end in mean.ci95 or ()],
        "min": round(min(values), 3),
        "faster": round(statistics.fmean(value > 1 for value in values), 4),
    }


@dataclass(frozen=True)
class Model:
    """One model's evaluations: records and conversations, and those that were timed."""

    records: Sequence[SampleRecord]
    states: Sequence[CUDAConversationState]
    timed: Sequence[SampleRecord]
    timed_states: Sequence[CUDAConversationState]

    def only(self, single_ops: bool) -> Model:
        """The part about the single operations, or the part about held-out tasks."""
        kept = [
            [each for each in of if (SINGLE_OPS in suite_of(each)) is single_ops]
            for of in (self.records, self.states, self.timed, self.timed_states)
        ]
        return Model(*kept)  # type: ignore[arg-type]


def suite_of(found: SampleRecord | CUDAConversationState) -> str:
    return found.suite if isinstance(found, SampleRecord) else found.conversation_id


def read_model(folder: Path) -> Model:
    timed = folder.with_name(f"{folder.name}{TIMED}")
    has_times = EvalFolder(timed).records.exists()
    return Model(
        read_sample_records(folder),
        list(read_conversations(EvalFolder(folder).conversations)),
        read_sample_records(timed) if has_times else [],
        list(read_conversations(EvalFolder(timed).conversations)),
    )


def paired(one: Model, other: Model) -> dict[str, Any]:
    """One against the other over the tasks that both have: the difference of pass@1, and the ratio
    of the speedups of tasks that both solved and that were timed for both."""
    difference = compare_runs(other.records, one.records, ()).differences[0]
    found: dict[str, Any] = difference.model_dump(mode="json")
    speed = compare_runs(other.timed, one.timed, ()).speed if one.timed and other.timed else None
    if speed is not None:
        found["speed"] = {
            "n": speed.tasks,
            "geomean": round(math.exp(speed.estimate), 3),
            "ci95": [round(math.exp(end), 3) for end in speed.ci95],
            "word": speed.word,
        }
    return found


def first_turn_compile(states: Sequence[CUDAConversationState]) -> dict[str, Any]:
    """Conversations whose first answer compiled, before any feedback."""
    first = [s.turns[0] for s in states if s.turns]
    judged = [t.verdict for t in first if t.masked is None]
    return share(v is not None and v.compiled for v in judged).model_dump(mode="json")


def summary(model: Model) -> dict[str, Any]:
    held, single = model.only(False), model.only(True)
    tiers = sorted({record.tier for record in held.records})
    block = summarize_samples(held.records, [1], []).model_dump(mode="json")
    kept = ("compiled", "masked", "statuses", "passed_by_turn", "end_reasons")
    found = {
        "pass_at_1": pass_at_1(held.records),
        "first_turn": pass_at_1(held.records, first_turn=True),
        "first_turn_compile": first_turn_compile(held.states),
        "tiers": {str(t): pass_at_1([r for r in held.records if r.tier == t]) for t in tiers},
        **{name: block[name] for name in kept},
        "on_the_gpu": speedups(timed_rows(held.timed_states)),
    }
    if single.records:
        found["single_elementwise_ops"] = {
            "note": "these tasks were in training",
            "pass_at_1": pass_at_1(single.records),
            "on_the_gpu": speedups(timed_rows(single.timed_states)),
        }
    return found


def single_op_tasks(count: int, scope: TaskScope) -> list[Task]:
    """The first `count` training tasks for which eager launches one elementwise kernel, balanced
    over the families. Raises UsageError where there are fewer."""
    if not count:
        return []
    drawn = training_tasks(None, 0, max_steps=1, scope=scope)
    found = [task for task in drawn if eager_work(task).is_single_elementwise][:count]
    if len(found) < count:
        raise UsageError(f"{count} single operations were asked for; {len(found)} are judged")
    return found


def speed_bars(models: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Of the trained models that were timed."""
    bars = []
    for label, row in models.items():
        if label == "base":
            continue
        singles = row.get("single_elementwise_ops", {}).get("on_the_gpu", {})
        for name, target, found in (
            (CHAIN, CHAIN_SPEEDUP, row["on_the_gpu"].get(CHAIN)),
            (SINGLE_OP, SINGLE_SPEEDUP, singles.get(SINGLE_OP)),
        ):
            if found is not None:
                value = found["geomean"]
                said = f"{label}: geomean over eager, {name}, at least"
                bars.append(bar(said, target, value, value >= target))
    return bars


def eager_classes(tasks: Sequence[Task]) -> dict[str, Any]:
    """How many tasks are of each class, and which of all move less than 64 MiB where they are
    timed."""
    works = {task.name: eager_work(task) for task in tasks}
    return {
        "rule": "benchmarks/eager_kernels.py",
        **{name: sum(map(is_one, works.values())) for name, is_one in CLASSES.items()},
        "below_64_mib": sorted(n for n, work in works.items() if not work.moves_enough),
    }


def report(args: argparse.Namespace) -> bool:
    folders = [p.parent for p in args.work.glob("*/records.jsonl") if TIMED not in p.parent.name]
    models = {folder.name: read_model(folder) for folder in sorted(folders)}
    found = {label: summary(model) for label, model in models.items()}
    for label, row in found.items():
        print(f"{label:<10} pass@1 {row['pass_at_1']}  first turn {row['first_turn']}")
    rates = {label: row["pass_at_1"].get("rate", 0.0) for label, row in found.items()}
    gain = rates["rl"] - rates.get("sft", 0.0) if "rl" in rates else None
    held = {label: model.only(False) for label, model in models.items()}
    tasks = {s.task.name: s.task for model in held.values() for s in model.states}
    bars = [
        bar("held-out tasks, at least", 100, len(tasks), len(tasks) >= 100),
        bar(
            "points that RL adds over SFT (or it reaches 90%)", GAIN, gain,
            gain is not None and (gain >= GAIN or rates["rl"] >= HIGH),
        ),
        *speed_bars(found),
    ]  # fmt: skip
    top = head("held_out", packages=("torch", "transformers", "vllm", "verl"))
    sizes = {
        "tasks": len(tasks),
        "tiers": dict(sorted(Counter(str(task.tier) for task in tasks.values()).items())),
        "eager": eager_classes(list(tasks.values())),
    }
    pairs = {
        f"{one} - {other}": paired(held[one], held[other])
        for other, one in combinations(sorted(found, key=_order), 2)
    }
    return finish({**top, "bars": bars, **sizes, "models": found, "paired": pairs}, args.output)


def _order(label: str) -> tuple[int, str]:
    """What came first: a difference is of the later one less the earlier one."""
    known = ("base", "sft")
    return (known.index(label) if label in known else len(known), label)


def write_single_ops(folder: Path, tasks: Sequence[Task]) -> None:
    """The tasks as files, which are a suite."""
    folder.mkdir(parents=True, exist_ok=True)
    for task in tasks:
        write_atomic(folder / f"{task.name}.json", task.model_dump_json())


def main() -> int:
    cli = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cli.add_argument("--part", choices=["tasks", "report"], required=True)
    cli.add_argument("--scope", choices=get_args(TaskScope), default="starter")
    cli.add_argument(
        "--single-ops", type=int, default=12, metavar="N",
        help="tasks: so many single elementwise operations, tasks of training",
    )  # fmt: skip
    cli.add_argument("--work", type=Path, default=ROOT / "runs" / "held_out")
    cli.add_argument("--output", type=Path)
    args = cli.parse_args()
    if args.part == "report":
        return 0 if report(args) else 1
    write_single_ops(args.work / SINGLE_OPS, single_op_tasks(args.single_ops, args.scope))
    return 0


if __name__ == "__main__":
    sys.exit(main())
