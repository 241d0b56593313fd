"""The conversation of `cuda-rl solve`: what is run, what is shown and what is left.

    task -> compiler -> judge -> optimizer -> judge ... -> best kernel, its verdict, the transcript

Where the compiler has no kernel for the task, or with `--from-scratch`, the generator begins.
Guaranteed: the same command goes on where it was stopped, without judging a kernel twice; what
it leaves is written whole or not at all. The kernel it leaves is the fastest correct one, the
compiler's where no agent found a faster one; where none is correct, the last one, and the end says
so.
"""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from rich.console import Console, Group
from rich.live import Live
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from coding_framework.agents.prompts import ANSWER_TOKENS, PromptBudget
from coding_framework.agents.tester import TesterAgent
from coding_framework.commands.options import SolveOptions
from coding_framework.data.kernels import kernels_of
from coding_framework.data.registry import find_task
from coding_framework.errors import InfrastructureError, UnreadableError, UsageError
from coding_framework.monitoring.progress import duration
from coding_framework.monitoring.text import one_line, visible
from coding_framework.orchestration.beam import confirmed
from coding_framework.orchestration.compiler import CompilerAgent
from coding_framework.orchestration.in_parts import (
    PARTS_AT_ONCE,
    Apart,
    Solved,
    solve_in_parts,
    take_apart,
)
from coding_framework.orchestration.turn import Agent, ConversationConfig, with_kernel
from coding_framework.orchestration.workflow import CUDAKernelWorkflow, WorkflowEvent
from coding_framework.paths import require_writable, write_atomic
from coding_framework.registry.keeping import KernelKeeper
from coding_framework.registry.receipts import SigningKey, load_key
from coding_framework.store.folder import SolveFolder, model_in
from coding_framework.store.model_card import answers_for, prompts_for
from coding_framework.training.agent_specializer import (
    AgentSpecializer,
    RoleSpec,
    SpecializationConfig,
)
from coding_framework.types import (
    ConversationTurn,
    CUDAConversationState,
    JudgeFn,
    KernelExample,
    Policy,
    PromptVersion,
    Role,
    SamplingParams,
    Task,
)
from coding_framework.wiring import JudgeSettings, make_judge

T = TypeVar("T")
Written = tuple[KernelExample, ...] | None
"""What the compiler wrote, the naive kernel first."""
PROMPT_TOKENS: dict[PromptVersion, int] = {
    "v1": 1024, "v2": 4096, "v3": 2048, "v4": 2560, "triton": 4096,
}  # fmt: skip
"""Most tokens of a prompt that shows no earlier kernel; a longer one is trimmed by rule."""


def solve(options: SolveOptions, console: Console | None = None) -> CUDAConversationState:
    """Run the conversation, show it, and leave kernel, verdict and transcript in the folder.

    Raises UsageError for a task, model or preset that does not exist and, with `--parts`, for a
    task that has none; PolicyError where the model fails.
    """
    task = find_task(options.task, options.inputs, options.init)
    folder = options.output_dir or Path("outputs") / "solve" / one_line(task.name)
    require_writable(folder)
    for adapter in filter(None, (options.adapter, options.optimizer_adapter)):
        if not (Path(adapter) / "adapter_config.json").is_file():
            raise UsageError(
                f"there is no adapter in {adapter}: give a folder with an adapter_config.json, "
                "such as sft_checkpoints/generator after a training"
            )
    key = None if options.into is None else load_key(options.keys, options.key)
    console = console or Console(soft_wrap=not sys.stdout.isatty())
    apart = take_apart(task) if options.parts else None
    with Screen(task, options, console) as screen:
        written = _written(task, options, screen)
        state, chosen = asyncio.run(_converse(task, apart, written, options, folder, screen))
    _leave(state, chosen, folder)
    _print_end(state, chosen, folder, console)
    if key is not None:
        _put(options, key, task, chosen, console)
    return state


