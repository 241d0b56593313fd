"""One policy for both roles against an adapter a role, after the same number of steps.

    uv run python experiments/roles.py --generator-checkpoint DIR [--config configs/one_gpu.yaml]
        [--steps 40] [--phase-steps 10] [--lora-rank 16] [--tasks 100] [--samples 4] [--turns 3]
        [--task-scope all] [--folder DIR] [--output FILE]

Trains twice from DIR by `run_multiturn_rl_training.py`, with the same recipe, steps and rank of the
adapters: `--policy shared` and `--policy per_role`. Then DIR and both results have --samples
conversations about each held-out task at temperature 1, judged by the emulator. The report has for
each what its training cost (conversations, answered tokens, seconds), pass@1 with its 95% interval
over tasks, and how each role's turns went; and the difference of per_role to shared, paired by
task. Goes on in --folder (default runs/roles) where it was. There is no bar on which one wins; the
bars are that both had the same budget and that no turn was lost. Writes
benchmarks/results/roles.json.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import statistics
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))
from bench_io import ROOT, bar, finish, head
from held_out import pass_at_1

from coding_framework.data.examples import held_out_tasks
from coding_framework.errors import UsageError
from coding_framework.evaluation.evaluate import EvaluationConfig, evaluate
from coding_framework.evaluation.metrics import Z95
from coding_framework.evaluation.samples import sample_record
from coding_framework.monitoring.child import run_in_child
from coding_framework.monitoring.progress import Progress
from coding_framework.orchestration.turn import ConversationConfig
from coding_framework.store.conversations import read_states
from coding_framework.store.records import StepRecord
from coding_framework.training.agent_specializer import AgentSpecializer
from coding_framework.training.rl_config import MultiTurnRLConfig
from coding_framework.types import CUDAConversationState, Role, SamplingParams, Task
from coding_framework.wiring import make_agents, make_judge, make_policies, make_reward

POLICIES = ("shared", "per_role")


def train(args: argparse.Namespace, policy: str) -> Path:
    """Where the run is, which is finished."""
    folder = args.folder / policy
    command = [
        sys.executable, str(ROOT / "run_multiturn_rl_training.py"), "--policy", policy,
        "--generator-checkpoint", str(args.generator_checkpoint), "--output-dir", str(folder),
        "--num-episodes", str(args.steps), "--phase-steps", str(args.phase_steps),
        "--lora-rank", str(args.lora_rank), "--max-turns", str(args.turns),
        "--config", str(args.config),
    ]  # fmt: skip
    if args.task_scope is not None:
        command += ["--task-scope", args.task_scope]
    if subprocess.run(command, check=False, stdout=subprocess.DEVNULL).returncode:
        raise SystemExit(f"the training with --policy {policy} failed: see {folder}")
    return folder


def cost(folder: Path) -> dict[str, Any]:
    """What the training was given, and took."""
    lines = (folder / "steps.jsonl").read_text().splitlines()
    steps = [StepRecord.model_validate_json(line) for line in lines]
    rewards = [s.reward_mean for s in steps]
    return {
        "steps": len(steps),
        "conversations": sum(s.conversations for s in steps),
        "turns": sum(s.turns for s in steps),
        "faults": sum(s.faults for s in steps),
        "rows_learnt": sum(s.rows_learnt for s in steps),
        "response_tokens": sum(s.response_tokens for s in steps),
        "steps_s": round(sum(s.times.get("step_s", 0.0) for s in steps), 1),
        "reward": [None if r is None else round(r, 4) for r in rewards],
        "trained": [None if s.trained is None else s.trained.value for s in steps],
    }


def stored(args: argparse.Namespace, label: str) -> list[CUDAConversationState]:
    """The conversations of the evaluation that are done."""
    tasks = held_out_tasks(args.tasks, 0)
    wanted = {f"{label}/{t.name}/{n}": t for n in range(args.samples) for t in tasks}
    path = args.folder / f"{label}.jsonl"
    return list(read_states(path, wanted).values()) if path.exists() else []


def solve(args: argparse.Namespace, label: str, model: Path) -> None:
    """Conversations of a model, or of a pair of adapters; in a process of its own."""
    asyncio.run(_solve(args, held_out_tasks(args.tasks, 0), label, model))


async def _solve(args: argparse.Namespace, tasks: list[Task], label: str, model: Path) -> None:
    from coding_framework.agents.prompts import PromptBudget

    recipe = MultiTurnRLConfig.model_validate_json((args.folder / "sizes.json").read_text())
    sampling = SamplingParams(max_new_tokens=recipe.max_response_tokens, temperature=1.0)
    with ExitStack() as stack:
        judge = make_judge("emulator", run_folder=args.folder / "judge")
        stack.callback(judge.close)
        policies = make_policies(model, stack)
        budget = PromptBudget(recipe.max_prompt_tokens, policies[Role.GENERATOR].count)
        progress = stack.enter_context(Progress(label, len(tasks) * args.samples, "conversations"))
        await evaluate(
            label, tasks,
            make_agents(
                policies[Role.GENERATOR], sampling,
                optimizer=policies[Role.OPTIMIZER], budget=budget,
            ),
            judge, make_reward(),
            EvaluationConfig(
                samples_per_task=args.samples, concurrency=64,
                conversation=ConversationConfig(max_turns=args.turns, stop_reward=None),
            ),
            store=args.folder / f"{label}.jsonl", on_done=lambda _: progress.advance(),
        )  # fmt: skip


def means_of(states: Sequence[CUDAConversationState]) -> dict[str, float]:
    """By task: the share of its conversations with a correct turn."""
    flags: dict[str, list[bool]] = {}
    for state in states:
        flags.setdefault(state.task.name, []).append(state.best_turn is not None)
    return {name: statistics.fmean(found) for name, found in flags.items()}


def difference(
    first: Sequence[CUDAConversationState], second: Sequence[CUDAConversationState]
) -> dict[str, Any]:
    """pass@1 of the second less the first's, paired by task, with the 95% interval over tasks."""
    one, two = means_of(first), means_of(second)
    by_task = [two[name] - one[name] for name in one.keys() & two.keys()]
    if len(by_task) < 2:
        return {"tasks": len(by_task)}
    mean = statistics.fmean(by_task)
    half = Z95 * statistics.stdev(by_task) / math.sqrt(len(by_task))
    ends = [round(mean - half, 4), round(mean + half, 4)]
    return {"mean": round(mean, 4), "ci95": ends, "tasks": len(by_task)}


