"""The main job: base model, SFT, multi-turn RL; each evaluated on the same held-out tasks.

    model -> eval base -> SFT -> eval sft -> RL -> eval rl -> report

Read `STAGES` and the function of each stage. Guaranteed: the same command goes on after a kill from
the last finished stage (an evaluation from its last conversation, RL from its last checkpoint); a
folder of another configuration is refused; Ctrl-C leaves no process behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import platform
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
import structlog
from pydantic import Field
from rich.console import Console

from coding_framework.evaluation.metrics import StageMetrics
from coding_framework.evaluation.report import (
    ReportData,
    StageConversations,
    TrainingCurve,
    TrainingStep,
    write_report,
)
from coding_framework.evaluation.runner import (
    Evaluation,
    EvaluationConfig,
    evaluate,
    read_states,
)
from coding_framework.evaluation.summary import (
    RLNumbers,
    StageCost,
    Summary,
    closing_lines,
    stage_table,
    summarize,
)
from coding_framework.monitoring.child import adopt_orphans, descendants, kill_all, run_in_child
from coding_framework.monitoring.jsonl import read_lines
from coding_framework.monitoring.logs import configure_logging, quiet_libraries
from coding_framework.monitoring.progress import Progress, duration
from coding_framework.monitoring.stages import StageManifest, StageRecord
from coding_framework.orchestration.turn import ConversationConfig
from coding_framework.paths import write_json_atomic
from coding_framework.types import CUDAConversationState, Receipt, Record, SamplingParams, Task
from coding_framework.wiring import cores, make_agents, make_judge, make_reward

log = structlog.get_logger(__name__)

DEFAULT_MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
MAX_PROMPT_TOKENS = 640
"""Of every turn, in training and evaluation; the longest seen had 548. Longer ones are trimmed by
rule. RL's memory grows with it: a micro-batch holds one longest row."""
CONCURRENCY = 48
"""Conversations at once in an evaluation: a batch of this size decodes fastest."""
GRACE_S = 2.0
"""Between asking a process of ours to end and killing it."""
LOG_NAME = "log.jsonl"
LABELS = ("base", "sft", "rl")


class Recipe(Record):
    """The counts of a run; part of its configuration."""

    held_out_tasks: int
    sft: Mapping[str, Any] = Field(default_factory=dict)
    """Changes to `SFTConfig.cpu()`."""
    rl: Mapping[str, Any] = Field(default_factory=dict)
    """Changes to `MultiTurnRLConfig.cpu()`."""
    rl_steps: int
    rl_prompts_per_step: int
    rl_samples_per_prompt: int
    rl_task_min_ops: int = 2
    """What SFT has taught in full has no mixed outcomes left, and a group of equal returns teaches
    nothing: RL is given compositions."""
    max_turns: int = 2
    generator_tokens: int = 448
    """Most tokens of a generator's answer in evaluation; all reference answers are shorter."""
    optimizer_tokens: int = 512
    """Likewise of the optimizer; 97% of its reference answers are shorter. RL's limit for both."""
    task_max_ops: int = 3
    """Longest composition in training and evaluation."""
    expected_s: Mapping[str, float] = Field(default_factory=dict)
    """Measured seconds of each stage on 2 cores, for the time left that is shown."""


FULL = Recipe(
    held_out_tasks=44,
    sft={"num_examples": 300, "optimizer_examples": 50},
    rl={"temperature": 1.1},  # after SFT the policy is so sure that samples are often equal
    rl_steps=6,
    rl_prompts_per_step=3,
    rl_samples_per_prompt=3,
    expected_s={
        "model": 20,
        "eval_base": 32,
        "sft": 420,
        "eval_sft": 160,
        "rl": 420,
        "eval_rl": 110,
    },
)
SMOKE = Recipe(
    held_out_tasks=4,
    sft={"num_examples": 6, "optimizer_examples": 2, "max_steps": 3},
    rl_steps=1,
    rl_prompts_per_step=1,
    rl_samples_per_prompt=2,
    generator_tokens=64,
    optimizer_tokens=64,
)


class QuickstartOptions(Record):
    """What the command line says."""

    smoke: bool = False
    output_dir: Path | None = None
    base_model: str | None = None
    seed: int = 0


