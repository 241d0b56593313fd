"""What a run's files hold, line by line: the conversations and steps of RL, the epochs of SFT."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from coding_framework.types import CUDAConversationState, HeldOutScore, Record, Role


class VerdictTime(Record):
    """What a verdict took, as its conversation saw it."""

    wall_s: float
    judging_s: float
    """Of it, the judge's own work; of a verdict that was known before, the work at that time."""

    @property
    def waited_s(self) -> float:
        """The queue, and the way there and back."""
        return max(0.0, self.wall_s - self.judging_s)


class Rollout(Record):
    """One conversation of one training step. Maker: the agent loop. Consumers: progress, reports,
    curriculum."""

    step: int = Field(ge=0)
    group: str
    """The prompt's id: the conversations of one group share it."""
    session: int
    """Which sample of the group."""
    prompt: int = 0
    """Number of the prompt among those that the run has drawn."""
    state: CUDAConversationState
    returns: tuple[float | None, ...]
    """Of each turn; None where it was not learnt from."""
    fault: str | None = None
    """A fault of the policy server, or of an agent, that ended the conversation."""
    verdict_times: tuple[VerdictTime, ...] = ()
    """Of each verdict that the judge gave."""
    began_at: str | None = None
    ended_at: str | None = None
    """UTC, ISO 8601; None in rollouts of older versions."""


class TierRates(Record):
    """Judged turns of one tier of tasks."""

    turns: int
    compile_rate: float
    correct_rate: float


class Measures(Record):
    """A step in figures. Maker: `measure`. Consumers: JSON lines, wandb, reports. Empty where there
    was nothing to measure."""

    reward_parts: Mapping[str, float] = Field(default_factory=dict)
    """Mean of each part over the turns with a reward; a part that a turn lacks counts 0."""
    tiers: Mapping[str, TierRates] = Field(default_factory=dict)
    speedup: Mapping[str, float] = Field(default_factory=dict)
    """Quantiles ("p10", "p50", "p90") over correct turns, by the verdict's own basis."""
    groups: int = 0
    """Groups (prompt, role, turn) with a known return."""
    groups_without_advantage: int = 0
    """Those whose returns are all equal, or that have one alone."""
    response_tokens_mean: float | None = None
    response_tokens_max: int = 0
    cut_share: float | None = None
    """Answers that ended at the token limit."""
    turns_mean: float | None = None
    """Of a conversation."""
    cheats: int = 0
    """Turns with evidence of cheating."""
    rejected: int = 0
    """Turns that a rule refused before they ran."""
    statuses: Mapping[str, int] = Field(default_factory=dict)
    verdict_s: Mapping[str, float] = Field(default_factory=dict)
    """Quantiles ("p50", "p95") of the wall time of a verdict as its conversation saw it."""
    verdict_wait_s: Mapping[str, float] = Field(default_factory=dict)
    """Likewise of the part that was not judging: the queue."""


class RoleMetrics(Record):
    """How one role's turns went. Maker: `AgentSpecializer.metrics`."""

    turns: int
    compile_rate: float
    correct_rate: float
    mean_reward: float | None
    mean_speedup: float | None
    """Of its correct turns."""
    mean_response_tokens: float


