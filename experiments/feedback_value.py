"""Is our feedback worth more than another sample? Pass rates after 1, 2 and 3 turns, both ways.

    uv run python experiments/feedback_value.py --model Qwen/Qwen2.5-Coder-1.5B-Instruct \\
        [--server URL --tokenizer FOLDER] [--tasks 100] [--samples 4] [--turns 3] [--minutes 10]
        [--scope all] [--output-dir DIR] [--output FILE]

Arm one: conversations, in which every turn after the first sees the last kernel and the judge's
feedback on it. Arm two: as many samples of the first prompt, independent of one another. Both go
through the same turn loop and end at the first correct kernel; the first turn of both has the same
prompt and seed. The unit is a task: the interval of the difference is a bootstrap over tasks.

Held-out tasks, real verdicts, by the emulator: a GPU that answers has no time for judging. --scope
all: tasks of every family and length that has a kernel which this machine judged. --minutes is for
each arm; after them no conversation begins and those that have begun are finished, first samples of
all tasks first, and the table is of the conversations that both arms have. --tokenizer is what a
server's prompts are counted with, so that none is longer than --max-prompt-tokens. What is done is
in --output-dir, and the same command goes on after a stop. Prints a table, writes
benchmarks/results/feedback_value.json (on a GPU name it feedback_value.h200.json with --output).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import random
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, get_args

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))
from bench_io import bar, finish, head
from rich.console import Console
from rich.table import Table

from coding_framework.agents.answers import RoleAgent
from coding_framework.agents.generator import GeneratorAgent
from coding_framework.agents.optimizer import OptimizerAgent
from coding_framework.agents.policies import OpenAIPolicy, TransformersPolicy, prompt_ids
from coding_framework.agents.prompts import PROMPT_VERSIONS, PromptBudget
from coding_framework.cuda.judge import JudgeConfig
from coding_framework.cuda.many.pool import JudgePool
from coding_framework.data.examples import held_out_tasks
from coding_framework.evaluation.conversation_metrics import conversation_metrics, turns_table
from coding_framework.evaluation.evaluate import EvaluationConfig, evaluate
from coding_framework.evaluation.metrics import proportion
from coding_framework.monitoring.progress import Progress
from coding_framework.orchestration.turn import ConversationConfig
from coding_framework.training.reward_functions.cuda_performance_reward import (
    CUDAPerformanceReward,
)
from coding_framework.types import (
    AgentAnswer,
    CUDAConversationState,
    Message,
    Role,
    SamplingParams,
    Task,
    TaskScope,
)

BOOTSTRAPS = 2000
ARMS = ("feedback", "resampling")


def sample_number(state: CUDAConversationState) -> int:
    """Tells answers apart by conversation ("ARM/TASK/SAMPLE") and turn, whatever the arm."""
    name = state.conversation_id.split("/", 1)[1]
    digest = hashlib.sha256(f"{name}/{len(state.turns)}".encode()).digest()
    return 1 + int.from_bytes(digest[:3], "big")


class SeededAgent:
    """An agent whose answers depend on the conversation's name and turn, not on the arm."""

    def __init__(self, agent: RoleAgent) -> None:
        self._agent = agent

    async def answer(self, state: CUDAConversationState, *, sample: int = 0) -> AgentAnswer:
        return await self._agent.answer(state, sample=sample_number(state))


class Resampler:
    """Answers as if nothing had been said: the same first prompt, another sample."""

    def __init__(self, generator: RoleAgent) -> None:
        self._generator = generator

    async def answer(self, state: CUDAConversationState, *, sample: int = 0) -> AgentAnswer:
        first = state.model_copy(update={"turns": ()})
        return await self._generator.answer(first, sample=sample_number(state))


def counter(policy: Any, args: argparse.Namespace) -> Callable[[tuple[Message, ...]], int] | None:
    """Counts the tokens of a prompt; None: nothing here can."""
    if args.tokenizer is None:
        return getattr(policy, "count", None)
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(args.tokenizer)
    return lambda messages: len(prompt_ids(tokenizer, messages))