@dataclass(frozen=True)
class Job:
    """What a run is about; plain values, so that a stage's own process can be handed them."""

    folder: Path
    recipe: Recipe
    base_model: str
    seed: int

    def held_out(self) -> list[Task]:
        from coding_framework.data.data_pipeline import held_out_tasks

        recipe = self.recipe
        return held_out_tasks(recipe.held_out_tasks, self.seed, max_steps=recipe.task_max_ops)

    def conversation(self) -> ConversationConfig:
        return ConversationConfig(
            max_turns=self.recipe.max_turns, stop_reward=None, stop_without_code=True
        )

    def states_file(self, label: str) -> Path:
        return self.folder / "evaluations" / f"{label}.jsonl"

    def configure_logging(self) -> None:
        """In every process of the run."""
        configure_logging(self.folder / LOG_NAME)
        quiet_libraries()


@dataclass(frozen=True)
class Run:
    """What every stage is handed."""

    job: Job
    manifest: StageManifest

    def result(self, stage: str) -> Mapping[str, Any]:
        """Result of a finished stage."""
        record = self.manifest.finished(stage)
        assert record is not None, f"the stage {stage} comes before"
        return record.result


def run(options: QuickstartOptions) -> int:
    """All stages, from the first that is not finished; returns the exit status."""
    name = "quickstart-smoke" if options.smoke else "quickstart"
    folder = options.output_dir or Path("outputs") / name
    recipe = SMOKE if options.smoke else FULL
    base_model = options.base_model or DEFAULT_MODEL
    config = {
        "base_model": base_model,
        "seed": options.seed,
        "smoke": options.smoke,
        "version": version("coding-framework"),
        "recipe": recipe.model_dump(mode="json", exclude={"expected_s"}),
    }
    job = Job(folder, recipe, base_model, options.seed)
    with StageManifest(folder, config) as manifest, _no_process_left():
        job.configure_logging()
        for number, stage in enumerate(STAGES, start=1):
            _run_stage(Run(job, manifest), number, stage)
        summary = _finish(Run(job, manifest), config)
    _print_end(summary, folder)
    return 0


# --- stages ---------------------------------------------------------------------------------------


def get_model(run: Run) -> dict[str, Any]:
    """The base model as a local folder."""
    from coding_framework.agents.models import resolve_model

    return {"path": str(resolve_model(run.job.base_model))}


def evaluate_base(run: Run) -> dict[str, Any]:
    return _evaluate(run, "base", Path(run.result("model")["path"]))


def train_sft(run: Run) -> dict[str, Any]:
    """Supervised fine-tuning of both roles on kernels that the judge found correct."""
    changes = {
        "base_model": run.result("model")["path"],
        "output_dir": str(run.job.folder / "sft_checkpoints"),
        "max_task_ops": run.job.recipe.task_max_ops,
        "seed": run.job.seed,
        **run.job.recipe.sft,
    }
    return run_in_child(_fine_tune, run.job, changes)


def _fine_tune(job: Job, changes: Mapping[str, Any]) -> dict[str, Any]:
    job.configure_logging()
    from coding_framework.agents.models import resolve_model
    from coding_framework.data.data_pipeline import training_examples
    from coding_framework.training.sft import SFTConfig, load_examples, train_sft

    config = SFTConfig.cpu(**changes)
    result = train_sft(config, load_examples(config, training_examples), resolve=resolve_model)
    return result.model_dump(mode="json")


def evaluate_sft(run: Run) -> dict[str, Any]:
    return _evaluate(run, "sft", Path(run.result("sft")["model"]))


def train_rl(run: Run) -> dict[str, Any]:
    """Multi-turn RL by verl's trainer, from the SFT model."""
    from coding_framework.data.data_pipeline import training_tasks
    from coding_framework.training.verl_integration import MultiAgentVERLTrainer, MultiTurnRLConfig

    job, recipe = run.job, run.job.recipe
    changes: dict[str, Any] = {
        "model_path": run.result("sft")["model"],
        "output_dir": str(job.folder / "rl_checkpoints"),
        "num_episodes": recipe.rl_steps,
        "max_turns": recipe.max_turns,
        "prompts_per_step": recipe.rl_prompts_per_step,
        "samples_per_prompt": recipe.rl_samples_per_prompt,
        "max_prompt_tokens": MAX_PROMPT_TOKENS,
        "max_response_tokens": recipe.optimizer_tokens,
        "stop_reward": None,
        "seed": job.seed,
        **recipe.rl,
    }
    config = MultiTurnRLConfig.cpu(**changes)
    prompts = recipe.rl_steps * recipe.rl_prompts_per_step
    tasks = training_tasks(
        prompts, job.seed, min_steps=recipe.rl_task_min_ops, max_steps=recipe.task_max_ops
    )
    result = asyncio.run(MultiAgentVERLTrainer(config, tasks=tasks).train())
    return result.model_dump(mode="json")