async def _converse(
    task: Task, apart: Apart | None, written: Written, options: SolveOptions, folder: Path,
    screen: Screen,
) -> tuple[CUDAConversationState, ConversationTurn | None]:  # fmt: skip
    """The conversation, and the kernel that it leaves. written: the compiler's kernels."""
    specializer = AgentSpecializer(_specialization(options))
    settings = options.judge
    with contextlib.ExitStack() as stack:
        config = ConversationConfig(
            max_turns=min(16, options.turns + (written is not None and apart is None)),
            stop_reward=options.stop_reward,
            stop_without_gain=3,
        )
        screen.tell("starting the judge and loading the model")
        judge = make_judge(**settings.model_dump(), run_folder=folder)  # equal kernels once
        stack.callback(judge.close)
        policies = await _apart(lambda: specializer.policies(_loader(options, stack)))
        agents = specializer.agents(
            policies, _budget(policies[Role.GENERATOR], options), redraws=options.redraws,
            redraw_temperature=options.redraw_temperature,
        )  # fmt: skip
        tester = None
        if options.tester != "off":
            model = policies[Role.OPTIMIZER] if options.tester == "model" else None
            tester = TesterAgent(judge.probe, model)
        speakers: dict[Role, Agent] = {**agents}
        compiler = CompilerAgent(written, judge) if written is not None else None
        if compiler is not None and apart is None:
            speakers[Role.COMPILER] = compiler
        workflow = CUDAKernelWorkflow(
            speakers, judge, specializer.reward, config, tester=tester,
            candidates=options.candidates, beam=options.beam,
            checkpoint=SolveFolder(folder).workflow,
        )  # fmt: skip
        async with workflow:
            if apart is not None:
                whole = await _in_parts(apart, options, workflow, judge, folder, screen)
                if compiler is not None:
                    whole = await with_kernel(whole, compiler, judge)
                return whole, _chosen(whole)
            state = await _shown(workflow, task, options.conversation_id, screen.show)
        if options.candidates == 1 or state.best_turn is None:
            return state, _chosen(state)
        screen.tell("judging the fastest kernels again")
        return state, await _confirmed(state, options.judge)


def _written(task: Task, options: SolveOptions, screen: Screen) -> Written:
    """The compiler's kernels; None where it has none, and why is said."""
    if options.from_scratch:
        return None
    screen.tell("the compiler writes the first kernel")
    try:
        return kernels_of(task)
    except UnreadableError as e:
        screen.tell(f"the generator begins: {one_line(str(e), 300)}")
        return None


async def _shown(
    workflow: CUDAKernelWorkflow, task: Task, conversation_id: str,
    show: Callable[[WorkflowEvent], None],
) -> CUDAConversationState:  # fmt: skip
    """`workflow.run`, event by event."""
    state = None
    async for event in workflow.stream(task, conversation_id=conversation_id):
        show(event)
        state = event.state or state
    assert state is not None, "a stream ends with the conversation"
    return state


async def _in_parts(
    apart: Apart, options: SolveOptions, workflow: CUDAKernelWorkflow, judge: JudgeFn, folder: Path,
    screen: Screen,
) -> CUDAConversationState:  # fmt: skip
    """The conversation that has the joined kernel; each part's kernel is a file of its own."""
    parts = ", ".join(part.task.description for part in apart.parts)
    screen.tell(f"parts: {parts}")

    async def converse(part: Task, name: str) -> CUDAConversationState:
        show = partial(screen.show_part, part)
        return await _shown(workflow, part, f"{options.conversation_id}-{name}", show)

    def told(solved: Solved) -> None:
        part, kernel = solved.part, solved.kernel
        name = f"part {solved.number} of {solved.of} ({part.task.description})"
        if kernel is None:
            screen.tell(f"{name}: no kernel is right")
            return
        write_atomic(SolveFolder(folder).part(part.key), kernel.code or "")
        speedup = kernel.verdict.speedup if kernel.verdict is not None else None
        screen.tell(f"{name}: correct" + ("" if speedup is None else f", {speedup:.2f}x"))

    state = await solve_in_parts(apart, converse, judge, told, options.conversation_id)
    for turn in state.turns:
        screen.show(WorkflowEvent(kind="turn", index=0, role=turn.role, turn=turn))
    return state


