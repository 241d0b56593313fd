"""Everything that the judge is measured on, in one form: attacks, honest kernels, their origins."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from coding_framework.data.kernels import kernels_of
from coding_framework.data.sakana_loader import SakanaDataLoader
from coding_framework.data.synthesis import catalog
from coding_framework.types import Status, Task
from corpus import exclusions, judge_attacks, judge_honest
from corpus.exclusions import archive_exclusion
from corpus.records import Attack, Honest, Origin
from corpus.seen_attacks import SEEN_ATTACKS
from corpus.seen_hardware import SEEN_HARDWARE
from corpus.unseen_builds import UNSEEN_BUILDS
from corpus.unseen_cheats import UNSEEN_CHEATS
from corpus.unseen_elementwise import UNSEEN_ELEMENTWISE
from corpus.unseen_escapes import UNSEEN_ESCAPES
from corpus.unseen_layers import UNSEEN_LAYERS
from corpus.unseen_reductions import UNSEEN_REDUCTIONS

CORRECT = frozenset({Status.CORRECT})


@dataclass(frozen=True, slots=True)
class Case:
    """One source with what a right verdict is."""

    name: str
    task: Task
    code: str
    statuses: frozenset[Status]
    origin: Origin
    group: str
    """The known cheat or harm that an attack tries; the features of an honest kernel."""

    @property
    def honest(self) -> bool:
        return self.statuses == CORRECT

    @property
    def key(self) -> str:
        """Digest of what is judged: another text is another case."""
        text = "\0".join((self.name, self.task.model_dump_json(), self.code))
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:24]


UNSEEN_ATTACKS: tuple[Attack, ...] = (*UNSEEN_CHEATS, *UNSEEN_ESCAPES, *UNSEEN_BUILDS)
UNSEEN_HONEST: tuple[Honest, ...] = (*UNSEEN_ELEMENTWISE, *UNSEEN_REDUCTIONS, *UNSEEN_LAYERS)


def attacks() -> list[Case]:
    """All attacks; those that another hand wrote first."""
    written = (*UNSEEN_ATTACKS, *SEEN_ATTACKS, *SEEN_HARDWARE)
    cases = [Case(a.name, a.task, a.code, a.statuses, a.origin, a.covers) for a in written]
    cases += [
        Case(f"seen/{a.name}", a.task, a.code, a.statuses, "seen", "")
        for a in judge_attacks.ATTACKS
    ]
    return cases


def honest_kernels(pairs: int) -> list[Case]:
    """Written ones of both origins, then `pairs` synthesised ones of as many tasks."""
    cases = [
        Case(h.name, h.task, h.code, CORRECT, h.origin, " ".join(h.features))
        for h in UNSEEN_HONEST
        if h.name not in exclusions.HONEST
    ]
    cases += [
        Case(f"seen/{h.name}", h.task, h.code, CORRECT, "seen", "") for h in judge_honest.HONEST
    ]
    return cases + list(_synthesised(pairs))


def _synthesised(pairs: int) -> Iterator[Case]:
    """One kernel of each of `pairs` tasks spread over the catalogue, levels in turn."""
    programs = catalog.catalog()
    for i in range(pairs):
        task = catalog.build_task(programs[i * len(programs) // pairs])
        examples = kernels_of(task)
        example = examples[i % len(examples)]
        name = f"synthesis/{task.name}/{example.level}"
        yield Case(name, task, example.code, CORRECT, "seen", f"synthesised {task.family}")


def archive_kernels(path: Path) -> tuple[list[Case], dict[str, str]]:
    """Rows of an archive file that it calls correct, and those left out, each with the reason."""
    loader = SakanaDataLoader(path)
    cases, left_out = [], {}
    for row in loader.rows():
        task = loader.task(row) if row.correct else None
        name = f"archive/{row.op_name}/{row.kernel_name}"
        reason = archive_exclusion(name, row.code)
        if task is not None and reason is None:
            cases.append(Case(name, task, row.code, CORRECT, "unseen", "archive"))
        elif row.correct:
            left_out[name] = reason or "its module cannot be run"
    return cases, left_out