class StepRecord(Record):
    """One training step. Maker: this module. Consumers: progress, the result, reports."""

    step: int
    trained: Role | None = None
    """The role that learnt; None: all, by one policy."""
    conversations: int = 0
    turns: int = 0
    masked_turns: int = 0
    """Not learnt from: our faults and gaps of the judge."""
    faults: int = 0
    """Conversations or turns lost to a fault of ours (a part of what is masked)."""
    rows_learnt: int = 0
    """Turns with a known return and an advantage that is not 0."""
    reward_mean: float | None = None
    """Over turns that are not masked."""
    reward_best_mean: float | None = None
    """Over conversations: the best turn's reward."""
    compile_rate: float | None = None
    correct_rate: float | None = None
    """Share of judged turns whose kernel was correct."""
    solved_rate: float | None = None
    """Share of conversations with a correct turn."""
    solved_error: float | None = None
    """Standard error of `solved_rate`, with prompts as units; None for fewer than two of them."""
    response_tokens: int = 0
    mean_logprob: float | None = None
    """Of sampled tokens; minus this estimates the policy's entropy in nats a token."""
    entropy: float | None = None
    """Nats a token; None where the rollout's log-probs are reused and no pass computes it."""
    kl: float | None = None
    """To the start model, per token (verl's low-variance estimate); None without a KL term."""
    critic_loss: float | None = None
    """Of the values, with PPO."""
    groups_dropped: int = 0
    """Prompts without advantage that dynamic sampling replaced."""
    gpu_memory_gib: float | None = None
    """Most that torch held on a GPU so far; None on a CPU."""
    gpu_arithmetic_share: float | None = None
    """Of what the GPUs' peak allows, in the update (verl's model FLOPs utilisation, MFU); None on a
    CPU."""
    measures: Measures = Measures()
    roles: Mapping[Role, RoleMetrics] = Field(default_factory=dict)
    """How the turns of each role went, trained or not."""
    grad_norm: float | None = None
    learning_rate: float | None = None
    loss: float | None = None
    ppo_kl: float | None = None
    """Mean of log(old / new) over learnt tokens at the update. Where the rollout's log-probs are
    reused it measures how far rollout and training compute apart: about 0 when they agree."""
    clip_fraction: float | None = None
    times: Mapping[str, float] = Field(default_factory=dict)
    """Seconds by part of the step."""


class Validation(Record):
    """A policy on the validation tasks. Maker: `training.verl.steps`. Consumers: the choice of
    the best policy, reports."""

    step: int
    """The policy after so many steps; 0: the start model."""
    conversations: int
    solved_rate: float | None = None
    """Share of the conversations with a correct turn, those left out that faults of ours cut."""
    reward_mean: float | None = None
    """Over the same conversations: the reward of the best turn."""
    masked: int = 0
    """Conversations without any turn that was judged."""


OPEN_FROM, OPEN_TO = 0.1, 0.8
"""Shares of its samples that solve a task from which a policy can learn: in a group of them answers
are likely to differ."""
WIDE_SPREAD = 1.3
"""How many times as fast the fastest correct kernel of a task is as the median one, where there is
speed to be learnt."""


class TaskEvidence(Record):
    """How a policy did on a task. Maker: `training.rejection_sampling`. Consumers: RL's choice of
    tasks, people."""

    task: str
    samples: int
    """First answers that were judged; those masked by faults of ours are left out."""
    solved: int
    """Of them, correct ones."""
    best_ms: float | None = None
    """Device time of the fastest correct kernel of any turn; None: none was timed."""
    median_ms: float | None = None
    """Median over the correct kernels."""
    best_speedup: float | None = None
    """Over eager where it was measured, else over the naive kernel as the emulator models it."""
    tokens: int = 0
    """Generated for its samples, over all turns."""

    @property
    def is_open(self) -> bool:
        """Whether answers to it are likely to differ, in being correct or in speed."""
        share = self.solved / self.samples if self.samples else 0.0
        return OPEN_FROM <= share <= OPEN_TO or self.spread >= WIDE_SPREAD

    @property
    def spread(self) -> float:
        """How many times as fast the fastest kernel is as the median one; 1.0 where unknown."""
        return self.median_ms / self.best_ms if self.best_ms and self.median_ms else 1.0


class SFTEpoch(Record):
    """How the policy stood at the end of an epoch. Maker: `sft_epochs`. Consumers: metrics.jsonl,
    the result, the report."""

    epoch: float
    """Passes over the examples: 0.0 before training; not whole where training ends within one."""
    step: int
    held_out_loss: float | None = None
    """Nats per answer token, the mean over all answer tokens of the held-out examples; None: there
    are none."""
    held_out_tokens: int = 0
    """How many that are."""
    score: HeldOutScore | None = None
    """None: not asked for, or failed."""
    fault: str = ""
    """Why there is no score although it was asked for."""
    seconds: float
    """What finding it out took."""