async def _confirmed(
    state: CUDAConversationState, settings: JudgeSettings
) -> ConversationTurn | None:
    """The fastest correct kernel that another judge, with other inputs, finds correct too; None
    where it finds none. Raises InfrastructureError where that judge fails on all of them."""
    seed = None if settings.seed is None else settings.seed + 1
    judge = make_judge(**{**settings.model_dump(), "seed": seed})
    try:
        again = await confirmed(state, judge)
    finally:
        judge.close()
    fastest = again.fastest
    if fastest is None and again.lost:
        raise InfrastructureError(
            f"no correct kernel could be judged again ({again.lost[0]}): the same command goes on "
            "from what was found"
        )
    return fastest


async def _apart(work: Callable[[], T]) -> T:
    """What `work` gives, from a thread that Ctrl-C does not wait for: weights take long to load."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(cast(T, result))

    def run() -> None:
        result, error = None, None
        try:
            result = work()
        except BaseException as e:
            error = e
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=run, daemon=True).start()
    return await done


def _specialization(options: SolveOptions) -> SpecializationConfig:
    sampling = SamplingParams(
        max_new_tokens=answer_tokens(options),
        temperature=options.temperature,
        seed=options.seed,
    )
    own = options.optimizer_adapter or options.adapter
    adapters = {Role.GENERATOR: options.adapter, Role.OPTIMIZER: own}
    return SpecializationConfig(
        shared_policy=own == options.adapter,
        reward_preset=options.reward,
        prompts=prompts_of(options),
        roles={role: RoleSpec(sampling=sampling, adapter=a) for role, a in adapters.items()},
    )


def prompts_of(options: SolveOptions) -> PromptVersion:
    """Those that were asked for, else those that the weights were trained on."""
    folder = _weights(options)
    return options.prompts or prompts_for(folder, is_adapter=bool(options.adapter))


def answer_tokens(options: SolveOptions) -> int:
    """Most tokens of an answer: those that were asked for, else as the weights learnt, else what
    fits the prompts."""
    learnt = answers_for(_weights(options))
    return options.max_new_tokens or learnt or ANSWER_TOKENS[prompts_of(options)]


def prompt_tokens(options: SolveOptions) -> int:
    """Most tokens of a prompt: a task's, and the kernel of the turn before."""
    return PROMPT_TOKENS[prompts_of(options)] + answer_tokens(options)


def _weights(options: SolveOptions) -> Path | None:
    """The folder that a card may lie in."""
    if options.adapter is not None:
        return Path(options.adapter)
    return model_in(Path(options.model)) if options.server is None else None


def _loader(options: SolveOptions, stack: contextlib.ExitStack) -> Any:
    """adapter -> policy; what it loads is closed with `stack`."""
    from coding_framework.agents.policies import OpenAIPolicy, TransformersPolicy

    def load(adapter: str | None) -> Policy:
        if options.server is not None:
            return OpenAIPolicy(options.server, options.model)
        from coding_framework.agents.models import resolve_model

        context = prompt_tokens(options) + answer_tokens(options)
        policy = TransformersPolicy(
            resolve_model(options.model), adapter=adapter, max_context=context,
            max_batch=options.candidates * (PARTS_AT_ONCE if options.parts else 1),
        )  # fmt: skip
        stack.callback(policy.close)
        return policy

    return load


def _budget(policy: Policy, options: SolveOptions) -> PromptBudget:
    from coding_framework.agents.policies import prompt_limit, token_counter

    limit = prompt_limit(policy, prompt_tokens(options), answer_tokens(options))
    return PromptBudget(limit, token_counter(policy))


# --- the terminal ---------------------------------------------------------------------------------


