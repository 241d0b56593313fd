"""A whole run: base model, SFT, multi-turn RL; each evaluated on the same held-out tasks.

    model -> eval base -> SFT -> eval sft -> RL -> eval rl -> report

Between SFT and RL a run may fine-tune on its own right answers (`WholeRun.rft`, `practise`). The
quickstart and `launch_complete_cuda_training.py` are recipes of it. Read `STAGES` and the function
of each stage. Guaranteed: the same command goes on after a kill from the last finished stage (an
evaluation from its last conversation, RL from its last checkpoint); a folder of another
configuration is refused; a recipe with an impossible setting is refused before anything runs;
Ctrl-C leaves no process behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import platform
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console

from coding_framework.cuda.protocol import PROTOCOL
from coding_framework.cuda.sandbox import choose_sandbox
from coding_framework.errors import InfrastructureError, UsageError
from coding_framework.evaluation.report import ReportData, write_report
from coding_framework.evaluation.summary import (
    FEW_TASKS,
    Practice,
    RLNumbers,
    StageCost,
    Summary,
    closing_lines,
    device_in_words,
    headline,
    practice_line,
    practised,
    rl_steps,
    stage_block,
    stage_table,
    summarize,
)
from coding_framework.monitoring.child import adopt_orphans, descendants, kill_all, run_in_child
from coding_framework.monitoring.load import BusyOthers
from coding_framework.monitoring.memory import PeakMemory
from coding_framework.monitoring.progress import duration, set_stage
from coding_framework.monitoring.run_watch import RunWatch
from coding_framework.monitoring.wandb_sink import EVALUATION_PROJECT, WandbSink, wandb_wanted
from coding_framework.paths import program, write_json_atomic
from coding_framework.run.curves import training_curves
from coding_framework.run.evaluation import read_sample_records
from coding_framework.run.model_folder import evaluate_folder, fine_tune
from coding_framework.run.recipe import LABELS, Recipe, WholeRun
from coding_framework.run.sizing import (
    SERVED_AT_ONCE,
    Rates,
    Sizes,
    fitting,
    forecast,
    left_s,
    tasks_in_words,
)
from coding_framework.store.conversations import read_conversations
from coding_framework.store.events import log
from coding_framework.store.folder import EvalFolder, RLFolder, RunFolder
from coding_framework.store.records import OPEN_FROM, OPEN_TO
from coding_framework.store.stages import StageManifest, StageRecord
from coding_framework.store.training_log import read_evidence
from coding_framework.training.rl_config import MultiTurnRLConfig
from coding_framework.types import CUDAConversationState, PromptVersion, Receipt, Task
from coding_framework.wiring import cores

NOTED_LOAD = 0.2
"""Share of the processors that others take, from which on it is said."""
LOAD_S = 0.5
GRACE_S = 2.0
"""Between asking a process of ours to end and killing it."""


@dataclass(frozen=True)
class Run:
    """What every stage is handed."""

    job: WholeRun
    manifest: StageManifest

    def result(self, stage: str) -> Mapping[str, Any]:
        """Result of a finished stage."""
        record = self.manifest.finished(stage)
        assert record is not None, f"the stage {stage} comes before"
        return record.result


def run_stages(whole: WholeRun) -> int:
    """All stages, from the first that is not finished; returns the exit status.

    Raises UsageError where the recipe has an impossible setting or the folder holds another run.
    """
    recipe = whole.recipe
    config = {
        "base_model": whole.base_model,
        "seed": whole.seed,
        "skip": sorted(whole.skip),
        "version": version("coding-framework"),
        "recipe": _dumped(recipe),
    }
    _require_gpus(whole)
    choose_sandbox(recipe.sandbox)  # one that was named and is not here: before the first hour
    asked = {n for n in ("rft", "practise") if getattr(whole, n)}
    config |= dict.fromkeys(asked, True)  # a folder without is older, or of a run without
    if asked:
        whole.rejection_options()
    stages = [s for s in STAGES if s.name in whole.stages]
    judge = {"sandbox": recipe.sandbox, "protocol": str(PROTOCOL)}
    with StageManifest(whole.folder, config) as manifest, _no_process_left():
        run = _fitted(whole, manifest)  # refuses another budget before anything is written
        with RunWatch(whole.folder, "whole", judge):
            whole.configure_logging()
            for number in range(len(stages)):
                _run_stage(run, stages, number)
                run = _fitted(whole, manifest)
            summary = _finish(run, {**config, "recipe": _dumped(run.job.recipe)})
    _drop_checkpoints(RunFolder(whole.folder).rl)
    send_report(whole, config)
    _print_end(summary, whole.folder)
    return 0


def dry_run(whole: WholeRun) -> int:
    """Print what the run would be and where; returns the exit status. Raises UsageError for an
    impossible setting."""
    from coding_framework.training.verl.dry_run import dry_run as dry_run_of_rl

    print(whole.model_dump_json(indent=2))
    print(f"stages: {', '.join(s.name for s in STAGES if s.name in whole.stages)}")
    if "sft" in whole.stages:
        print(whole.sft_config(whole.base_model).model_dump_json(indent=2))
    if "rl" in whole.stages:
        dry_run_of_rl(whole.rl_config(whole.base_model))
    return 0


def _require_gpus(whole: WholeRun) -> None:
    """Raises UsageError where a stage has an impossible setting, or GPUs are wanted that are not
    here: before a model is fetched."""
    from coding_framework.training.recipes import require_gpus
    from coding_framework.training.verl.trouble import require_devices

    sft, rl = whole.sft_config(whole.base_model), whole.rl_config(whole.base_model)
    if "sft" in whole.stages:
        require_gpus(sft.device, sft.num_gpus)
    if "rl" in whole.stages:
        require_devices(rl)


def _drop_checkpoints(rl: RLFolder) -> None:
    """Removes what RL would resume from: a finished run never does, and it is most of the folder.
    The models, the conversations and the metrics stay."""
    for run in (rl, *rl.roles()):
        shutil.rmtree(run.checkpoints, ignore_errors=True)


def _dumped(recipe: Recipe) -> dict[str, Any]:
    """As the manifest holds it. What says nothing is left out: older runs did not know of it."""
    later = {"dtype", "probe_tasks", "probe_samples", "task_max_tier"}
    plain = all(getattr(recipe, n) == Recipe.model_fields[n].default for n in later)
    unsaid = later if plain else set()
    unsaid |= {n for n in ("rft", "task_pool") if getattr(recipe, n) == getattr(Recipe(), n)}
    return recipe.model_dump(mode="json", exclude=unsaid)


def _fitted(job: WholeRun, manifest: StageManifest) -> Run:
    """The run in the sizes that its first stage has stored. Raises UsageError where they were
    chosen for another budget."""
    record = manifest.finished("model")
    if record is None:
        return Run(job, manifest)
    given = record.result.get("minutes")
    if given is not None and given != job.minutes:
        raise UsageError(
            f"{job.folder} holds a run of --minutes {given:g}: say so again, or choose another "
            "--output-dir"
        )
    return Run(job.fitted(record.result), manifest)


# --- stages ---------------------------------------------------------------------------------------


def get_model(run: Run) -> dict[str, Any]:
    """The base model as a local folder and, where the run has a budget, the sizes that fit it."""
    from coding_framework.agents.models import resolve_model

    path = resolve_model(run.job.base_model)
    minutes = run.job.minutes
    if minutes is None:
        return {"path": str(path)}
    try:
        run_in_child(_load, run.job, path)
        rates = run_in_child(_measure, run.job, path, time.time())
    except InfrastructureError as e:
        _tell(f"  the machine was not measured ({e}): the counts are those of configs/cpu.yaml")
        return {"path": str(path), "minutes": minutes}
    sizes = fitting(60 * minutes, rates)
    for line in _plan_lines(minutes, rates, sizes):
        _tell(line)
    return {
        "path": str(path),
        "minutes": minutes,
        "rates": rates.model_dump(mode="json"),
        "sizes": sizes.model_dump(mode="json"),
        "planned_s": {name: round(s, 1) for name, s in forecast(sizes, rates).items()},
    }


def _load(job: WholeRun, model: Path) -> None:
    """What a process does before its work: the first one reads files that the others find in
    memory."""
    job.configure_logging()
    from coding_framework.agents.policies import load_model

    load_model(model, device="cpu")


def _measure(job: WholeRun, model: Path, started: float) -> Rates:
    job.configure_logging()
    from coding_framework.run.measuring import measure

    return measure(model, job.recipe.sandbox, started)


def _plan_lines(minutes: float, rates: Rates, sizes: Sizes) -> list[str]:
    """What was measured and what follows, for people."""
    total = sum(forecast(sizes, rates).values())
    batch = SERVED_AT_ONCE // 2
    written = batch / max(rates.step_s + batch * rates.answer_step_s, 1e-9)
    lines = [
        f"  this machine: learns {rates.train_tokens_s:.0f} tokens/s, writes {written:.0f} "
        f"tokens/s, gives a verdict every {rates.verdict_s:.1f} s ({rates.dtype})",
        f"  chosen: {sizes.told()}",
    ]
    lines += _load_line(rates.others)
    if total > 60 * minutes:
        lines.append(
            f"  {minutes:g} minutes cannot hold the smallest run that shows learning: it will take "
            f"about {duration(total)}"
        )
    else:
        lines.append(f"  it will take about {duration(total)} of {minutes:g} minutes")
    return lines


def _load_line(others: float) -> list[str]:
    """Names a machine that has other work to do."""
    if others < NOTED_LOAD:
        return []
    return [
        f"  other processes take {others:.0%} of the CPU: everything takes longer while they run"
    ]


def evaluate_base(run: Run) -> dict[str, Any]:
    prompts = run.job.recipe.base_prompts
    return _evaluate(run, "base", Path(run.result("model")["path"]), prompts)


def train_sft(run: Run) -> dict[str, Any]:
    """Supervised fine-tuning of both roles on kernels that the judge found correct."""
    return run_in_child(_fine_tune, run.job, run.result("model")["path"])


def _fine_tune(job: WholeRun, base_model: str) -> dict[str, Any]:
    job.configure_logging()
    from coding_framework.agents.models import resolve_model

    result = fine_tune(
        job.sft_config(base_model),
        job.recipe.task_scope,
        job.recipe.evaluation,
        job.recipe.judging,
        resolve=resolve_model,
    )
    return result.model_dump(mode="json")


def evaluate_sft(run: Run) -> dict[str, Any]:
    """Likewise after SFT; and a probe of training tasks, of which RL takes those that are solved
    now and then. A run that practises tries its own, later."""
    model = Path(run.result("sft")["model"])
    found = _evaluate(run, "sft", model, run.job.taught_prompts)
    if not run.job.recipe.probe_tasks or run.job.practise:
        return found
    solved = run_in_child(_probe_folder, run.job, model)
    shares = {name: sum(each) / max(1, len(each)) for name, each in solved.items()}
    return {**found, **_chosen(run, shares)}


def _chosen(run: Run, probe: Mapping[str, float]) -> dict[str, Any]:
    """Of training tasks and the shares of the answers that solve them, those that RL takes."""
    names = tasks_to_learn(probe, _rl_config(run).prompts_per_step)
    within = sum(solved_now_and_then(probe[name]) for name in names)
    _tell(
        f"  RL takes {len(names)} of {len(probe)} tasks tried; {within} of them were solved in 10 "
        "to 80% of the samples"
    )
    return {"probe": dict(probe), "rl_tasks": names}


def _probe_folder(job: WholeRun, model: Path) -> dict[str, list[bool]]:
    """Whether each sample solved its task, in one turn each."""
    job.configure_logging()
    tasks, folder = job.probe_tasks(), RunFolder(job.folder).evaluation("probe")
    changes = {
        "output_dir": folder,
        "prompts": job.taught_prompts,
        "turns": 1,
        "samples": job.recipe.probe_samples,
    }
    options = job.recipe.evaluation.model_copy(update=changes)
    judging = job.recipe.judging.model_copy(update={"baselines": "none"})
    evaluate_folder(model, tasks, options, judging, suite_name="train")
    solved: dict[str, list[bool]] = {task.name: [] for task in tasks}
    for record in read_sample_records(folder):
        solved[record.task].append(record.correct)
    return solved


def solved_now_and_then(share: float) -> bool:
    """Whether a group of samples of the task has returns that differ, as a rule."""
    return OPEN_FROM <= share <= OPEN_TO


def tasks_to_learn(probe: Mapping[str, float], at_least: int) -> list[str]:
    """Names of the tasks that teach most: those solved now and then; where they are fewer than a
    step needs, also those nearest to it, in which a rare success or failure may still come."""
    middle = (OPEN_FROM + OPEN_TO) / 2
    nearest = sorted(probe, key=lambda name: abs(probe[name] - middle))
    good = [name for name in nearest if solved_now_and_then(probe[name])]
    return good if len(good) >= at_least else nearest[:at_least]


def train_rft(run: Run) -> dict[str, Any]:
    """Rejection fine-tuning: the model learns the best of its own correct kernels. Where none is
    correct, it stays what it was."""
    found = run_in_child(_reject, run.job, str(_taught_model(run)))
    if not run.job.practise:
        return found
    evidence = read_evidence(RunFolder(run.job.folder).rft.evidence)
    return {**found, **_chosen(run, {e.task: e.solved / e.samples for e in evidence if e.samples})}


def _reject(job: WholeRun, model: str) -> dict[str, Any]:
    job.configure_logging()
    from coding_framework.run.rejection import fine_tune_or_keep

    found = fine_tune_or_keep(model, job.rejection_options(), job.recipe.judging)
    return found.model_dump(mode="json")


def _taught_model(run: Run) -> Path:
    """The model after SFT; where that is left out, the base model."""
    sft = run.manifest.finished("sft")
    return Path(sft.result["model"] if sft else run.result("model")["path"])


def evaluate_rft(run: Run) -> dict[str, Any]:
    return _evaluate(run, "rft", Path(run.result("rft")["model"]), run.job.taught_prompts)


def try_again(run: Run) -> dict[str, Any]:
    """The tasks whose right answers were learnt, with as many new answers."""
    solved = run_in_child(_probe_folder, run.job, Path(run.result("rft")["model"]))
    before = read_evidence(RunFolder(run.job.folder).rft.evidence)
    practice = practised(before, solved)
    _tell(f"  {practice_line(practice)}")
    return {"practice": practice.model_dump(mode="json"), "solved": solved}


def train_rl(run: Run) -> dict[str, Any]:
    """Multi-turn RL by verl's trainer, from the last model before it."""
    from coding_framework.training.verl_integration import MultiAgentVERLTrainer

    config = _rl_config(run)
    tasks = _rl_tasks(run, config)
    result = asyncio.run(MultiAgentVERLTrainer(config, tasks=tasks).train())
    return result.model_dump(mode="json")


