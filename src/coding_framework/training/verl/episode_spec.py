"""What a rollout worker needs to run conversations, as one file: `EpisodeSpec`, of a configuration.

The worker is another process, perhaps on another machine, and `training` must not import `cuda`.
So the judge, the reward and the agents are named by import path and built where they are used.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from coding_framework.errors import TrainingError
from coding_framework.orchestration.turn import ConversationConfig
from coding_framework.store.checkpoints import CURRICULUM
from coding_framework.store.folder import AttemptFolder, RLFolder
from coding_framework.training.agent_specializer import SPEAKERS, SpecializationConfig
from coding_framework.training.handed_over import write_handed_over
from coding_framework.training.objective import Objective, specialization
from coding_framework.training.rl_config import MultiTurnRLConfig
from coding_framework.training.verl.overrides import MOST_AT_ONCE, MOST_AT_ONCE_ON_GPU
from coding_framework.training.verl.transformers_server import ServerConfig
from coding_framework.types import Record, SamplingParams

JUDGE = "coding_framework.wiring:make_judge"
CLUSTER_JUDGE = "coding_framework.wiring:make_cluster_judge"
HANDED_JUDGE = "coding_framework.training.handed_over:judge_in"
SHARED_JUDGE = "coding_framework.training.verl.shared_judge:SharedJudge"
CORES_PER_GPU = 2
"""Cores that judge nothing, for each GPU: its rollout engine and its trainer launch kernels from
one thread each, and the GPU waits where these wait."""
SPEC_VARIABLE = "CODING_FRAMEWORK_EPISODE_SPEC"
"""Environment variable with the path of the spec's JSON file."""


class EpisodeSpec(Record):
    """How an episode runs in a rollout worker. Maker: `episode_spec`. Consumer: agent_loop."""

    config: MultiTurnRLConfig
    """Of the run."""
    judge: str
    """"module:callable"; called with `judge_args`, gives a `JudgeFn`."""
    judge_args: Mapping[str, Any] = Field(default_factory=dict)
    specialization: SpecializationConfig = SpecializationConfig()
    """What each role has of its own: its reward, and whether its turns are learnt from."""
    reward: str | None = None
    """Path of a reward, as `MultiTurnRLConfig.reward`; None: the specialization's."""
    handed_over: str | None = None
    """File of the objects that the caller handed to the trainer (`HandedOver`); None: none."""
    frozen_server: ServerConfig | None = None
    """The model of the role that is frozen; None: one policy speaks for all."""
    conversation: ConversationConfig
    curriculum_state: str | None = None
    """Where a resumed run's checkpoint keeps its curriculum's state."""
    rollouts_dir: str
    """Folder where finished conversations are appended, one file a step."""
    validation_dir: str = ""
    """Likewise those of validations; step k's are of the policy after k steps."""

    @property
    def sampling(self) -> SamplingParams:
        config = self.config
        return SamplingParams(
            max_new_tokens=config.max_response_tokens,
            temperature=config.temperature,
            seed=config.seed,
        )

    @property
    def seeded(self) -> bool:
        """Each answer is sampled with a seed of its own. vLLM draws for each seed by a call of its
        own, for each token; and no rerun on a GPU repeats an answer, since its sums depend on what
        else was in the batch."""
        return self.config.device == "cpu"

    @property
    def whole_answers(self) -> bool:
        """vLLM hands each answer over when it is whole, and not once a token: where it answers for
        all roles, and has its new weights between two steps. Where they may come while answers are
        written, verl waits for the first token of each."""
        by_itself = self.config.one_step_off_policy or self.config.rollout_gpus > 0
        return self.config.device == "cuda" and self.config.phase is None and not by_itself


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


