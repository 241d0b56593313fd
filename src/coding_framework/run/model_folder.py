"""A model in a folder and what is done with it before RL: evaluated on tasks, fine-tuned.

    folder, tasks -> conversations -> verdicts -> metrics

The main job and `run_sft_training.py` call the same functions. Training is handed the evaluation as
a callable, for it may not import it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coding_framework.evaluation.leak import leak_statement
from coding_framework.evaluation.outcome import EvalOutcome
from coding_framework.evaluation.samples import SampleRecord
from coding_framework.evaluation.suites import EvalSuite, SuiteTask
from coding_framework.run.eval_options import EvalOptions
from coding_framework.run.evaluation import EvalPlan, run_evaluation
from coding_framework.store.events import log
from coding_framework.store.folder import SFTFolder
from coding_framework.store.model_card import card_of
from coding_framework.types import (
    EvaluateFn,
    HeldOutScore,
    Role,
    Task,
    TaskScope,
    TrainingExample,
)
from coding_framework.wiring import JudgeSettings

if TYPE_CHECKING:
    from coding_framework.training.sft_config import SFTConfig, SFTResult


def evaluate_folder(
    model: Path,
    tasks: Sequence[Task],
    options: EvalOptions,
    judging: JudgeSettings,
    *,
    suite_name: str = "held-out",
    before: Sequence[SampleRecord] | None = None,
) -> EvalOutcome:
    """Evaluate the model in a folder as `cuda-rl eval` does, with the files and the report of that.
    before: samples of the evaluation that it is compared with. Raises UsageError where the folder
    is no model, PolicyError where it fails."""
    suite = EvalSuite(
        name=f"{suite_name}:{len(tasks)}",
        tasks=tuple(SuiteTask(task=task) for task in tasks),
    )
    card = card_of(Path(options.adapter or model))
    plan = EvalPlan((suite,), before=before, leak={suite.name: leak_statement(suite, card)})
    outcome = run_evaluation(str(model), plan, options, judging)
    assert outcome is not None, "the options ask for more than answers"
    return outcome


def make_evaluate(
    tasks: Sequence[Task], options: EvalOptions, judging: JudgeSettings, folder: Path
) -> EvaluateFn:
    """The evaluation that training is handed: one answer to each task, judged. Each label has an
    evaluation of its own in `folder`."""
    judging = judging.model_copy(update={"baselines": "none"})

    def score(model: Path, adapter: Path, label: str) -> HeldOutScore:
        own = folder / label
        shutil.rmtree(own, ignore_errors=True)  # of weights that may be others
        changes = {"turns": 1, "samples": 1, "adapter": str(adapter), "output_dir": own}
        found = evaluate_folder(model, tasks, options.model_copy(update=changes), judging)
        block = found.overall.overall
        return HeldOutScore(
            judged=block.samples,
            compiled=block.compiled.count,
            correct=block.statuses.get("correct", 0),
            masked=block.masked + block.unsupported,
        )

    return score


def fine_tune(
    config: SFTConfig,
    scope: TaskScope,
    options: EvalOptions,
    judging: JudgeSettings,
    *,
    resolve: Callable[[str], Path],
) -> SFTResult:
    """SFT on the examples of this machine, looked at on held-out tasks after each epoch. `resolve`
    and the errors are those of `train_sft`."""
    options = options.model_copy(update={"prompts": config.prompts})  # by what is learnt
    if config.per_role:
        return _fine_tune_roles(config, scope, options, judging, resolve)
    from coding_framework.data.example_store import read_training_examples
    from coding_framework.data.examples import held_out_examples, held_out_tasks
    from coding_framework.training.sft import load_held_out, train_sft

    beside, target = config.extra_examples, config.generator_target
    extra = read_training_examples(Path(beside)) if beside is not None else []
    alone = extra and not config.num_examples and not config.optimizer_examples
    examples, told = ([], "") if alone else _examples(config, scope)
    held_out: list[TrainingExample] = []
    if config.held_out_examples:
        draw = partial(held_out_examples, scope=scope, target=target, max_tier=config.max_task_tier)
        held_out = load_held_out(config, draw, extra)
    score = None
    if config.held_out_tasks:
        tasks = held_out_tasks(
            None,
            config.seed,
            max_steps=config.max_task_ops,
            max_tier=config.max_task_tier,
            scope=scope,
        )
        if len(tasks) < config.held_out_tasks:
            log.warning("fewer_held_out_tasks", wanted=config.held_out_tasks, found=len(tasks))
        if tasks:
            folder = SFTFolder(Path(config.output_dir)).evaluations
            score = make_evaluate(tasks[: config.held_out_tasks], options, judging, folder)
    result = train_sft(
        config, examples, resolve=resolve, extra=extra, held_out=held_out, evaluate=score
    )
    return result.model_copy(update={"data": told})


def _examples(config: SFTConfig, scope: TaskScope) -> tuple[list[TrainingExample], str]:
    """(examples of both roles, where the generator's are from)."""
    from coding_framework.data.examples import training_examples
    from coding_framework.run.archive import SYNTHESIS, archive_examples
    from coding_framework.training.sft import load_examples

    synthesised = partial(
        training_examples,
        scope=scope,
        target=config.generator_target,
        max_tier=config.max_task_tier,
    )
    if config.data == "synthetic" or config.num_examples == 0:
        return load_examples(config, synthesised), SYNTHESIS
    half = config.num_examples // 2
    found = archive_examples(
        config.archive, half if config.data == "mixed" else config.num_examples
    )

    def make(role: Role, count: int, seed: int, **how: Any) -> list[TrainingExample]:
        if role is not Role.GENERATOR or not found.examples:
            return synthesised(role, count, seed, **how)
        taken = list(found.examples[:count])
        if config.data == "mixed":
            taken += synthesised(role, count - len(taken), seed, **how)
        return taken

    mixed = config.data == "mixed" and found.examples
    told = f"{found.told}, and {SYNTHESIS}" if mixed else found.told
    return load_examples(config, make), told


def _fine_tune_roles(
    config: SFTConfig,
    scope: TaskScope,
    options: EvalOptions,
    judging: JudgeSettings,
    resolve: Callable[[str], Path],
) -> SFTResult:
    """An adapter for each role, trained on the examples of that role alone, in a run of its own."""
    from coding_framework.training.sft import claim_roles, join_roles

    claim_roles(config)
    others = config.optimizer_examples
    counts: dict[Role, dict[str, Any]] = {
        Role.GENERATOR: {"num_examples": config.num_examples, "optimizer_examples": 0},
        Role.OPTIMIZER: {
            "num_examples": 0,
            "optimizer_examples": config.num_examples if others is None else others,
            "held_out_tasks": 0,  # whose one answer is the generator's
            "extra_examples": None,
        },
    }
    results = {}
    for role, changes in counts.items():
        folder = SFTFolder(Path(config.output_dir)).roles / role.value
        own = {**config.model_dump(), **changes, "per_role": False, "output_dir": str(folder)}
        results[role] = fine_tune(type(config)(**own), scope, options, judging, resolve=resolve)
    return join_roles(config, results)
