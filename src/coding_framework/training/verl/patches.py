"""Everything that is put into verl's and Ray's own classes and modules, in this one file.

Each patch says why it is here, and "Goes when" it would be unnecessary. They are made for verl
`VERL`; another version ends the process that loads this. What can be a subclass is one (`trainer`,
`agent_loop`, `cpu_rollout`), and `in_trainer` puts trainers where verl looks for its own.

Each verl process loads this module, by VERL_USE_EXTERNAL_MODULES, before verl does anything
(`main.check_registered` makes sure that it really happened). So it imports little: each part is
bound in the processes that need it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from coding_framework.errors import TrainingError
from coding_framework.training.verl.overrides import CPU_ROLLOUT

if TYPE_CHECKING:
    import torch

VERL = "0.9.1"
_WORKER = "WG_PREFIX"
"""verl sets it for its training workers. Their critic asks for its engine when it is made, before
any module that the configuration names (model.external_lib) would be imported."""
_ADAPTER = "coding_framework.training.verl.cpu_rollout.CPURolloutAdapter"
_HEAD_SEED = 0


def _register() -> None:
    if version("verl") != VERL:
        raise TrainingError(
            f"training/verl/patches.py is made for verl {VERL}, and verl {version('verl')} is "
            f"installed: install verl=={VERL}"
        )
    on_cpu = os.environ.get("VERL_PLATFORM", "").strip().lower() == "cpu"
    if on_cpu:
        from coding_framework.training.verl import cpu_platform  # noqa: F401

        _use_plain_gloo()
        _name_rollout()  # after the platform: what it imports asks for it
    if _WORKER in os.environ:
        in_worker(on_cpu)


def use_own_job_id() -> None:
    """Let Ray's job have this process's id for its number.

    Each instance of Ray counts its jobs from 1, and verl names the socket in /tmp, by which a
    trainer hands its weights to vLLM, by that number: two runs on one machine would remove each
    other's socket, and wait for ever or sample from each other's weights.

    Goes when: verl's socket has a name of its own run.
    """
    import ray
    import ray._private.state

    ray._private.state.next_job_id = lambda: ray.JobID.from_int(os.getpid())


def use_runner(runner: type) -> None:
    """verl's main starts it. Goes when: its configuration names the runner."""
    import ray
    from verl.trainer import main_ppo

    main_ppo.TaskRunnerV1 = ray.remote(runner)


def in_trainer(trainers: Mapping[str, type], buffer: type, buffer_async: type) -> None:
    """In the process that trains: our trainers and buffers by the names of verl's own.

    Goes when: verl takes a trainer's class and a buffer of a user's own with all of its arguments
    (trainer.v1.sampler.custom_sampler gets no refill and no batch size).
    """
    from verl.trainer.ppo import core_algos
    from verl.trainer.ppo.v1 import trainer_base, trainer_separate_async

    trainer_base.TRAINER_REGISTRY |= trainers
    trainer_base.ReplayBuffer = buffer
    trainer_base.ReplayBufferAsync = buffer_async
    core_algos.compute_gae_advantage_return = masked_gae
    trainer_separate_async.logger.__class__ = _TakesFlush


class _TakesFlush(logging.Logger):
    """verl's trainer for rollout GPUs of their own says at its start, as to `print`, that its line
    is to be flushed. A logger knows no such argument, and the run would end there.

    Goes when: `trainer_separate_async` logs without `flush`.
    """

    def info(self, msg: object, *args: object, flush: bool = False, **kwargs: Any) -> None:
        kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1
        super().info(msg, *args, **kwargs)


