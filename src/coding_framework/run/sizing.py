"""How large a run fits into so many minutes on this machine.

    Rates (measured) x Sizes (a rung of the ladder) -> seconds of each stage

The rates are measured in the run's first stage; the tokens of a prompt and an answer are facts of
our tasks, not of a machine. `fitting` takes the largest rung that fits. The forecast is corrected
by what the finished stages took.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pydantic import Field

from coding_framework.types import Record

PROMPT_TOKENS, ANSWER_TOKENS = 330, 240
"""Of a first turn: means over the starter tasks with the prompts that tell the contract."""
GENERATOR_EXAMPLE, OPTIMIZER_EXAMPLE, EASY_EXAMPLE = 400, 800, 360
"""Mean tokens of SFT's examples, prompt and answer; EASY: of elementwise tasks."""
HALF_COST = 0.7
"""Of SFT that adapts the last half of the layers, to SFT that adapts all: the backward pass ends
there. Measured in CPU seconds a token, with loading and looking at held-out examples."""
HALF_RATE = 1.5e-3
"""Learning rate of the half."""
TURN_TOKENS = (370, 700)
"""Of a turn after SFT, prompt and answer; later turns are like the second."""
BASE_VERDICT = 0.1
"""Of a base model's answer, which does not compile, to one of a kernel that is run."""
UPDATE_COST = 1.5
"""RL's update of all weights in trained tokens of SFT, whose adapter has no gradients of the
base."""
LEARNT = 0.6
"""Of the practised tasks: those with a right answer, one of which is learnt. A second one would
keep the model in doubt between the two."""
PRACTICE_EPOCHS, PRACTICE_RATE = 4, 2e-4
"""In which it learns them, and how fast (`practice.json`): at 5e-4 three epochs leave an answer's
probability at 40%, and these at 90% or more."""
TEACHING = 0.55
"""Of a step's rows: those whose group has unequal returns. The others are left out of the
update."""
RAY_STARTS = 12
"""Loading a model, in whose time Ray and verl start: it is mostly imports, in several processes."""
STEP_STARTS = 1.7
"""Likewise of a checkpoint and of handing the new weights to the rollouts."""
SHARE = 0.92
"""Of the budget that is planned; the rest is for what no forecast knows."""
SERVED_AT_ONCE = 48


class Rates(Record):
    """What this machine does, as it was measured at the start of the run."""

    start_s: float = Field(gt=0.0)
    """A process that imports torch and loads the model, not the first one to do so."""
    train_tokens_s: float = Field(gt=0.0)
    """Tokens of SFT, forward and backward."""
    prefill_tokens_s: float = Field(gt=0.0)
    """Tokens of prompts that are read."""
    step_s: float = Field(ge=0.0)
    """One more token of each answer that is being written, however many they are."""
    answer_step_s: float = Field(ge=0.0)
    """What each of these answers adds to it."""
    verdict_s: float = Field(gt=0.0)
    """Seconds from one verdict to the next, all judges at work."""
    dtype: str = "float32"
    """The faster one whose answers are right."""
    others: float = Field(default=0.0, ge=0.0, le=1.0)
    """Share of the processors that other processes took meanwhile."""


class Sizes(Record):
    """The counts that are fitted to a budget."""

    held_out_tasks: int
    sft_examples: int
    optimizer_examples: int
    rl_steps: int
    prompts_per_step: int
    samples_per_prompt: int
    rl_turns: int
    probe_tasks: int
    """Training tasks that are tried after SFT: RL takes those that are solved now and then, and
    rejection fine-tuning learns their right answers and tries them again."""
    probe_samples: int = 4
    eval_turns: int = 2
    task_max_ops: int = 3
    task_max_tier: int | None = None
    answer_tokens: int = 448
    """Where a generator's answer is cut."""
    lora_layers: int | None = None
    """How many of the model's last layers SFT adapts; None: all."""
    fresh_rl_tasks: bool = False
    """Whether RL leaves out the tasks of SFT's examples: their answers are known by heart, and
    samples that are equal teach nothing."""

    def told(self) -> str:
        """In words."""
        conversations = self.prompts_per_step * self.samples_per_prompt
        return (
            f"{tasks_in_words(self.task_max_ops, self.task_max_tier)}, "
            f"{'one turn' if self.eval_turns == 1 else f'{self.eval_turns} turns'}, "
            f"SFT on {self.sft_examples + self.optimizer_examples} examples, practice on "
            f"{self.probe_tasks} training tasks, {self.rl_steps} RL steps of {conversations} "
            f"conversations, each evaluation on {self.held_out_tasks} of them"
        )


