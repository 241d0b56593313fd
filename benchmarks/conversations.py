"""Many conversations at once: what the turn loop itself costs, and whether it loses anything.

    uv run python benchmarks/conversations.py [--conversations 200] [--rounds 5] [--output FILE]

A scripted policy and a scripted judge answer at once, so that all time that passes is ours:
prompts, extraction, records, rewards; for the workflow also the graph and its file. Every round
runs all conversations (5 turns each) concurrently through the manager, the workflow without and the
workflow with a checkpoint file. Prints a table, writes benchmarks/results/conversations.json.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
from bench_io import bar, finish, head

from coding_framework.agents.generator import GeneratorAgent
from coding_framework.agents.optimizer import OptimizerAgent
from coding_framework.data.registry import find_task
from coding_framework.orchestration.turn import ConversationConfig
from coding_framework.orchestration.workflow import CUDAKernelWorkflow
from coding_framework.training.multi_turn_conversation import MultiTurnConversationManager
from coding_framework.training.reward_functions.cuda_performance_reward import (
    CUDAPerformanceReward,
)
from coding_framework.types import (
    BenchmarkResult,
    CompileSummary,
    CUDAConversationState,
    Generation,
    Message,
    Role,
    SamplingParams,
    Status,
    Task,
    TestResult,
    Verdict,
)

TURNS = 5
OVERHEAD_MS = 5.0
FLAT_MIB = 20.0
"""Growth from the end of the first round to the end of the last that counts as flat."""
TASK = find_task("relu")
CONFIG = ConversationConfig(max_turns=TURNS, stop_reward=None)
BODY = (
    "    // a line of a kernel of usual length, so that records and prompts have their size\n" * 30
)


class Policy:
    """A new kernel each time, at once; counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    async def generate(self, messages: tuple[Message, ...], sampling: SamplingParams) -> Generation:
        self.calls += 1
        number = self.calls  # another conversation calls meanwhile
        await asyncio.sleep(0)
        code = f"__global__ void k{number}() {{\n{BODY}}}\nvoid forward() {{}}\n"
        return Generation(
            text=f"```cuda\n{code}```", prompt_ids=(1,) * 400, response_ids=(2,) * 400
        )


