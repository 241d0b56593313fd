"""The evaluations of a whole run are those of `cuda-rl eval`: the same folder, records and report.

evaluations/LABEL/    as of `cuda-rl eval`: `eval compare evaluations/base evaluations/sft`
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from coding_framework.agents.devices import told_device
from coding_framework.cuda.protocol import PROTOCOL
from coding_framework.errors import UsageError
from coding_framework.evaluation.compare import Comparison, compare_runs
from coding_framework.evaluation.eval_run import EvalIdentity
from coding_framework.evaluation.leak import leak_statement
from coding_framework.evaluation.outcome import EvalOutcome, summarize_run
from coding_framework.evaluation.samples import SampleRecord, sample_record
from coding_framework.evaluation.suites import EvalSuite, SuiteTask
from coding_framework.run.eval_options import EvalOptions
from coding_framework.run.eval_speakers import weights_digest
from coding_framework.run.evaluation import read_sample_records, write_evaluation
from coding_framework.run.model_folder import EvaluationSettings
from coding_framework.store.folder import EvalFolder
from coding_framework.store.model_card import card_of
from coding_framework.types import CUDAConversationState, Task


def held_out_suite(tasks: Sequence[Task]) -> EvalSuite:
    """The tasks that every evaluation of a run has."""
    entries = tuple(SuiteTask(task=task) for task in tasks)
    return EvalSuite(name=f"held-out:{len(entries)}", tasks=entries)


def stage_identity(
    suite: EvalSuite, settings: EvaluationSettings, model: Path, seed: int
) -> EvalIdentity:
    """What the evaluation of a stage is."""
    sampling = {
        "generator_tokens": settings.generator_tokens,
        "optimizer_tokens": settings.optimizer_tokens,
        "max_prompt_tokens": settings.max_prompt_tokens,
    }
    return EvalIdentity(
        model=str(model),
        model_digest=weights_digest(model),
        suites={suite.name: suite.digest},
        samples=settings.samples_per_task,
        turns=settings.max_turns,
        sampling=sampling,
        prompts=settings.prompts,
        seed=seed,
        judge={"sandbox": settings.sandbox, "protocol": PROTOCOL},
        device=told_device(),
    )


def leave_evaluation(
    folder: Path,
    suite: EvalSuite,
    identity: EvalIdentity,
    states: Sequence[CUDAConversationState],
    earlier: Sequence[Path],
) -> EvalOutcome:
    """Write the evaluation of a stage. earlier: the folders of the stages before it, with the last
    of which that there is it is compared task by task."""
    found = []
    for state in states:
        sample = int(state.conversation_id.rpartition("/")[2])
        named = state.model_copy(
            update={"conversation_id": f"{suite.name}/{state.task.name}/{sample}"}
        )
        found.append((named, sample_record(named, suite=suite.name, sample=sample)))
    records = [record for _, record in found]
    options = EvalOptions(samples=identity.samples)
    outcome = summarize_run(
        identity,
        [suite],
        records,
        options.ks,
        options.thresholds,
        complete=True,
        leak={suite.name: leak_statement(suite, card_of(Path(identity.model)))},
        unanswered={},
        compared=_compared(earlier, records, options.thresholds),
    )
    write_evaluation(folder, outcome, found)
    return outcome


def _compared(
    earlier: Sequence[Path], records: Sequence[SampleRecord], thresholds: Sequence[float]
) -> Comparison | None:
    there = [folder for folder in earlier if EvalFolder(folder).records.exists()]
    if not there:
        return None
    try:
        return compare_runs(read_sample_records(there[-1]), records, thresholds)
    except UsageError:  # of one of them no sample has a verdict
        return None