def cast(arm: str, policy: Any, args: argparse.Namespace) -> dict[Role, Any]:
    """The agents of an arm."""
    sampling = SamplingParams(
        max_new_tokens=args.max_new_tokens, temperature=args.temperature, seed=args.seed
    )
    count = counter(policy, args)
    budget = PromptBudget(args.max_prompt_tokens, count) if count is not None else None
    how: dict[str, Any] = {"budget": budget, "prompts": args.prompts}
    generator = GeneratorAgent(policy, sampling, **how)
    if arm == "resampling":
        return {Role.GENERATOR: SeededAgent(generator), Role.OPTIMIZER: Resampler(generator)}
    optimizer = OptimizerAgent(policy, sampling, **how)
    return {Role.GENERATOR: SeededAgent(generator), Role.OPTIMIZER: SeededAgent(optimizer)}


async def run_arms(
    args: argparse.Namespace, tasks: Sequence[Task]
) -> dict[str, tuple[CUDAConversationState, ...]]:
    """The finished conversations of both arms."""
    # a request of a server waits in a thread: the default would be a few more than cores
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(args.concurrency))
    states = {}
    with contextlib.ExitStack() as stack:
        pool = JudgePool(
            JudgeConfig(backend="emulator", seed=args.seed), workers=args.workers,
            cache_folder=args.output_dir / "verdicts",
        )  # fmt: skip
        stack.callback(pool.close)
        policy: Any
        if args.server is not None:
            policy = OpenAIPolicy(args.server, args.model)
        else:
            from coding_framework.agents.models import resolve_model

            policy = TransformersPolicy(
                resolve_model(args.model), max_batch=args.concurrency,
                max_context=args.max_prompt_tokens + args.max_new_tokens,
            )  # fmt: skip
            stack.callback(policy.close)
        for arm in ARMS:
            states[arm] = await run_arm(arm, tasks, policy, pool, args)
    return states


async def run_arm(
    arm: str, tasks: Sequence[Task], policy: Any, pool: JudgePool, args: argparse.Namespace
) -> tuple[CUDAConversationState, ...]:
    conversation = ConversationConfig(
        max_turns=args.turns, stop_reward=-1.0, stop_after_repeats=None
    )  # a correct kernel's reward is above 0 under every preset: it ends the conversation
    config = EvaluationConfig(
        samples_per_task=args.samples, concurrency=args.concurrency, conversation=conversation,
        begin_within_s=None if args.minutes is None else 60 * args.minutes,
    )  # fmt: skip
    correct = 0
    with Progress(f"  {arm}", len(tasks) * args.samples, "conversations") as progress:

        def count(state: CUDAConversationState) -> None:
            nonlocal correct
            correct += state.best_turn is not None
            progress.advance(note=f"{correct} correct")

        result = await evaluate(
            arm, tasks, cast(arm, policy, args), pool, CUDAPerformanceReward(), config,
            store=args.output_dir / f"{arm}.jsonl", on_done=count,
        )  # fmt: skip
    return result.states


# --- what it shows --------------------------------------------------------------------------------


def in_both(
    states: Mapping[str, Sequence[CUDAConversationState]],
) -> dict[str, list[CUDAConversationState]]:
    """The conversations of each arm that the other has too: a limit of time may leave one fewer."""

    def name(state: CUDAConversationState) -> str:
        return state.conversation_id.split("/", 1)[1]

    common = set.intersection(*({name(s) for s in states[arm]} for arm in ARMS))
    return {arm: [s for s in states[arm] if name(s) in common] for arm in ARMS}


def passed_by(state: CUDAConversationState, turns: int) -> bool:
    return any(t.verdict is not None and t.verdict.correct for t in state.turns[:turns])


def by_task(states: Sequence[CUDAConversationState], turns: int) -> dict[str, float]:
    """Share of a task's samples that are correct within `turns`; masked ones are left out."""
    flags: dict[str, list[bool]] = defaultdict(list)
    for state in states:
        if any(t.masked is None for t in state.turns):
            flags[state.task.name].append(passed_by(state, turns))
    return {name: statistics.fmean(values) for name, values in flags.items()}