def evaluate_rl(run: Run) -> dict[str, Any]:
    return _evaluate(run, "rl", Path(run.result("rl")["final_model"]))


@dataclass(frozen=True)
class Stage:
    """A step of the main job."""

    name: str
    title: str
    run: Callable[[Run], dict[str, Any]]


STAGES = (
    Stage("model", "getting the model", get_model),
    Stage("eval_base", "evaluating the base model", evaluate_base),
    Stage("sft", "supervised fine-tuning", train_sft),
    Stage("eval_sft", "evaluating after SFT", evaluate_sft),
    Stage("rl", "multi-turn RL", train_rl),
    Stage("eval_rl", "evaluating after RL", evaluate_rl),
)


def _run_stage(run: Run, number: int, stage: Stage) -> None:
    head = f"[{number}/{len(STAGES)}] {stage.title}"
    if run.manifest.finished(stage.name) is not None:
        _tell(f"{head}: done before")
        return
    expected = run.job.recipe.expected_s
    seconds = sum(expected.get(s.name, 0.0) for s in STAGES[number - 1 :])
    _tell(f"{head}{f' (about {duration(seconds)} left in all)' if seconds else ''}")
    log.info("stage_started", stage=stage.name)
    with run.manifest.stage(stage.name) as result:
        result.update(stage.run(run))
    record = run.manifest.finished(stage.name)
    assert record is not None
    log.info("stage_finished", stage=stage.name, wall_s=record.wall_s)
    _tell(f"{head}: {duration(record.wall_s)}, {record.peak_memory_gib:.1f} GiB at most")


def _evaluate(run: Run, label: str, model: Path) -> dict[str, Any]:
    """Conversations of the model in `model` on the held-out tasks."""
    return run_in_child(_evaluate_folder, run.job, label, model)


def _evaluate_folder(job: Job, label: str, model: Path) -> dict[str, Any]:
    job.configure_logging()
    result = asyncio.run(_evaluate_model(job, label, model))
    return {"metrics": result.metrics.model_dump(mode="json"), "judge": _judged_by(result.states)}


def _judged_by(states: Sequence[CUDAConversationState]) -> dict[str, str]:
    """What ran the kernels, as the fullest receipt of the verdicts says."""
    verdicts = [t.verdict for s in states for t in s.turns if t.verdict is not None]
    receipt = max((v.receipt for v in verdicts), key=_told, default=Receipt())
    backend = verdicts[0].backend if verdicts else "none"
    return {
        "backend": backend,
        "device": receipt.device or "not reached",
        "sandbox": receipt.sandbox or "not reached",
        "toolkit": receipt.toolkit,
    }


def _told(receipt: Receipt) -> int:
    return sum(map(bool, (receipt.device, receipt.sandbox, receipt.toolkit)))


async def _evaluate_model(job: Job, label: str, model: Path) -> Evaluation:
    from coding_framework.agents.policies import TransformersPolicy
    from coding_framework.agents.prompts import PromptBudget

    tasks = job.held_out()
    config = EvaluationConfig(conversation=job.conversation(), concurrency=CONCURRENCY)
    recipe = job.recipe
    sampling = SamplingParams(max_new_tokens=recipe.generator_tokens, temperature=0.0)
    longer = SamplingParams(max_new_tokens=recipe.optimizer_tokens, temperature=0.0)
    with contextlib.ExitStack() as stack:
        judge = make_judge()
        stack.callback(judge.close)
        policy = TransformersPolicy(model)
        stack.callback(policy.close)
        budget = PromptBudget(MAX_PROMPT_TOKENS, policy.count)
        progress = stack.enter_context(Progress(f"  {label}", len(tasks), "conversations"))
        correct = 0

        def count(state: CUDAConversationState) -> None:
            nonlocal correct
            correct += state.best_turn is not None
            progress.advance(note=f"{correct} correct")

        return await evaluate(
            label,
            tasks,
            make_agents(policy, sampling, optimizer_sampling=longer, budget=budget),
            judge,
            make_reward(),
            config,
            store=job.states_file(label),
            on_done=count,
        )


# --- the end --------------------------------------------------------------------------------------


