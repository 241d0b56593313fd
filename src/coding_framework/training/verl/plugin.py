"""What each verl process loads, by VERL_USE_EXTERNAL_MODULES, before verl does anything.

Where VERL_PLATFORM=cpu it registers the CPU platform and names its rollout. It imports little, for
it runs in each of a run's processes; what is heavy is imported by the processes that need it:
engines (model.external_lib), agent loop and estimator (agent.agent_loop_manager_class).
`main.check_registered` makes sure that it really happened.
"""

from __future__ import annotations

import os

from coding_framework.training.verl.overrides import CPU_ROLLOUT

_ADAPTER = "coding_framework.training.verl.cpu_rollout.CPURolloutAdapter"


def _register() -> None:
    if os.environ.get("VERL_PLATFORM", "").strip().lower() == "cpu":
        from coding_framework.training.verl import cpu_platform

        cpu_platform.use_plain_gloo()
        _name_rollout()  # after the platform: what it imports asks for it


def _name_rollout() -> None:
    from verl.workers.rollout import base
    from verl.workers.rollout.replica import RolloutReplicaRegistry

    base._ROLLOUT_REGISTRY[(CPU_ROLLOUT, "async")] = _ADAPTER
    RolloutReplicaRegistry.register(CPU_ROLLOUT, _load_replica)


def _load_replica() -> type:
    from coding_framework.training.verl.cpu_rollout import CPURolloutReplica

    return CPURolloutReplica


_register()
