"""Which share of held-out tasks a served model solves, and how fast its kernels are on a GPU.

    vllm serve MODEL_DIR --served-model-name base --enable-lora --lora-modules sft=ADAPTER_DIR ...
    python benchmarks/held_out.py --part solve --label sft --server http://127.0.0.1:8000/v1
        --tokenizer MODEL_DIR [--tasks 110] [--samples 4] [--turns 3] [--minutes 5] [--workers 12]
    python benchmarks/held_out.py --part time --label sft [--workers 12] [--minutes 3]
        [--baselines compiled]
    python benchmarks/held_out.py --part report [--output FILE]

Every part takes --scope all: tasks of every family that has a kernel which this machine judged
(`cuda-rl tasks build`), and not those of the package alone; give it to all parts.

solve: --samples conversations of each task at --temperature, up to --turns turns, the first correct
one ends it; judged by the emulator, for a GPU that serves a model cannot be timed on. All tasks'
first samples come first, so that what --minutes leaves is even over the tasks; after them no
conversation begins, and those that have begun are finished. With --optimizer-model the later turns
are by another model of the server (the adapters of a run with a policy a role). time: one correct
kernel of each task, judged again and timed on the GPU; end the server first. --baselines compiled
also times torch.compile, which takes half a minute a task and worker, once: PyTorch's times are
kept in the cache by task, for the other labels too. Kernels timed without it are timed again.
Conversations and rows are kept in runs/held_out (or --work DIR); each part goes on where it was.

The report has pass@1, a task's mean over its samples, with the 95% interval over tasks; speedups by
class of task, as PyTorch eager counts kernels (`eager_kernels`), with bootstrap intervals over
tasks; and of each two models the paired difference over the tasks that both have.

No held-out task is a single elementwise operation: each operation alone is in training, by the
split's rule. --single-ops N adds N of those training tasks (give it to all parts); they are told
apart everywhere, and no rate of held-out tasks has them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import random
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from itertools import combinations
from pathlib import Path
from typing import Any, get_args

from bench_io import ROOT, bar, finish, head
from eager_kernels import EagerWork, eager_work

from coding_framework.agents.prompts import PROMPT_VERSIONS
from coding_framework.data.examples import held_out_tasks, training_tasks
from coding_framework.data.synthesis.catalog import find
from coding_framework.errors import UsageError
from coding_framework.evaluation.evaluate import EvaluationConfig, evaluate
from coding_framework.evaluation.metrics import Z95, proportion, stage_metrics
from coding_framework.monitoring.progress import Progress
from coding_framework.orchestration.turn import ConversationConfig
from coding_framework.store.conversations import read_states
from coding_framework.store.lines import JsonlSink, read_lines
from coding_framework.types import (
    BaselinesName,
    CUDAConversationState,
    SamplingParams,
    Task,
    TaskScope,
)
from coding_framework.wiring import cores, make_agents, make_judge, make_reward

MAX_PROMPT, MAX_ANSWER = 2048, 1536
GAIN, HIGH = 0.15, 0.90
CHAIN_OPS = 3
CHAIN_SPEEDUP, SINGLE_SPEEDUP = 2.0, 0.95
"""Geomeans over PyTorch eager, of the two classes of the bar."""
SINGLE_OP, CHAIN = "single elementwise op", "chains of three or more eager kernels"
BOOTSTRAPS = 2000
FIRST_CORRECT = 0.01
"""A correct turn is worth more than this under every preset."""


async def solve(args: argparse.Namespace, tasks: Sequence[Task], store: Path) -> None:
    from transformers import AutoTokenizer

    from coding_framework.agents.policies import OpenAIPolicy, prompt_ids
    from coding_framework.agents.prompts import PromptBudget

    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(args.concurrency))
    tokenizer = AutoTokenizer.from_pretrained(args.tokenizer)
    budget = PromptBudget(MAX_PROMPT, lambda messages: len(prompt_ids(tokenizer, messages)))
    policy = OpenAIPolicy(args.server, args.model or args.label)
    own = args.optimizer_model
    optimizer = OpenAIPolicy(args.server, own) if own is not None else None
    sampling = SamplingParams(max_new_tokens=MAX_ANSWER, temperature=args.temperature)
    total, correct = len(tasks) * args.samples, 0
    with ExitStack() as stack:
        judge = make_judge("emulator", workers=args.workers, run_folder=args.work / "judge")
        stack.callback(judge.close)
        progress = stack.enter_context(Progress(args.label, total, "conversations"))

        def count(state: CUDAConversationState) -> None:
            nonlocal correct
            correct += state.best_turn is not None
            progress.advance(note=f"{correct} correct")

        conversation = ConversationConfig(
            max_turns=args.turns, stop_reward=FIRST_CORRECT, stop_after_repeats=None
        )
        config = EvaluationConfig(
            samples_per_task=args.samples, concurrency=args.concurrency, conversation=conversation,
            begin_within_s=60 * args.minutes,
        )  # fmt: skip
        agents = make_agents(
            policy, sampling, optimizer=optimizer, budget=budget, prompts=args.prompts
        )
        await evaluate(
            args.label, tasks, agents, judge, make_reward(), config, store=store, on_done=count
        )


async def time_kernels(args: argparse.Namespace, states: Sequence[CUDAConversationState]) -> None:
    """One correct kernel of each task, judged and timed on the GPU."""
    path = args.work / f"{args.label}.timed.jsonl"
    done = timed_tasks(path, args.baselines)
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # a compiler a judge is enough
    chosen = {s.task.name: s for s in reversed(states) if s.best_turn is not None}
    with ExitStack() as stack:
        judge = make_judge("cuda", workers=args.workers, baselines=args.baselines)
        stack.callback(judge.close)
        sink = stack.enter_context(JsonlSink(path))

        async def one(state: CUDAConversationState) -> None:
            assert state.best_turn is not None
            verdict = await judge(state.task, state.best_turn.code or "")
            timing = verdict.timing
            sink.write({
                "task": state.task.name, "ops": len(state.task.ops), "tier": state.task.tier,
                "status": verdict.status.value, "baselines": args.baselines,
                "speedup": timing.speedup if timing is not None else None,
                "speedup_vs_compiled": timing.speedup_vs_compiled if timing is not None else None,
            })  # fmt: skip

        with suppress(TimeoutError):
            async with asyncio.timeout(60 * args.minutes):
                waiting = [one(s) for name, s in chosen.items() if name not in done]
                for result in await asyncio.gather(*waiting, return_exceptions=True):
                    if isinstance(result, Exception):
                        print(f"not timed: {result}", file=sys.stderr)


def timed_rows(path: Path) -> list[dict[str, Any]]:
    """The last row of each task."""
    rows = (json.loads(line) for line in read_lines(path))
    return list({row["task"]: row for row in rows}.values())


def timed_tasks(path: Path, baselines: BaselinesName) -> set[str]:
    """Tasks that need no further timing beside these baselines; rows of before they were written
    have a compiled time or none."""
    order = get_args(BaselinesName)
    return {
        row["task"]
        for row in timed_rows(path)
        if order.index(row.get("baselines") or _told(row)) >= order.index(baselines)
        or row["status"] != "correct"
    }


def _told(row: Mapping[str, Any]) -> BaselinesName:
    return "compiled" if row.get("speedup_vs_compiled") else "eager"


def pass_at_1(states: Sequence[CUDAConversationState], first_turn: bool = False) -> dict[str, Any]:
    """Mean over tasks of the share of a task's samples that passed, with its 95% interval."""
    by_task: dict[str, list[bool]] = {}
    for state in states:
        best = state.turns[0].verdict if first_turn else None
        passed = best is not None and best.correct if first_turn else state.best_turn is not None
        by_task.setdefault(state.task.name, []).append(passed)
    means = [statistics.fmean(flags) for flags in by_task.values()]
    if not means:
        return {"tasks": 0}
    half = Z95 * statistics.stdev(means) / math.sqrt(len(means)) if len(means) > 1 else 1.0
    rate = statistics.fmean(means)
    ends = [round(max(0.0, rate - half), 4), round(min(1.0, rate + half), 4)]
    return {"rate": round(rate, 4), "ci95": ends, "tasks": len(means), "samples": len(states)}