def tasks_in_words(max_ops: int | None, max_tier: int | None) -> str:
    """What kind of tasks is learnt and tried."""
    kind = {None: "tasks", 0: "elementwise tasks"}.get(max_tier, f"tasks up to tier {max_tier}")
    return kind if max_ops is None else f"{kind} of at most {max_ops} operations"


def _sizes(*counts: int) -> Sizes:
    names = list(Sizes.model_fields)
    return Sizes.model_validate(dict(zip(names, counts, strict=False)))


def _easy(
    held_out: int, examples: int, steps: int, prompts: int, samples: int, probe: int
) -> Sizes:
    """Elementwise tasks of at most two operations, whose answers are the shortest, in one turn:
    there are 205 to learn from, of which RL takes others than SFT, and 33 held-out ones."""
    counts = _sizes(held_out, examples, 0, steps, prompts, samples, 1, probe, 3, 1)
    return counts.model_copy(
        update={
            "task_max_ops": 2,
            "task_max_tier": 0,
            "answer_tokens": 320,
            "lora_layers": 15,
            "fresh_rl_tasks": True,
        }
    )


LADDER = (
    _easy(30, 110, 4, 3, 3, 10),
    _easy(30, 120, 5, 3, 4, 16),
    _easy(33, 140, 6, 3, 4, 20),
    _easy(33, 160, 8, 3, 4, 24),
    _easy(33, 170, 10, 4, 4, 28),
    _sizes(40, 260, 40, 4, 3, 3, 2, 12),
    _sizes(40, 300, 50, 5, 3, 4, 2, 16),
    _sizes(50, 380, 60, 8, 4, 4, 2, 20),
    _sizes(60, 440, 80, 12, 4, 4, 2, 24),
    _sizes(80, 600, 100, 16, 4, 6, 2, 32),
    _sizes(100, 900, 150, 24, 4, 8, 2, 48),
)
"""Smallest first. The first is the least that shows learning (SFT's interval above the base
model's, four RL steps). After 110 examples of elementwise tasks 9 of 30 held-out ones were
solved in one greedy turn; 140 of all kinds gave 4 of 30 of all kinds. Three groups a step at least:
a step learns from no fewer than two, and now and then one has equal rewards."""


def forecast(sizes: Sizes, rates: Rates) -> dict[str, float]:
    """Seconds of each stage."""
    conversations = sizes.prompts_per_step * sizes.samples_per_prompt
    rows = conversations * sum(_turn_tokens(sizes.rl_turns)) * TEACHING
    step = turns_s(conversations, sizes.rl_turns, rates, sizes)
    step += rows * UPDATE_COST / rates.train_tokens_s
    example = GENERATOR_EXAMPLE if sizes.task_max_tier is None else EASY_EXAMPLE
    trained: float = sizes.sft_examples * example + sizes.optimizer_examples * OPTIMIZER_EXAMPLE
    if sizes.lora_layers is not None:
        trained *= HALF_COST
    base = answers_s(sizes.held_out_tasks, rates, sizes, PROMPT_TOKENS, BASE_VERDICT)
    evaluation = rates.start_s + turns_s(sizes.held_out_tasks, sizes.eval_turns, rates, sizes)
    samples = sizes.probe_tasks * sizes.probe_samples
    probe = rates.start_s + turns_s(samples, 1, rates, sizes)
    practice = PRACTICE_EPOCHS * LEARNT * sizes.probe_tasks * example / rates.train_tokens_s
    return {
        "eval_base": rates.start_s + base,
        "sft": 2 * rates.start_s + trained / rates.train_tokens_s,
        "eval_sft": evaluation,
        "rft": probe + 2 * rates.start_s + practice,
        "practice": probe,
        "rl": RAY_STARTS * rates.start_s + sizes.rl_steps * (STEP_STARTS * rates.start_s + step),
        "eval_rl": evaluation,
    }