def _rl_tasks(run: Run, config: MultiTurnRLConfig) -> list[Task]:
    """Those that the model solved now and then, where it tried some; else the first ones."""
    recipe = run.job.recipe
    probed = run.manifest.finished("rft" if run.job.practise else "eval_sft")
    names = probed.result.get("rl_tasks", []) if probed is not None else []
    if names:
        tasks = {t.name: t for t in run.job.probe_tasks()}
        return [tasks[name] for name in names]
    prompts = config.num_episodes * config.prompts_per_step
    if config.curriculum:
        return run.job.rl_candidates(recipe.rl_tasks)
    count = min(prompts, recipe.rl_tasks)
    return run.job.rl_candidates(count, at_least=recipe.rl_task_min_ops)


def _rl_config(run: Run) -> MultiTurnRLConfig:
    rft = None if run.job.practise else run.manifest.finished("rft")
    model = rft.result["model"] if rft else str(_taught_model(run))
    taught = rft is not None or run.manifest.finished("sft") is not None
    return run.job.rl_config(model, taught=taught)


def evaluate_rl(run: Run) -> dict[str, Any]:
    model = Path(run.result("rl")["final_model"])
    return _evaluate(run, "rl", model, _rl_config(run).prompts)


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
    Stage("rft", "rejection fine-tuning", train_rft),
    Stage("eval_rft", "evaluating after rejection fine-tuning", evaluate_rft),
    Stage("practice", "trying the practised tasks again", try_again),
    Stage("rl", "multi-turn RL", train_rl),
    Stage("eval_rl", "evaluating after RL", evaluate_rl),
)


