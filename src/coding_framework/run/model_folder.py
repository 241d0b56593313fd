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
from typing import TYPE_CHECKING, Any

from pydantic import Field

from coding_framework.agents.prompts import PROMPT_VERSION
from coding_framework.evaluation.eval_run import EvalIdentity, EvalRun
from coding_framework.evaluation.evaluate import Evaluation, evaluate
from coding_framework.monitoring.progress import Progress
from coding_framework.orchestration.turn import ConversationConfig
from coding_framework.store.events import log
from coding_framework.store.folder import SFTFolder, states_file
from coding_framework.store.model_card import check_card
from coding_framework.types import (
    BaselinesName,
    CUDAConversationState,
    DTypeName,
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


class EvaluationSettings(Record):
    """How a model in a folder is evaluated on tasks."""

    device: str | None = None
    """None: a GPU where there is one."""
    dtype: DTypeName = "auto"
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
    identity: EvalIdentity | None = None,
) -> Evaluation:
    """Conversations of the model in a folder about tasks, with a progress line; those that `store`
    holds are not run again. identity: answers and verdicts are kept, too, in a folder beside
    `store`, and an evaluation of another identity is refused. Raises UsageError where the folder is
    no model, PolicyError where the model fails."""
    from coding_framework.agents.prompts import PromptBudget

    check_card(adapter or model, settings.prompts)
    heat = 0.0 if settings.samples_per_task == 1 else 1.0
    sampling = SamplingParams(max_new_tokens=settings.generator_tokens, temperature=heat)
    longer = SamplingParams(max_new_tokens=settings.optimizer_tokens, temperature=heat)
    total = len(tasks) * settings.samples_per_task
    with ExitStack() as stack:
        run = None
        if identity is not None:
            run = stack.enter_context(EvalRun(store.with_suffix(""), identity))
        judge = make_judge(
            sandbox=settings.sandbox, baselines=settings.baselines, told_in=store.parent
        )
        stack.callback(judge.close)
        policies = make_policies(
            model, stack, device=settings.device, dtype=settings.dtype, adapter=adapter
        )
        generator, optimizer = policies[Role.GENERATOR], policies[Role.OPTIMIZER]
        budget = PromptBudget(settings.max_prompt_tokens, generator.count)
        progress = stack.enter_context(
            Progress(f"  {label}", total, "conversations", at_once=settings.concurrency)
        )
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
            settings.conversation,
            samples=settings.samples_per_task,
            concurrency=settings.concurrency,
            store=store,
            run=run,
            on_done=count,
            on_begin=progress.begin,
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
    settings = settings.model_copy(update={"prompts": config.prompts})  # by what is learnt
    if config.per_role:
        return _fine_tune_roles(config, scope, settings, resolve)
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
            score = make_evaluate(tasks[: config.held_out_tasks], settings, folder)
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
    settings: EvaluationSettings,
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
        results[role] = fine_tune(type(config)(**own), scope, settings, resolve=resolve)
    return join_roles(config, results)
