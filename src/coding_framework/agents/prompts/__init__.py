"""Prompts: versioned template files, one per role, and the rule that keeps them within a budget.

A prompt holds the task, and for the optimizer one earlier kernel with the judge's feedback: the
best correct one, else the last. It is built from a conversation's state in training, evaluation and
serving, and from a `TrainingExample` for SFT, by the same code, so SFT sees exactly what RL sees.
Guaranteed: nothing is cut silently. Over budget, the note on a later failure goes first, then the
old kernel (the prompt says so); the verdict stays; a task that does not fit is an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

import jinja2

from coding_framework.agents.feedback import feedback, naive_baseline, no_kernel
from coding_framework.errors import UsageError
from coding_framework.types import (
    ConversationTurn,
    CUDAConversationState,
    Message,
    Role,
    Task,
    TrainingExample,
)

PROMPT_VERSION = "v1"
"""Version of the template files in use; recorded with a trained adapter."""

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
    """The kernel that an optimizer prompt starts from."""

    code: str
    correct: bool
    feedback: str
    later_failure: str = ""


def build_messages(
    state: CUDAConversationState, role: Role, *, budget: PromptBudget | None = None
) -> tuple[Message, ...]:
    """The prompt of the next turn. An optimizer without an earlier kernel gets the generator's.

    Raises UsageError where even the task alone exceeds the budget.
    """
    earlier = _earlier(state) if role is Role.OPTIMIZER else None
    note = ""
    if earlier is None and state.turns and state.turns[-1].code is None:
        note = no_kernel(state.turns[-1].extraction.note)
    return _fitted(state.task, earlier, note, budget)


def messages_for_example(example: TrainingExample) -> tuple[Message, ...]:
    """The prompt that `example.code` answers."""
    if example.previous_code is None:
        return _fitted(example.task, None, "", None)
    verdict = example.previous_verdict
    earlier = _Earlier(
        code=example.previous_code,
        correct=verdict.correct if verdict is not None else example.kind == "optimize",
        feedback=feedback(verdict) if verdict is not None else naive_baseline(),
    )
    return _fitted(example.task, earlier, "", None)


def render_answer(example: TrainingExample) -> str:
    """The answer that SFT teaches: the reason where there is one, then one block."""
    reason = f"{example.why.strip()}\n" if example.why else ""
    return f"{reason}```cuda\n{example.code.strip()}\n```"


def _earlier(state: CUDAConversationState) -> _Earlier | None:
    with_code = [t for t in state.turns if t.code is not None]
    if not with_code:
        return None
    shown = state.best_turn or with_code[-1]
    last = state.turns[-1]
    later = _turn_feedback(last) if last is not shown and not _correct(last) else ""
    return _Earlier(shown.code or "", _correct(shown), _turn_feedback(shown), later)


def _correct(turn: ConversationTurn) -> bool:
    return turn.verdict is not None and turn.verdict.correct


def _turn_feedback(turn: ConversationTurn) -> str:
    if turn.code is None:
        return no_kernel(turn.extraction.note)
    if turn.verdict is None:
        return "It could not be judged."
    return feedback(turn.verdict)


def _fitted(
    task: Task, earlier: _Earlier | None, note: str, budget: PromptBudget | None
) -> tuple[Message, ...]:
    """The fullest prompt within the budget."""
    variants: list[Callable[[], str]]
    if earlier is None:
        variants = [partial(_render, "generator", task, note=said) for said in (note, "")]
    else:
        whole, later = earlier.code, earlier.later_failure
        variants = [
            partial(_optimizer, task, earlier, previous=code, later=said)
            for code, said in ((whole, later), (whole, ""), (None, ""))
        ]
    tokens = 0
    for variant in variants:
        messages = (
            Message(role="system", content=_template("system").render().strip()),
            Message(role="user", content=variant()),
        )
        if budget is None:
            return messages
        tokens = budget.count(messages)
        if tokens <= budget.max_tokens:
            return messages
    raise UsageError(
        f"the prompt of task {task.name} has {tokens} tokens at its shortest and "
        f"{budget.max_tokens if budget else 0} are allowed: raise the prompt length"
    )


def _optimizer(task: Task, earlier: _Earlier, *, previous: str | None, later: str) -> str:
    return _render(
        "optimizer", task, previous=previous.strip() if previous is not None else None,
        correct=earlier.correct, feedback=earlier.feedback, later=later,
    )  # fmt: skip


def _render(name: str, task: Task, **values: object) -> str:
    reference = _IMPORTS.sub("", task.reference).strip()
    previous = values.get("previous")
    fence = _fence(reference, previous if isinstance(previous, str) else "")
    return (
        _template(name)
        .render(inputs=_inputs(task), reference=reference, fence=fence, **values)
        .strip()
    )


def _inputs(task: Task) -> str:
    """The inputs of the shape set that agents see: `x float32[256, 512], b float32[512]`."""
    case = next((c for c in task.cases if c.shown), task.cases[0])
    arguments = [f"{t.name} {t.dtype}{list(t.shape)}" for t in case.inputs]
    init = case.init_args or task.init_args
    return ", ".join(arguments) + (f"; Model{init}" if init else "")


def _fence(*texts: str) -> str:
    """Backticks that no text can close."""
    longest = max((len(m) for t in texts for m in re.findall(r"`{3,}", t)), default=2)
    return "`" * (longest + 1)


@cache
def _template(name: str) -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("coding_framework.agents", "prompts"),
        undefined=jinja2.StrictUndefined,
        autoescape=False,
        keep_trailing_newline=False,
    )
    return environment.get_template(f"{name}.{PROMPT_VERSION}.j2")