def difference(
    one: Mapping[str, float], other: Mapping[str, float]
) -> tuple[float, tuple[float, float]]:
    """Mean over tasks of one minus other, with a bootstrap 95% interval over tasks."""
    gaps = [one[name] - other[name] for name in sorted(set(one) & set(other))]
    if not gaps:
        return 0.0, (0.0, 0.0)
    rng = random.Random(0)
    means = sorted(statistics.fmean(rng.choices(gaps, k=len(gaps))) for _ in range(BOOTSTRAPS))
    low, high = means[int(0.025 * BOOTSTRAPS)], means[int(0.975 * BOOTSTRAPS)]
    return statistics.fmean(gaps), (low, high)


def rows_of(
    states: Mapping[str, Sequence[CUDAConversationState]], turns: int
) -> list[dict[str, Any]]:
    rows = []
    for k in range(1, turns + 1):
        shares = {arm: by_task(states[arm], k) for arm in ARMS}
        mean, ci95 = difference(shares["feedback"], shares["resampling"])
        row: dict[str, Any] = {"turns": k, "difference": round(mean, 4)}
        row["difference_ci95"] = [round(x, 4) for x in ci95]
        for arm in ARMS:
            judged = [s for s in states[arm] if any(t.masked is None for t in s.turns)]
            found = proportion(passed_by(s, k) for s in judged)
            row[arm] = {"passed": found.count, "n": found.n, "rate": round(found.rate, 4)}
        rows.append(row)
    return rows


def show(rows: Sequence[Mapping[str, Any]]) -> None:
    table = Table(title="Correct within k turns or samples", title_justify="left")
    for name in ("k", *ARMS, "difference", "95%"):
        table.add_column(name, justify="right")
    for row in rows:
        cells = [f"{row[a]['rate']:.1%} ({row[a]['passed']}/{row[a]['n']})" for a in ARMS]
        low, high = row["difference_ci95"]
        gap = f"{row['difference']:+.1%}"
        table.add_row(str(row["turns"]), *cells, gap, f"{low:+.1%} to {high:+.1%}")
    Console().print(table)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="Qwen/Qwen2.5-Coder-1.5B-Instruct")
    parser.add_argument("--server", help="an OpenAI-compatible server that has the model")
    parser.add_argument("--tokenizer", type=Path, help="a folder; with --server")
    parser.add_argument("--scope", choices=get_args(TaskScope), default="starter")
    parser.add_argument("--tasks", type=int, default=100)
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument(
        "--max-ops",
        type=int,
        help="longest composition of a task; default: 3, with --scope all any",
    )
    parser.add_argument("--minutes", type=float, help="of each arm; default: all conversations")
    parser.add_argument("--prompts", choices=PROMPT_VERSIONS, default="v2")
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--max-new-tokens", type=int, default=1024)
    parser.add_argument("--max-prompt-tokens", type=int, default=4096)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--workers", type=int, help="judging processes; default: one a core")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output-dir", type=Path, default=Path("outputs/feedback_value"))
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    if args.max_ops is None and args.scope == "starter":
        args.max_ops = 3
    return args


def main() -> int:
    args = parse()
    args.output_dir.mkdir(parents=True, exist_ok=True)
    tasks = held_out_tasks(args.tasks, args.seed, max_steps=args.max_ops, scope=args.scope)
    states = in_both(asyncio.run(run_arms(args, tasks)))
    rows = rows_of(states, args.turns)
    show(rows)
    metrics = {arm: conversation_metrics(states[arm]) for arm in ARMS}
    Console().print(turns_table(metrics["feedback"], "Conversations with feedback"))
    last = rows[-1]
    bars = [
        bar(
            f"correct within {args.turns} turns, feedback minus resampling (holds: the 95% "
            "interval lies above 0)",
            0.0, last["difference"], last["difference_ci95"][0] > 0.0,
        )
    ]  # fmt: skip
    figures = {
        "settings": {k: str(v) for k, v in vars(args).items()},
        "tiers": dict(sorted(Counter(str(task.tier) for task in tasks).items())),
        "conversations_of_an_arm": len(states["feedback"]),
        "rows": rows,
        "metrics": {arm: m.model_dump(mode="json") for arm, m in metrics.items()},
    }
    report = {**head("feedback_value", packages=("torch", "transformers")), "bars": bars}
    return 0 if finish({**report, **figures}, args.output) else 1


if __name__ == "__main__":
    sys.exit(main())
