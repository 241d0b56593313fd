"""A model in a folder and what is done with it before RL: evaluated on tasks, fine-tuned.

    folder, tasks -> conversations -> verdicts -> metrics

The main job and `run_sft_training.py` call the same functions. Training is handed the evaluation as
a callable, for it may not import it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
from pydantic import Field

from coding_framework.agents.prompts import PROMPT_VERSION
from coding_framework.evaluation.evaluate import Evaluation, EvaluationConfig, evaluate
from coding_framework.monitoring.progress import Progress
from coding_framework.orchestration.turn import ConversationConfig
from coding_framework.store.folder import SFTFolder, states_file
from coding_framework.store.model_card import check_card
from coding_framework.types import (
    BaselinesName,
    CUDAConversationState,
    EvaluateFn,
    HeldOutScore,
    PromptVersion,
    Record,
    Role,
    SamplingParams,
    SandboxName,
    Task,
    TaskScope,
    TrainingExample,
)
from coding_framework.wiring import (
    make_agents,
    make_judge,
    make_policies,
    make_reward,
)

if TYPE_CHECKING:
    from coding_framework.training.sft_config import SFTConfig, SFTResult

log = structlog.get_logger(__name__)


class EvaluationSettings(Record):
    """How a model in a folder is evaluated on tasks."""

    device: str | None = None
    """None: a GPU where there is one."""
    sandbox: SandboxName = "auto"
    baselines: BaselinesName = "eager"
    """On a GPU: which times of PyTorch the verdicts have."""
    max_turns: int = Field(default=1, ge=1)
    samples_per_task: int = Field(default=1, ge=1)
    """Above 1 they are sampled (temperature 1), not greedy."""
    concurrency: int = Field(default=48, ge=1)
    max_prompt_tokens: int = Field(default=2048, ge=32)
    generator_tokens: int = Field(default=1024, ge=1)
    optimizer_tokens: int = Field(default=1024, ge=1)
    prompts: PromptVersion = PROMPT_VERSION

    @property
    def conversation(self) -> ConversationConfig:
        return ConversationConfig(
            max_turns=self.max_turns, stop_reward=None, stop_without_code=True
        )


async def evaluate_folder(
    label: str,
    tasks: Sequence[Task],
    settings: EvaluationSettings,
    model: Path,
    *,
    adapter: Path | None = None,
    store: Path,
) -> Evaluation:
    """Conversations of the model in a folder about tasks, with a progress line; those that `store`
    holds are not run again. Raises UsageError where the folder is no model, PolicyError where the
    model fails."""
    from coding_framework.agents.prompts import PromptBudget

    check_card(adapter or model, settings.prompts)
    heat = 0.0 if settings.samples_per_task == 1 else 1.0
    sampling = SamplingParams(max_new_tokens=settings.generator_tokens, temperature=heat)
    longer = SamplingParams(max_new_tokens=settings.optimizer_tokens, temperature=heat)
    total = len(tasks) * settings.samples_per_task
    with ExitStack() as stack:
        judge = make_judge(sandbox=settings.sandbox, baselines=settings.baselines)
        stack.callback(judge.close)
        policies = make_policies(model, stack, device=settings.device, adapter=adapter)
        generator, optimizer = policies[Role.GENERATOR], policies[Role.OPTIMIZER]
        budget = PromptBudget(settings.max_prompt_tokens, generator.count)
        progress = stack.enter_context(Progress(f"  {label}", total, "conversations"))
        correct = 0

        def count(state: CUDAConversationState) -> None:
            nonlocal correct
            correct += state.best_turn is not None
            progress.advance(note=f"{correct} correct")

        return await evaluate(
            label,
            tasks,
            make_agents(
                generator,
                sampling,
                optimizer=optimizer,
                optimizer_sampling=longer,
                budget=budget,
                prompts=settings.prompts,
            ),
            judge,
            make_reward(),
            EvaluationConfig(
                conversation=settings.conversation,
                concurrency=settings.concurrency,
                samples_per_task=settings.samples_per_task,
            ),
            store=store,
            on_done=count,
        )


def make_evaluate(tasks: Sequence[Task], settings: EvaluationSettings, folder: Path) -> EvaluateFn:
    """The evaluation that training is handed: one answer to each task, judged. The conversations
    are left in `folder`, a file for each label."""
    once = settings.model_copy(update={"max_turns": 1, "samples_per_task": 1, "baselines": "none"})

    async def score(model: Path, adapter: Path, label: str) -> HeldOutScore:
        store = states_file(folder, label)
        store.unlink(missing_ok=True)  # of weights that may be others
        found = await evaluate_folder(label, tasks, once, model, adapter=adapter, store=store)
        return HeldOutScore(
            judged=found.metrics.n,
            compiled=found.metrics.compile.count,
            correct=found.metrics.passed.count,
            masked=found.metrics.masked_conversations,
        )

    return score


def fine_tune(
    config: SFTConfig,
    scope: TaskScope,
    settings: EvaluationSettings,
    *,
    resolve: Callable[[str], Path],
) -> SFTResult:
    """SFT on the examples of this machine, looked at on held-out tasks after each epoch. `resolve`
    and the errors are those of `train_sft`."""
    from coding_framework.data.example_store import read_training_examples
    from coding_framework.data.examples import held_out_examples, held_out_tasks, training_examples
    from coding_framework.training.sft import load_examples, load_held_out, train_sft

    beside, target = config.extra_examples, config.generator_target
    extra = read_training_examples(Path(beside)) if beside is not None else []
    examples = load_examples(config, partial(training_examples, scope=scope, target=target))
    held_out: list[TrainingExample] = []
    if config.held_out_examples:
        held_out = load_held_out(config, partial(held_out_examples, scope=scope, target=target))
    score = None
    if config.held_out_tasks:
        tasks = held_out_tasks(None, config.seed, max_steps=config.max_task_ops, scope=scope)
        if len(tasks) < config.held_out_tasks:
            log.warning("fewer_held_out_tasks", wanted=config.held_out_tasks, found=len(tasks))
        if tasks:
            folder = SFTFolder(Path(config.output_dir)).evaluations
            score = make_evaluate(tasks[: config.held_out_tasks], settings, folder)
    return train_sft(
        config, examples, resolve=resolve, extra=extra, held_out=held_out, evaluate=score
    )
