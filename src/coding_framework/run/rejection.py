"""Rejection fine-tuning (RFT): a policy answers training tasks, the judge sorts its answers, and it
learns the best of its own correct ones.

    tasks -> samples and verdicts (resumable, as an evaluation's) -> choice -> SFT

It leaves `task_evidence.jsonl`: the share of samples that solve each task, and the best time. RL
reads it to choose tasks that still tell answers apart.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from coding_framework.data.example_store import ExampleStore, read_training_examples
from coding_framework.data.registry import find_task
from coding_framework.errors import OutOfTimeError, UsageError
from coding_framework.evaluation.outcome import EvalOutcome
from coding_framework.evaluation.suites import EvalSuite, SuiteTask
from coding_framework.paths import write_atomic, write_json_atomic
from coding_framework.run.eval_options import EvalOptions
from coding_framework.run.eval_speakers import weights_of
from coding_framework.run.evaluation import EvalPlan, run_evaluation
from coding_framework.run.rejection_options import LEARNING, MOST_TASKS, RejectionOptions
from coding_framework.store.conversations import read_conversations
from coding_framework.store.folder import EvalFolder, RejectionFolder, model_in
from coding_framework.store.model_card import prompts_for
from coding_framework.store.records import OPEN_FROM, OPEN_TO
from coding_framework.store.training_log import read_evidence
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
    tokens: int = 0
    """Generated in all samples."""
    solved_tasks: int = 0
    """Tasks with a correct first answer among their samples. Their share of the tasks, less the
    share of correct samples, is about what a policy can gain by learning from its own answers."""
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
    began = time.monotonic()
    folder = RejectionFolder(options.output_dir)
    outcome = _answer(model, options.model_copy(update={"ask_only": False}), judging)
    if outcome is not None and not outcome.complete:
        raise OutOfTimeError(
            f"RFT stopped at its limit of {options.minutes:g} minutes, while it sampled: the same "
            "command goes on"
        )
    chosen = select(read_conversations(EvalFolder(folder.samples).conversations), options)
    _write(folder, chosen)
    summary = _summary(chosen)
    if not options.sample_only:
        if not chosen.examples:
            raise UsageError(
                f"none of {summary.samples} samples is correct: there is nothing to learn from; "
                "start from a model that SFT has taught, or choose easier tasks (--max-task-ops 1)"
            )
        trained = _train(model, options, folder, _left(options, began))
        summary = summary.model_copy(update={"model": trained.model})
    write_json_atomic(folder.summary, summary.model_dump(mode="json"))
    return summary


def ask_only(model: str, options: RejectionOptions, judging: JudgeSettings) -> int:
    """The first answers to all tasks, for `rejection_fine_tune` to judge; how many there are.
    Raises as that does."""
    options = options.model_copy(update={"ask_only": True})
    _answer(model, options, judging)
    return len(training_pool(options)) * options.samples


def _answer(model: str, options: RejectionOptions, judging: JudgeSettings) -> EvalOutcome | None:
    suite = EvalSuite(name=f"{options.pool}-train", tasks=tuple(
        SuiteTask(task=task) for task in training_pool(options)
    ))  # fmt: skip
    return run_evaluation(model, EvalPlan((suite,)), _sampling(options), judging)


def fine_tune_or_keep(
    model: str, options: RejectionOptions, judging: JudgeSettings
) -> RejectionSummary:
    """As `rejection_fine_tune`; where no sample is correct, the model of the summary is the one
    that was there."""
    sampled = options.model_copy(update={"sample_only": True})
    summary = rejection_fine_tune(model, sampled, judging)
    if not summary.examples:
        return summary.model_copy(update={"model": model})
    return rejection_fine_tune(model, options, judging)


def _left(options: RejectionOptions, began: float) -> float | None:
    """Minutes that the training has; None: any. Raises OutOfTimeError where none is left."""
    if options.minutes is None:
        return None
    left = options.minutes - (time.monotonic() - began) / 60
    if left <= 0:
        raise OutOfTimeError(
            f"RFT stopped at its limit of {options.minutes:g} minutes, before its training: the "
            "same command goes on"
        )
    return left


def training_pool(options: RejectionOptions) -> list[Task]:
    """The training tasks that are answered. Raises UsageError where there are fewer than asked
    for."""
    if options.task_evidence is not None:
        seen = [e.task for e in read_evidence(options.task_evidence) if e.is_open]
        names = seen[options.skip_tasks :][: options.tasks or MOST_TASKS]
        if not names or len(names) < (options.tasks or 0):
            raise UsageError(
                f"{options.task_evidence} names {len(seen)} tasks that 10 to 80% of the samples "
                "solve, or whose speeds lie far apart: ask for fewer --tasks"
            )
        return [find_task(name) for name in names]
    if options.pool == "modules":
        from coding_framework.data.modules.pool import training_modules

        return training_modules(options.tasks, skip=options.skip_tasks, most=MOST_TASKS)
    from coding_framework.data.examples import training_tasks

    found = training_tasks(
        None if options.tasks is None else options.skip_tasks + options.tasks,
        options.seed,
        max_steps=options.max_task_ops,
        max_tier=options.max_task_tier,
        scope=options.task_scope,
    )
    return found[options.skip_tasks :][: options.tasks or MOST_TASKS]


def _sampling(options: RejectionOptions) -> EvalOptions:
    same = ("samples", "turns", "temperature", "max_new_tokens", "max_prompt_tokens", "prompts",
            "ask_only")  # fmt: skip
    return EvalOptions(
        output_dir=RejectionFolder(options.output_dir).samples,
        wandb=False,
        **options.model_dump(include={*same, "server", "concurrency", "dtype", "seed", "minutes"}),
    )


def _train(
    model: str, options: RejectionOptions, folder: RejectionFolder, minutes: float | None
) -> SFTResult:
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
        "minutes": minutes,
        **dict.fromkeys(("num_examples", "optimizer_examples"), 0),
        **dict.fromkeys(("held_out_examples", "held_out_tasks"), 0),
    }
    device = changes.pop("device", "auto")
    config = sft_config(RecipeFile(device=device), changes)
    base = resolve_model(config.base_model)
    examples = read_training_examples(folder.examples)
    return train_sft(config, (), resolve=lambda _: base, extra=examples)


def _write(folder: RejectionFolder, chosen: Selection) -> None:
    ExampleStore.write(folder.examples, chosen.examples)
    write_atomic(folder.evidence, _lines(chosen.evidence))


def _lines(records: Iterable[Record]) -> str:
    return "".join(json.dumps(record.model_dump(mode="json")) + "\n" for record in records)


def _summary(chosen: Selection) -> RejectionSummary:
    return RejectionSummary(
        tasks=len(chosen.evidence),
        samples=sum(e.samples for e in chosen.evidence),
        solved=sum(e.solved for e in chosen.evidence),
        tokens=sum(e.tokens for e in chosen.evidence),
        solved_tasks=sum(e.solved > 0 for e in chosen.evidence),
        open_tasks=sum(
            OPEN_FROM <= e.solved / e.samples <= OPEN_TO for e in chosen.evidence if e.samples
        ),
        examples=dict(Counter(example.kind for example in chosen.examples)),
    )
