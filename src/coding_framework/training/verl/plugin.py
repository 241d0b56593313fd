"""What each verl process loads, by VERL_USE_EXTERNAL_MODULES, before verl does anything.

Where VERL_PLATFORM=cpu it registers the CPU platform and names its rollout. It imports little, for
it runs in each of a run's processes; what is heavy is imported by the processes that need it:
engines, log-probs, weights for the rollout and the critic's loader by training workers, agent loop,
estimator and sampling by those that load agent.agent_loop_manager_class.
`main.check_registered` makes sure that it really happened.
"""

from __future__ import annotations

import logging
import os
from typing import Any

from coding_framework.training.verl.overrides import CPU_ROLLOUT

_WORKER = "WG_PREFIX"
"""verl sets it for its training workers. Their critic asks for its engine when it is made, before
any module that the configuration names (model.external_lib) would be imported."""
_ADAPTER = "coding_framework.training.verl.cpu_rollout.CPURolloutAdapter"


class _TakesFlush(logging.Logger):
    """verl 0.9.1's trainer for rollout GPUs of their own says at its start, as to `print`, that its
    line is to be flushed. A logger knows no such argument, and the run would end there."""

    def info(self, msg: object, *args: object, flush: bool = False, **kwargs: Any) -> None:
        kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1
        super().info(msg, *args, **kwargs)


def _register() -> None:
    logging.getLogger("verl.trainer.ppo.v1.trainer_separate_async").__class__ = _TakesFlush
    if os.environ.get("VERL_PLATFORM", "").strip().lower() == "cpu":
        from coding_framework.training.verl import cpu_platform

        cpu_platform.use_plain_gloo()
        _name_rollout()  # after the platform: what it imports asks for it
        if _WORKER in os.environ:
            from coding_framework.training.verl import cpu_engines  # noqa: F401
    elif _WORKER in os.environ:
        from coding_framework.training.verl import token_logprobs  # noqa: F401
    if _WORKER in os.environ:
        from coding_framework.training.verl import (  # noqa: F401
            adapter_reference,
            critic_loader,
            merged_weights,
            packed_attention,
        )


def _name_rollout() -> None:
    from verl.workers.rollout import base
    from verl.workers.rollout.replica import RolloutReplicaRegistry

    base._ROLLOUT_REGISTRY[(CPU_ROLLOUT, "async")] = _ADAPTER
    RolloutReplicaRegistry.register(CPU_ROLLOUT, _load_replica)


def _load_replica() -> type:
    from coding_framework.training.verl.cpu_rollout import CPURolloutReplica

    return CPURolloutReplica


_register()
