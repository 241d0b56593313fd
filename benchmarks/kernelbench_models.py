"""What a served model solves of KernelBench at the problems' own sizes: compile, correct, fast_1.

    python benchmarks/kernelbench_models.py --part ask --label sft --problems FILE --tokenizer DIR
        --server http://127.0.0.1:8000/v1 [--model NAME] [--prompts v1] [--samples 1] [--level 1]
    python benchmarks/kernelbench_models.py --part judge --label sft --problems FILE [--workers 6]
        [--minutes 5]
    python benchmarks/kernelbench_models.py --part report --problems FILE [--output FILE]

FILE: rows {"level", "problem_id", "name", "code"}. ask: one answer to each problem, greedy where
there is one sample, else at --temperature; nothing is judged, so the model's server may have the
GPU. judge: with the server gone, each answer by the judge of the GPU at the problem's sizes, timed
against PyTorch eager. Answers and rows are kept in runs/kernelbench_models (or --work DIR); both
parts go on where they were. report: fast_1 is the share of the answers that are correct and faster
than eager. A problem that could not be judged for a fault of ours is left out and counted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from bench_io import ROOT, finish, head

from coding_framework.agents.extraction import extract_kernel
from coding_framework.agents.policies import OpenAIPolicy, prompt_ids
from coding_framework.agents.prompts import PROMPT_VERSIONS, PromptBudget, build_messages
from coding_framework.data.kernelbench.problems import load_problem_rows
from coding_framework.errors import CodingFrameworkError, InfrastructureError
from coding_framework.evaluation.metrics import proportion
from coding_framework.monitoring.progress import Progress
from coding_framework.store.lines import JsonlSink, read_lines
from coding_framework.types import CUDAConversationState, Role, SamplingParams, Task
from coding_framework.wiring import cores, make_judge

MAX_PROMPT, MAX_ANSWER = 3072, 1024


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in read_lines(path)] if path.exists() else []


async def ask(args: argparse.Namespace, tasks: Sequence[Task], path: Path) -> None:
    """The answers that are not in `path`."""
    from transformers import AutoTokenizer

    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(args.concurrency))
    tokenizer = AutoTokenizer.from_pretrained(args.tokenizer)
    budget = PromptBudget(MAX_PROMPT, lambda messages: len(prompt_ids(tokenizer, messages)))
    policy = OpenAIPolicy(args.server, args.model or args.label)
    temperature = args.temperature if args.samples > 1 else 0.0
    done = {(row["problem"], row["sample"]) for row in rows_of(path)}
    wanted = [(t, n) for n in range(args.samples) for t in tasks if (t.name, n) not in done]
    limit = asyncio.Semaphore(args.concurrency)
    with JsonlSink(path) as sink, Progress(args.label, len(wanted), "answers") as progress:

        async def one(task: Task, sample: int) -> None:
            state = CUDAConversationState(conversation_id=f"{task.name}/{sample}", task=task)
            async with limit:
                try:
                    messages = build_messages(
                        state, Role.GENERATOR, budget=budget, version=args.prompts
                    )
                    sampling = SamplingParams(
                        max_new_tokens=MAX_ANSWER, temperature=temperature, seed=sample
                    )
                    answer = await policy.generate(messages, sampling)
                except CodingFrameworkError as e:
                    print(f"no answer to {task.name}: {e}", file=sys.stderr)
                    return
            code = extract_kernel(answer.text).code
            sink.write({"problem": task.name, "sample": sample, "code": code})
            progress.advance()

        async with asyncio.TaskGroup() as group:
            for task, sample in wanted:
                group.create_task(one(task, sample))


async def judge(args: argparse.Namespace, tasks: Sequence[Task], path: Path) -> None:
    """The verdicts that are not there yet, as far as --minutes go."""
    by_name = {task.name: task for task in tasks}
    verdicts = path.with_suffix(".judged.jsonl")
    done = {(row["problem"], row["sample"]) for row in rows_of(verdicts)}
    answers = [r for r in rows_of(path) if (r["problem"], r["sample"]) not in done]
    with ExitStack() as stack:
        pool = make_judge(args.backend, workers=args.workers)
        stack.callback(pool.close)
        sink = stack.enter_context(JsonlSink(verdicts))
        progress = stack.enter_context(Progress(f"judging {args.label}", len(answers), "answers"))

        async def one(row: Mapping[str, Any]) -> None:
            kept: dict[str, Any] = {"problem": row["problem"], "sample": row["sample"]}
            if row["code"] is None:
                sink.write({**kept, "status": "no_code", "compiled": False})
            else:
                try:
                    verdict = await pool(by_name[row["problem"]], row["code"])
                except InfrastructureError as e:
                    sink.write({**kept, "status": "fault_of_ours", "reason": str(e)[:300]})
                else:
                    timing = verdict.timing
                    sink.write({
                        **kept, "status": verdict.status.value, "compiled": verdict.compiled,
                        "reason": verdict.reason[:300],
                        "speedup": timing.speedup if timing is not None else None,
                    })  # fmt: skip
            progress.advance()

        with suppress(TimeoutError):
            async with asyncio.timeout(60 * args.minutes):
                await asyncio.gather(*(one(row) for row in answers if row["problem"] in by_name))


def summary(path: Path) -> dict[str, Any]:
    rows = rows_of(path)
    ours = [row for row in rows if row["status"] in ("fault_of_ours", "unsupported")]
    judged = [row for row in rows if row not in ours]
    correct = [row for row in judged if row["status"] == "correct"]
    speedups = [row["speedup"] for row in correct if row.get("speedup")]

    def share(of: list[bool]) -> dict[str, Any]:
        return proportion(of).model_dump(mode="json")

    return {
        "answers": len(judged),
        "left_out": dict(Counter(f"{r['status']}: {r.get('reason', '')[:80]}" for r in ours)),
        "compile": share([bool(row["compiled"]) for row in judged]),
        "correct": share([row["status"] == "correct" for row in judged]),
        "fast_1": share([(row.get("speedup") or 0.0) > 1.0 for row in judged]),
        "speedup_geomean": round(statistics.geometric_mean(speedups), 3) if speedups else None,
        "statuses": dict(Counter(row["status"] for row in judged)),
        "solved": {row["problem"]: row.get("speedup") for row in correct},
    }


def main() -> int:
    cli = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cli.add_argument("--part", choices=["ask", "judge", "report"], required=True)
    cli.add_argument("--problems", type=Path, required=True)
    cli.add_argument("--level", type=int, default=1)
    cli.add_argument("--label", help="base, sft, rl")
    cli.add_argument("--server", default="http://127.0.0.1:8000/v1")
    cli.add_argument("--model", help="its name at the server; default: the label")
    cli.add_argument("--tokenizer", type=Path)
    cli.add_argument("--prompts", choices=PROMPT_VERSIONS, default="v1")
    cli.add_argument("--samples", type=int, default=1)
    cli.add_argument("--temperature", type=float, default=0.6)
    cli.add_argument("--concurrency", type=int, default=128)
    cli.add_argument("--backend", choices=["cuda", "emulator"], default="cuda")
    cli.add_argument("--workers", type=int, default=min(6, cores()))
    cli.add_argument("--minutes", type=float, default=10.0, help="of judging")
    cli.add_argument("--work", type=Path, default=ROOT / "runs" / "kernelbench_models")
    cli.add_argument("--output", type=Path)
    args = cli.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    if args.part == "report":
        paths = sorted(args.work.glob("*.judged.jsonl"))
        models = {path.name.removesuffix(".judged.jsonl"): summary(path) for path in paths}
        for label, row in models.items():
            rates = {k: row[k]["rate"] for k in ("compile", "correct", "fast_1")}
            print(f"{label:<10} {row['answers']} answers  {rates}")
        top = head("kernelbench_models", packages=("torch", "transformers", "vllm"))
        sizes = {"level": args.level, "samples": args.samples}
        return 0 if finish({**top, "bars": [], **sizes, "models": models}, args.output) else 1
    if args.label is None or (args.part == "ask" and args.tokenizer is None):
        cli.error("ask needs --label and --tokenizer, judge needs --label")
    wanted = f"kernelbench_level{args.level}"
    tasks = [task for task in load_problem_rows(args.problems) if task.family == wanted]
    print(f"{len(tasks)} problems of level {args.level}", file=sys.stderr, flush=True)
    work = ask if args.part == "ask" else judge
    asyncio.run(work(args, tasks, args.work / f"{args.label}.jsonl"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
