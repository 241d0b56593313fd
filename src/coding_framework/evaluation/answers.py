"""Answers that exist already: kernels in files, which are judged without a model.

A folder of KernelBench (`level_1_problem_19_sample_0_kernel.py`), a folder of kernels by task
(`relu.cu`, `relu.3.cu` for its sample 3), JSON lines `{"task", "code"}` (or `"answer"`, a model's
text; `"sample"` where a task has several), or the folder of a finished evaluation, of which the
best kernel of each sample is taken.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from coding_framework.agents.extraction import extract_kernel
from coding_framework.errors import UsageError
from coding_framework.evaluation.suites import EvalSuite, SuiteTask
from coding_framework.store.conversations import read_conversations
from coding_framework.store.folder import EvalFolder
from coding_framework.store.lines import parsed_lines
from coding_framework.types import (
    AgentAnswer,
    CUDAConversationState,
    Extraction,
    Generation,
    Record,
)

MAX_FILE_BYTES = 1 << 20
"""What is read of a kernel's file: the judge rejects sources far shorter."""
_KERNELBENCH = re.compile(r"level_(\d+)_problem_(\d+)_sample_(\d+)_kernel\.py")
_KINDS = (".cu", ".py")


class GivenAnswer(Record):
    """One answer. It belongs to a task by name, or to a KernelBench problem by its numbers."""

    task: str = ""
    level: int | None = None
    number: int | None = None
    sample: int = 0
    code: str | None
    note: str

    def belongs_to(self, entry: SuiteTask) -> bool:
        if self.number is not None:
            return (self.level, self.number) == (entry.level, entry.number)
        return self.task == entry.task.name


class GivenAgent:
    """An agent that gives one answer, whatever it is asked."""

    def __init__(self, given: GivenAnswer) -> None:
        self._given = given

    async def answer(self, state: CUDAConversationState, *, sample: int = 0) -> AgentAnswer:
        given = self._given
        return AgentAnswer(
            messages=(),
            generation=Generation(text=given.code or ""),
            extraction=Extraction(code=given.code, note=given.note),
        )


def read_answers(path: Path) -> list[GivenAnswer]:
    """Raises UsageError where there is none, or a task has two of one number."""
    if path.is_dir() and EvalFolder(path).records.exists():
        found = [_of_state(state) for state in read_conversations(EvalFolder(path).conversations)]
    elif path.is_dir():
        found = list(_of_folder(path))
    elif path.is_file():
        found = list(_of_lines(path))
    else:
        raise UsageError(f"there are no answers {path}: give a folder of kernels or JSON lines")
    if not found:
        raise UsageError(
            f"{path} holds no answer: give KernelBench's level_L_problem_P_sample_S_kernel.py, "
            'TASK.cu, JSON lines {"task", "code"}, or the folder of a finished evaluation'
        )
    seen: set[tuple[object, ...]] = set()
    for given in found:
        key = (given.task, given.level, given.number, given.sample)
        if key in seen:
            name = given.task or f"problem {given.number} of level {given.level}"
            raise UsageError(f"{path}: sample {given.sample} of {name} is there twice: keep one")
        seen.add(key)
    return found


def answers_digest(answers: Iterable[GivenAnswer]) -> str:
    """Of all answers, whatever their order."""
    lines = sorted(answer.model_dump_json() for answer in answers)
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogatepass")).hexdigest()


def matched(
    suite: EvalSuite, answers: Sequence[GivenAnswer]
) -> list[tuple[SuiteTask, GivenAnswer]]:
    """Each answer with its task of the suite, in the order of samples and tasks. Raises UsageError
    where a task has two of one number, one by its name and one by KernelBench's number."""
    by_key: dict[object, list[GivenAnswer]] = {}
    for given in answers:
        key = given.task if given.number is None else (given.level, given.number)
        by_key.setdefault(key, []).append(given)
    pairs = [
        (entry, given)
        for entry in suite.tasks
        for key in {entry.task.name, (entry.level, entry.number)}
        for given in by_key.get(key, ())
        if given.belongs_to(entry)
    ]
    numbered = Counter((entry.task.name, given.sample) for entry, given in pairs)
    for (task, sample), count in numbered.items():
        if count > 1:
            raise UsageError(
                f"sample {sample} of {task} is there by its name and by its number: keep one"
            )
    return sorted(pairs, key=lambda pair: pair[1].sample)


def _of_state(state: CUDAConversationState) -> GivenAnswer:
    """The kernel of a sample: its best, else the last one."""
    last = next((turn for turn in reversed(state.turns) if turn.code is not None), None)
    turn = state.best_turn or last
    sample = state.conversation_id.rpartition("/")[2]
    code = turn.code if turn is not None else None
    return GivenAnswer(
        task=state.task.name,
        sample=int(sample) if sample.isdigit() else 0,
        code=code,
        note="of an earlier evaluation" if code is not None else "no code in any turn",
    )


def _of_folder(folder: Path) -> Iterator[GivenAnswer]:
    for path in sorted(p for p in folder.iterdir() if p.suffix in _KINDS and p.is_file()):
        found = _KERNELBENCH.fullmatch(path.name)
        code, note = _read(path), f"the file {path.name}"
        note += "" if code is not None else " is not UTF-8"
        if found:
            level, number, sample = map(int, found.groups())
            yield GivenAnswer(level=level, number=number, sample=sample, code=code, note=note)
        else:
            name, _, number_text = path.stem.rpartition(".")
            numbered = bool(name) and number_text.isascii() and number_text.isdigit()
            yield GivenAnswer(
                task=name if numbered else path.stem,
                sample=int(number_text) if numbered else 0,
                code=code,
                note=note,
            )


def _read(path: Path) -> str | None:
    """None where it is not UTF-8: records of samples hold no other text."""
    try:
        with path.open("rb") as file:
            return file.read(MAX_FILE_BYTES).decode()
    except UnicodeDecodeError:
        return None
    except OSError as e:
        raise UsageError(f"the answer {path} cannot be read ({e.strerror})") from e


def _of_lines(path: Path) -> Iterator[GivenAnswer]:
    def refuse(number: int) -> None:
        raise UsageError(
            f'{path}, line {number}: give an object with "task" and "code" (or "answer", the '
            "model's text)"
        )

    yield from parsed_lines(path, _of_line, refuse)


def _of_line(line: str) -> GivenAnswer:
    row: Mapping[str, Any] = json.loads(line)
    task, sample = row["task"], row.get("sample", 0)
    if not isinstance(task, str) or not isinstance(sample, int):
        raise TypeError("task is text, sample a number")
    if "code" in row:
        code = row["code"]
        return GivenAnswer(task=task, sample=sample, code=code, note="given as code")
    extraction = extract_kernel(row["answer"])
    return GivenAnswer(task=task, sample=sample, code=extraction.code, note=extraction.note)
