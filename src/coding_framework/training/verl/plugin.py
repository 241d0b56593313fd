"""What each verl process loads, by VERL_USE_EXTERNAL_MODULES, before verl does anything.

Where VERL_PLATFORM=cpu it registers the CPU platform and names its rollout. It imports little, for
it runs in each of a run's processes; what is heavy is imported by the processes that need it:
engines (model.external_lib), agent loop and estimator (agent.agent_loop_manager_class).
`check_registered` is the loud check that it really happened: verl itself swallows the import error
of an entry-point plug-in at debug level, and then fails far away.
"""

from __future__ import annotations

import os

from coding_framework.errors import TrainingError

MODULE = "coding_framework.training.verl.plugin"
CPU_ROLLOUT = "cpu_batched"
_ADAPTER = "coding_framework.training.verl.cpu_rollout.CPURolloutAdapter"


def _register() -> None:
    if os.environ.get("VERL_PLATFORM", "").strip().lower() == "cpu":
        from verl.workers.rollout import base
        from verl.workers.rollout.replica import RolloutReplicaRegistry

        from coding_framework.training.verl import cpu_platform  # first: verl asks for it at import

        cpu_platform.use_plain_gloo()
        base._ROLLOUT_REGISTRY[(CPU_ROLLOUT, "async")] = _ADAPTER
        RolloutReplicaRegistry.register(CPU_ROLLOUT, _load_replica)


def _load_replica() -> type:
    from coding_framework.training.verl.cpu_rollout import CPURolloutReplica

    return CPURolloutReplica


def check_registered(device: str) -> None:
    """Make sure that this process's verl knows the platform and the rollout of `device`.

    Raises:
        TrainingError: naming what is missing and how to load the plug-in.
    """
    from verl.plugin.platform.platform_manager import PlatformRegistry
    from verl.workers.rollout.replica import RolloutReplicaRegistry

    if device != "cpu":
        return
    missing = []
    if "cpu" not in PlatformRegistry.registered_names():
        missing.append("platform 'cpu'")
    if CPU_ROLLOUT not in RolloutReplicaRegistry._registry:
        missing.append(f"rollout '{CPU_ROLLOUT}'")
    if missing:
        raise TrainingError(
            f"the verl plug-in did not register {' and '.join(missing)}: set VERL_PLATFORM=cpu and "
            f"VERL_USE_EXTERNAL_MODULES={MODULE} before verl is imported"
        )


_register()
