"""Shows stored conversations turn by turn. Rewards may be recomputed; nothing is judged again.

A run is what any command of ours left: a folder of `solve`, of `eval`, of the quickstart or of RL,
or one of their files. Nothing in it is changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from coding_framework.errors import UsageError
from coding_framework.monitoring.text import one_line, visible
from coding_framework.store.conversations import episodes
from coding_framework.training.reward_functions.cuda_performance_reward import rescored
from coding_framework.types import ConversationTurn, CUDAConversationState

__all__ = ["episodes", "episodes_table", "find_episode", "rescored", "show_episode"]


def find_episode(run: Path, wanted: str) -> CUDAConversationState:
    """The conversation of that id, else of that unambiguous start of an id, else of that number
    (from 0). Raises UsageError with what there is."""
    states = list(episodes(run))
    exact = [s for s in states if s.conversation_id == wanted]
    if exact:
        return exact[-1]  # a repeated step's latest
    if wanted.isdigit() and int(wanted) < len(states):
        return states[int(wanted)]
    close = [s for s in states if s.conversation_id.startswith(wanted)]
    if len({s.conversation_id for s in close}) == 1:
        return close[-1]
    hint = f"{len(close)} start with it" if close else f"there are 0 to {len(states) - 1}"
    raise UsageError(f"no episode {wanted!r} in {run} ({hint}): `cuda-rl replay {run}` lists them")


def episodes_table(states: Iterable[CUDAConversationState]) -> Table:
    """One line an episode."""
    table = Table()
    for name in ("number", "episode", "task", "turns", "best", "ended by"):
        table.add_column(name, justify="right" if name in ("number", "turns") else "left")
    for number, state in enumerate(states):
        best = state.best_speedup
        shown = "-" if state.best_turn is None else "correct" if best is None else f"{best:.2f}x"
        cells = (state.conversation_id, state.task.name)
        table.add_row(
            str(number), *(Text(one_line(c)) for c in cells), str(len(state.turns)), shown,
            state.end_reason or "running",
        )  # fmt: skip
    return table


def show_episode(state: CUDAConversationState, console: Console, preset: str | None = None) -> None:
    """Every turn of a conversation: prompt's size, answer, verdict, reward part by part.

    preset: recomputes the rewards; the stored verdicts stand.
    """
    shown = rescored(state, preset) if preset is not None else state
    console.print(f"{one_line(state.conversation_id)}: task {one_line(state.task.name)}")
    for turn in shown.turns:
        console.print(_turn(turn))
    console.print(f"ended by: {state.end_reason or 'running'}")
    console.print(_course(state))


def _course(state: CUDAConversationState) -> str:
    """What was reached, missed and tried, over all turns."""
    speeds = " ".join("-" if s is None else f"{s:.2f}x" for s in state.performance_trajectory)
    tried = [" + ".join(together) for together in state.optimization_strategies_tried if together]
    failed = f"{len(state.failed_attempts)} of {len(state.turns)} turns failed"
    return f"speedup by turn: {speeds or '-'}; {failed}; tried: {', '.join(tried) or 'nothing'}"


def _turn(turn: ConversationTurn) -> Panel:
    parts: list[RenderableType] = [_facts(turn)]
    if turn.code is not None:
        parts.append(Syntax(visible(turn.code).rstrip(), "cuda", background_color="default"))
    if turn.reward is not None:
        parts.append(_reward(turn))
    title = f"turn {turn.index + 1}: {turn.role.value}"
    return Panel(Group(*parts), title=title, title_align="left")


def _facts(turn: ConversationTurn) -> Table:
    table = Table.grid(padding=(0, 2))
    verdict = turn.verdict
    if verdict is not None:
        speedup = f", {verdict.speedup:.2f}x" if verdict.speedup is not None else ""
        table.add_row(
            "verdict", Text(f"{verdict.status.value}{speedup}: {one_line(verdict.reason)}")
        )
    if turn.masked is not None:
        table.add_row("masked", Text(one_line(turn.masked)))
    table.add_row("answer", Text(one_line(turn.extraction.note)))
    if turn.generation.tokens:
        asked = f"{len(turn.generation.prompt_ids)} in, " if turn.generation.prompt_ids else ""
        tokens = f"{asked}{turn.generation.tokens} out"
        table.add_row("tokens", tokens)
    for note in turn.notes:
        table.add_row("note", Text(one_line(note)))
    for text in dict.fromkeys(_failed_probes(turn)):
        table.add_row("probe", Text(text))
    if turn.alternatives:
        table.add_row("candidates", f"{len(turn.alternatives) + 1}, the best of them is shown")
    return table


def _failed_probes(turn: ConversationTurn) -> Iterator[str]:
    for found in turn.probes:
        if found.passed is False:
            shapes = " ".join(str(list(s)) for s in found.probe.shapes)
            yield f"fails for {shapes} with {found.probe.values} values: {one_line(found.detail)}"


def _reward(turn: ConversationTurn) -> Table:
    assert turn.reward is not None
    title = f"reward {turn.reward.total:.4f} ({turn.reward.preset})"
    table = Table(title=title, title_justify="left")
    for name in ("part", "value", "of", "why"):
        table.add_column(name, justify="right" if name in ("value", "of") else "left")
    for part in turn.reward.parts:
        values = (f"{part.value:.4f}", f"{part.limit:g}")
        table.add_row(part.name, *values, Text(one_line(part.why)))
    return table
