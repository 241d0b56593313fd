"""What can a few minutes on two cores add to the SFT of `make quickstart`?

    uv run python experiments/beyond_sft.py outputs/quickstart NAME [--rl JSON | --rft JSON]
    uv run python experiments/beyond_sft.py outputs/quickstart --report

The folder is of a quickstart that has practised. From its model RL or RFT is trained,
with these changes to the settings of the quickstart (neither: the model as it is), then tried on

- the held-out tasks, one greedy answer and four at temperature 1;
- the tasks that RL practises, which the model solves now and then: eight at temperature 1.

DIR/beyond/NAME.json has what came of it; --report writes all to benchmarks/results/beyond_sft.json.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))
from bench_io import bar, finish, head

from coding_framework.evaluation.metrics import wilson
from coding_framework.paths import write_json_atomic
from coding_framework.run.model_folder import evaluate_folder
from coding_framework.run.quickstart import DEFAULT_MINUTES, DEFAULT_MODEL, FULL
from coding_framework.run.recipe import Job
from coding_framework.types import Task


@dataclass(frozen=True)
class After:
    """The quickstart as it is after SFT."""

    job: Job
    model: Path
    practised: list[Task]

    @classmethod
    def read(cls, folder: Path) -> After:
        stages = json.loads((folder / "stages.json").read_text())["stages"]
        job = Job(folder, FULL, DEFAULT_MODEL, 0, DEFAULT_MINUTES, practise=True)
        job = job.fitted(stages["model"]["result"])
        tasks = {task.name: task for task in job.probe_tasks()}
        names = stages["rft"]["result"]["rl_tasks"]
        return cls(job, Path(stages["sft"]["result"]["model"]), [tasks[name] for name in names])

    def with_recipe(self, **changes: Mapping[str, Any]) -> Job:
        recipe = self.job.recipe
        more = {name: {**getattr(recipe, name), **given} for name, given in changes.items()}
        return replace(self.job, recipe=recipe.model_copy(update=more))


def train_rl(after: After, changes: Mapping[str, Any], folder: Path) -> tuple[Path, Any]:
    from coding_framework.training.verl_integration import MultiAgentVERLTrainer

    config = after.with_recipe(rl=changes).rl_config(str(after.model))
    config = config.model_copy(update={"output_dir": str(folder)})
    result = asyncio.run(MultiAgentVERLTrainer(config, tasks=after.practised).train())
    fields = ("reward_mean", "correct_rate", "rows_learnt", "grad_norm")
    steps = [{name: getattr(step, name) for name in fields} for step in result.steps]
    return Path(result.final_model), steps


def train_rft(after: After, changes: Mapping[str, Any], folder: Path) -> tuple[Path, Any]:
    from coding_framework.run.rejection import fine_tune_or_keep
    from coding_framework.wiring import JudgeSettings

    options = after.with_recipe(rft=changes).rejection_options()
    options = options.model_copy(update={"output_dir": folder})
    found = fine_tune_or_keep(str(after.model), options, JudgeSettings())
    assert found.model is not None
    return Path(found.model), found.model_dump(mode="json", exclude={"model"})


def tried(
    after: After, model: Path, tasks: Sequence[Task], samples: int, store: Path
) -> list[bool]:
    """Whether each answer is correct, task by task."""
    settings = after.job.recipe.evaluation.model_copy(
        update={
            "prompts": after.job.taught_prompts, "max_turns": 1, "samples_per_task": samples,
            "baselines": "none",
        }
    )  # fmt: skip
    found = asyncio.run(evaluate_folder(store.stem, tasks, settings, model, store=store))
    states = sorted(found.states, key=lambda state: state.conversation_id)
    return [state.best_turn is not None for state in states]


def share(right: Sequence[bool]) -> dict[str, Any]:
    low, high = wilson(sum(right), len(right))
    return {"correct": sum(right), "of": len(right), "ci95": [round(low, 3), round(high, 3)]}


def one(args: argparse.Namespace) -> int:
    after = After.read(args.folder.resolve())
    folder = args.folder.resolve() / "beyond" / args.name
    began, model, told = time.monotonic(), after.model, None
    if args.rl is not None:
        model, told = train_rl(after, json.loads(args.rl), folder / "rl")
    elif args.rft is not None:
        model, told = train_rft(after, json.loads(args.rft), folder / "rft")
    seconds = time.monotonic() - began
    folder.mkdir(parents=True, exist_ok=True)
    held_out = after.job.held_out()
    report = {
        "name": args.name, "rl": args.rl, "rft": args.rft, "training_s": round(seconds),
        "training": told,
        "held_out_greedy": share(tried(after, model, held_out, 1, folder / "greedy.jsonl")),
        "held_out_sampled": share(tried(after, model, held_out, 4, folder / "sampled.jsonl")),
        "practised": share(tried(after, model, after.practised, 8, folder / "practised.jsonl")),
    }  # fmt: skip
    write_json_atomic(folder.with_suffix(".json"), report)
    print(json.dumps(report, indent=1))
    return 0


def main() -> int:
    cli = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cli.add_argument("folder", type=Path, help="of the quickstart")
    cli.add_argument("name", nargs="?", help="of this training")
    cli.add_argument("--rl", help="changes to MultiTurnRLConfig, as JSON")
    cli.add_argument("--rft", help="changes to RejectionOptions, as JSON")
    cli.add_argument("--report", action="store_true", help="write all that was measured")
    args = cli.parse_args()
    if not args.report:
        return one(args)
    arms = {p.stem: json.loads(p.read_text()) for p in (args.folder / "beyond").glob("*.json")}
    before = arms["sft"]["held_out_greedy"]
    bars = [
        bar(
            f"{name}: lower end of its held-out rate, above SFT's rate",
            before["correct"] / before["of"],
            arm["held_out_greedy"]["ci95"][0],
            arm["held_out_greedy"]["ci95"][0] > before["correct"] / before["of"],
        )
        for name, arm in arms.items()
        if name != "sft"
    ]
    return 0 if finish({**head("beyond_sft"), "bars": bars, "arms": arms}) else 1


if __name__ == "__main__":
    raise SystemExit(main())
