"""What a whole run is asked to do: its recipe, its folder, and the settings that follow."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from coding_framework.agents.prompts import PROMPT_VERSION
from coding_framework.errors import UsageError, first_complaint
from coding_framework.monitoring.logs import configure_logging, quiet_libraries
from coding_framework.run.eval_options import EvalOptions
from coding_framework.run.rejection_options import RejectionOptions
from coding_framework.run.sizing import PRACTICE_EPOCHS, PRACTICE_RATE, Rates, Sizes, sized
from coding_framework.store.folder import RunFolder
from coding_framework.training.recipes import RecipeFile, rl_config, sft_config
from coding_framework.training.rl_config import MultiTurnRLConfig
from coding_framework.training.sft_config import SFTConfig
from coding_framework.types import (
    Config,
    DTypeName,
    PromptVersion,
    SandboxName,
    Task,
    TaskPool,
    TaskScope,
)
from coding_framework.wiring import JudgeSettings

Skipped = Literal["sft", "rl"]
LABELS = ("base", "sft", "rft", "rl")
"""Names of the evaluations of a whole run, in their order."""


class Recipe(Config):
    """The counts of a run; part of its configuration. The defaults are for a GPU."""

    device: Literal["cpu", "cuda"] = "cuda"
    """Whose defaults `sft` and `rl` change."""
    held_out_tasks: int = Field(default=100, ge=1)
    """Held-out tasks of each evaluation."""
    samples_per_task: int = Field(default=1, ge=1)
    """Conversations of each held-out task in an evaluation; above 1 they are sampled (temperature
    1), not greedy."""
    sft: Mapping[str, Any] = Field(default_factory=dict)
    """Changes to `SFTConfig`, or `SFTConfig.cpu()`."""
    rft: Mapping[str, Any] = Field(default_factory=dict)
    """Changes to `RejectionOptions`, where rejection fine-tuning is asked for."""
    rl: Mapping[str, Any] = Field(default_factory=dict)
    """Changes to `MultiTurnRLConfig`, or `MultiTurnRLConfig.cpu()`."""
    base_prompts: PromptVersion = PROMPT_VERSION
    """Of the base model: in its evaluation and, where SFT is left out, in RL and the evaluation
    after it. "v2" tells it the contract, which "v1" leaves to what SFT has taught."""
    rl_tasks: int = Field(default=256, ge=1)
    """Most different tasks that RL draws its prompts from."""
    rl_task_min_ops: int = Field(default=2, ge=0)
    """What SFT has taught in full has no mixed outcomes left, and a group of equal returns teaches
    nothing: RL is given compositions."""
    rl_skip_tasks: int = Field(default=0, ge=0)
    """Tasks at the head of the list that RL leaves out, because SFT's examples are of the first
    ones.

    On what it has not been shown a policy's samples differ, which is what groups learn from."""
    max_turns: int = Field(default=3, ge=1)
    """In evaluations; in RL too unless `rl` says otherwise."""
    max_prompt_tokens: int = Field(default=2048, ge=32)
    """Of every turn, in training and evaluation. Longer ones are trimmed by rule. RL's memory grows
    with it: a micro-batch holds one longest row."""
    generator_tokens: int = Field(default=2048, ge=1)
    """Most tokens of a generator's answer in evaluation: what an answer to prompts v3, which SFT
    teaches, may have. A fused attention takes 1,300."""
    optimizer_tokens: int = Field(default=2048, ge=1)
    """Likewise of the optimizer; RL's limit for both."""
    task_max_ops: int | None = Field(default=3, ge=1)
    """Most operations of a task's composition, in training and evaluation.

    None: any."""
    task_max_tier: int | None = Field(default=None, ge=0)
    """Hardest tier of a task's family, in training and evaluation; 0: each element for itself.

    None: any."""
    task_scope: TaskScope = "starter"
    """starter: the small set that ships with all kernels judged; all: also 130 of tiers 2 and 3,
    which ship with one, and those that this machine has judged (`cuda-rl tasks build`).

    Other families, longer compositions and so tiers 2 and 3 are in "all" alone."""
    task_pool: TaskPool = "functions"
    """What RL's tasks are: functions that we synthesise, or PyTorch modules as people write them. A
    module that the SFT mixture shows (`cuda-rl data mixture`) is left out."""
    sandbox: SandboxName = "auto"
    """Sandbox of the candidates' host code: auto takes the first that works here, no-docker the
    first that works and is not Docker; one that you name must work."""
    dtype: DTypeName = "auto"
    """Of matrix products in evaluations; auto: bfloat16 where the hardware computes in it."""
    probe_tasks: int = Field(default=0, ge=0)
    """Training tasks that the model tries before RL, so that RL is given those that it solves in
    10 to 80% of its samples; 0: RL takes its tasks as they come.

    What is always or never solved gives a group equal returns, which teach nothing. A run that
    practises learns its own right answers to them, and tries them again."""
    probe_samples: int = Field(default=4, ge=2)
    """Answers to each of them."""
    concurrency: int = Field(default=48, ge=1)
    """Conversations at once in an evaluation; on 2 cores a batch of 48 decodes fastest."""

    @property
    def evaluation(self) -> EvalOptions:
        """How its evaluations ask."""
        return EvalOptions(
            samples=self.samples_per_task,
            turns=self.max_turns,
            max_prompt_tokens=self.max_prompt_tokens,
            max_new_tokens=self.generator_tokens,
            optimizer_tokens=self.optimizer_tokens,
            stop_without_code=True,
            wandb=False,
            **self.model_dump(include={"device", "dtype", "concurrency"}),
        )

    @property
    def judging(self) -> JudgeSettings:
        """How its evaluations judge."""
        return JudgeSettings(sandbox=self.sandbox)


