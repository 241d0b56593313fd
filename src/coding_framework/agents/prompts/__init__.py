"""Prompts: versioned template files, one per role, and the rule that keeps them within a budget.

A prompt holds the task, and for the optimizer one earlier kernel with the judge's feedback: the
best correct one, else the last. It is built from a conversation's state in training, evaluation and
serving, and from a `TrainingExample` for SFT, by the same code, so SFT sees exactly what RL sees.

v1 is short, for the small models that are trained here. v2 is for larger ones as they come: the
contract with an example, facts of the device, all counters, a bounded history. v3 is short as well,
and says what a kernel is handed: the contract made from the reference (`contract`), the real
shapes, the device. triton asks for a KernelBench answer with kernels in Triton.

Guaranteed: nothing is cut silently. Over budget, the history goes first, oldest attempts ahead,
then the tester's findings, the note on a later failure, and last the old kernel (the prompt says
so); the verdict stays; a task that does not fit is an error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import get_args

import jinja2

from coding_framework.agents.devices import DEFAULT_DEVICE, device_line, device_of_example
from coding_framework.agents.feedback import (
    feedback,
    findings,
    naive_baseline,
    no_kernel,
    outcome,
)
from coding_framework.agents.prompts.contract import contract_of, without_test_code
from coding_framework.errors import UsageError
from coding_framework.task_shapes import free_sizes
from coding_framework.types import (
    ConversationTurn,
    CUDAConversationState,
    Message,
    ProbeValues,
    PromptVersion,
    Role,
    Task,
    TrainingExample,
    defines_model_new,
)

PROMPT_VERSION: PromptVersion = "v1"
"""Version of the prompts where neither a caller nor a model's card names one."""
TAUGHT_PROMPTS: PromptVersion = "v3"
"""Version that SFT teaches: it says what a kernel is handed. The model's card names it, and RL,
evaluation, `solve` and serving ask by it."""
PROMPT_VERSIONS: tuple[PromptVersion, ...] = get_args(PromptVersion)
ANSWER_TOKENS: dict[PromptVersion, int] = {
    "v1": 1024, "v2": 1024, "v3": 2048, "v4": 2048, "triton": 2048,
}  # fmt: skip
"""Most tokens of an answer, unless somebody says otherwise. A kernel of several stages has up to
1,300, and the reason stands before it."""
MAX_HISTORY = 4
"""Attempts that a v2 prompt tells of at most, the latest."""

_IMPORTS = re.compile(
    r"^(import torch|import torch\.nn as nn|import torch\.nn\.functional as F|from torch import nn)"
    r"[ \t]*\n",
    re.MULTILINE,
)
"""Imports that every reference has: they cost tokens and say nothing."""


@dataclass(frozen=True, slots=True)
class PromptBudget:
    """Most tokens that a prompt's messages may have, and how tokens are counted."""

    max_tokens: int
    count: Callable[[tuple[Message, ...]], int]
    """Tokens of the messages with the chat template applied."""


@dataclass(frozen=True, slots=True)
class _Earlier:
    """What an optimizer prompt starts from."""

    code: str | None
    correct: bool
    feedback: str
    later_failure: str = ""
    findings: str = ""
    history: tuple[str, ...] = ()


def build_messages(
    state: CUDAConversationState,
    role: Role,
    *,
    budget: PromptBudget | None = None,
    version: PromptVersion = PROMPT_VERSION,
    device: str = DEFAULT_DEVICE,
) -> tuple[Message, ...]:
    """The prompt of the next turn. An optimizer without an earlier kernel gets the generator's.

    device: the GPU that a v2 prompt tells of. Raises UsageError where even the task alone exceeds
    the budget.
    """
    earlier = _earlier(state, version) if role is Role.OPTIMIZER else None
    note = ""
    if earlier is None and state.turns and state.turns[-1].code is None:
        note = no_kernel(state.turns[-1].extraction.note)
    return _fitted(_Page(state.task, version, device), earlier, note, budget)