class Screen:
    """The conversation while it runs: a table that grows on a terminal, else a line an event."""

    def __init__(self, task: Task, options: SolveOptions, console: Console) -> None:
        self._console = console
        self._title = f"{one_line(task.name)}: {one_line(options.model)}"
        self._turns: list[ConversationTurn] = []
        self._candidates = options.candidates
        self._most = options.turns
        self._doing = ""
        self._judged: Counter[str] = Counter()
        """Candidates of this turn, by the task."""
        self._since = self._start = time.monotonic()
        self._live = Live(
            console=console, get_renderable=self._drawn, refresh_per_second=4, transient=True
        )

    def __enter__(self) -> Screen:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._console.is_terminal:
            self._live.stop()
            self._console.print(self._table())

    def tell(self, doing: str) -> None:
        """What happens now."""
        self._doing, self._since = doing, time.monotonic()
        if not self._console.is_terminal:
            self._console.print(doing, highlight=False)

    def show(self, event: WorkflowEvent) -> None:
        """One event of the workflow."""
        if event.kind == "turn" and event.turn is not None:
            self._turns.append(event.turn)
        if doing := self._told(event, ""):
            self.tell(doing)

    def show_part(self, part: Task, event: WorkflowEvent) -> None:
        """One of the conversation about a part."""
        if doing := self._told(event, part.name):
            self.tell(f"{one_line(part.description)}: {doing}")

    def _told(self, event: WorkflowEvent, task: str) -> str:
        """What it says; "" where that is nothing new."""
        turn = f"turn {event.index + 1}"
        match event.kind:
            case "asking" if event.sample == 0:
                self._judged[task] = 0
                return f"{turn}: the {event.role.value} writes"
            case "answered" if event.sample == self._candidates - 1:
                return f"{turn}: judging"
            case "judged" if self._candidates > 1:
                self._judged[task] += 1
                return f"{turn}: {self._judged[task]} of {self._candidates} candidates judged"
            case "turn" if event.turn is not None:
                return f"{turn}: {_short(event.turn)}"
        return ""

    def _drawn(self) -> Group:
        now = time.monotonic()
        taken = now - self._start
        left = ""
        if self._turns:
            most = taken / len(self._turns) * (self._most - len(self._turns))
            left = f", at most about {duration(most)} left"
        status = f"{self._doing} ({duration(now - self._since)}; {duration(taken)} in all{left})"
        return Group(self._table(), Text(status))

    def _table(self) -> Table:
        table = Table(title=self._title, title_justify="left")
        for name in ("turn", "by", "verdict", "speedup", "reward", "note"):
            table.add_column(name, justify="right" if name in ("speedup", "reward") else "left")
        for turn in self._turns:
            verdict, reward = turn.verdict, turn.reward
            speedup = verdict.speedup if verdict is not None else None
            table.add_row(
                str(turn.index + 1),
                turn.role.value,
                verdict.status.value if verdict is not None else "masked",
                "-" if speedup is None else f"{speedup:.2f}x",
                "-" if reward is None else f"{reward.total:.3f}",
                Text(one_line(_note(turn), 90)),
            )
        return table


def _short(turn: ConversationTurn) -> str:
    verdict = turn.verdict
    if verdict is None:
        return f"masked ({one_line(turn.masked or '')})"
    speedup = f", {verdict.speedup:.2f}x" if verdict.speedup is not None else ""
    return f"{verdict.status.value}{speedup}: {one_line(_note(turn), 160)}"


def _note(turn: ConversationTurn) -> str:
    broken = [p for p in turn.probes if p.passed is False]
    told = [*turn.notes] + ([f"{len(broken)} probes failed"] if broken else [])
    if turn.redrawn_tokens:
        told.append(f"repeats drawn again: {turn.redrawn_tokens} tokens")
    verdict = turn.verdict
    if verdict is not None and not verdict.correct:
        told.insert(0, verdict.reason)
    if turn.generation.finish_reason == "length":
        count = turn.generation.tokens  # 0 where a server tells none
        most = f"{count} tokens" if count else "the most tokens"
        told.insert(0, f"cut at {most}: raise --max-new-tokens")
    return "; ".join(each.removesuffix(".") for each in told) or turn.extraction.note


# --- the end --------------------------------------------------------------------------------------


