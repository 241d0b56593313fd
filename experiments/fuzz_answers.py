"""Malformed answers through the whole turn, real judge included: every one must end as a verdict.

    uv run python experiments/fuzz_answers.py [--answers 5000] [--workers N] [--output FILE]

An answer is a good one that was cut, spliced, doubled, put into odd fences, or filled with bytes
that no kernel has; a third of them are diffs. Equal kernels are judged once. Prints the statuses,
writes benchmarks/results/fuzz_answers.json; exits 1 where an answer ended as no verdict.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))
from bench_io import bar, finish, head

from coding_framework.agents.generator import GeneratorAgent
from coding_framework.agents.optimizer import OptimizerAgent
from coding_framework.agents.policies import ScriptedPolicy
from coding_framework.data.registry import find_task
from coding_framework.data.synthesis import catalog
from coding_framework.monitoring.progress import Progress
from coding_framework.orchestration.turn import DEFAULT_CONFIG, run_turn
from coding_framework.training.reward_functions.cuda_performance_reward import (
    CUDAPerformanceReward,
)
from coding_framework.types import CUDAConversationState, Role, Task, Verdict
from coding_framework.wiring import make_judge

TASK = find_task("relu")
KERNELS = [example.code for example in catalog.kernels_of("relu")]
PIECES = (
    "`", "```", "```cuda\n", "~~~", "\0", "\ufeff", "\u202e", "é", "\n", "{", "}", ";",
    "@@ -1 +1 @@\n",
    "-", "+", "#include <torch/extension.h>\n", "__global__ void k(", "PYBIND11_MODULE", "*/", "/*",
    '"', "'", "<|im_end|>", "\ud800", "#define forward ", "#error x\n", "\\\n",
)  # fmt: skip


def malformed(rng: random.Random) -> str:
    """One answer."""
    kernel = rng.choice(KERNELS)
    if rng.random() < 0.33:
        lines = kernel.split("\n")
        at = rng.randrange(len(lines))
        text = f"```diff\n@@\n {lines[at - 1]}\n-{lines[at]}\n+{lines[at]} // faster\n```"
    else:
        text = f"Reason.\n```cuda\n{kernel}\n```\nDone."
    for _ in range(rng.randrange(1, 8)):
        at = rng.randrange(max(1, len(text)))
        match rng.randrange(4):
            case 0:
                text = text[:at] + rng.choice(PIECES) + text[at + rng.randrange(20) :]
            case 1:
                text = text[:at]
            case 2:
                end = at + rng.randrange(200)
                text = text[:at] + text[at:end] * 2 + text[end:]
            case _:
                text = text[at:] + text[:at]
    return text


class OnceJudge:
    """A judge that judges equal kernels once."""

    def __init__(self, judge: Any) -> None:
        self._judge = judge
        self._known: dict[str, asyncio.Task[Verdict]] = {}

    async def __call__(self, task: Task, code: str) -> Verdict:
        if code not in self._known:
            self._known[code] = asyncio.create_task(self._judge(task, code))
        return await asyncio.shield(self._known[code])

    @property
    def judged(self) -> int:
        return len(self._known)


async def fuzz(count: int, workers: int | None, seed: int) -> dict[str, Any]:
    """Statuses, masked turns and exceptions over `count` answers."""
    rng = random.Random(seed)
    answers = [malformed(rng) for _ in range(count)]
    pool = make_judge(workers=workers)
    judge, reward = OnceJudge(pool), CUDAPerformanceReward()
    ends: Counter[str] = Counter()
    examples: dict[str, str] = {}
    limit = asyncio.Semaphore(64)
    start = CUDAConversationState(conversation_id="f", task=TASK)
    first = await run_turn(
        start, {Role.GENERATOR: GeneratorAgent(ScriptedPolicy([f"```cuda\n{KERNELS[0]}\n```"]))},
        judge, reward,
    )  # fmt: skip

    async def one(answer: str, progress: Progress) -> None:
        async with limit:
            agents = {Role.OPTIMIZER: OptimizerAgent(ScriptedPolicy([answer]))}
            try:
                turn = (await run_turn(first, agents, judge, reward, DEFAULT_CONFIG)).turns[-1]
            except Exception as e:  # what the benchmark looks for
                end = f"raised {type(e).__name__}"
                examples.setdefault(end, f"{e}"[:300])
            else:
                end = turn.verdict.status.value if turn.verdict is not None else "masked"
                if turn.masked is not None and end != "unsupported":
                    examples.setdefault(end, turn.masked[:300])
            ends[end] += 1
            progress.advance()

    try:
        with Progress("fuzzing", count, "answers") as progress:
            await asyncio.gather(*(one(answer, progress) for answer in answers))
    finally:
        pool.close()
    return {"ends": dict(ends.most_common()), "examples": examples, "judged": judge.judged}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--answers", type=int, default=5000)
    parser.add_argument("--workers", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    found = asyncio.run(fuzz(args.answers, args.workers, args.seed))
    lost = sum(n for end, n in found["ends"].items() if end == "masked" or " " in end)
    for end, n in found["ends"].items():
        print(f"{end:<24}{n:>7}  {found['examples'].get(end, '')}")
    command = f"python experiments/fuzz_answers.py --answers {args.answers} --seed {args.seed}"
    bars = [bar("malformed answers that ended as no verdict", 0, lost, lost == 0)]
    report = {**head("fuzz_answers", command=command), "bars": bars, "answers": args.answers}
    return 0 if finish({**report, **found}, args.output) else 1


if __name__ == "__main__":
    sys.exit(main())
