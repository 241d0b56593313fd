"""Makes training examples that repair a model's own wrong kernels, from stored conversations.

    wrong kernel and its verdict -> the task's kernel that the judge found correct

`faults` puts one fault into a right kernel; what a model really writes is wrong in other ways.
Guaranteed: a task is one of the catalogues', of functions or of modules, on the training side
whatever the file says of it, and is the one that was judged, to its shapes; the answer has a
`correct` receipt; the verdict is the stored one, of this very code, by the whole judge. It may
differ from the wrong kernel in more than its mistake.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property
from pathlib import Path

from coding_framework.data.example_store import BuildReport
from coding_framework.data.examples import Receipts, in_turn, round_robin
from coding_framework.data.modules.tasks import find_module_task
from coding_framework.data.synthesis.catalog import (
    all_functions,
    build_task,
    catalog,
)
from coding_framework.data.synthesis.function import Function
from coding_framework.data.synthesis.receipts import (
    KernelReceipt,
    by_task,
    task_digest,
    with_naive,
)
from coding_framework.errors import UsageError
from coding_framework.store.conversations import read_conversations
from coding_framework.types import (
    Candidate,
    ConversationTurn,
    CUDAConversationState,
    Role,
    Split,
    Status,
    Task,
    TaskScope,
    TestResult,
    TrainingExample,
    Verdict,
)

PER_TASK = 8
"""Mistakes of one task at most: tasks that a model fails always would fill the set."""
_MAX_CHARS = 160
"""Of what others wrote (compiler, judge) in a reason."""
_NOT_SHOWN = (Status.CORRECT, Status.CHEATING, Status.UNSUPPORTED)


# --- conversations ------------------------------------------------------------------------------


def stored_conversations(
    files: Iterable[Path], report: BuildReport
) -> Iterator[CUDAConversationState]:
    """The conversations of JSON-lines files: rollouts of RL, or states as evaluations store them.

    A line that a kill cut off is counted and skipped. Raises UsageError where a file cannot be read
    or holds no conversation at all.
    """

    def skipped(number: int) -> None:
        report.left_out["line that is no conversation"] += 1

    for path in files:
        try:
            path.stat()  # a file that is missing is no empty one
            found = 0
            for state in read_conversations(path, skipped):
                found += 1
                yield state
        except OSError as e:
            raise UsageError(f"cannot read the conversations of {path}: {e.strerror}") from e
        if not found:
            raise UsageError(
                f"{path} holds no conversation: give JSON lines that RL or an evaluation stored, "
                "not compressed"
            )
        report.conversations += found


# --- repairs ------------------------------------------------------------------------------------


def repairs_of_mistakes(
    conversations: Iterable[CUDAConversationState],
    receipts: Receipts,
    report: BuildReport,
    *,
    per_task: int = PER_TASK,
    seed: int = 0,
    scope: TaskScope = "starter",
    of_modules: Callable[[], Receipts] = dict,
) -> list[TrainingExample]:
    """Repairs of the wrong kernels of training tasks, each (task, code) once, at most `per_task` a
    task: drawn by seed, of every status as evenly as there are. Any prefix is balanced over tasks.

    receipts: of the kernels of functions. of_modules: gives those of the kernels of modules, which
    take a second to read, where a conversation is about one.
    """
    functions = catalog() if scope == "starter" else all_functions()
    targets = _Targets(functions, receipts, of_modules)
    groups = []
    for name, wrong in sorted(_judged(conversations, targets, report).items()):
        target, drawn = targets.of(name), _drawn(name, wrong, seed)
        assert target is not None, "its kernels were looked at"
        report.left_out["more than wanted of a task"] += len(drawn[per_task:])
        for _, verdict in drawn[:per_task]:
            report.kept[f"tier {target.task.tier} {verdict.status.value}"] += 1
        groups.append([_repair(target, code, verdict) for code, verdict in drawn[:per_task]])
    report.left_out = +report.left_out
    return list(round_robin(groups))


@dataclass(frozen=True, slots=True)
class _Target:
    """A task, and its kernels that the judge found correct."""

    task: Task
    right: Sequence[KernelReceipt]

    def nearest(self, wrong: str) -> KernelReceipt:
        """The right kernel that is most like a wrong one, by the share of equal tokens: a repair
        changes what is wrong, and does not write another, slower kernel."""
        tokens = wrong.split()

        def likeness(right: KernelReceipt) -> float:
            return SequenceMatcher(None, right.code.split(), tokens, autojunk=False).ratio()

        return max(self.right, key=likeness)


class _Targets:
    """The tasks of both catalogues, each made when it is first asked for."""

    def __init__(
        self, functions: Iterable[Function], receipts: Receipts, of_modules: Callable[[], Receipts]
    ) -> None:
        self._functions = {f.name: f for f in functions}
        self._by_task = by_task(receipts)
        self._of_modules = of_modules
        self._made: dict[str, _Target] = {}

    @cached_property
    def _modules_by_task(self) -> Mapping[str, Sequence[KernelReceipt]]:
        return by_task(self._of_modules())

    def of(self, name: str) -> _Target | None:
        """None: no such task."""
        function = self._functions.get(name)
        task = build_task(function) if function is not None else find_module_task(name)
        if task is not None and name not in self._made:
            judged = self._by_task if function is not None else self._modules_by_task
            found = judged.get(task_digest(task), ())
            right = [r for r in found if r.verdict.correct and r.broken is None]
            self._made[name] = _Target(with_naive(task, right), right)
        return self._made.get(name)


def _unusable(task: Task, target: _Target | None) -> str:
    """Why nothing can be learnt from a conversation about this task; "" where it can."""
    if target is None:
        return "task not in the catalogue"
    if target.task.split is not Split.TRAIN:
        return "held-out task"
    if task_digest(task) != task_digest(target.task):
        return "task was another when it was judged"
    return "" if target.right else "task without a kernel judged correct"


def _judged(
    conversations: Iterable[CUDAConversationState], targets: _Targets, report: BuildReport
) -> dict[str, dict[str, Verdict]]:
    """The first verdict on each wrong kernel, by task and code. A kernel that was also found
    correct is left out: one of its verdicts is wrong."""
    wrong: dict[str, dict[str, Verdict]] = {}
    correct: set[tuple[str, str]] = set()
    for state in conversations:
        name, target = state.task.name, targets.of(state.task.name)
        unusable = _unusable(state.task, target)
        for turn in (one for all_of in state.turns for one in (all_of, *all_of.alternatives)):
            code, verdict = turn.code, turn.verdict
            if verdict is not None and verdict.correct and code is not None:
                correct.add((name, code))
                continue
            reason = unusable or (_why_not(turn, target) if target is not None else "")
            if reason:
                report.left_out[reason] += 1
            elif code is not None and verdict is not None:
                known = wrong.setdefault(name, {})
                report.left_out["kernel seen before"] += code in known
                known.setdefault(code, verdict)
    for name, code in correct:
        if wrong.get(name, {}).pop(code, None) is not None:
            report.left_out["found correct another time"] += 1
    return wrong


def _why_not(turn: ConversationTurn, target: _Target) -> str:
    """Why nothing can be learnt from a turn that is not correct; "" where it can."""
    code, verdict = turn.code, turn.verdict
    if turn.masked is not None or verdict is None:
        return "masked"
    if code is None:
        return "no kernel in the answer"
    if verdict.status in _NOT_SHOWN:
        return verdict.status.value
    if verdict.receipt.experiment_without:
        return "judged with checks switched off"
    if verdict.task != target.task.name or verdict.candidate_sha256 != Candidate(code=code).sha256:
        return "verdict of another kernel"
    right = any(code.strip() == r.code.strip() for r in target.right)
    return "the right kernel itself" if right else ""


def _drawn(name: str, wrong: Mapping[str, Verdict], seed: int) -> list[tuple[str, Verdict]]:
    """A task's mistakes in an order drawn by seed, one of each status in turn."""
    found = sorted(wrong.items())
    random.Random(f"{name}:{seed}").shuffle(found)
    return in_turn(found, lambda pair: pair[1].status)