def _run_stage(run: Run, stages: Sequence[Stage], number: int) -> None:
    stage = stages[number]
    head = f"[{number + 1}/{len(stages)}] {stage.title}"
    if run.manifest.finished(stage.name) is not None:
        _tell(f"{head}: done before")
        return
    seconds = _left_s(run)
    _tell(f"{head}{f' (about {duration(seconds)} left in all)' if seconds else ''}")
    set_stage(stage.title)
    if number or run.job.minutes is None:  # with a budget, the first stage measures for itself
        for line in _load_line(BusyOthers().over(LOAD_S)):
            _tell(line)
    log.info("stage_started", stage=stage.name, expected_left_s=round(seconds))
    with run.manifest.stage(stage.name, PeakMemory()) as result:
        result.update(stage.run(run))
    record = run.manifest.finished(stage.name)
    assert record is not None
    log.info("stage_finished", stage=stage.name, wall_s=record.wall_s)
    _tell(f"{head}: {duration(record.wall_s)}, {record.peak_memory_gib:.1f} GiB at most")


def _left_s(run: Run) -> float:
    """Seconds that the stages still need, by the rates measured in this run and by what its
    finished stages took; 0 where nothing was measured."""
    record = run.manifest.finished("model")
    planned = record.result.get("planned_s", {}) if record is not None else {}
    return left_s(planned, {name: r.wall_s for name, r in run.manifest.stages.items()})


