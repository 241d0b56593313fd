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

PROMPT_TOKENS, ANSWER_TOKENS, LONGEST_ANSWER = 330, 240, 448
"""Of a first turn: means over the starter tasks with the prompts that tell the contract, and where
an answer that goes on is cut."""
TAUGHT_PROMPT_TOKENS = 125
"""Mean of the short prompts, which are for a model that SFT has taught the contract."""
GENERATOR_EXAMPLE, OPTIMIZER_EXAMPLE = 400, 800
"""Mean tokens of SFT's examples, prompt and answer."""
TURN_TOKENS = (370, 700)
"""Of a row of RL by its turn, prompt and answer; later turns are like the second."""
UPDATE_COST = 1.5
"""RL's update of all weights in trained tokens of SFT, whose adapter has no gradients of the
base."""
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
    """A process that imports torch and loads the model."""
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
    """Training tasks that are tried after SFT: RL takes those that are solved now and then."""
    probe_samples: int = 4
    eval_turns: int = 2

    def told(self) -> str:
        """In words."""
        conversations = self.prompts_per_step * self.samples_per_prompt
        return (
            f"{'one turn' if self.eval_turns == 1 else f'{self.eval_turns} turns'}, "
            f"SFT on {self.sft_examples + self.optimizer_examples} examples, {self.rl_steps} RL "
            f"steps of {conversations} conversations, each evaluation on {self.held_out_tasks} "
            "tasks"
        )


def _sizes(*counts: int) -> Sizes:
    names = list(Sizes.model_fields)
    return Sizes.model_validate(dict(zip(names, counts, strict=False)))


LADDER = (
    _sizes(30, 140, 0, 4, 3, 3, 1, 8, 4, 1),
    _sizes(24, 140, 20, 4, 3, 3, 1, 10),
    _sizes(30, 180, 30, 4, 3, 3, 1, 12),
    _sizes(32, 220, 40, 4, 3, 4, 1, 12),
    _sizes(40, 260, 40, 4, 3, 3, 2, 12),
    _sizes(40, 300, 50, 5, 3, 4, 2, 16),
    _sizes(50, 380, 60, 8, 4, 4, 2, 20),
    _sizes(60, 440, 80, 12, 4, 4, 2, 24),
    _sizes(80, 600, 100, 16, 4, 6, 2, 32),
    _sizes(100, 900, 150, 24, 4, 8, 2, 48),
)
"""Smallest first. The first is meant as the least that shows learning (SFT's interval above the
base model's, four RL steps): a single turn, so no examples of the optimizer's; in its one run SFT
solved 4 of 30, the base model none, which is not apart. Three groups a step at least: a step learns
from no fewer than two, and now and then one has equal rewards."""


def forecast(sizes: Sizes, rates: Rates) -> dict[str, float]:
    """Seconds of each stage."""
    conversations = sizes.prompts_per_step * sizes.samples_per_prompt
    turns = [TURN_TOKENS[min(t, 1)] for t in range(sizes.rl_turns)]
    step = answers_s(conversations, rates, TAUGHT_PROMPT_TOKENS) * sizes.rl_turns
    step += conversations * sum(turns) * UPDATE_COST / rates.train_tokens_s
    trained = sizes.sft_examples * GENERATOR_EXAMPLE + sizes.optimizer_examples * OPTIMIZER_EXAMPLE
    evaluation = rates.start_s + sizes.eval_turns * answers_s(sizes.held_out_tasks, rates)
    answers = sizes.probe_tasks * sizes.probe_samples
    probe = rates.start_s + answers_s(answers, rates, TAUGHT_PROMPT_TOKENS)
    return {
        "eval_base": rates.start_s + answers_s(sizes.held_out_tasks, rates),
        "sft": 2 * rates.start_s + trained / rates.train_tokens_s,
        "eval_sft": evaluation + probe,
        "rl": RAY_STARTS * rates.start_s + sizes.rl_steps * (STEP_STARTS * rates.start_s + step),
        "eval_rl": evaluation,
    }


def answers_s(count: int, rates: Rates, prompt_tokens: int = PROMPT_TOKENS) -> float:
    """Seconds of one turn of so many conversations, with their verdicts."""
    rounds = math.ceil(count / SERVED_AT_ONCE)
    writing = rates.step_s * LONGEST_ANSWER * rounds + rates.answer_step_s * count * ANSWER_TOKENS
    return writing + count * (prompt_tokens / rates.prefill_tokens_s + rates.verdict_s)


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
    sft = {"num_examples": sizes.sft_examples, "optimizer_examples": sizes.optimizer_examples}
    rl = {
        "num_episodes": sizes.rl_steps,
        "prompts_per_step": sizes.prompts_per_step,
        "samples_per_prompt": sizes.samples_per_prompt,
        "max_turns": sizes.rl_turns,
        "compute_dtype": rates.dtype,
    }
    return {
        **dtype,
        "held_out_tasks": sizes.held_out_tasks,
        "probe_tasks": sizes.probe_tasks,
        "probe_samples": sizes.probe_samples,
        "max_turns": sizes.eval_turns,
        "sft": {**recipe["sft"], **sft, **dtype},
        "rl": {**recipe["rl"], **rl},
    }