def shown_turn(state: CUDAConversationState) -> ConversationTurn | None:
    """The turn whose kernel an optimizer's prompt shows: the best correct one, else the last with
    code; None where no turn has code. A diff in the answer changes this kernel."""
    if state.best_turn is not None:
        return state.best_turn
    return next((t for t in reversed(state.turns) if t.code is not None), None)


def messages_for_tester(
    state: CUDAConversationState,
    *,
    count: int,
    budget: PromptBudget | None = None,
    device: str = DEFAULT_DEVICE,
) -> tuple[Message, ...]:
    """The prompt that asks for `count` probes of the last turn's kernel. Over budget the kernel is
    left out. Raises UsageError where even that does not fit."""
    turn, task = state.turns[-1], state.task
    sizes = free_sizes(task)
    said = {
        "status": turn.verdict.status.replace("_", " ") if turn.verdict else "impossible to judge",
        "sizes": ", ".join(f"{s.name} {s.low} to {s.high}" for s in sizes),
        "kinds": ", ".join(get_args(ProbeValues)),
        "count": count,
        "example": json.dumps(
            {"sizes": {s.name: s.low for s in sizes}, "values": "zeros", "why": "..."}
        ),
    }
    page = _Page(task, "v2", device)
    codes = (turn.code.strip() if turn.code is not None else None, None)
    variants = (partial(page.messages, "tester", code=code, **said) for code in codes)
    return fit(variants, budget, task.name)


def messages_for_example(
    example: TrainingExample, version: PromptVersion = PROMPT_VERSION
) -> tuple[Message, ...]:
    """The prompt that `example.code` answers."""
    page = _Page(example.task, version, device_of_example(example.id))
    if example.previous_code is None:
        return _fitted(page, None, "", None)
    verdict = example.previous_verdict
    earlier = _Earlier(
        code=example.previous_code,
        correct=verdict.correct if verdict is not None else example.kind == "optimize",
        feedback=feedback(verdict) if verdict is not None else naive_baseline(),
    )
    return _fitted(page, earlier, "", None)


def render_answer(example: TrainingExample) -> str:
    """The answer that SFT teaches: the reason where there is one, then one block."""
    reason = f"{example.why.strip()}\n" if example.why else ""
    language = "python" if defines_model_new(example.code) else "cuda"
    return f"{reason}```{language}\n{example.code.strip()}\n```"


def _earlier(state: CUDAConversationState, version: PromptVersion) -> _Earlier | None:
    shown = shown_turn(state)
    if shown is None:
        return None
    last = state.turns[-1]
    later = _turn_feedback(last, version) if last is not shown and not _correct(last) else ""
    return _Earlier(
        code=shown.code,
        correct=_correct(shown),
        feedback=_turn_feedback(shown, version),
        later_failure=later,
        findings=findings(shown.probes),
        history=_history(state) if version == "v2" else (),
    )


def _correct(turn: ConversationTurn) -> bool:
    return turn.verdict is not None and turn.verdict.correct


def _turn_feedback(turn: ConversationTurn, version: PromptVersion) -> str:
    if turn.code is None:
        return no_kernel(turn.extraction.note)
    if turn.verdict is None:
        return "It could not be judged."
    told = feedback(turn.verdict, code=turn.code, full=version == "v2")
    return " ".join((told, *turn.notes))


def _history(state: CUDAConversationState) -> tuple[str, ...]:
    """A line for each of the latest attempts: what came of it, and by which techniques."""
    lines = []
    for turn in state.turns[-MAX_HISTORY:]:
        verdict = turn.verdict
        came = outcome(verdict) if verdict is not None else "not judged"
        used = verdict.compile.techniques if verdict is not None and verdict.compile else ()
        by = f" ({', '.join(used)})" if used else ""
        lines.append(f"{turn.index + 1}. {came}{by}")
    return tuple(lines) if len(lines) > 1 else ()


