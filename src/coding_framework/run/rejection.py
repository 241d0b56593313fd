"""Rejection fine-tuning (RFT): a policy answers training tasks, the judge sorts its answers, and it
learns the best of its own correct ones.

    tasks -> samples and verdicts (resumable, as an evaluation's) -> choice -> SFT

It leaves `task_evidence.jsonl`: the share of samples that solve each task, and the best time. RL
reads it to choose tasks that still tell answers apart.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from coding_framework.data.example_store import ExampleStore, read_training_examples
from coding_framework.errors import UsageError
from coding_framework.evaluation.suites import EvalSuite, SuiteTask
from coding_framework.paths import write_atomic, write_json_atomic
from coding_framework.run.eval_options import EvalOptions
from coding_framework.run.eval_speakers import model_in, weights_of
from coding_framework.run.evaluation import EvalPlan, run_evaluation
from coding_framework.run.rejection_options import LEARNING, RejectionOptions
from coding_framework.store.conversations import read_conversations
from coding_framework.store.folder import EvalFolder, RejectionFolder
from coding_framework.store.model_card import prompts_for
from coding_framework.training.recipes import RecipeFile, sft_config
from coding_framework.training.rejection_sampling import Selection, select
from coding_framework.training.sft_config import SFTResult
from coding_framework.types import Record, Task
from coding_framework.wiring import JudgeSettings


class RejectionSummary(Record):
    """What a run did. Maker: `rejection_fine_tune`. Consumer: people."""

    tasks: int
    samples: int
    solved: int
    """Samples whose first answer is correct."""
    open_tasks: int
    """Tasks that 10 to 80% of the samples solve: those that RL can learn from."""
    examples: dict[str, int]
    """Examples by kind."""
    model: str | None = None
    """Folder of the trained model; None: nothing was trained."""


def rejection_fine_tune(
    model: str, options: RejectionOptions, judging: JudgeSettings
) -> RejectionSummary:
    """Sample, choose, train; each part goes on where a run before was stopped.

    Raises UsageError for another run's folder, for a model that is none, and where no sample is
    worth learning; PolicyError where the model fails.
    """
    folder = RejectionFolder(options.output_dir)
    sampled = _sampling(options)
    suite = EvalSuite(name=f"{options.pool}-train", tasks=tuple(
        SuiteTask(task=task) for task in training_pool(options)
    ))  # fmt: skip
    plan = EvalPlan(suites=(suite,), gates=(), before=None, leak={}, unanswered={})
    run_evaluation(model, plan, sampled, judging)
    chosen = select(read_conversations(EvalFolder(folder.samples).conversations), options)
    _write(folder, chosen)
    summary = _summary(chosen)
    if not options.sample_only:
        if not chosen.examples:
            raise UsageError(
                f"none of {summary.samples} samples is correct: there is nothing to learn from; "
                "start from a model that SFT has taught, or choose easier tasks (--max-task-ops 1)"
            )
        trained = _train(model, options, folder)
        summary = summary.model_copy(update={"model": trained.model})
    write_json_atomic(folder.summary, summary.model_dump(mode="json"))
    return summary


def training_pool(options: RejectionOptions) -> list[Task]:
    """The training tasks that are answered. Raises UsageError where there are fewer than asked
    for."""
    wanted = options.skip_tasks + options.tasks
    if options.pool == "modules":
        from coding_framework.data.modules.catalog import module_tasks
        from coding_framework.data.modules.tasks import module_task

        drawn = module_tasks("train", count=wanted)
        if len(drawn) < wanted:
            raise UsageError(f"there are {len(drawn)} module tasks for training: ask for fewer")
        return [module_task(module) for module in drawn][options.skip_tasks :]
    from coding_framework.data.examples import training_tasks

    found = training_tasks(
        wanted, options.seed, max_steps=options.max_task_ops, scope=options.task_scope
    )
    return found[options.skip_tasks :]


def _sampling(options: RejectionOptions) -> EvalOptions:
    same = ("samples", "turns", "temperature", "max_new_tokens", "max_prompt_tokens", "prompts")
    return EvalOptions(
        output_dir=RejectionFolder(options.output_dir).samples,
        wandb=False,
        **options.model_dump(include={*same, "server", "concurrency", "seed"}),
    )


def _train(model: str, options: RejectionOptions, folder: RejectionFolder) -> SFTResult:
    from coding_framework.agents.models import resolve_model
    from coding_framework.training.sft import train_sft

    local = Path(model).is_dir()
    prompts = options.prompts or prompts_for(weights_of(model, EvalOptions()), is_adapter=False)
    learning = options.model_dump(include=set(LEARNING), exclude_none=True)
    changes = {
        **learning,
        "base_model": str(model_in(Path(model))) if local else model,
        "output_dir": str(folder.sft.root),
        "extra_examples": str(folder.examples),
        "prompts": prompts,
        **dict.fromkeys(("num_examples", "optimizer_examples"), 0),
        **dict.fromkeys(("held_out_examples", "held_out_tasks"), 0),
    }
    device = changes.pop("device", "auto")
    config = sft_config(RecipeFile(device=device), changes)
    base = resolve_model(config.base_model)
    examples = read_training_examples(folder.examples)
    return train_sft(config, (), resolve=lambda _: base, extra=examples)


def _write(folder: RejectionFolder, chosen: Selection) -> None:
    with ExampleStore.write(folder.examples, chosen.examples):
        pass
    write_atomic(folder.evidence, _lines(chosen.evidence))


def _lines(records: Iterable[Record]) -> str:
    return "".join(json.dumps(record.model_dump(mode="json")) + "\n" for record in records)


def _summary(chosen: Selection) -> RejectionSummary:
    shares = [e.solved / e.samples for e in chosen.evidence if e.samples]
    return RejectionSummary(
        tasks=len(chosen.evidence),
        samples=sum(e.samples for e in chosen.evidence),
        solved=sum(e.solved for e in chosen.evidence),
        open_tasks=sum(0.1 <= share <= 0.8 for share in shares),
        examples=dict(Counter(example.kind for example in chosen.examples)),
    )