class WholeRun(Config):
    """What the command line says, and what follows from it. Makers: quickstart,
    launch_complete_cuda_training.py. Plain values, which a stage's own process can be handed."""

    title: str
    """Of the report."""
    recipe: Recipe
    folder: Path
    base_model: str
    minutes: float | None = Field(default=None, gt=0.0)
    """What the whole may take: its first stage measures the machine and fits the counts to it.
    None: the recipe's counts."""
    seed: int = 0
    """Seed of data, training and sampling."""
    skip: frozenset[Skipped] = frozenset()
    """Stages that are left out, with their evaluations."""
    rft: bool = False
    """Fine-tune the model on its own best kernels between SFT and RL (`cuda-rl rft`).

    It is the control that RL has to beat, and RL starts from it."""
    practise: bool = False
    """After SFT fine-tune the model on its own right answers to the recipe's few `probe_tasks`, and
    try these again, in place of an evaluation on held-out tasks: what a model learns from its own
    answers in a minute. RL starts from SFT's model likewise, with the tasks that it solves now and
    then."""

    @model_validator(mode="after")
    def _trains(self) -> Self:
        if len(self.skip) == 2:
            raise ValueError("nothing is left to train: skip SFT or RL, not both")
        return self

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the evaluations, in their order."""
        left_out = self.skip if self.rft else {*self.skip, "rft"}
        return tuple(label for label in LABELS if label not in left_out)

    @property
    def stages(self) -> set[str]:
        """Names of the stages."""
        more = {"rft", "practice"} if self.practise else set()
        return {"model", *{*self.labels} - {"base"}, *(f"eval_{x}" for x in self.labels), *more}

    def fitted(self, result: Mapping[str, Any]) -> WholeRun:
        """The run in the sizes that its first stage has chosen, as that stage's result says."""
        if "sizes" not in result:
            return self
        sizes, rates = (
            Sizes.model_validate(result["sizes"]),
            Rates.model_validate(result["rates"]),
        )
        given = {**self.recipe.model_dump()}
        recipe = Recipe.model_validate({**given, **sized(sizes, rates, given)})
        return self.model_copy(update={"recipe": recipe})

    def rl_candidates(self, count: int, *, at_least: int = 0) -> list[Task]:
        """Training tasks for RL, in their order. at_least: their operations."""
        skip = self.recipe.rl_skip_tasks
        if self.recipe.task_pool == "modules":
            from coding_framework.data.modules.pool import training_modules

            return training_modules(count, skip=skip)
        from coding_framework.data.data_pipeline import CUDADataPipeline, DataPipelineConfig

        recipe = self.recipe
        pipeline = CUDADataPipeline(
            DataPipelineConfig(
                max_steps=recipe.task_max_ops,
                max_tier=recipe.task_max_tier,
                scope=recipe.task_scope,
                seed=self.seed,
            )
        )
        return pipeline.draw_tasks(skip + count, min_steps=at_least)[skip:]

    def probe_tasks(self) -> list[Task]:
        """Training tasks for RL to choose from: those that were practised, else half compositions,
        half any."""
        if self.practise:
            from coding_framework.run.rejection import training_pool

            return training_pool(self.rejection_options())
        count, least = self.recipe.probe_tasks, self.recipe.rl_task_min_ops
        composed = self.rl_candidates(count // 2, at_least=least) if count > 1 else []
        tasks = {t.name: t for t in (*composed, *self.rl_candidates(count))}
        return list(tasks.values())[:count]

    def held_out(self) -> list[Task]:
        from coding_framework.data.examples import held_out_tasks

        recipe = self.recipe
        return held_out_tasks(
            recipe.held_out_tasks,
            self.seed,
            max_steps=recipe.task_max_ops,
            max_tier=recipe.task_max_tier,
            scope=recipe.task_scope,
        )

    def sft_config(self, base_model: str) -> SFTConfig:
        """Raises UsageError."""
        changes = {
            "base_model": base_model,
            "output_dir": str(RunFolder(self.folder).sft.root),
            "max_task_ops": self.recipe.task_max_ops,
            "max_task_tier": self.recipe.task_max_tier,
            "seed": self.seed,
        }
        if self.recipe.sft.get("per_role"):
            raise UsageError(
                "a whole run trains one policy: make an adapter a role with run_sft_training.py "
                "--per-role, and go on with run_multiturn_rl_training.py --policy per_role"
            )
        given = {k: v for k, v in changes.items() if k not in self.recipe.sft}
        return sft_config(RecipeFile(device=self.recipe.device, sft=self.recipe.sft), given)

    def rejection_options(self) -> RejectionOptions:
        """Of rejection fine-tuning, where it is asked for. Raises UsageError."""
        recipe, counts = self.recipe, {}
        if self.practise:
            counts = {
                "tasks": recipe.probe_tasks,
                "samples": recipe.probe_samples,
                "epochs": PRACTICE_EPOCHS,
                "learning_rate": PRACTICE_RATE,
                "keep_per_task": 1,
            }
        elif recipe.device == "cpu":
            counts = {"tasks": max(1, recipe.held_out_tasks // 2), "samples": 4}
        found: dict[str, Any] = {
            "output_dir": RunFolder(self.folder).rft.root,
            "pool": recipe.task_pool,
            "skip_tasks": recipe.rl_skip_tasks,
            "max_task_ops": recipe.task_max_ops,
            "max_task_tier": recipe.task_max_tier,
            "task_scope": recipe.task_scope,
            "max_new_tokens": recipe.generator_tokens,
            "max_prompt_tokens": recipe.max_prompt_tokens,
            "concurrency": recipe.concurrency,
            "prompts": self.taught_prompts,
            "device": recipe.device,
            "dtype": recipe.dtype,
            "seed": self.seed,
            **counts,
            **recipe.rft,
        }
        try:
            return RejectionOptions.model_validate(found)
        except ValidationError as e:
            raise UsageError(f"the recipe's rft: {first_complaint(e, '')}") from e

    @property
    def taught_prompts(self) -> PromptVersion:
        """The prompts that SFT teaches."""
        return self.sft_config(self.base_model).prompts

    def rl_config(self, model: str, *, taught: bool = True) -> MultiTurnRLConfig:
        """taught: by SFT, which knows its prompts. Raises UsageError."""
        recipe = self.recipe
        changes: dict[str, Any] = {
            "model_path": model,
            "output_dir": str(RunFolder(self.folder).rl.root),
            "max_turns": recipe.max_turns,
            "max_prompt_tokens": recipe.max_prompt_tokens,
            "max_response_tokens": recipe.optimizer_tokens,
            "stop_reward": None,
            "prompts": self.taught_prompts if taught else recipe.base_prompts,
            "seed": self.seed,
            **recipe.rl,
            "judge_args": {"sandbox": recipe.sandbox, **recipe.rl.get("judge_args", {})},
        }
        return rl_config(RecipeFile(device=recipe.device), changes)

    def configure_logging(self) -> None:
        """In every process of the run."""
        configure_logging(RunFolder(self.folder).log)
        quiet_libraries()
