"""The configuration of multi-turn RL, and the sizes that follow from it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from coding_framework.agents.prompts import PROMPT_VERSION, PROMPT_VERSIONS
from coding_framework.store.model_card import card_of
from coding_framework.training.credit import DEFAULT_DISCOUNT
from coding_framework.training.reward_functions.overlong import MOST_OVERLONG_PENALTY, Overlong
from coding_framework.training.reward_functions.presets import PRESETS
from coding_framework.types import Config, CurriculumName, DTypeName, PromptVersion, Record, Role

Algorithm = Literal["grpo", "dapo", "ppo"]
PolicyKind = Literal["shared", "per_role"]
MOST_SPARE_PROMPTS = 20_000
"""Prompts written for dynamic sampling beyond those of the steps: a few kB each."""


class RolePhase(Record):
    """A stretch of training in which one role learns. Maker: role_phases. Consumers: the trainer
    and its workers."""

    role: Role
    """Whose turns are learnt from; the other role is frozen and served."""
    until: int = Field(ge=1)
    """Last step of it, counted in the role's own run."""
    frozen_adapter: str | None = None
    """PEFT folder of the other role; None: the model that RL started from."""


class MultiTurnRLConfig(Config):
    """How RL runs. Defaults are the documents' recipe for a GPU; `cpu()` gives sizes for 2 cores.

    Words: a *step* is one update of the policy (`num_episodes` counts these, as the documents do);
    a *conversation* is one sample of a prompt; a *row* is one turn of it as a training example.
    """

    also_called: ClassVar[Mapping[str, str]] = {
        "verl_algorithm": "algorithm",
        "max_turns_per_episode": "max_turns",
        "batch_size": "prompts_per_step",
    }

    model_path: str = "sft_checkpoints/model"
    """Local Hugging Face folder of the policy to start from (the merged SFT model)."""
    role_models: Mapping[Role, str] = Field(default_factory=dict)
    """With policy per_role: folders of models that roles start from in place of `model_path`."""
    output_dir: str = "rl_checkpoints"
    """Folder of the run: checkpoints, conversations, metrics, logs and exported models."""
    algorithm: Algorithm = "grpo"
    """grpo compares the answers to one prompt with each other; dapo (arXiv:2503.14476) is grpo with
    clip-higher, dynamic sampling and a penalty on overlong answers; ppo trains a critic.

    ppo estimates advantages by GAE over the tokens of a turn, whose last token is paid the turn's
    return. The loss is a mean over tokens in all three."""
    num_episodes: int = Field(default=200, ge=1)
    """Training steps: updates of the policy."""
    policy: PolicyKind = "shared"
    """shared: one policy speaks in all roles and learns from every turn; per_role: each role has an
    adapter of its own, and they are trained in alternation.

    With per_role the other adapter is frozen and served meanwhile. A step costs the same in both,
    so equal `num_episodes` are an equal budget."""
    phase_steps: int = Field(default=10, ge=1)
    """With --policy per_role: steps until the roles swap. Each swap starts Ray and the models
    anew."""
    phase: RolePhase | None = None
    """per_role: the phase that a run is; None: all of them, one after the other."""
    prompts: PromptVersion = PROMPT_VERSION
    """Version of the prompts. v1 is short, for a policy that SFT taught the form of an answer; v2
    explains the form with an example, for one without SFT; v3 says what a kernel is handed.
    Default: the one that the card of the model's folder names, else v1."""
    max_turns: int = Field(default=5, ge=1, le=16)
    """Most turns of a conversation."""
    prompts_per_step: int = Field(default=32, ge=1)
    """Prompts of a step."""
    samples_per_prompt: int = Field(default=4, ge=1)
    """Conversations about each prompt; grpo and dapo compare them and need at least 2."""
    learning_rate: float = Field(default=1e-5, gt=0.0)
    """Learning rate of the policy; begin lower where all weights are trained, and watch
    `solved_rate`.

    The default is the documents' number. Over all weights 5e-6 was already too much for a policy
    fresh from SFT (docs/measurements/training.md)."""
    warmup_steps: int = Field(default=0, ge=0)
    """Updates over which the policy's learning rate grows from 0 to its full value.

    It grows in equal parts and is constant afterwards. The first of these updates moves no weight
    and fills the optimizer's averages."""
    weight_decay: float = Field(default=0.01, ge=0.0)
    """Weight decay of the policy's optimizer (AdamW)."""
    discount: float = Field(default=DEFAULT_DISCOUNT, ge=0.0, le=1.0)
    """Factor by which a turn's return counts the reward of the next turn.

    Kevin's 0.4 is `credit.KEVIN_DISCOUNT`."""
    scale_advantages: bool = True
    """Divide by the group's standard deviation (GRPO); False: Dr. GRPO."""
    leave_one_out: bool = False
    """Compare an answer with the mean of the others of its group (RLOO), not with the mean of all
    of them, which holds itself."""
    least_spread: float = Field(default=0.01, ge=0.0)
    """Least difference of reward within a group that counts as one. Groups that differ by less have
    no advantage: what timing noise moves is not learnt, and dynamic sampling replaces them.

    The default is above what 3% of noise in a time does to the presets' speedup parts."""
    least_groups: int | None = Field(default=None, ge=1)
    """Groups with an advantage that an update needs at least; a step with fewer leaves the policy
    as it is: one group alone would turn all of Adam's step to a single task. Default: 2, or 1
    where a step has one prompt."""
    updates_per_step: int = Field(default=1, ge=1)
    """Updates of the policy in a step, each with its part of the rows. Clipping acts from the
    second one on: in the first no probability has moved."""
    one_step_off_policy: bool = False
    """Write and judge the answers of the next step while this one trains: policy n learns from
    answers of policy n - 1 too, which `importance_cap` or the clipping of the rollout's
    probabilities corrects.

    A step then waits for the first conversations that are whole, and not for its own last one. Runs
    do not repeat to the bit. On a GPU the rollout keeps its memory (`gpu_memory_utilization`) while
    the trainer uses the rest."""
    importance_cap: float = Field(default=2.0, ge=0.0)
    """Most weight of a token by the ratio of the trainer's probability to the rollout's, which
    computes a little differently (truncated importance sampling); 0: no weights.

    Has no use where `reuse_rollout_logprobs` takes the rollout's probabilities for the trainer's.
    """
    clip_ratio_low: float = Field(default=0.2, gt=0.0, lt=1.0)
    """How far an update may lower the probability ratio of a token: to 1 minus this."""
    clip_ratio_high: float | None = Field(default=None, gt=0.0)
    """How far an update may raise the probability ratio of a token: to 1 plus this. Default: 0.28
    with dapo (clip-higher), else 0.2."""
    kl_coefficient: float = Field(default=0.0, ge=0.0)
    """Weight in the loss of the KL divergence from the start model; 0 leaves it out. The documents
    use 0.02 to 0.08.

    Above 0 a frozen reference model is kept."""
    kl_in_advantage: bool = False
    """Take the KL divergence into each token's advantage, not into the loss: a token that drifted
    pays by itself, also where all answers of its group fail. Rows that neither drifted nor have an
    advantage cost no update. Needs a `kl_coefficient`; not with ppo."""
    sampling_rounds: int = Field(default=10, ge=1)
    """With dapo: most rounds in which groups without advantage are replaced by new ones. A round
    draws as many groups as a step has prompts.

    Further groups are taken as they are: a policy that always or never solves its tasks must not
    draw for ever."""
    overlong_buffer_tokens: int | None = Field(default=None, ge=0)
    """Tokens before the longest possible answer over which a penalty on length grows; 0: no
    penalty. Default: a fifth of the longest answer with dapo, else 0.

    dapo's authors use 4096 of 20480."""
    overlong_penalty: float = Field(default=MOST_OVERLONG_PENALTY, gt=0.0, le=MOST_OVERLONG_PENALTY)
    """What an answer that fills `max_response_tokens` loses of its reward."""
    gae_lambda: float = Field(default=0.95, ge=0.0, le=1.0)
    """With ppo: lambda of generalised advantage estimation over the tokens of a turn."""
    gae_gamma: float = Field(default=1.0, gt=0.0, le=1.0)
    """With ppo: discount from token to token within a turn."""
    critic_learning_rate: float = Field(default=1e-5, gt=0.0)
    """With ppo: learning rate of the critic."""
    temperature: float = Field(default=1.0, gt=0.0)
    """Temperature at which the policy samples its answers."""
    greedy: bool = False
    """The likeliest token each time: the samples of a prompt are then equal, which teaches groups
    nothing. For tests of repeating a run; the temperature still scales the update's log-probs."""
    max_prompt_tokens: int = Field(default=2048, ge=32)
    """Most tokens of a prompt, feedback of earlier turns included. A longer prompt ends its
    conversation, and that turn is not learnt from."""
    max_response_tokens: int = Field(default=1024, ge=1)
    """Most tokens of an answer."""
    redraws: int = Field(default=0, ge=0, le=8)
    """How often an answer that repeats the code of an earlier turn is drawn again. The repeat is
    not learnt from; its tokens are counted."""
    curriculum: CurriculumName | None = None
    """Curriculum that chooses the prompts by what the policy has solved so far. Default: none; all
    tasks are passed over again and again, each time in a new random order."""
    task_evidence: str | None = None
    """File of `cuda-rl rft` (task_evidence.jsonl): how often the policy solves each task, how
    far its speeds lie apart. The curriculum begins with it. Default: it knows nothing.

    `informative` draws tasks that 10 to 80% of the conversations solve, or whose fastest kernel is
    1.3 times as fast as the median one, and goes on counting in the run."""
    reward_preset: str = "weighted"
    """Preset of the reward: how a verdict becomes a number."""
    role_rewards: Mapping[Role, Mapping[str, float]] = Field(default_factory=dict)
    """Changes to the preset's numbers for a role's turns: {"optimizer": {"performance": 0.5}}."""
    stop_reward: float | None = 0.8
    """Reward at which a correct turn ends its conversation. Default: what the reward preset says
    (0.8 of weighted).

    None: conversations always have all turns, so that a correct kernel is made faster."""
    validate_every: int = Field(default=0, ge=0)
    """Steps from one validation to the next: the policy answers the validation tasks, which it
    never trains on, and the best one there is kept. 0: no validation, and the policy that was paid
    best in training is kept.

    A training reward is of other tasks at each step, and of those that teach: it rises and falls
    with them."""
    validation_tasks: int = Field(default=100, ge=1)
    """Tasks of a validation. One greedy conversation about each."""
    validation_patience: int | None = Field(default=None, ge=1)
    """The run ends after so many validations in a row of which none is better than the best one
    before them, the start model's among these. None: it makes all of its steps."""
    lora_rank: int = Field(default=0, ge=0)
    """Rank of the LoRA adapter that is trained; 0 trains all weights."""
    lora_alpha: int = Field(default=32, ge=1)
    """Scale of the LoRA adapter, as in PEFT."""
    seed: int = 0
    """Seed of the tasks' order and of sampling."""

    judge: str = "coding_framework.wiring:make_judge"
    """Import path of the judge's factory. The usual judge is made once a machine. One of your own
    is made in each rollout worker. Either of them is made once on each of `judge_nodes`."""
    judge_args: Mapping[str, Any] = Field(default_factory=dict)
    """Arguments of that factory. Unless they name another `backend`, the emulator judges where GPUs
    train: no kernel can be timed on a GPU that trains."""
    judge_gpus: int = Field(default=0, ge=0)
    """GPUs of this machine, beside those of --num-gpus, that judge and do nothing else. Verdicts
    then hold measured times."""
    judge_nodes: int = Field(default=0, ge=0)
    """Nodes of the Ray cluster that judge and do nothing else. They offer the resource `judge`, one
    unit for each candidate at a time, and no processors. 0: candidates are judged where the rollout
    workers run, on the cores that feed no GPU."""
    judge_jobs_per_node: int | None = Field(default=None, ge=1)
    """Candidates at once on such a node: as many as it has cores."""
    judge_timeout_s: float = Field(default=900.0, gt=0.0)
    """Wall-clock limit of one verdict, queueing included. A turn that passes it is masked."""
    policy_timeout_s: float = Field(default=1800.0, gt=0.0)
    """Wall-clock limit of one answer of the rollout server. Passing it ends the conversation, and
    that turn is masked."""
    minutes: float | None = Field(default=None, gt=0.0)
    """Minutes after which the run stops, at the end of a step that has a checkpoint, with exit
    status 4; the same command goes on. Default: none."""
    stall_limit_s: float = Field(default=1800.0, gt=0.0)
    """The run ends after so long without a finished conversation or step: where resources are
    missing Ray waits silently for ever."""
    reward: str | None = None
    """A reward of your own in place of the preset, as module:NAME or FILE.py:NAME: a function of a
    conversation's state that gives a number or RewardComponents, or what makes one.

    It is tried before the first step, on conversations that are made up. What it cannot pay in
    training (it raises, or gives no finite number) is masked and counted."""
    tester: bool = False
    """Let the tester probe each kernel that runs: the next prompt tells what broke it. Each turn's
    probes cost about as much as its verdict."""
    agents: str = "coding_framework.wiring:make_agents"
    """Import path of the factory (policy, sampling, budget=...) -> agents by role."""

    device: Literal["cpu", "cuda"] = "cuda"
    num_gpus: int = Field(default=1, ge=1)
    """GPUs of each node that train and write answers.

    On the CPU: training processes."""
    num_nodes: int = Field(default=1, ge=1)
    rollout_gpus: int = Field(default=0, ge=0)
    """GPUs of this machine, beside those of --num-gpus, that write answers and do nothing else;
    each step still samples from the policy of the step before. 0: those that train write too.

    Six steps of a tiny model were made with it on two H100s. While one part works the other waits,
    so that the same number of GPUs in one pool should be quicker; it is for models that do not fit
    beside vLLM."""
    gpu_memory_utilization: float = Field(default=0.4, gt=0.0, lt=1.0)
    """Share of each GPU's memory for vLLM, which shares the GPU with the trainer."""
    micro_batch_tokens: int | None = Field(default=None, ge=1)
    """Tokens per forward and backward at most. None: one longest row on the CPU, where a larger
    batch is no faster (measured), 16384 on a GPU."""
    packed_attention: bool = False
    """Attention of the policy that learns: each row of a micro-batch costs its own square, and not
    the micro-batch's (with it, `micro_batch_tokens` may be large). On H200s an update took 5.9 s in
    place of 12 to 16."""
    compute_dtype: DTypeName = "auto"
    """Of matrix products, in training and rollout; weights and optimizer are float32. auto:
    bfloat16 where the hardware computes in it, else float32, which is then faster."""
    reuse_rollout_logprobs: bool = False
    """Take the rollout's log-probs as the old policy's, saving a forward pass over all rows. Right
    where each step makes one update and both sides compute alike, as on the CPU."""
    gradient_checkpointing: bool = True
    rollout_workers: int = Field(default=4, ge=1)
    threads: int | None = Field(default=None, ge=1)
    """Threads of each process's matrix products; None: the cores there are."""
    object_store_mib: int = Field(default=2048, ge=80)
    object_spilling_dir: str | None = None
    """Where Ray puts objects for which its store is too small; None: its temporary folder."""
    ray_address: str | None = None
    """A cluster to join; None: an instance of our own, which nothing else sees. Sizes of the object
    store and where it spills are then said to `ray start` on each node."""

    save_every: int = Field(default=1, ge=1)
    """Steps from one checkpoint to the next."""
    max_restarts: int = Field(default=2, ge=0)
    """How often a trainer that ended after it had begun its work (a worker killed, memory short)
    is started again from its last checkpoint. One that fails before its first conversation is
    not: it would fail again."""
    max_fault_share: float = Field(default=0.01, ge=0.0, le=1.0)
    """More turns masked by faults of ours than such a share would explain end the run."""
    wandb: bool | None = None
    """Report to the wandb project CUDA-MultiTurn-RL too. Default: where WANDB_API_KEY is set."""
    overrides: tuple[str, ...] = ()
    """A Hydra override for verl, applied after all of ours and the recipe's. May be given again."""

    @model_validator(mode="before")
    @classmethod
    def _prompts_of_the_model(cls, given: Any) -> Any:
        """Where nobody names the prompts, those that the weights were trained on."""
        if not isinstance(given, dict) or "prompts" in given or "model_path" not in given:
            return given
        card = card_of(Path(given["model_path"]))
        known = card is not None and card.prompts in PROMPT_VERSIONS
        return {**given, "prompts": card.prompts} if card is not None and known else given

    @model_validator(mode="before")
    @classmethod
    def _stop_of_the_preset(cls, given: Any) -> Any:
        """A reward that stops a conversation means something on its preset's scale alone."""
        if not isinstance(given, Mapping) or "stop_reward" in given:
            return given
        preset = PRESETS.get(given.get("reward_preset", ""))
        return given if preset is None else {**given, "stop_reward": preset.stop_reward}

    @model_validator(mode="before")
    @classmethod
    def _by_documented_names(cls, given: Any) -> Any:
        """`verl_rollout_batch_size` counts the conversations of a step; `use_docker_sandbox` is the
        judge's sandbox."""
        if not isinstance(given, Mapping):
            return given
        found = dict(given)
        if (rows := found.pop("verl_rollout_batch_size", None)) is not None:
            names = ("prompts_per_step", "batch_size")
            prompts = next((found[n] for n in names if n in found), cls.prompts_by_default())
            if "samples_per_prompt" in found or rows % prompts:
                raise ValueError(
                    f"verl_rollout_batch_size={rows} are the conversations of a step: it has to be "
                    f"a multiple of its {prompts} prompts, and excludes samples_per_prompt"
                )
            found["samples_per_prompt"] = rows // prompts
        if (docker := found.pop("use_docker_sandbox", None)) is not None:
            sandbox = {"sandbox": "docker" if docker else "no-docker"}
            found["judge_args"] = {**sandbox, **found.get("judge_args", {})}
        return found

    @classmethod
    def prompts_by_default(cls) -> int:
        """Prompts of a step where nothing is said."""
        return int(cls.model_fields["prompts_per_step"].default)

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if (self.num_nodes > 1 or self.judge_nodes) and self.ray_address is None:
            raise ValueError("more than one node needs a Ray cluster: set ray_address")
        if self.judge_gpus and (self.device == "cpu" or self.ray_address is not None):
            raise ValueError(
                "judge_gpus are of one machine whose other GPUs train: set device cuda; on a "
                "cluster set judge_nodes, which judge on the GPUs that they have"
            )
        if self.judge_gpus and not self.has_usual_judge:
            raise ValueError("judge_gpus are for the usual judge: let your own choose its GPUs")
        if self.judge_gpus and self.judge_args.get("backend") == "emulator":
            raise ValueError(
                "judge_gpus are of no use to the emulator: set the judge's backend to cuda "
                "(--judge-backend), or leave judge_gpus out"
            )
        if self.rollout_gpus:
            self._possible_apart()
        if self.validate_every % self.save_every:
            raise ValueError(
                f"validate_every={self.validate_every} is no multiple of save_every="
                f"{self.save_every}: the policy that validates best must have a checkpoint"
            )
        if self.validation_patience and not self.validate_every:
            raise ValueError("validation_patience counts validations: set validate_every too")
        if self.validate_every and self.policy == "per_role":
            raise ValueError("policy per_role keeps no best policy: leave out validate_every")
        if self.task_evidence is not None and self.curriculum is None:
            raise ValueError("task_evidence is what a curriculum begins with: set --curriculum")
        if self.one_step_off_policy and self.rollout_gpus:
            raise ValueError(
                "rollout_gpus answer while the others train, whatever is said: leave out "
                "one_step_off_policy"
            )
        if self.one_step_off_policy and self.policy == "per_role":
            raise ValueError(
                "policy per_role swaps who learns, and an answer of the phase before would be left "
                "over: leave out one_step_off_policy"
            )
        groups = self.prompts_per_step * self.max_turns
        if (self.least_groups or 0) > groups:
            raise ValueError(
                f"least_groups={self.least_groups}: a step has at most {groups} groups, one for "
                "each turn of a prompt, so the policy would never change: set prompts_per_step too"
            )
        if 0 < self.importance_cap < 1:
            raise ValueError(
                f"importance_cap={self.importance_cap} would weigh down each token, also of the "
                "policy's own answers: set 1 or more, or 0 for no weights"
            )
        if self.redraws and self.max_turns == 1:
            raise ValueError("redraws are of later turns: set max_turns, or leave redraws out")
        self._possible_reward()
        if self.one_step_off_policy and not (self.importance_cap or self.reuse_rollout_logprobs):
            raise ValueError(
                "one_step_off_policy learns from another policy's answers: set importance_cap, or "
                "reuse_rollout_logprobs"
            )
        if self.kl_in_advantage and (not self.kl_coefficient or self.algorithm == "ppo"):
            raise ValueError(
                "kl_in_advantage is what kl_coefficient weighs, with grpo or dapo: set both, or "
                "leave it out"
            )
        if self.judge_nodes and self.judge_jobs_per_node is None:
            raise ValueError("judge_nodes need judge_jobs_per_node: set it to their processors")
        row = self.max_prompt_tokens + self.max_response_tokens
        if self.micro_batch_tokens is not None and self.micro_batch_tokens < row:
            raise ValueError(
                f"micro_batch_tokens={self.micro_batch_tokens} is less than a row of {row} tokens"
            )
        if self.samples_per_prompt < 2 and self.algorithm != "ppo":
            raise ValueError(
                f"samples_per_prompt should be greater than or equal to 2 with {self.algorithm}: "
                "its baseline is the group of a prompt"
            )
        if self.overlong_buffer >= self.max_response_tokens:
            raise ValueError(
                f"overlong_buffer_tokens={self.overlong_buffer} leaves nothing of the "
                f"{self.max_response_tokens} tokens of an answer: choose fewer"
            )
        if self.reward is not None and self.role_rewards:
            raise ValueError(
                "role_rewards change the numbers of a preset, and reward names none: leave one out"
            )
        if self.tester and self.judge != type(self).model_fields["judge"].default:
            raise ValueError("a judge of one's own runs no probes: leave the tester out")
        if Role.TESTER in self.role_rewards:
            raise ValueError("role_rewards of the tester: it takes no turn and has no reward")
        if self.role_models and self.policy != "per_role":
            raise ValueError("role_models are of roles with a policy each: set policy=per_role")
        if self.role_models.keys() - {Role.GENERATOR, Role.OPTIMIZER}:
            raise ValueError("role_models of the tester: it is not trained")
        if self.policy == "per_role":
            self._possible_per_role()
        elif self.phase is not None:
            raise ValueError("a phase trains one role: set policy=per_role")
        return self

    def _possible_reward(self) -> None:
        preset = PRESETS.get(self.reward_preset)
        pays = preset is not None and preset.of_measured_times and self.reward is None
        modelled = self.has_usual_judge and self.judge_args.get("backend") in (None, "emulator")
        if pays and modelled and not self.judge_gpus and not self.judge_nodes:
            raise ValueError(
                f"reward_preset {self.reward_preset} pays measured times, and the emulator models "
                "them: set judge_gpus, or another preset"
            )

    def _possible_apart(self) -> None:
        if self.device == "cpu" or self.ray_address is not None:
            raise ValueError(
                "rollout_gpus are of one machine whose other GPUs train: set device cuda "
                "and no ray_address"
            )
        if self.algorithm == "dapo" or self.curriculum is not None or self.policy == "per_role":
            raise ValueError(
                "rollout_gpus go with grpo or ppo, one policy and no curriculum: verl's trainer "
                "for a pool of its own draws a step's prompts in another way"
            )

    def _possible_per_role(self) -> None:
        if self.lora_rank == 0:
            raise ValueError("policy per_role trains an adapter a role: set --lora-rank, e.g. 16")
        if self.algorithm == "ppo":
            raise ValueError(
                "policy per_role goes with grpo or dapo: what ppo's critic has learnt of one role "
                "is not kept for the other"
            )
        if self.max_turns < 2:
            raise ValueError(
                "policy per_role needs --max-turns 2 or more: with 1 the optimizer never speaks"
            )
        if self.phase is None and self.num_episodes <= self.phase_steps:
            raise ValueError(
                f"policy per_role with num_episodes={self.num_episodes} and phase_steps="
                f"{self.phase_steps} would train one role alone: choose fewer --phase-steps"
            )
        if self.ray_address is not None:
            raise ValueError(
                "policy per_role serves the frozen role on the machine that trains: leave out "
                "ray_address"
            )

    def start_of(self, role: Role) -> str:
        """Folder of the model that a role starts from."""
        return self.role_models.get(role, self.model_path)

    @property
    def gpus_used(self) -> int:
        """GPUs of this machine that train or write answers; those that judge come after them."""
        return self.num_gpus + self.rollout_gpus

    @property
    def last_step(self) -> int:
        """Where the run ends; a phase ends before the steps that the role has in all."""
        return self.phase.until if self.phase is not None else self.num_episodes

    @property
    def clip_high(self) -> float:
        """The upper clip ratio of the algorithm."""
        if self.clip_ratio_high is not None:
            return self.clip_ratio_high
        return 0.28 if self.algorithm == "dapo" else 0.2

    @property
    def overlong_buffer(self) -> int:
        """Tokens before the longest answer over which a penalty grows; 0: none."""
        if self.overlong_buffer_tokens is not None:
            return self.overlong_buffer_tokens
        return self.max_response_tokens // 5 if self.algorithm == "dapo" else 0

    @property
    def overlong(self) -> Overlong | None:
        """The penalty on answers near the limit; None: there is none."""
        if self.overlong_buffer == 0:
            return None
        return Overlong(
            max_tokens=self.max_response_tokens,
            buffer_tokens=self.overlong_buffer,
            penalty=self.overlong_penalty,
        )

    @property
    def has_usual_judge(self) -> bool:
        """Whether the judge is ours."""
        return self.judge == str(type(self).model_fields["judge"].default)

    @property
    def groups_needed(self) -> int:
        """Groups with an advantage without which there is no update; ppo has no groups."""
        if self.algorithm == "ppo":
            return 1
        return self.least_groups or min(2, self.prompts_per_step)

    @property
    def prompts_in_file(self) -> int:
        """Prompts that the run may draw; the loader begins anew after them."""
        steps = self.num_episodes * self.prompts_per_step
        if self.algorithm != "dapo":
            return steps
        return max(steps, min(steps * self.sampling_rounds, MOST_SPARE_PROMPTS))

    @property
    def conversations_per_step(self) -> int:
        return self.prompts_per_step * self.samples_per_prompt

    @property
    def kl_in_loss(self) -> bool:
        """Whether the loss has a KL term."""
        return self.kl_coefficient > 0 and not self.kl_in_advantage

    @property
    def rows_per_step(self) -> int:
        """Most rows of a step; fewer where conversations end early."""
        return self.conversations_per_step * self.max_turns

    @property
    def tokens_per_micro_batch(self) -> int:
        if self.micro_batch_tokens is not None:
            return self.micro_batch_tokens
        row = self.max_prompt_tokens + self.max_response_tokens
        return row if self.device == "cpu" else max(row, 16384)

    @classmethod
    def cpu(cls, **changes: Any) -> MultiTurnRLConfig:
        """Sizes for 2 cores and a model of about 135M parameters."""
        sizes: dict[str, Any] = {
            "device": "cpu",
            "num_episodes": 4,
            "max_turns": 2,
            "prompts_per_step": 2,
            "samples_per_prompt": 4,
            "max_prompt_tokens": 1024,
            "max_response_tokens": 384,
            "reuse_rollout_logprobs": True,
            "gradient_checkpointing": False,
            "rollout_workers": 1,
            "object_store_mib": 512,
        }
        if "verl_rollout_batch_size" in changes:
            del sizes["samples_per_prompt"]
        return cls.model_validate({**sizes, **cls.by_our_names(changes)})