def _turn_tokens(turns: int) -> list[int]:
    return [TURN_TOKENS[min(turn, 1)] for turn in range(turns)]


def turns_s(count: int, turns: int, rates: Rates, sizes: Sizes) -> float:
    """Seconds of so many conversations of a model that SFT has taught."""
    prompts = (tokens - ANSWER_TOKENS for tokens in _turn_tokens(turns))
    return math.fsum(answers_s(count, rates, sizes, tokens) for tokens in prompts)


def answers_s(
    count: int, rates: Rates, sizes: Sizes, prompt_tokens: int, verdict: float = 1.0
) -> float:
    """Seconds of one turn of so many conversations, with their verdicts. verdict: the cost of one,
    in those that were measured."""
    rounds = math.ceil(count / SERVED_AT_ONCE)
    writing = (
        rates.step_s * sizes.answer_tokens * rounds + rates.answer_step_s * count * ANSWER_TOKENS
    )
    each = prompt_tokens / rates.prefill_tokens_s + verdict * rates.verdict_s
    return writing + count * each


def fitting(budget_s: float, rates: Rates) -> Sizes:
    """The largest rung that fits; the smallest where none does."""
    fits = [s for s in LADDER if sum(forecast(s, rates).values()) <= SHARE * budget_s]
    return fits[-1] if fits else LADDER[0]


def left_s(planned: Mapping[str, float], took: Mapping[str, float]) -> float:
    """Seconds that the stages without a time in `took` still need: as planned, times what the
    finished ones took against their plan."""
    done = [name for name in planned if name in took]
    before = math.fsum(planned[name] for name in done)
    ratio = math.fsum(took[name] for name in done) / before if before > 0 else 1.0
    return ratio * math.fsum(s for name, s in planned.items() if name not in took)


def sized(sizes: Sizes, rates: Rates, recipe: Mapping[str, Any]) -> dict[str, Any]:
    """What the sizes change in a `Recipe`, whose other settings stay."""
    dtype = {"dtype": rates.dtype}
    sft: dict[str, Any] = {
        "num_examples": sizes.sft_examples,
        "optimizer_examples": sizes.optimizer_examples,
    }
    rl = {
        "num_episodes": sizes.rl_steps,
        "prompts_per_step": sizes.prompts_per_step,
        "samples_per_prompt": sizes.samples_per_prompt,
        "max_turns": sizes.rl_turns,
        "compute_dtype": rates.dtype,
    }
    changed: dict[str, Any] = {}
    if sizes.lora_layers is not None:
        sft |= {"lora_layers": sizes.lora_layers, "learning_rate": HALF_RATE}
    if sizes.fresh_rl_tasks:
        changed = {"rl_task_min_ops": 0, "rl_skip_tasks": sizes.sft_examples}
    if sizes.eval_turns == 1:
        changed["optimizer_tokens"] = sizes.answer_tokens  # RL's limit; no optimizer speaks
    return {
        **dtype,
        **changed,
        "task_max_ops": sizes.task_max_ops,
        "task_max_tier": sizes.task_max_tier,
        "generator_tokens": sizes.answer_tokens,
        "held_out_tasks": sizes.held_out_tasks,
        "probe_tasks": sizes.probe_tasks,
        "probe_samples": sizes.probe_samples,
        "max_turns": sizes.eval_turns,
        "sft": {**recipe["sft"], **sft, **dtype},
        "rl": {**recipe["rl"], **rl},
    }