@dataclass(frozen=True, slots=True)
class _Page:
    """What every variant of a prompt has in common."""

    task: Task
    version: PromptVersion
    device: str

    def messages(self, name: str, **values: object) -> tuple[Message, ...]:
        """The rendered template, below the system's message."""
        reference = _IMPORTS.sub("", self.task.reference).strip()
        if self.version not in ("v1", "v2"):
            reference = _IMPORTS.sub("", without_test_code(self.task.reference)).strip()
            values |= {"contract": contract_of(self.task)}
        values = {k: _tame(v) if isinstance(v, str) else v for k, v in values.items()}
        shown = values.get("previous", values.get("code"))
        fence = _fence(reference, shown if isinstance(shown, str) else "")
        facts = device_line(self.device) if self.version != "v1" else ""
        user = _template(name, self.version).render(
            inputs=_inputs(self.task), reference=reference, fence=fence, device=facts, **values
        )
        system = _template("system", self.version).render()
        return (
            Message(role="system", content=system.strip()),
            Message(role="user", content=user.strip()),
        )


def _fitted(
    page: _Page, earlier: _Earlier | None, note: str, budget: PromptBudget | None
) -> tuple[Message, ...]:
    """The fullest prompt within the budget."""
    variants: Iterator[Callable[[], tuple[Message, ...]]]
    if earlier is None:
        variants = (partial(page.messages, "generator", note=said) for said in (note, ""))
    else:
        variants = (partial(_optimizer, page, less) for less in _shorter(earlier))
    return fit(variants, budget, page.task.name)


def _shorter(earlier: _Earlier) -> Iterator[_Earlier]:
    """The content of a prompt, then with ever less of it, by the rule of this module."""
    yield earlier
    while earlier.history:
        yield (earlier := replace(earlier, history=earlier.history[1:]))
    yield (earlier := replace(earlier, findings=""))
    yield (earlier := replace(earlier, later_failure=""))
    yield replace(earlier, code=None)


def fit(
    variants: Iterator[Callable[[], tuple[Message, ...]]],
    budget: PromptBudget | None,
    task: str,
) -> tuple[Message, ...]:
    """The first of ever shorter prompts that the budget allows. Raises UsageError where none is."""
    tokens = 0
    for variant in variants:
        messages = variant()
        if budget is None:
            return messages
        tokens = budget.count(messages)
        if tokens <= budget.max_tokens:
            return messages
    raise UsageError(
        f"the prompt of task {task} has {tokens} tokens at its shortest and "
        f"{budget.max_tokens if budget else 0} are allowed: raise the prompt length"
    )


def _optimizer(page: _Page, earlier: _Earlier) -> tuple[Message, ...]:
    return page.messages(
        "optimizer",
        previous=earlier.code.strip() if earlier.code is not None else None,
        correct=earlier.correct,
        feedback=earlier.feedback,
        later=earlier.later_failure,
        findings=earlier.findings,
        history=earlier.history,
    )


def _inputs(task: Task) -> str:
    """The inputs of the shape set that agents see: `x float32[256, 512], b float32[512]`."""
    case = next((c for c in task.cases if c.shown), task.cases[0])
    arguments = [f"{t.name} {t.dtype}{list(t.shape)}" for t in case.inputs]
    init = case.init_args or task.init_args
    return ", ".join(arguments) + (f"; Model{init}" if init else "")


def _tame(text: str) -> str:
    """Text of a candidate's without the marks that chat templates are made of ("<|im_end|>"): no
    kernel needs them, and a tokenizer would take them for the template's own."""
    return text.replace("<|", "< |").replace("|>", "| >")


def _fence(*texts: str) -> str:
    """Backticks that no text can close."""
    longest = max((len(m) for t in texts for m in re.findall(r"`{3,}", t)), default=2)
    return "`" * (longest + 1)


@cache
def _template(name: str, version: PromptVersion) -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("coding_framework.agents", "prompts"),
        undefined=jinja2.StrictUndefined,
        autoescape=False,
        keep_trailing_newline=False,
    )
    return environment.get_template(f"{name}.{'v3' if version == 'v4' else version}.j2")
