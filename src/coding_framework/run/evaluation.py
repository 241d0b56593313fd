"""`cuda-rl eval`: a model, or answers, on suites of tasks; a summary, a report and gates.

    model or answers, suites -> conversations (durable, resumable) -> sample records -> outcome

The folder is that of `evaluation.eval_run`; records, summary and report are made anew at each run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coding_framework.agents.devices import told_device
from coding_framework.cuda.expected.rules import RULES
from coding_framework.cuda.protocol import PROTOCOL
from coding_framework.errors import UsageError
from coding_framework.evaluation.answers import matched, read_answers
from coding_framework.evaluation.compare import Comparison, compare_runs
from coding_framework.evaluation.eval_report import write_eval_report
from coding_framework.evaluation.eval_run import EvalIdentity, EvalRun
from coding_framework.evaluation.gates import Gate, check_gates, parse_gates
from coding_framework.evaluation.kernelbench_io import level_of, write_kernelbench_run
from coding_framework.evaluation.leak import leak_statement
from coding_framework.evaluation.outcome import (
    EvalOutcome,
    gate_metrics,
    gate_scopes,
    headline,
    number_of,
    summarize_run,
)
from coding_framework.evaluation.samples import SampleRecord
from coding_framework.evaluation.suites import EvalSuite, load_suite, under_rules
from coding_framework.monitoring.run_watch import RunWatch
from coding_framework.monitoring.wandb_sink import EVALUATION_PROJECT, WandbSink, wandb_wanted
from coding_framework.paths import write_atomic, write_json_atomic
from coding_framework.run.eval_options import EvalOptions
from coding_framework.run.eval_sampling import Sample, Sampling, ask_all, sample_all
from coding_framework.run.eval_speakers import Speaker, speaker_of, weights_of
from coding_framework.store.folder import EvalFolder
from coding_framework.store.lines import parsed_lines
from coding_framework.store.model_card import card_of
from coding_framework.store.run_status import parent_of
from coding_framework.types import TIMED, BaselineName, Record, Task
from coding_framework.wiring import JudgeSettings, make_judge, make_ray_judge, make_reward

WANDB_ROWS = 500

if TYPE_CHECKING:
    from coding_framework.cuda.many.pool import JudgePool
    from coding_framework.training.verl.ray_judge import RayJudgePool


@dataclass(frozen=True)
class EvalPlan:
    """What will be asked and judged. Makers: `plan_evaluation`, which loads no model, and the
    stages of training."""

    suites: tuple[EvalSuite, ...]
    gates: tuple[Gate, ...] = ()
    before: Sequence[SampleRecord] | None = None
    """Records of the run that this one is compared with."""
    leak: Mapping[str, str] = field(default_factory=dict)
    unanswered: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def run_evaluation(
    model: str | None, plan: EvalPlan, options: EvalOptions, judging: JudgeSettings
) -> EvalOutcome | None:
    """Evaluate a model, or the answers of the options (model None); None where it only asked.
    Raises UsageError for another run's folder before anything is generated, and PolicyError where
    the model fails."""
    judging = _that_time(options.baseline, judging)
    with ExitStack() as stack:
        speaker = speaker_of(model, plan.suites, options, stack)
        identity = _identity(plan, speaker, options, judging)
        run = stack.enter_context(
            EvalRun(options.output_dir, identity, patience_s=options.patience)
        )
        known = {name: str(identity.judge[name]) for name in ("backend", "sandbox", "protocol")}
        stack.enter_context(RunWatch(options.output_dir, "eval", known))
        judge = _judge(plan, options, judging)
        stack.callback(judge.close)
        sampling = Sampling(run, judge, make_reward(), options)
        if options.ask_only:
            asyncio.run(ask_all(sampling, speaker.wanted))
            return None
        found = asyncio.run(sample_all(sampling, speaker.wanted))
        return _finish(plan, identity, found, options, asked=len(speaker.wanted))


def plan_evaluation(model: str | None, suites: Sequence[str], options: EvalOptions) -> EvalPlan:
    """Finds everything that can be wrong before a model is loaded. Raises UsageError."""
    loaded = tuple(_suite(name, options) for name in dict.fromkeys(suites))
    gates: list[Gate] = []
    if options.fail_under is not None:
        metrics = gate_metrics(options.ks, options.thresholds)
        scopes = gate_scopes(loaded, compares=options.compare is not None)
        gates = parse_gates(options.fail_under, metrics, scopes)
    if options.kernelbench_out is not None:
        level_of(loaded)
    weights = weights_of(model, options)
    card = card_of(weights) if weights is not None else None
    return EvalPlan(
        suites=loaded,
        gates=tuple(gates),
        before=read_sample_records(options.compare) if options.compare is not None else None,
        leak={suite.name: leak_statement(suite, card) for suite in loaded},
        unanswered=_unanswered(loaded, options),
    )


def read_sample_records(path: Path) -> list[SampleRecord]:
    """The sample records of an evaluation's folder, or of a file of such lines. Raises UsageError
    where there are none."""
    file = EvalFolder(path).records if path.is_dir() else path
    records = list(parsed_lines(file, SampleRecord.model_validate_json))
    if not records:
        raise UsageError(
            f"{file} holds no sample records: give the folder of a finished evaluation"
        )
    return records


def _suite(name: str, options: EvalOptions) -> EvalSuite:
    keep: dict[str, Callable[[Task], bool]] = {}
    if options.tasks is not None:
        names = {part.strip() for part in options.tasks.split(",")}
        keep["--tasks"] = lambda task: task.name in names
    if options.family is not None:
        keep["--family"] = lambda task: task.family == options.family
    if options.tier is not None:
        keep["--tier"] = lambda task: task.tier == options.tier
    suite = load_suite(
        name,
        seed=options.seed,
        scope=options.task_scope,
        kernelbench=options.kernelbench_dir,
        keep=keep,
        limit=options.limit,
    )
    return under_rules(suite, RULES[options.rules])


def _that_time(baseline: BaselineName, judging: JudgeSettings) -> JudgeSettings:
    """With the times of PyTorch among which the baseline is."""
    if judging.baselines == "none" or baseline in ("naive", *TIMED[judging.baselines]):
        return judging
    wanted = {baseline, *TIMED[judging.baselines]}
    enough = next(name for name, timed in TIMED.items() if wanted <= {*timed})
    return judging.model_copy(update={"baselines": enough})


def _unanswered(suites: Sequence[EvalSuite], options: EvalOptions) -> dict[str, tuple[str, ...]]:
    """Tasks without an answer among the given ones, by suite."""
    if options.answers is None:
        return {}
    answers = read_answers(options.answers)
    found = {}
    for suite in suites:
        answered = {entry.task.name for entry, _ in matched(suite, answers)}
        if not answered:
            raise UsageError(f"{options.answers} holds no answer to a task of {suite.name}")
        missing = tuple(e.task.name for e in suite.tasks if e.task.name not in answered)
        if missing:
            found[suite.name] = missing
    return found


def _judge(
    plan: EvalPlan, options: EvalOptions, judging: JudgeSettings
) -> JudgePool | RayJudgePool:
    how: dict[str, Any] = {"time_naive": options.baseline == "naive", "rules": options.rules}
    if options.ray is not None:
        return make_ray_judge(judging, options.ray, **how)
    told_in = parent_of(options.output_dir) or options.output_dir  # of a stage, its whole run
    return make_judge(**judging.model_dump(), told_in=told_in, **how)


def _identity(
    plan: EvalPlan, speaker: Speaker, options: EvalOptions, judging: JudgeSettings
) -> EvalIdentity:
    sampling: dict[str, float | None] = {}
    if speaker.prompts is not None:
        sampling = {
            "temperature": options.heat,
            "max_new_tokens": speaker.answer_tokens,
            "max_prompt_tokens": speaker.prompt_tokens,
            **options.model_dump(include={"top_p", "stop_when_correct"}),
        }
        if options.optimizer_tokens is not None:
            sampling["optimizer_tokens"] = options.optimizer_tokens
        if options.stop_without_code:
            sampling["stop_without_code"] = True
        if options.redraws:
            sampling["redraws"] = options.redraws
            if options.redraw_temperature is not None:
                sampling["redraw_temperature"] = options.redraw_temperature
    return EvalIdentity(
        model=speaker.name,
        model_digest=speaker.digest,
        suites={suite.name: suite.digest for suite in plan.suites},
        samples=options.samples if sampling else 0,
        turns=options.turns,
        sampling=sampling,
        prompts=speaker.prompts or "none",
        seed=options.seed,
        judge={**judging.model_dump(mode="json", exclude={"workers"}), "protocol": PROTOCOL},
        baseline="naive" if options.baseline == "naive" and judging.backend != "emulator" else None,
        rules=RULES[options.rules] if options.rules != "ours" else None,
        device=told_device() if sampling else None,
    )


def _finish(
    plan: EvalPlan,
    identity: EvalIdentity,
    found: Sequence[Sample],
    options: EvalOptions,
    *,
    asked: int,
) -> EvalOutcome:
    """Write what is derived from the samples."""
    records = [record for _, record in found]
    complete = len(found) == asked
    compared = None
    if plan.before is not None:
        compared = _compared(plan.before, records, options)
    outcome = summarize_run(
        identity,
        plan.suites,
        records,
        options.ks,
        options.thresholds,
        complete=complete,
        leak=plan.leak,
        unanswered=plan.unanswered,
        compared=compared,
    )
    held = check_gates(plan.gates, lambda gate: number_of(gate, outcome), complete=complete)
    outcome = outcome.model_copy(update={"gates": tuple(held)})
    _write(options.output_dir, outcome, found)
    _tell_wandb(outcome, records, options)
    if options.kernelbench_out is not None:
        write_kernelbench_run(options.kernelbench_out, plan.suites, found, options.hardware)
    return outcome


def _compared(
    before: Sequence[SampleRecord], records: Sequence[SampleRecord], options: EvalOptions
) -> Comparison | None:
    """None where two stages of a training cannot be compared: one of them has no verdict."""
    try:
        return compare_runs(before, records, options.thresholds)
    except UsageError:
        if options.compare is not None:
            raise
        return None


def _write(folder: Path, outcome: EvalOutcome, found: Sequence[Sample]) -> None:
    """The files that are derived from an evaluation's samples, and its report."""
    files = EvalFolder(folder)
    states, records = [state for state, _ in found], [record for _, record in found]
    _write_lines(files.conversations, states)
    _write_lines(files.records, records)
    write_json_atomic(files.summary, outcome.model_dump(mode="json"))
    write_eval_report(folder, outcome, records, states)


def _tell_wandb(
    outcome: EvalOutcome, records: Sequence[SampleRecord], options: EvalOptions
) -> None:
    """The numbers of each suite, a part of the records, and the report."""
    identity = outcome.eval.model_dump(mode="json")
    wanted = wandb_wanted(options.wandb)
    with WandbSink(EVALUATION_PROJECT, options.output_dir, identity, wanted=wanted) as wandb:
        wandb.summarise({"eval": {s.suite: headline(s.overall) for s in outcome.suites}})
        shown = ("suite", "task", "sample", "status", "reason", "speedup", "basis", "turns")
        rows = [record.model_dump(include=set(shown)) for record in records[:WANDB_ROWS]]
        wandb.table("eval/samples", [{name: row[name] for name in shown} for row in rows])
        wandb.file(EvalFolder(options.output_dir).report, "report")


def _write_lines(path: Path, records: Sequence[Record]) -> None:
    write_atomic(path, "".join(f"{record.model_dump_json()}\n" for record in records))