def row(args: argparse.Namespace, label: str) -> dict[str, Any]:
    states = stored(args, label)
    records = [sample_record(state, sample=number) for number, state in enumerate(states)]
    roles = AgentSpecializer().metrics(states)
    return {
        "pass_at_1": pass_at_1(records),
        "first_turn": pass_at_1(records, first_turn=True),
        "roles": {role.value: metrics.model_dump(mode="json") for role, metrics in roles.items()},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--generator-checkpoint", type=Path, required=True)
    parser.add_argument("--config", type=Path, default=ROOT / "configs" / "one_gpu.yaml")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--phase-steps", type=int, default=10)
    parser.add_argument("--lora-rank", type=int, default=16)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=100)
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--task-scope", choices=["starter", "all"])
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "roles")
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    args.folder = args.folder.resolve()
    report = head("roles", packages=("verl", "ray", "torch", "transformers", "peft"))
    folders = {policy: train(args, policy) for policy in POLICIES}
    # what RL started from is in its configuration: an adapter was merged first
    started = json.loads((folders["shared"] / "config.json").read_text())
    (args.folder / "sizes.json").write_text(json.dumps(started))
    models = {"start": Path(started["model_path"])}
    models |= {policy: folder / "final_model" for policy, folder in folders.items()}
    for label, model in models.items():
        if len(stored(args, label)) < args.tasks * args.samples:
            run_in_child(solve, args, label, model)
    found = {label: row(args, label) for label in models}
    costs = {policy: cost(folder) for policy, folder in folders.items()}
    apart = difference(stored(args, "shared"), stored(args, "per_role"))
    for label, each in found.items():
        print(f"{label:<9} pass@1 {each['pass_at_1']}  first turn {each['first_turn']}")
    print(f"per_role less shared, paired by task: {apart}")
    one, two = costs["shared"], costs["per_role"]
    budget = ("steps", "conversations")
    bars = [
        bar(f"{name} of per_role, as of shared", one[name], two[name], one[name] == two[name])
        for name in budget
    ]
    faults = one["faults"] + two["faults"]
    bars.append(bar("turns lost to faults of ours", 0, faults, faults == 0))
    sizes = {"samples": args.samples, "turns": args.turns, "tasks": args.tasks}
    whole = {
        **report, "bars": bars, **sizes, "models": found, "training": costs,
        "per_role_less_shared": apart, "config": started,
    }  # fmt: skip
    return 0 if finish(whole, args.output) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UsageError as e:
        sys.exit(f"error: {e}")
