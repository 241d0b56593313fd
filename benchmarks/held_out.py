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
also times torch.compile, which takes half a minute a task. Conversations and rows are kept in
runs/held_out (or --work DIR); each part goes on where it was. The report has pass@1, a task's mean
over its samples, with the 95% interval over tasks.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, get_args

from bench_io import ROOT, bar, finish, head

from coding_framework.agents.prompts import PROMPT_VERSIONS
from coding_framework.data.data_pipeline import held_out_tasks
from coding_framework.evaluation.metrics import Z95, proportion, stage_metrics
from coding_framework.evaluation.runner import EvaluationConfig, evaluate, read_states
from coding_framework.monitoring.jsonl import JsonlSink, read_lines
from coding_framework.monitoring.progress import Progress
from coding_framework.orchestration.turn import ConversationConfig
from coding_framework.suite import Scope
from coding_framework.types import CUDAConversationState, SamplingParams, Task
from coding_framework.wiring import BaselinesName, cores, make_agents, make_judge, make_reward

MAX_PROMPT, MAX_ANSWER = 2048, 768
GAIN, HIGH = 0.15, 0.90
CHAIN_OPS = 3
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
    done = {json.loads(line)["task"] for line in read_lines(path)}
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
                "status": verdict.status.value,
                "speedup": timing.speedup if timing is not None else None,
                "speedup_vs_compiled": timing.speedup_vs_compiled if timing is not None else None,
            })  # fmt: skip

        with suppress(TimeoutError):
            async with asyncio.timeout(60 * args.minutes):
                waiting = [one(s) for name, s in chosen.items() if name not in done]
                for result in await asyncio.gather(*waiting, return_exceptions=True):
                    if isinstance(result, Exception):
                        print(f"not timed: {result}", file=sys.stderr)


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


def speedups(path: Path) -> dict[str, Any]:
    """Of the kernels that were correct and timed on the GPU, over PyTorch eager and, where it was
    timed, torch.compile."""
    rows = [json.loads(line) for line in read_lines(path)]
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
    tiers = {tier: [row for row in correct if row["tier"] == tier] for tier in range(4)}
    found["tiers"] = {str(t): eager for t, of in tiers.items() if (eager := _ratios(of, "speedup"))}
    return found


def _ratios(rows: Sequence[Mapping[str, Any]], of: str) -> dict[str, Any]:
    """Empty where none was timed. `faster`: the share above 1."""
    values = [row[of] for row in rows if row.get(of)]
    if not values:
        return {}
    return {
        "n": len(values),
        "geomean": round(statistics.geometric_mean(values), 3),
        "min": round(min(values), 3),
        "faster": round(statistics.fmean(value > 1 for value in values), 4),
    }


def first_turn_compile(states: Sequence[CUDAConversationState]) -> dict[str, Any]:
    """Conversations whose first answer compiled, before any feedback."""
    first = [s.turns[0] for s in states if s.turns]
    judged = [t.verdict for t in first if t.masked is None]
    return proportion(v is not None and v.compiled for v in judged).model_dump(mode="json")


def summary(args: argparse.Namespace, label: str, tasks: Sequence[Task]) -> dict[str, Any]:
    states = stored(args, label, tasks)
    tiers = sorted({state.task.tier for state in states})
    metrics = stage_metrics(label, states).model_dump(mode="json")
    kept = ("compile", "turns", "masked_turns", "statuses", "fixed_by_feedback", "end_reasons")
    return {
        "pass_at_1": pass_at_1(states),
        "first_turn": pass_at_1(states, first_turn=True),
        "first_turn_compile": first_turn_compile(states),
        "tiers": {str(t): pass_at_1([s for s in states if s.task.tier == t]) for t in tiers},
        **{name: metrics[name] for name in kept},
        "on_the_gpu": speedups(args.work / f"{label}.timed.jsonl"),
    }


def stored(
    args: argparse.Namespace, label: str, tasks: Sequence[Task]
) -> list[CUDAConversationState]:
    wanted = {f"{label}/{t.name}/{n}": t for n in range(args.samples) for t in tasks}
    return list(read_states(args.work / f"{label}.jsonl", wanted).values())


def report(args: argparse.Namespace, tasks: Sequence[Task]) -> bool:
    paths = (p for p in args.work.glob("*.jsonl") if not p.stem.endswith(".timed"))
    found = {label: summary(args, label, tasks) for label in sorted(p.stem for p in paths)}
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
    ]  # fmt: skip
    top = head("held_out", packages=("torch", "transformers", "vllm", "verl"))
    sizes = {
        "scope": args.scope, "samples": args.samples, "turns": args.turns, "tasks": len(tasks),
        "temperature": args.temperature,
        "tiers": dict(sorted(Counter(str(task.tier) for task in tasks).items())),
    }  # fmt: skip
    return finish({**top, "bars": bars, **sizes, "models": found}, args.output)


def main() -> int:
    cli = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cli.add_argument("--part", choices=["solve", "time", "report"], required=True)
    cli.add_argument("--label", help="base, sft, rl, rl_from_base, roles")
    cli.add_argument("--server", default="http://127.0.0.1:8000/v1")
    cli.add_argument("--model", help="its name at the server; default: the label")
    cli.add_argument("--optimizer-model", help="of the later turns; default: the same")
    cli.add_argument("--tokenizer", type=Path)
    cli.add_argument("--scope", choices=get_args(Scope), default="starter")
    cli.add_argument("--tasks", type=int, default=110)
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
    if args.part == "report":
        return 0 if report(args, tasks) else 1
    if args.label is None or (args.part == "solve" and args.tokenizer is None):
        cli.error("solve needs --label and --tokenizer, time needs --label")
    if args.part == "solve":
        asyncio.run(solve(args, tasks, args.work / f"{args.label}.jsonl"))
    else:
        asyncio.run(time_kernels(args, stored(args, args.label, tasks)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