def _evaluate(run: Run, label: str, model: Path, prompts: PromptVersion) -> dict[str, Any]:
    """Conversations of the model in `model` on the held-out tasks."""
    return run_in_child(_evaluate_folder, run.job, label, model, prompts)


def _evaluate_folder(
    job: WholeRun, label: str, model: Path, prompts: PromptVersion
) -> dict[str, Any]:
    job.configure_logging()
    run = RunFolder(job.folder)
    folder = EvalFolder(run.evaluation(label))
    changes = {"output_dir": folder.root, "prompts": prompts, "seed": job.seed}
    options = job.recipe.evaluation.model_copy(update=changes)
    earlier = [run.evaluation(name) for name in LABELS[: LABELS.index(label)]]
    there = [path for path in earlier if EvalFolder(path).records.exists()]
    before = read_sample_records(there[-1]) if there else None
    found = evaluate_folder(model, job.held_out(), options, job.recipe.judging, before=before)
    states = list(read_conversations(folder.conversations))
    block = found.overall.overall
    return {"metrics": block.model_dump(mode="json"), "judge": _judged_by(states)}


def _judged_by(states: Sequence[CUDAConversationState]) -> dict[str, str]:
    """What ran the kernels, as the fullest receipt of the verdicts says."""
    verdicts = [t.verdict for s in states for t in s.turns if t.verdict is not None]
    receipt = max((v.receipt for v in verdicts), key=_told, default=Receipt())
    backend = verdicts[0].backend if verdicts else "none"
    return {
        "backend": backend,
        "device": receipt.gpu or "not reached",
        "sandbox": receipt.sandbox or "not reached",
        "toolkit": receipt.toolkit,
    }


