"""The main job of a newcomer: the recipes of a whole run on 2 cores.

Its counts are fitted to a budget of minutes (`run/sizing.py`); `FULL` has those of a run without
one, `SMOKE` tiny ones.
"""

from __future__ import annotations

from pathlib import Path

from coding_framework.run.recipe import Recipe, WholeRun
from coding_framework.run.stages import dry_run, run_stages
from coding_framework.types import SandboxName

DEFAULT_MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
DEFAULT_MINUTES = 20.0
MAX_PROMPT_TOKENS = 640
"""The longest seen had 548."""

PRACTISED = 12
"""Tasks that are practised where the machine could not be measured."""

FULL = Recipe(
    device="cpu",
    held_out_tasks=40,
    sft={"num_examples": 300, "optimizer_examples": 50},
    rl={
        "num_episodes": 5,
        "prompts_per_step": 3,
        "samples_per_prompt": 3,
        "temperature": 1.1,  # after SFT the policy is so sure that samples are often equal
    },
    max_turns=2,
    max_prompt_tokens=MAX_PROMPT_TOKENS,
    generator_tokens=448,  # all reference answers are shorter
    optimizer_tokens=512,  # 97% of them are
)
SMOKE = Recipe(
    device="cpu",
    held_out_tasks=4,
    sft={"num_examples": 6, "optimizer_examples": 2, "max_steps": 3, "held_out_examples": 2},
    rl={"num_episodes": 1, "prompts_per_step": 1, "samples_per_prompt": 2},
    max_turns=2,
    max_prompt_tokens=MAX_PROMPT_TOKENS,
    generator_tokens=64,
    optimizer_tokens=64,
)


def run(
    *,
    smoke: bool = False,
    minutes: float = DEFAULT_MINUTES,
    folder: Path | None = None,
    base_model: str | None = None,
    sandbox: SandboxName = "auto",
    seed: int = 0,
    dry: bool = False,
) -> int:
    """All stages, from the first that is not finished; returns the exit status. minutes: what they
    may take; the tiny counts of `smoke` are what they are. dry: only print what would run."""
    name = "quickstart-smoke" if smoke else "quickstart"
    practice = {} if smoke else {"probe_tasks": PRACTISED}
    start = dry_run if dry else run_stages
    return start(
        WholeRun(
            title="Quickstart",
            recipe=(SMOKE if smoke else FULL).model_copy(update={"sandbox": sandbox, **practice}),
            folder=folder or Path("outputs") / name,
            base_model=base_model or DEFAULT_MODEL,
            minutes=None if smoke else minutes,
            seed=seed,
            practise=not smoke,  # whose model writes nothing that is right
        )
    )