def masked_gae(
    token_level_rewards: torch.Tensor,
    values: torch.Tensor,
    response_mask: torch.Tensor,
    gamma: float,
    lam: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """verl's (advantages, returns), whitened over the batch; advantages are 0 where masked. A row
    is an episode of its own: its tokens are the steps, and the last one is paid the turn's return.

    verl raises where fewer than two tokens are to be learnt from, which a step of faults of ours
    leaves; here such a step teaches nothing: advantages of 0, and returns that are the values.

    Goes when: `core_algos.compute_gae_advantage_return` takes a batch that is all masked.
    """
    import torch
    from verl.trainer.ppo import core_algos

    if response_mask.sum() < 2:
        return torch.zeros_like(values), values
    theirs = core_algos.get_adv_estimator_fn("gae")  # the registry has verl's own
    advantages, returns = theirs(token_level_rewards, values, response_mask, gamma, lam)
    return advantages * response_mask, returns


def after_next_log(logger: Any, act: Callable[[], None]) -> None:
    """Do it once verl's logger has logged the next time.

    Goes when: verl calls its checkpoint callback after the step is logged too.
    """
    written = logger.log

    def write_and_act(*arguments: Any, **named: Any) -> None:
        logger.log = written
        written(*arguments, **named)
        act()

    logger.log = write_and_act


def in_worker(on_cpu: bool) -> None:
    """In a process that holds the policy's weights: log-probs, adapters, critic, engines."""
    import verl.utils.model as models
    from verl.workers.engine.fsdp.transformer_impl import FSDPEngine

    from coding_framework.training.verl import worker

    if on_cpu:
        _use_engines_on_cpu()
    else:
        use_token_logprobs()
    worker.register_attention()
    theirs = FSDPEngine._merged_lora_per_tensor_param, FSDPEngine.disable_adapter

    # verl copies all weights to the processor's memory, merges the adapter into them, sends them
    # and copies them back: 5.7 s of a step for 1.5 billion weights, where weights without an
    # adapter take 0.24 s (H200s). Goes when: verl sends merged weights without a copy of all.
    FSDPEngine._merged_lora_per_tensor_param = lambda engine: worker.merged(engine, theirs[0])

    # The reference as the policy without its adapter, also where it is computed before anything
    # else. FSDP2 looks at its first forward which parameters learn, and of what type their
    # gradients are; PEFT marks an adapter that is switched off as one that does not learn. With the
    # rollout's log-probs taken as they are (`reuse_rollout_logprobs`) that first forward is the
    # reference's, and the update then ended with "attempting to assign a gradient with dtype
    # BFloat16". So FSDP looks before. Goes when: verl's `disable_adapter` keeps `requires_grad`.
    def without_adapter(engine: Any) -> Any:
        from torch.distributed.fsdp import FSDPModule

        if isinstance(engine.module, FSDPModule):
            engine.module._get_fsdp_state()._lazy_init()  # does nothing the second time
        return theirs[1](engine)

    FSDPEngine.disable_adapter = without_adapter
    models.load_valuehead_model = _load_critic


def use_token_logprobs() -> None:
    """Without flash-attn verl takes the log-probs of a packed row in a Python loop over its tokens.

    Some kernel launches each: 0.1 ms a token forward and backward (measured on an H200: 3.6 s an
    update of 36,000 tokens of a 135M model), more than the model itself takes.

    Goes when: `logprobs_from_logits_v2` works on chunks of tokens.
    """
    import verl.utils.torch_functional as verl_functional

    from coding_framework.training.verl.worker import token_logprobs

    verl_functional.logprobs_from_logits_v2 = token_logprobs


def _load_critic(
    local_path: str, torch_dtype: torch.dtype, model_config: Any, trust_remote_code: bool
) -> Any:
    """A critic without flash-attention 2, which verl's loader hard-codes, and with the same value
    head in each run: it is no part of the policy's weights, so it is drawn.

    Goes when: `load_valuehead_model` takes the configuration's attn_implementation.
    """
    import torch
    from transformers import AutoModelForTokenClassification

    with torch.random.fork_rng():
        torch.manual_seed(_HEAD_SEED)
        return AutoModelForTokenClassification.from_pretrained(
            local_path,
            dtype=torch_dtype,
            config=model_config,
            attn_implementation="sdpa",
            trust_remote_code=trust_remote_code,
        )


def _use_engines_on_cpu() -> None:
    """FSDP engines for device "cpu". CPU offload of the frozen reference asks for pinned memory,
    which needs an accelerator. Goes when: verl registers its engines for the CPU."""
    from verl.workers.engine.base import EngineRegistry
    from verl.workers.engine.fsdp import transformer_impl as fsdp

    for model_type, engine in (
        ("language_model", fsdp.FSDPEngineWithLMHead),
        ("value_model", fsdp.FSDPEngineWithValueHead),
    ):
        EngineRegistry.register(model_type=model_type, backend=["fsdp", "fsdp2"], device="cpu")(
            engine
        )
    theirs = fsdp.CPUOffloadPolicy
    fsdp.CPUOffloadPolicy = lambda pin_memory=False: theirs(pin_memory=False)


def _use_plain_gloo() -> None:
    """verl asks torch for "cpu:gloo,cpu:gloo", a duplicate key. Goes when: verl knows the CPU as a
    platform."""
    import verl.utils.distributed as distributed

    original = distributed.initialize_global_process_group_ray

    def initialize(timeout_second: int | None = None, backend: str | None = None) -> Any:
        return original(timeout_second=timeout_second, backend=backend or "gloo")

    distributed.initialize_global_process_group_ray = initialize


def _name_rollout() -> None:
    """The CPU's rollout, by name. Goes when: verl's registry of rollout adapters is public."""
    from verl.workers.rollout import base
    from verl.workers.rollout.replica import RolloutReplicaRegistry

    base._ROLLOUT_REGISTRY[(CPU_ROLLOUT, "async")] = _ADAPTER
    RolloutReplicaRegistry.register(CPU_ROLLOUT, _load_replica)


def _load_replica() -> type:
    from coding_framework.training.verl.cpu_rollout import CPURolloutReplica

    return CPURolloutReplica


_register()