def _leave(state: CUDAConversationState, chosen: ConversationTurn | None, folder: Path) -> None:
    """Write the transcript, and the kernel with its verdict where there is one."""
    left = SolveFolder(folder)
    write_atomic(left.transcript, state.model_dump_json(indent=1) + "\n")
    for file in (left.kernel, left.verdict):
        file.unlink(missing_ok=True)  # of an earlier conversation in this folder
    if chosen is not None:
        write_atomic(left.kernel, chosen.code or "")
        if chosen.verdict is not None:
            write_atomic(left.verdict, chosen.verdict.model_dump_json(indent=1) + "\n")


def _put(
    options: SolveOptions,
    key: SigningKey,
    task: Task,
    chosen: ConversationTurn | None,
    console: Console,
) -> None:
    """Put a correct kernel into the registry."""
    verdict = chosen.verdict if chosen is not None else None
    if options.into is None or chosen is None or verdict is None or not verdict.correct:
        return
    console.print("making launch templates", highlight=False)
    judge = make_judge(**options.judge.model_dump())
    try:
        keeper = KernelKeeper(options.into, options.keys, key, judge.templates)
        kept = asyncio.run(keeper.keep(task, chosen.code or "", verdict))
    finally:
        judge.close()
    said = "is in it already" if kept is None else f"{len(kept.templates)} launch templates"
    console.print(Text(f"{options.into}: {one_line(task.name)}, {said}"), soft_wrap=True)
    for refusal in kept.refusals if kept is not None else ():
        console.print(Text(f"no template for {refusal.shape_key}: {refusal.reason}"))


def _chosen(state: CUDAConversationState) -> ConversationTurn | None:
    """The best correct turn, else the last with code."""
    return state.best_turn or next((t for t in reversed(state.turns) if t.code is not None), None)


def _print_end(
    state: CUDAConversationState, chosen: ConversationTurn | None, folder: Path, console: Console
) -> None:
    first = next((t for t in state.turns if t.code is not None), None)
    if chosen is not None and first is not None and chosen is not first:
        diff = difflib.unified_diff(
            visible(first.code or "").splitlines(),
            visible(chosen.code or "").splitlines(),
            f"turn {first.index + 1}", f"turn {chosen.index + 1}", lineterm="",
        )  # fmt: skip
        console.print(Syntax("\n".join(diff), "diff", background_color="default"))
    elif chosen is not None:
        console.print(Syntax(visible(chosen.code or ""), "cuda", background_color="default"))
    console.print(Text(_verdict_line(state, chosen)))
    left = SolveFolder(folder)
    files = [left.transcript] if chosen is None else [left.kernel, left.verdict, left.transcript]
    names = ", ".join(file.name for file in files)
    console.print(Text(f"{names} in {folder}"), soft_wrap=True)


def _verdict_line(state: CUDAConversationState, chosen: ConversationTurn | None) -> str:
    ended = f"ended by {state.end_reason} after {len(state.turns)} turns"
    if chosen is None and state.best_turn is not None:
        return f"no kernel that was correct is so on other inputs: none is kept; {ended}"
    if chosen is None and not state.turns:
        return f"there is no kernel of the whole: {state.end_reason}"
    if chosen is None:
        return f"no kernel was written; {ended}"
    verdict = chosen.verdict
    if verdict is None or not verdict.correct:
        return f"no kernel is correct; the last one is kept; {ended}"
    timing = verdict.timing
    if verdict.speedup is None or timing is None:
        return f"correct in turn {chosen.index + 1}; {ended}"
    first = next((t for t in state.turns if t.role is Role.COMPILER and t is not chosen), None)
    if chosen.role is Role.COMPILER:
        ended = f"the compiler's own kernel: no agent found a faster one; {ended}"
    elif first is not None and first.verdict is not None and first.verdict.speedup is not None:
        ended = f"the compiler's has {first.verdict.speedup:.2f}x; {ended}"
    over = "PyTorch eager" if timing.speedup is not None else "the naive kernel"
    how = "modelled" if timing.modelled else "measured"
    return (
        f"correct, {verdict.speedup:.2f}x over {over} ({how}) in turn {chosen.index + 1}; {ended}"
    )