def _repair(target: _Target, code: str, verdict: Verdict) -> TrainingExample:
    answer = target.nearest(code)
    return TrainingExample(
        id=f"repair/{target.task.name}/mistake/{Candidate(code=code).sha256[:8]}",
        task=target.task,
        role=Role.OPTIMIZER,
        kind="repair",
        code=answer.code,
        why=what_was_wrong(verdict),
        previous_code=code,
        previous_verdict=verdict,
        receipt=answer.verdict_digest,
    )


# --- the reason -----------------------------------------------------------------------------------

_ACCESS = re.compile(
    r"(?P<kind>illegal|misaligned) (?P<access>[a-z]+ (?:read|write|copy|atomic access)) of \d+ "
    r"bytes at \S+ by .* in kernel [^:]*?line (?P<line>\d+): (?P<detail>.*)"
)
_SHAPE = re.compile(r"shape (?P<got>\([\d, ]*\)), expected (?P<expected>\([\d, ]*\))")
_COUNT = re.compile(r"\((?P<wrong>\d+) of (?P<all>\d+) wrong\)")


def what_was_wrong(verdict: Verdict) -> str:
    """One sentence that the verdict bears out: what the answer says before the repaired kernel.
    All of it can be read in the feedback; nothing is guessed about the cause."""
    match verdict.status:
        case Status.COMPILE_ERROR:
            return _compiler_said(verdict)
        case Status.WRONG_OUTPUT | Status.NONDETERMINISTIC:
            return _tests_said(verdict)
        case Status.RUNTIME_ERROR:
            return _access(verdict.reason) or f"It failed when it ran: {_line(verdict.reason)}."
        case Status.TIMEOUT | Status.COMPILE_TIMEOUT:
            return f"It took too long: {_line(verdict.reason)}."
        case status:
            return f"It failed ({status.replace('_', ' ')}): {_line(verdict.reason)}."