def speedups(path: Path, names: Container[str] | None = None) -> dict[str, Any]:
    """Of the kernels that were correct and timed on the GPU, over PyTorch eager and, where it was
    timed, torch.compile. names: of the tasks that count; None: all."""
    rows = [row for row in timed_rows(path) if names is None or row["task"] in names]
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
    low, high = interval([math.log(value) for value in values])
    return {
        "n": len(values),
        "geomean": round(statistics.geometric_mean(values), 3),
        "ci95": [round(math.exp(low), 3), round(math.exp(high), 3)],
        "min": round(min(values), 3),
        "faster": round(statistics.fmean(value > 1 for value in values), 4),
    }


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Bootstrap 95% interval of the mean, over the tasks whose values these are."""
    rng = random.Random(0)
    means = sorted(statistics.fmean(rng.choices(values, k=len(values))) for _ in range(BOOTSTRAPS))
    return means[int(0.025 * BOOTSTRAPS)], means[int(0.975 * BOOTSTRAPS) - 1]


def paired(
    one: Sequence[CUDAConversationState],
    other: Sequence[CUDAConversationState],
    timed_one: Path,
    timed_other: Path,
) -> dict[str, Any]:
    """One against the other over the tasks that both have: the difference of pass@1, and the ratio
    of the speedups of tasks that both solved and that were timed for both."""
    rates, others = _rates(one), _rates(other)
    gaps = [rates[name] - others[name] for name in sorted(rates.keys() & others.keys())]
    found: dict[str, Any] = {"tasks": len(gaps)}
    if gaps:
        found["pass_at_1"] = round(statistics.fmean(gaps), 4)
        found["ci95"] = [round(end, 4) for end in interval(gaps)]
    fast, slow = _timed(timed_one), _timed(timed_other)
    both = sorted(fast.keys() & slow.keys() & rates.keys() & others.keys())
    logs = [math.log(fast[name] / slow[name]) for name in both]
    if logs:
        low, high = interval(logs)
        found["speed"] = {
            "n": len(logs),
            "geomean": round(math.exp(statistics.fmean(logs)), 3),
            "ci95": [round(math.exp(low), 3), round(math.exp(high), 3)],
        }
    return found


def _rates(states: Sequence[CUDAConversationState]) -> dict[str, float]:
    """Task -> share of its samples that passed."""
    flags: dict[str, list[bool]] = {}
    for state in states:
        flags.setdefault(state.task.name, []).append(state.best_turn is not None)
    return {name: statistics.fmean(of) for name, of in flags.items()}


def _timed(path: Path) -> dict[str, float]:
    correct = [row for row in timed_rows(path) if row["status"] == "correct"]
    return {row["task"]: row["speedup"] for row in correct if row["speedup"]}


def first_turn_compile(states: Sequence[CUDAConversationState]) -> dict[str, Any]:
    """Conversations whose first answer compiled, before any feedback."""
    first = [s.turns[0] for s in states if s.turns]
    judged = [t.verdict for t in first if t.masked is None]
    return proportion(v is not None and v.compiled for v in judged).model_dump(mode="json")


def summary(
    args: argparse.Namespace, label: str, tasks: Sequence[Task], single_ops: Sequence[Task] = ()
) -> dict[str, Any]:
    states = stored(args, label, tasks)
    tiers = sorted({state.task.tier for state in states})
    metrics = stage_metrics(label, states).model_dump(mode="json")
    kept = ("compile", "turns", "masked_turns", "statuses", "fixed_by_feedback", "end_reasons")
    path = args.work / f"{label}.timed.jsonl"
    found = {
        "pass_at_1": pass_at_1(states),
        "first_turn": pass_at_1(states, first_turn=True),
        "first_turn_compile": first_turn_compile(states),
        "tiers": {str(t): pass_at_1([s for s in states if s.task.tier == t]) for t in tiers},
        **{name: metrics[name] for name in kept},
        "on_the_gpu": speedups(path, {task.name for task in tasks}),
    }
    if single_ops:
        found["single_elementwise_ops"] = {
            "note": "these tasks were in training",
            "pass_at_1": pass_at_1(stored(args, label, single_ops)),
            "on_the_gpu": speedups(path, {task.name for task in single_ops}),
        }
    return found


def stored(
    args: argparse.Namespace, label: str, tasks: Sequence[Task]
) -> list[CUDAConversationState]:
    wanted = {f"{label}/{t.name}/{n}": t for n in range(args.samples) for t in tasks}
    return list(read_states(args.work / f"{label}.jsonl", wanted).values())


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


def report(
    args: argparse.Namespace, tasks: Sequence[Task], single_ops: Sequence[Task] = ()
) -> bool:
    paths = (p for p in args.work.glob("*.jsonl") if not p.stem.endswith(".timed"))
    found = {
        label: summary(args, label, tasks, single_ops) for label in sorted(p.stem for p in paths)
    }
    for label, row in found.items():
        print(f"{label:<10} pass@1 {row['pass_at_1']}  first turn {row['first_turn']}")
    rates = {label: row["pass_at_1"].get("rate", 0.0) for label, row in found.items()}
    gain = rates["rl"] - rates.get("sft", 0.0) if "rl" in rates else None
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
        "scope": args.scope, "samples": args.samples, "turns": args.turns, "tasks": len(tasks),
        "temperature": args.temperature,
        "tiers": dict(sorted(Counter(str(task.tier) for task in tasks).items())),
        "eager": eager_classes(tasks),
    }  # fmt: skip
    if single_ops:
        sizes["single_ops_of_training"] = [task.name for task in single_ops]
    states = {label: stored(args, label, tasks) for label in found}
    timed = {label: args.work / f"{label}.timed.jsonl" for label in found}
    pairs = {
        f"{one} - {other}": paired(states[one], states[other], timed[one], timed[other])
        for other, one in combinations(sorted(found, key=_order), 2)
    }
    return finish({**top, "bars": bars, **sizes, "models": found, "paired": pairs}, args.output)


def _order(label: str) -> tuple[int, str]:
    """What came first: a difference is of the later one less the earlier one."""
    known = ("base", "sft")
    return (known.index(label) if label in known else len(known), label)


def main() -> int:
    cli = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cli.add_argument("--part", choices=["solve", "time", "report"], required=True)
    cli.add_argument("--label", help="base, sft, rl, rl_from_base, roles")
    cli.add_argument("--server", default="http://127.0.0.1:8000/v1")
    cli.add_argument("--model", help="its name at the server; default: the label")
    cli.add_argument("--optimizer-model", help="of the later turns; default: the same")
    cli.add_argument("--tokenizer", type=Path)
    cli.add_argument("--scope", choices=get_args(TaskScope), default="starter")
    cli.add_argument("--tasks", type=int, default=110)
    cli.add_argument(
        "--single-ops", type=int, default=0, metavar="N",
        help="also N single elementwise operations, tasks of training, told apart",
    )  # fmt: skip
    cli.add_argument("--samples", type=int, default=4)
    cli.add_argument("--turns", type=int, default=3)
    cli.add_argument("--temperature", type=float, default=1.0)
    cli.add_argument("--prompts", choices=PROMPT_VERSIONS, default="v1", help="v2: the contract")
    cli.add_argument("--minutes", type=float, default=30.0)
    cli.add_argument("--baselines", choices=get_args(BaselinesName), default="eager")
    cli.add_argument("--workers", type=int, default=cores())
    cli.add_argument("--concurrency", type=int, default=256)
    cli.add_argument("--work", type=Path, default=ROOT / "runs" / "held_out")
    cli.add_argument("--output", type=Path)
    args = cli.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    tasks = held_out_tasks(args.tasks, 0, scope=args.scope)
    single_ops = single_op_tasks(args.single_ops, args.scope)
    if args.part == "report":
        return 0 if report(args, tasks, single_ops) else 1
    tasks = [*tasks, *single_ops]
    if args.label is None or (args.part == "solve" and args.tokenizer is None):
        cli.error("solve needs --label and --tokenizer, time needs --label")
    if args.part == "solve":
        asyncio.run(solve(args, tasks, args.work / f"{args.label}.jsonl"))
    else:
        asyncio.run(time_kernels(args, stored(args, args.label, tasks)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