def episode_spec(
    config: MultiTurnRLConfig,
    conversation: ConversationConfig,
    objective: Objective,
    *,
    output: Path,
    attempt: AttemptFolder,
    resume: Path | None,
) -> EpisodeSpec:
    """The spec of one attempt, beside which the objects that were handed over are written. output:
    the run's folder. resume: the checkpoint that the attempt goes on from. Raises UsageError for
    rewards of a role that the preset does not have."""
    judge, judge_args = judge_of(config, output)
    if objective.objects is not None:
        write_handed_over(objective.objects, attempt.handed_over)
    if objective.handed.judge is not None:
        file = {"file": str(attempt.handed_over)}
        judge, judge_args = SHARED_JUDGE, {"factory": HANDED_JUDGE, "arguments": file}
    return EpisodeSpec(
        config=config,
        judge=judge,
        judge_args=judge_args,
        specialization=specialization(config, objective.preset),
        reward=objective.reward_path,
        handed_over=str(attempt.handed_over) if objective.objects is not None else None,
        conversation=conversation,
        curriculum_state=str(resume / CURRICULUM) if resume is not None else None,
        frozen_server=_frozen_server(config),
        rollouts_dir=str(attempt.rollouts),
        validation_dir=str(attempt.validation),
    )


def _frozen_server(config: MultiTurnRLConfig) -> ServerConfig | None:
    if config.phase is None:
        return None
    assert config.compute_dtype != "auto", "the trainer decides it first"
    most = MOST_AT_ONCE if config.device == "cpu" else MOST_AT_ONCE_ON_GPU
    (frozen,) = SPEAKERS.keys() - {config.phase.role}
    return ServerConfig(
        model_path=config.start_of(frozen),
        adapter=config.phase.frozen_adapter,
        device=config.device,
        dtype=config.compute_dtype,
        prompt_tokens=config.max_prompt_tokens,
        response_tokens=config.max_response_tokens,
        max_batch=min(most, config.conversations_per_step),
    )


def judge_of(config: MultiTurnRLConfig, output: Path) -> tuple[str, dict[str, Any]]:
    """Import path and arguments of the judge that each rollout worker makes.

    Workers share one judge: those of a machine one with all cores but those that feed the GPUs, as
    compilers that are more than the cores take turns, and what they wait for is no fault of a
    candidate, and with `judge_gpus` with these GPUs alone; with `judge_nodes` all workers of the
    cluster the one that sends candidates there.
    All share the run's verdicts: a policy that has learnt something gives the same kernel many
    times. On a GPU the reward goes by PyTorch's time, so that no naive kernel is timed. A judge of
    the user's own is each worker's own, unless it is for `judge_nodes`.
    """
    arguments = dict(config.judge_args)
    if config.judge == JUDGE:
        kept_in = str(RLFolder(output).judge)
        arguments = {"run_folder": kept_in, "time_naive": False, **arguments}
    if config.judge_nodes:
        if config.judge == JUDGE:
            arguments.setdefault("workers", config.judge_jobs_per_node)
        part = {"nodes": config.judge_nodes, "jobs_per_node": config.judge_jobs_per_node}
        made = {"factory": config.judge, "arguments": arguments, **part}
        return SHARED_JUDGE, {"factory": CLUSTER_JUDGE, "arguments": made, "shared_by": "cluster"}
    if config.judge != JUDGE:
        return config.judge, arguments
    kept = CORES_PER_GPU * config.gpus_used if config.device == "cuda" else 0
    arguments.setdefault("workers", max(1, len(os.sched_getaffinity(0)) - kept))
    if config.device == "cuda":
        arguments.setdefault("backend", "cuda" if config.judge_gpus else "emulator")
    shared: dict[str, Any] = {"factory": config.judge, "arguments": arguments}
    if config.judge_gpus:
        shared["gpus"] = ",".join(gpus_after(config.gpus_used, config.judge_gpus, os.environ))
    return SHARED_JUDGE, shared


def gpus_after(first: int, count: int, environment: Mapping[str, str]) -> list[str]:
    """Names of so many GPUs of this process after its first ones."""
    allowed = environment.get("CUDA_VISIBLE_DEVICES")
    names = map(str, range(first + count)) if allowed is None else allowed.split(",")
    return list(names)[first : first + count]