def _compiler_said(verdict: Verdict) -> str:
    errors = verdict.compile.errors if verdict.compile is not None else ()
    first = next((e for e in errors if e.severity == "error"), None)
    if first is None:
        return f"It did not compile: {_line(verdict.reason)}."
    place = f"Line {first.line}" if first.line is not None else "It"
    return f"{place} did not compile: {_line(first.message)}."


def _tests_said(verdict: Verdict) -> str:
    failed = next((t for t in verdict.tests if not t.passed), None)
    if failed is None:
        return f"The output was wrong: {_line(verdict.reason)}."
    if verdict.status is Status.NONDETERMINISTIC:
        return f"The output for inputs of shape {_shapes(failed)} differed between two runs."
    if shape := _SHAPE.search(failed.detail):
        return f"The output had shape {shape['got']}, expected was {shape['expected']}."
    what = "The output was wrong"
    if count := _COUNT.search(failed.detail):
        every = count["wrong"] == count["all"]
        share = "Every element" if every else f"{count['wrong']} of {count['all']} elements"
        what = f"{share} of the output {'was' if every else 'were'} wrong"
    return f"{what} for inputs of shape {_shapes(failed)}."


def _shapes(test: TestResult) -> str:
    return ", ".join(str(list(shape)) for shape in test.shapes)


def _access(reason: str) -> str:
    """An illegal access without its address, which says nothing; "" where the fault is another."""
    found = _ACCESS.search(reason)
    if found is None:
        return ""
    what = f"The {found['access']} in line {found['line']}"
    if found["kind"] == "misaligned":
        return f"{what} was misaligned."
    for said, told in (
        (" past the end of ", "went past the end of an allocation"),
        (" before the ", "went outside every allocation"),
        ("a null pointer", "went through a null pointer"),
    ):
        if said in found["detail"]:
            return f"{what} {told}."
    return f"{what} was illegal: {_line(found['detail'])}."


def _line(text: str) -> str:
    """One line that can close no code fence and holds no mark of a chat template, bounded; without
    the stop at its end."""
    for mark, instead in (("```", "'''"), ("<|", "< |"), ("|>", "| >")):
        text = text.replace(mark, instead)
    one = " ".join(text.split())
    return (one if len(one) <= _MAX_CHARS else one[: _MAX_CHARS - 4] + " ...").rstrip(".")