class Judge:
    """Correct, each time a little faster; counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    async def __call__(self, task: Task, code: str) -> Verdict:
        self.calls += 1
        number = self.calls  # another conversation calls meanwhile
        await asyncio.sleep(0)
        test = TestResult(
            case="main", seed=0, shapes=((4,),), dtype="float32", max_abs_error=0.0,
            max_rel_error=0.0, tolerance=1e-6, passed=True,
        )  # fmt: skip
        timing = BenchmarkResult(
            kernel_ms=1.0, kernel_ms_ci95=(1.0, 1.0), modelled=True,
            speedup_vs_naive=1.0 + number * 1e-4,
        )  # fmt: skip
        return Verdict(
            status=Status.CORRECT, reason="all comparisons passed", task=task.name,
            candidate_sha256="0" * 64, backend="emulator", timing=timing, tests=(test,) * 15,
            compile=CompileSummary(ptx_sha256=str(number), techniques=("shared memory",)),
        )  # fmt: skip


async def by_manager(count: int, policy: Policy, judge: Judge) -> list[CUDAConversationState]:
    manager = MultiTurnConversationManager(
        GeneratorAgent(policy), OptimizerAgent(policy), judge=judge,
        reward=CUDAPerformanceReward(), config=CONFIG,
    )  # fmt: skip
    names = [f"c{i}" for i in range(count)]
    return list(await asyncio.gather(*(manager.run(TASK, conversation_id=n) for n in names)))


async def by_workflow(
    count: int, policy: Policy, judge: Judge, checkpoint: Path | None = None
) -> list[CUDAConversationState]:
    agents = {Role.GENERATOR: GeneratorAgent(policy), Role.OPTIMIZER: OptimizerAgent(policy)}
    names = [f"c{i}" for i in range(count)]
    async with CUDAKernelWorkflow(
        agents, judge, CUDAPerformanceReward(), CONFIG, checkpoint=checkpoint
    ) as workflow:
        return list(await asyncio.gather(*(workflow.run(TASK, conversation_id=n) for n in names)))


async def by_kept_workflow(count: int, policy: Policy, judge: Judge) -> list[CUDAConversationState]:
    with tempfile.TemporaryDirectory() as folder:
        return await by_workflow(count, policy, judge, Path(folder) / "checkpoint.sqlite")


DRIVERS: dict[str, Callable[[int, Policy, Judge], Awaitable[list[CUDAConversationState]]]] = {
    "manager": by_manager,
    "workflow": by_workflow,
    "workflow with checkpoint": by_kept_workflow,
}


async def one_round(name: str, count: int) -> dict[str, Any]:
    """Wall and CPU milliseconds a turn, and turns that are not what they should be."""
    policy, judge = Policy(), Judge()
    wall, cpu = time.perf_counter(), time.process_time()
    states = await DRIVERS[name](count, policy, judge)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    turns = count * TURNS
    return {
        "wall_ms_a_turn": 1e3 * wall / turns,
        "cpu_ms_a_turn": 1e3 * cpu / turns,
        "wrong_turns": wrong_turns(states, count)
        + abs(policy.calls - turns)
        + abs(judge.calls - turns),
        "rss_mib": psutil.Process().memory_info().rss / 2**20,
    }


def wrong_turns(states: Sequence[CUDAConversationState], count: int) -> int:
    """Turns that are lost, doubled or out of their place, over all conversations."""
    lost = abs(count - len({s.conversation_id for s in states}))
    codes = [turn.code for state in states for turn in state.turns]
    doubled = len(codes) - len(set(codes))
    misplaced = sum([t.index for t in s.turns] != list(range(TURNS)) for s in states)
    return lost * TURNS + doubled + misplaced


def measured(name: str, count: int, rounds: int) -> dict[str, Any]:
    each = [asyncio.run(one_round(name, count)) for _ in range(rounds)]
    row = {
        "driver": name,
        "wall_ms_a_turn": round(min(r["wall_ms_a_turn"] for r in each), 3),
        "cpu_ms_a_turn": round(min(r["cpu_ms_a_turn"] for r in each), 3),
        "worst_wall_ms_a_turn": round(max(r["wall_ms_a_turn"] for r in each), 3),
        "wrong_turns": sum(r["wrong_turns"] for r in each),
        "grown_mib": round(each[-1]["rss_mib"] - each[0]["rss_mib"], 1),
    }
    print(
        f"{name:<26}{row['wall_ms_a_turn']:>9.2f} ms wall {row['cpu_ms_a_turn']:>8.2f} ms CPU "
        f"a turn {row['grown_mib']:>8.1f} MiB grown, {row['wrong_turns']} wrong turns",
        flush=True,
    )
    return row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--conversations", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    rows = [measured(name, args.conversations, args.rounds) for name in DRIVERS]
    bars = []
    for row in rows:
        name, cost = row["driver"], row["wall_ms_a_turn"]
        bars += [
            bar(f"{name}: overhead, ms a turn", OVERHEAD_MS, cost, cost <= OVERHEAD_MS),
            bar(f"{name}: turns lost, doubled or misplaced", 0, row["wrong_turns"],
                row["wrong_turns"] == 0),
            bar(f"{name}: memory grown after the first round, MiB", FLAT_MIB, row["grown_mib"],
                row["grown_mib"] <= FLAT_MIB),
        ]  # fmt: skip
    command = (
        f"python benchmarks/conversations.py --conversations {args.conversations} "
        f"--rounds {args.rounds}"
    )
    figures = {"conversations": args.conversations, "turns_each": TURNS, "rows": rows}
    report = {**head("conversations", packages=("langgraph",), command=command), "bars": bars}
    return 0 if finish({**report, **figures}, args.output) else 1


if __name__ == "__main__":
    sys.exit(main())
