"""Says where data comes from, under which licence, and which data must never be trained on.

The list goes by name. It prevents a mistake; it does not prove a licence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from coding_framework.errors import UsageError
from coding_framework.types import TrainingExample

ARCHIVE, ARCHIVE_LICENCE = "SakanaAI/AI-CUDA-Engineer-Archive", "CC-BY-4.0"
"""The AI CUDA Engineer Archive, by its name on the hub."""
FORBIDDEN_SOURCES = {
    "compute-eval": "its terms reserve it for evaluation",
    "leetgpu-challenges": "its licence does not allow training",
    "kernelbot": "closed to training since June 2026",
    "reference-kernels": "closed to training since June 2026",
}
"""Sources whose licence or terms forbid training, and why."""


def require_trainable(source: str) -> None:
    """Raises UsageError where data of this name may not be trained on."""
    plain = source.lower().replace("_", "-")
    for name, why in FORBIDDEN_SOURCES.items():
        if name in plain:
            raise UsageError(f"{source} cannot become training data ({why}): use other data")


def dataset_card(examples: Iterable[TrainingExample], title: str = "Training examples") -> str:
    """A dataset card in Markdown: what the examples are, where they come from, what was judged."""
    found = list(examples)
    tasks = {e.task.name: e.task for e in found}
    unjudged = sum(not e.receipt for e in found)
    lines = [
        f"# {title}",
        "",
        f"{len(found)} examples of {len(tasks)} tasks; {len(found) - unjudged} carry a receipt of "
        f"the judge that found their kernel correct, {unjudged} do not.",
        "",
    ]
    lines += _table("Kind", Counter(e.kind for e in found))
    lines += _table("Family", Counter(e.task.family for e in found))
    lines += _table("Tier", Counter(str(e.task.tier) for e in found))
    lines += _table("Split", Counter(e.task.split.value for e in found))
    lines += _table("Source", Counter(f"{e.task.source} ({e.task.licence})" for e in found))
    return "\n".join(lines)


def _table(heading: str, counts: Counter[str]) -> list[str]:
    rows = [f"| {name} | {n} |" for name, n in sorted(counts.items())]
    return [f"| {heading} | Examples |", "| --- | ---: |", *rows, ""]
