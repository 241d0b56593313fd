"""SIGKILL at random points of a workflow: the same result after resuming, nothing judged twice?

    uv run python tests/soak/workflow_kills.py [--kills 30] [--seed 0] [--output FILE]

Each round starts a conversation (5 turns, 2 candidates a turn) in a process of its own with a
checkpoint file, kills it at a random moment, looks into the file, and starts it again. The policy
and the judge are scripted and log every call; the graph, the file and the kill are real. Prints a
table, writes benchmarks/results/workflow_kills.json; exits 1 where a bar does not hold.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
from bench_io import bar, finish, head

TURNS, CANDIDATES = 5, 2
ASK_S, JUDGE_S = 0.02, 0.03


# --- the process that is killed ------------------------------------------------------------------


async def converse(folder: Path) -> None:
    """The conversation of a round, or what is left of it; logs calls, writes the result."""
    from coding_framework.agents.generator import GeneratorAgent
    from coding_framework.agents.optimizer import OptimizerAgent
    from coding_framework.data.registry import find_task
    from coding_framework.orchestration.turn import ConversationConfig
    from coding_framework.orchestration.workflow import CUDAKernelWorkflow
    from coding_framework.training.reward_functions.cuda_performance_reward import (
        CUDAPerformanceReward,
    )
    from coding_framework.types import Generation, Message, Role, SamplingParams, Task, Verdict

    log = os.open(folder / "calls.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def tell(**call: Any) -> None:
        os.write(log, json.dumps(call).encode() + b"\n")

    class Policy:
        """Names its kernel by the turn and the candidate; slow enough to be killed."""

        async def generate(
            self, messages: tuple[Message, ...], sampling: SamplingParams
        ) -> Generation:
            prompt = messages[-1].content
            last = next((i for i in reversed(range(TURNS)) if f"kernel_{i}_" in prompt), -1)
            name = f"kernel_{last + 1}_{0 if sampling.seed == 0 else 1}"
            tell(asked=name)
            await asyncio.sleep(ASK_S)
            return Generation(text=f"```cuda\n__global__ void {name}() {{}} // forward\n```")

    async def judge(task: Task, code: str) -> Verdict:
        name = code.split("void ")[1].split("(")[0]
        tell(judging=name)
        await asyncio.sleep(JUDGE_S * (2 if name.endswith("1") else 1))
        tell(judged=name)
        turn, sample = (int(x) for x in name.split("_")[1:])
        return correct_verdict(task.name, 1.0 + turn + 0.5 * sample)

    agents = {
        Role.GENERATOR: GeneratorAgent(Policy(), SamplingParams(seed=0)),
        Role.OPTIMIZER: OptimizerAgent(Policy(), SamplingParams(seed=0)),
    }
    async with CUDAKernelWorkflow(
        agents,
        judge,
        CUDAPerformanceReward(),
        ConversationConfig(max_turns=TURNS, stop_reward=None),
        candidates=CANDIDATES,
        checkpoint=folder / "checkpoint.sqlite",
    ) as workflow:
        tell(started=True)
        state = await workflow.run(find_task("relu"), conversation_id="c")
    temporary = folder / "result.tmp"
    temporary.write_text(state.model_dump_json())
    temporary.rename(folder / "result.json")


def correct_verdict(task: str, speedup: float) -> Any:
    from coding_framework.types import (
        BenchmarkResult,
        CompileSummary,
        Status,
        TestResult,
        Verdict,
    )

    test = TestResult(
        case="main", seed=0, shapes=((4,),), dtype="float32", max_abs_error=0.0,
        max_rel_error=0.0, tolerance=1e-6, passed=True,
    )  # fmt: skip
    timing = BenchmarkResult(
        kernel_ms=1.0, kernel_ms_ci95=(1.0, 1.0), speedup_vs_naive=speedup, modelled=True
    )
    return Verdict(
        status=Status.CORRECT, reason="r", task=task, candidate_sha256="0" * 64,
        backend="emulator", compile=CompileSummary(), tests=(test,), timing=timing,
    )  # fmt: skip


# --- rounds --------------------------------------------------------------------------------------


def start(folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, __file__, "--child", str(folder)])


def calls(folder: Path) -> list[dict[str, str]]:
    path = folder / "calls.jsonl"
    if not path.exists():
        return []
    lines = path.read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


def kept(folder: Path) -> tuple[set[str], set[str]]:
    """(answers, verdicts) by candidate that the checkpoint holds after a kill."""
    names = [f"kernel_{t}_{s}" for t in range(TURNS) for s in range(CANDIDATES)]
    path = folder / "checkpoint.sqlite"
    if not path.exists():
        return set(), set()
    with closing(sqlite3.connect(path)) as database:
        try:
            rows = database.execute("SELECT channel, value FROM writes").fetchall()
        except sqlite3.OperationalError:
            return set(), set()  # killed before its tables were made
    answers, verdicts = set(), set()
    for channel, value in rows:
        found = {name for name in names if f"void {name}(".encode() in value}
        if channel == "candidates":
            verdicts |= found
        elif channel == "__pregel_tasks":
            # a Send to `judge` holds the answer beside the conversation so far: the newest is it
            turn = max((int(name.split("_")[1]) for name in found), default=-1)
            answers |= {name for name in found if int(name.split("_")[1]) == turn}
    return answers, verdicts


def undisturbed() -> tuple[float, str]:
    """(seconds from the start of the conversation to its end, the result)."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        process = start(folder)
        while not calls(folder):
            time.sleep(0.005)
        begun = time.monotonic()
        if process.wait(timeout=120):
            raise SystemExit("the undisturbed conversation failed")
        return time.monotonic() - begun, (folder / "result.json").read_text()