def _told(receipt: Receipt) -> int:
    return sum(map(bool, (receipt.device, receipt.sandbox, receipt.toolkit)))


# --- the end --------------------------------------------------------------------------------------


def _finish(run: Run, config: Mapping[str, Any]) -> Summary:
    """Write summary.json and report.html from what the stages left."""
    stages = {
        label: stage_block(run.result(f"eval_{label}")["metrics"]) for label in run.job.labels
    }
    steps = list(run.result("rl")["steps"]) if "rl" not in run.job.skip else []
    summary = summarize(
        stages,
        _rl_numbers(steps),
        {name: _cost(record) for name, record in run.manifest.stages.items()},
        config,
        {**_environment(), **run.result(f"eval_{run.job.labels[-1]}")["judge"], **_data(run)},
        _practice(run),
    )
    folder = RunFolder(run.job.folder)
    write_json_atomic(folder.summary, summary.model_dump(mode="json"))
    write_report(_report(run, summary), folder.report)
    return summary


def _practice(run: Run) -> Practice | None:
    record = run.manifest.finished("practice")
    return Practice.model_validate(record.result["practice"]) if record is not None else None


def send_report(whole: WholeRun, config: Mapping[str, Any]) -> None:
    """The report to wandb, where SFT or RL report there."""
    recipe = whole.recipe
    wanted = wandb_wanted(recipe.rl.get("wandb", recipe.sft.get("wandb")))
    with WandbSink(EVALUATION_PROJECT, whole.folder, config, wanted=wanted) as wandb:
        wandb.file(RunFolder(whole.folder).report, "report")


def _rl_numbers(steps: list[Mapping[str, Any]]) -> RLNumbers:
    rewards = [step["reward_mean"] for step in steps if step.get("reward_mean") is not None]
    return RLNumbers(
        steps=len(steps),
        steps_with_gradient=sum(1 for step in steps if (step.get("grad_norm") or 0.0) > 0.0),
        mean_reward_first=rewards[0] if rewards else None,
        mean_reward_last=rewards[-1] if rewards else None,
    )


