"""What a rollout worker needs to run episodes, as one file: `EpisodeSpec`.

The worker is another process, perhaps on another machine, and `training` must not import `cuda`.
So the judge, the reward and the agents are named by import path and built where they are used.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from coding_framework.errors import TrainingError
from coding_framework.orchestration.turn import ConversationConfig
from coding_framework.training.agent_specializer import SpecializationConfig
from coding_framework.training.reward_functions.overlong import Overlong
from coding_framework.training.verl.transformers_server import ServerConfig
from coding_framework.types import Record, SamplingParams

SPEC_VARIABLE = "CODING_FRAMEWORK_EPISODE_SPEC"
"""Environment variable with the path of the spec's JSON file."""


class CurriculumSpec(Record):
    """How a curriculum draws the prompts. Maker: verl_integration. Consumer: curriculum.py."""

    preset: str
    """Of `data.curriculum_manager.PRESETS`."""
    seed: int
    prompts: int
    """That the run may draw: the length that verl's loader sees."""
    evidence: str | None = None
    """File with what is known of the tasks before the run."""
    state_file: str | None = None
    """Where a resumed run's checkpoint keeps its state."""


class EpisodeSpec(Record):
    """How an episode runs in a rollout worker. Maker: verl_integration. Consumer: agent_loop."""

    judge: str
    """"module:callable"; called with `judge_args`, gives a `JudgeFn`."""
    judge_args: Mapping[str, Any] = Field(default_factory=dict)
    specialization: SpecializationConfig = SpecializationConfig()
    """What each role has of its own: its reward, and whether its turns are learnt from."""
    reward: str | None = None
    """Path of a reward, as `MultiTurnRLConfig.reward`; None: the specialization's."""
    handed_over: str | None = None
    """File of the objects that the caller handed to the trainer (`HandedOver`); None: none."""
    agents: str
    """"module:callable"; called with (policy, sampling, budget=PromptBudget), with prompts=version
    where the specialization names another than SFT's, and with optimizer=policy where a role is
    frozen, gives a mapping of role to agent."""
    frozen_server: ServerConfig | None = None
    """The model of the role that is frozen; None: one policy speaks for all."""
    tester: bool = False
    """Whether a tester's probes of each kernel that runs are in the next prompt."""
    conversation: ConversationConfig
    discount: float = Field(ge=0.0, le=1.0)
    sampling: SamplingParams
    redraws: int = 0
    """How often an answer that repeats earlier code is drawn again."""
    greedy: bool = False
    """The likeliest token each time, whatever the temperature."""
    seeded: bool = True
    """Each answer is sampled with a seed of its own."""
    whole_answers: bool = False
    """vLLM hands each answer over when it is whole, and not once a token. Not where new weights may
    come while answers are written: verl waits then for the first token of each."""
    max_prompt_tokens: int = Field(ge=1)
    judge_timeout_s: float = Field(gt=0.0)
    """Wall limit on one verdict, queueing included. Passing it is our fault, not the candidate's:
    the turn is masked."""
    overlong: Overlong | None = None
    """Penalty on answers near the token limit; None: none."""
    policy_timeout_s: float = Field(gt=0.0)
    """Wall limit on one answer; passing it ends the conversation, masked."""
    curriculum: CurriculumSpec | None = None
    """None: prompts in the order of the dataset's file."""
    rollouts_dir: str
    """Folder where finished conversations are appended, one file a step."""
    validation_dir: str = ""
    """Likewise those of validations; step k's are of the policy after k steps."""


def write_spec(spec: EpisodeSpec, path: Path) -> None:
    """Write the spec as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(spec.model_dump_json(indent=1), encoding="utf-8")


def read_spec(path: Path) -> EpisodeSpec:
    """Read a spec.

    Raises:
        TrainingError: where the file cannot be read or is not a spec.
    """
    try:
        return EpisodeSpec.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as e:
        raise TrainingError(f"episode spec {path} cannot be used: {e}") from e