def one_kill(delay_s: float, wanted: str) -> dict[str, Any]:
    """Kill `delay_s` after the conversation started, resume, compare."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        process = start(folder)
        while not calls(folder) and process.poll() is None:
            time.sleep(0.002)
        time.sleep(delay_s)
        process.send_signal(signal.SIGKILL)
        process.wait()
        before = calls(folder)
        answers, verdicts = kept(folder)
        if start(folder).wait(timeout=120):
            return {"delay_s": delay_s, "same": False, "asked_again": [], "judged_again": []}
        after = calls(folder)[len(before) :]
        return {
            "delay_s": round(delay_s, 4),
            "verdicts_kept": len(verdicts),
            "same": (folder / "result.json").read_text() == wanted,
            "asked_again": sorted(answers & {c["asked"] for c in after if "asked" in c}),
            "judged_again": sorted(verdicts & {c["judging"] for c in after if "judging" in c}),
        }


def bars_of(rounds: list[dict[str, Any]]) -> list[dict[str, Any]]:
    same = sum(r["same"] for r in rounds)
    again = sum(len(r["judged_again"]) for r in rounds)
    asked = sum(len(r["asked_again"]) for r in rounds)
    return [
        bar("conversations resumed to the same result", len(rounds), same, same == len(rounds)),
        bar("kept verdicts that were judged again", 0, again, again == 0),
        bar("kept answers that were asked for again", 0, asked, asked == 0),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child is not None:
        asyncio.run(converse(args.child))
        return 0
    draw = random.Random(args.seed)
    length_s, wanted = undisturbed()
    rounds = []
    for i in range(args.kills):
        rounds.append(one_kill(draw.uniform(0.0, length_s), wanted))
        r = rounds[-1]
        again = r["judged_again"] or "none"
        print(
            f"kill {i + 1:>3} after {r['delay_s']:.3f} s: same result: {r['same']}, "
            f"verdicts kept: {r.get('verdicts_kept', 0)}, judged again: {again}",
            flush=True,
        )
    command = f"python tests/soak/workflow_kills.py --kills {args.kills} --seed {args.seed}"
    packages = ("langgraph", "langgraph-checkpoint-sqlite")
    report = head("workflow_kills", packages=packages, command=command)
    return 0 if finish({**report, "bars": bars_of(rounds), "rounds": rounds}, args.output) else 1


if __name__ == "__main__":
    sys.exit(main())
