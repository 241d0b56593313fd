"""What `cuda-rl tasks build|stats` and `cuda-rl data ...` do: judging wired to the data.

All of it is in $CUDA_RL_CACHE/datasets: one file of receipts, to which every command adds what it
judged, and the sets of examples built from it. A command that was killed goes on where it was.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from itertools import chain, islice
from pathlib import Path

from coding_framework.agents.prompts import ANSWER_TOKENS
from coding_framework.commands.options import MixtureOptions, TaskSelection
from coding_framework.data.audit import AuditReport, audit_split, outside_overlap
from coding_framework.data.example_store import (
    BuildReport,
    ExampleStore,
    SetManifest,
    read_training_examples,
)
from coding_framework.data.examples import UNVERIFIED, in_turn, training_examples
from coding_framework.data.listing import Row, digested, rows
from coding_framework.data.mistakes import (
    repairs_of_mistakes,
    stored_conversations,
)
from coding_framework.data.mixture import (
    MOST_CHARACTERS,
    MixtureStatistics,
    mixture_drafts,
    mixture_jobs,
    sft_mixture,
    without_receipts,
)
from coding_framework.data.modules.catalog import spare_drafts, wider_drafts
from coding_framework.data.modules.speeds import level_speeds
from coding_framework.data.modules.tasks import module_task
from coding_framework.data.pairs import kernel_jobs, pair_jobs, sft_pairs
from coding_framework.data.provenance import dataset_card
from coding_framework.data.registry import named_task
from coding_framework.data.sakana_loader import ArchiveRow, SakanaDataLoader, archive_examples_of
from coding_framework.data.statistics import TaskStatistics, task_statistics
from coding_framework.data.synthesis.receipts import (
    all_receipts,
    built_receipts_path,
    by_task,
    load_receipts,
    module_receipts,
    packaged_receipts,
)
from coding_framework.errors import CodingFrameworkError, UsageError
from coding_framework.evaluation.problem_loading import ProblemSource, load_problems
from coding_framework.paths import cache_dir, write_atomic, write_json_atomic
from coding_framework.run.judged import judge_jobs
from coding_framework.store.events import log
from coding_framework.store.lines import parsed_lines
from coding_framework.types import Role, Split, Task, TaskScope, Verdict

EXAMPLES_NAME = "examples.jsonl"


def selected_tasks(selection: TaskSelection) -> list[Task]:
    """The catalogue's tasks that were asked for, balanced over the families. Raises UsageError for
    an unknown family."""
    tasks = (named_task(row["name"]) for row in _selected_rows(selection))
    return [task for task in tasks if task is not None]


def _selected_rows(selection: TaskSelection) -> Sequence[Row]:
    found = rows(
        selection.scope, split=selection.split, family=selection.family, tier=selection.tier
    )
    return in_turn(found, lambda row: str(row["family"]), selection.count)


def datasets_dir() -> Path:
    """Where built data is kept."""
    return cache_dir() / "datasets"


# --- tasks build, tasks stats --------------------------------------------------------------------


def build_tasks(
    selection: TaskSelection, *, workers: int | None = None, output: Path | None = None
) -> int:
    """Judge every kernel of the selected tasks that has no receipt; returns how many are open for
    a fault of ours. Prints what was found."""
    started = time.monotonic()
    tasks = selected_tasks(selection)
    path = output or built_receipts_path()
    jobs = list(kernel_jobs(tasks))
    failed, judged = judge_jobs(jobs, path, workers)
    receipts = all_receipts(path)
    statuses = Counter(
        receipts[job.key].verdict.status.value if job.key in receipts else "open" for job in jobs
    )
    said = ", ".join(f"{n} {status}" for status, n in statuses.most_common())
    print(f"{len(tasks)} tasks, {len(jobs)} kernels: {said}")
    print(
        f"{judged} judged now in {time.monotonic() - started:.0f} s, receipts in {path}",
        file=sys.stderr,
    )
    return failed


def statistics(selection: TaskSelection) -> TaskStatistics:
    """Counts of the selected tasks, and how much of them is judged."""
    receipts = module_receipts() if selection.scope == "modules" else all_receipts()
    return task_statistics(digested(selection.scope, _selected_rows(selection)), receipts)


# --- data build-sft ------------------------------------------------------------------------------


def build_sft(
    selection: TaskSelection,
    output: Path | None = None,
    *,
    judge: bool = True,
    workers: int | None = None,
    however_long: bool = True,
) -> SetManifest:
    """Pairs of the selected tasks into a folder: examples with their index, manifest, card.

    judge: first judge the kernels and faults that have no receipt; else they are left out.
    however_long: False: raises UsageError where that would take long.
    """
    path = built_receipts_path()
    folder = output or datasets_dir() / "sft"
    tasks = selected_tasks(selection.model_copy(update={"split": Split.TRAIN}))
    if selection.scope == "modules":
        known = module_receipts(path)
        jobs = kernel_jobs(without_receipts(tasks, by_task(known)))
    else:
        known = all_receipts(path)
        jobs = chain(kernel_jobs(tasks), pair_jobs(tasks))
    if judge:
        judge_jobs(jobs, path, workers, known=known, however_long=however_long)
        known |= load_receipts(path)
    report = BuildReport()
    store = ExampleStore.write(folder / EXAMPLES_NAME, sft_pairs(tasks, known, report))
    return _finish_set(store, selection.scope, report)


def build_archive_sft(
    source: str | Path,
    output: Path | None = None,
    *,
    allow_synthetic: bool = False,
    limit: int | None = None,
    workers: int | None = None,
) -> SetManifest:
    """Examples of the archive's kernels that our judge finds correct; what it finds otherwise is
    listed with its evidence in `disagreements.jsonl`."""
    folder = output or datasets_dir() / "archive"
    loader, told, report = SakanaDataLoader(source), str(source), BuildReport()
    try:
        next(loader.rows(), None)
    except CodingFrameworkError as e:
        if not allow_synthetic:
            raise
        log.warning("archive not read; synthesised examples instead", error=str(e))
        told = f"synthesis, for {source} could not be read"
        examples = training_examples(Role.GENERATOR, 1 << 20 if limit is None else limit)
    else:
        receipts_file = folder / "receipts.jsonl"
        judge_jobs(islice(loader.jobs(), limit), receipts_file, workers)
        print(f"{source}: {loader.report.summary()}", file=sys.stderr)
        receipts, right, lines = load_receipts(receipts_file), [], []
        for row, job, receipt in islice(loader.judged(receipts), limit):
            if receipt is not None and receipt.verdict.correct:
                right.append(job)
            elif receipt is not None:
                lines.append(f"{_disagreement(row, receipt.verdict)}\n")
        examples = archive_examples_of(right, receipts)
        write_atomic(folder / "disagreements.jsonl", "".join(lines))
    report.kept.update(f"tier {e.task.tier} {e.kind}" for e in examples)
    report.left_out.update(loader.report.skipped)
    store = ExampleStore.write(folder / EXAMPLES_NAME, examples)
    return _finish_set(store, told, report)


def _disagreement(row: ArchiveRow, verdict: Verdict) -> str:
    return json.dumps(
        {
            "op": row.op_name,
            "kernel": row.kernel_name,
            "status": verdict.status.value,
            "reason": verdict.reason,
            "evidence": [f"{c.rule}: {c.message}" for c in verdict.cheats],
        }
    )


def _finish_set(store: ExampleStore, source: str, report: BuildReport) -> SetManifest:
    manifest = SetManifest.of(store, source, report)
    folder = store.path.parent
    write_json_atomic(folder / "manifest.json", manifest.model_dump())
    write_atomic(folder / "card.md", dataset_card(store))
    return manifest


# --- data mixture --------------------------------------------------------------------------------


def build_mixture(
    wanted: MixtureOptions, output: Path | None, *, judge: bool, workers: int | None
) -> MixtureStatistics:
    """The mixture into a folder, with its statistics as manifest; of kernels as synthesised only
    the statistics where no folder is given. judge: first judge what has no receipt; else it is left
    out. Raises UsageError where a file of examples cannot be read."""
    mistakes = read_training_examples(wanted.mistakes) if wanted.mistakes is not None else []
    characters = MOST_CHARACTERS * wanted.answer_tokens // ANSWER_TOKENS["v3"]
    path, drafts = wanted.receipts or built_receipts_path(), mixture_drafts(wanted.total)
    spare = [*wider_drafts(wanted.wider), *spare_drafts(wanted.spare)]
    receipts = module_receipts(path)
    if judge and not wanted.unjudged:
        further = kernel_jobs(without_receipts(map(module_task, spare), by_task(receipts)))
        jobs = chain(mixture_jobs(drafts, receipts), further)
        judge_jobs(jobs, path, workers, backend=wanted.backend, known=receipts)
        receipts |= load_receipts(path)
    mixture = sft_mixture(
        receipts,
        unjudged=wanted.unjudged,
        total=wanted.total,
        drafts=drafts,
        spare=spare,
        other_sizes=wanted.other_sizes,
        speeds=level_speeds(receipts.values()),
        functions=UNVERIFIED if wanted.unjudged else all_receipts(),
        mistakes=mistakes,
        fits=lambda code: len(code) <= characters,
        seed=wanted.seed,
    )
    found = mixture.statistics()
    if wanted.unjudged and output is None:
        return found
    if not found.examples:
        raise UsageError(
            "no kernel of the mixture is judged correct here: leave out --only-judged, or judge "
            "them on a GPU (docs/modules.md)"
        )
    folder = output or datasets_dir() / "mixture"
    ExampleStore.write(folder / EXAMPLES_NAME, mixture.examples(wanted.seed))
    write_json_atomic(folder / "manifest.json", found.model_dump())
    return found


# --- data mistakes -------------------------------------------------------------------------------


def build_mistakes(
    conversations: Sequence[Path], output: Path, *, per_task: int, seed: int, scope: TaskScope
) -> SetManifest:
    """Repairs of the wrong kernels of stored conversations, into a file. Raises UsageError where
    none can be made."""
    report = BuildReport()
    examples = repairs_of_mistakes(
        stored_conversations(conversations, report),
        packaged_receipts() if scope == "starter" else all_receipts(),
        report,
        per_task=per_task,
        seed=seed,
        scope=scope,
        of_modules=module_receipts,
    )
    if not examples:
        why = ", ".join(f"{n} {reason}" for reason, n in report.left_out.most_common())
        raise UsageError(
            f"no wrong kernel of a training task in {report.conversations} conversations can be "
            f"learnt from ({why or 'all are correct'}): see --task-scope and `cuda-rl tasks build`"
        )
    return SetManifest.of(ExampleStore.write(output, examples), "conversations", report)


# --- data card, data audit -----------------------------------------------------------------------


def card(examples: Path | None = None) -> str:
    """The card of a built set; without one, of the starter examples that ship."""
    path = examples or datasets_dir() / "sft" / EXAMPLES_NAME
    if examples is None and not path.exists():
        shipped = [
            example
            for role in (Role.GENERATOR, Role.OPTIMIZER)
            for example in training_examples(role, 1 << 30)
        ]
        return dataset_card(shipped, "Starter examples")
    if path.is_dir():
        path = path / EXAMPLES_NAME
    return dataset_card(ExampleStore(path))


def audit(outside: Sequence[Path] = ()) -> AuditReport:
    """The split of the whole catalogue, and outside problems against its training side."""
    tasks = [task for path in outside for task in outside_tasks(path)]
    report = audit_split(receipts=all_receipts())
    return outside_overlap(report, tasks) if tasks else report


def outside_tasks(path: Path) -> list[Task]:
    """Problems of a .py file, a .jsonl file or a folder of .py files, read in processes of their
    own; those that are none are logged. Raises UsageError where there is nothing."""
    if not path.exists():
        raise UsageError(f"there is no {path}: give problem files (.py, .jsonl) or their folder")
    files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
    sources = [ProblemSource(path=str(file.absolute())) for file in files]
    if path.suffix == ".jsonl":
        sources = list(parsed_lines(path, _row_of_problem))
    tasks: list[Task] = []
    for source, found in zip(sources, load_problems(sources), strict=True):
        if isinstance(found, str):
            log.warning("problem left out", problem=source.name or source.path, why=found)
        else:
            tasks.append(found)
    return tasks


def _row_of_problem(line: str) -> ProblemSource:
    row = json.loads(line)
    return ProblemSource(name=row["name"], code=row["code"], level=row["level"])