def _finish(run: Run, config: Mapping[str, Any]) -> Summary:
    """Write summary.json and report.html from what the stages left."""
    stages = {
        label: StageMetrics.model_validate(run.result(f"eval_{label}")["metrics"])
        for label in LABELS
    }
    steps = list(run.result("rl")["steps"])
    summary = summarize(
        list(stages.values()),
        _rl_numbers(steps),
        {name: _cost(record) for name, record in run.manifest.stages.items()},
        config,
        {**_environment(), **run.result("eval_rl")["judge"]},
    )
    write_json_atomic(run.job.folder / "summary.json", summary.model_dump(mode="json"))
    write_report(_report(run, summary, steps), run.job.folder / "report.html")
    return summary


def _rl_numbers(steps: list[Mapping[str, Any]]) -> RLNumbers:
    rewards = [step["reward_mean"] for step in steps if step.get("reward_mean") is not None]
    return RLNumbers(
        steps=len(steps),
        steps_with_gradient=sum(1 for step in steps if (step.get("grad_norm") or 0.0) > 0.0),
        mean_reward_first=rewards[0] if rewards else None,
        mean_reward_last=rewards[-1] if rewards else None,
    )


def _report(run: Run, summary: Summary, steps: list[Mapping[str, Any]]) -> ReportData:
    job = run.job
    wanted = {
        label: {f"{label}/{task.name}/0": task for task in job.held_out()} for label in LABELS
    }
    conversations = tuple(
        StageConversations(
            label=label,
            states=tuple(read_states(job.states_file(label), wanted[label]).values()),
        )
        for label in LABELS
    )
    facts = (
        ("model", job.base_model),
        ("device", summary.environment["device"]),
        ("sandbox", summary.environment["sandbox"]),
        ("time", f"{duration(summary.wall_s)} on {cores()} cores"),
        ("memory", f"{summary.peak_memory_gib:.1f} GiB at most"),
        ("seed", str(job.seed)),
        ("version", version("coding-framework")),
    )
    return ReportData(
        title="Quickstart",
        lead=" ".join(closing_lines(summary)[:2]),
        facts=facts,
        stages=tuple(summary.stages.values()),
        curves=_curves(run.job.folder, steps),
        conversations=conversations,
    )


def _curves(folder: Path, steps: list[Mapping[str, Any]]) -> tuple[TrainingCurve, ...]:
    shares = ("correct_rate", "compile_rate")
    rl = tuple(_training_step(step, ("reward_mean", *shares)) for step in steps)
    metrics = read_lines(folder / "sft_checkpoints" / "metrics.jsonl")
    sft = tuple(_training_step(json.loads(line), ("loss",)) for line in metrics)
    return (
        TrainingCurve(
            title="RL: mean reward of a turn", y_label="reward", steps=rl, keys=("reward_mean",)
        ),
        TrainingCurve(title="RL: share of judged turns", y_label="share", steps=rl, keys=shares),
        TrainingCurve(
            title="SFT: loss", y_label="nats a token", steps=_smoothed(sft), keys=("loss",)
        ),
    )


def _training_step(entry: Mapping[str, Any], keys: Sequence[str]) -> TrainingStep:
    values = {key: entry[key] for key in keys if entry.get(key) is not None}
    return TrainingStep(step=entry["step"], values=values)


def _smoothed(steps: Sequence[TrainingStep], points: int = 50) -> tuple[TrainingStep, ...]:
    """Means over equal stretches of steps, at most `points` of them."""
    size = max(1, math.ceil(len(steps) / points))
    stretches = [steps[i : i + size] for i in range(0, len(steps), size)]
    return tuple(
        TrainingStep(
            step=stretch[-1].step,
            values={"loss": math.fsum(s.values["loss"] for s in stretch) / len(stretch)},
        )
        for stretch in stretches
    )


def _cost(record: StageRecord) -> StageCost:
    return StageCost(
        wall_s=record.wall_s, peak_memory_gib=record.peak_memory_gib, attempts=record.attempts
    )


def _environment() -> dict[str, str]:
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": str(cores()),
        **{name: version(name) for name in ("torch", "transformers", "trl", "verl", "ray")},
    }


def _print_end(summary: Summary, folder: Path) -> None:
    console = Console()
    console.print(stage_table(summary))
    for line in closing_lines(summary):
        console.print(line, highlight=False)
    console.print(f"Report: {folder / 'report.html'}", highlight=False)


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def _no_process_left() -> Iterator[None]:
    """Ends our descendants, by their ids, however the block ends; SIGTERM ends like Ctrl-C."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    adopt_orphans()
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        children = descendants()
        for child in children:
            with contextlib.suppress(psutil.Error):
                child.terminate()
        psutil.wait_procs(children, timeout=GRACE_S)
        kill_all(descendants)