def _report(run: Run, summary: Summary) -> ReportData:
    job = run.job
    folder = RunFolder(job.folder)
    facts = (
        ("date", datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")),
        ("command", shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])),
        ("model", job.base_model),
        ("tasks", tasks_in_words(job.recipe.task_max_ops, job.recipe.task_max_tier)),
        ("counts", _counts(job)),
        ("kernels ran on", device_in_words(summary.environment)),
        ("sandbox", summary.environment["sandbox"].replace("not reached", "no kernel reached it")),
        *(("examples", told) for told in _data(run).values()),
        ("time", f"{duration(summary.wall_s)} on {cores()} cores"),
        ("memory", f"{summary.peak_memory_gib:.1f} GiB at most"),
        ("seed", str(job.seed)),
        ("version", version("coding-framework")),
        ("configuration", str(folder.summary)),
        *(("model after SFT", str(folder.sft.model)) for _ in {"sft"} - job.skip),
        *(
            ("model after RFT", run.result("rft")["model"])
            for _ in {"rft"} & run.manifest.stages.keys()
        ),
        *(("model after RL", str(folder.rl.final_model)) for _ in {"rl"} - job.skip),
    )
    return ReportData(
        title=job.title,
        headline=headline(summary),
        lead=" ".join(closing_lines(summary)[:-1]),
        next_steps=_next_steps(run),
        facts=facts,
        stages=summary.stages,
        curves=training_curves(run.job.folder),
    )


def _counts(job: WholeRun) -> str:
    """What was trained and tried, in words."""
    recipe = job.recipe
    sft, rl = job.sft_config(job.base_model), job.rl_config(job.base_model)
    examples = sft.num_examples + (sft.optimizer_examples or 0)
    practice = f"practice on {recipe.probe_tasks} training tasks, " if job.practise else ""
    return (
        f"SFT on {examples} examples, {practice}{rl_steps(rl.num_episodes)} of "
        f"{rl.conversations_per_step} conversations, each evaluation on {recipe.held_out_tasks} "
        "tasks"
    )


def _next_steps(run: Run) -> tuple[tuple[str, str], ...]:
    """Commands that go on from here."""
    last = RunFolder(run.job.folder)
    model = last.sft.model if "rl" in run.job.skip else last.rl.final_model
    cuda_rl = program()
    solve = f"{cuda_rl} solve --task relu --model {model}"
    steps = [("let the trained model write a kernel", solve)]
    if run.job.minutes is not None:
        minutes = f"--minutes {3 * run.job.minutes:g}"
        longer = f"{cuda_rl} quickstart {minutes} --output-dir outputs/longer"
        steps.append(("train longer", longer))
    elif run.job.recipe.held_out_tasks < FEW_TASKS:
        steps.append(("train for real", "make quickstart"))
    if len(run.job.labels) > 1:
        first, end = (last.evaluation(label) for label in (run.job.labels[0], run.job.labels[-1]))
        steps.append(("compare task by task", f"{cuda_rl} eval compare {first} {end}"))
    return tuple(steps)


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


def _data(run: Run) -> dict[str, str]:
    """Where SFT's examples came from; nothing where SFT is left out."""
    record = run.manifest.finished("sft")
    told = record.result.get("data") if record is not None else None
    return {"data": told} if told else {}


def _print_end(summary: Summary, folder: Path) -> None:
    console = Console()
    console.print(stage_table(summary))
    for line in (headline(summary), *closing_lines(summary)):
        console.print(line, highlight=False)
    run, given = program(), shlex.quote(str(folder))
    for line in (
        f"Report: {RunFolder(folder).report}",
        f"What it did: {run} view {given}",
        f"Let its model write a kernel: {run} solve --task relu --model {given}",
    ):
        console.print(line, highlight=False, soft_wrap=True)


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def _no_process_left() -> Iterator[None]:
    """Ends the descendants that began in the block, by their ids, however it ends; SIGTERM ends
    like Ctrl-C."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    def ours() -> list[psutil.Process]:
        return [child for child in descendants() if child not in others]

    others = set(descendants())
    before = signal.signal(signal.SIGTERM, stop)
    adopted = adopt_orphans()
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        children = ours()
        for child in children:
            with contextlib.suppress(psutil.Error):
                child.terminate()
        psutil.wait_procs(children, timeout=GRACE_S)
        kill_all(ours)
        adopt_orphans(adopted)
