"""What each verl process loads, by VERL_USE_EXTERNAL_MODULES, before verl does anything.

Registers the per-turn estimator always, and the CPU platform with its rollout where
VERL_PLATFORM=cpu. `check_registered` is the loud check that it really happened: verl itself
swallows the import error of an entry-point plug-in at debug level, and then fails far away.
"""

from __future__ import annotations

import os

from coding_framework.errors import TrainingError

MODULE = "coding_framework.training.verl.plugin"
CPU_ROLLOUT = "cpu_batched"


def _register() -> None:
    if os.environ.get("VERL_PLATFORM", "").strip().lower() == "cpu":
        _register_cpu()  # first: most of verl asks for the platform when it is imported
    from coding_framework.training.verl import agent_loop, estimator  # noqa: F401


def _register_cpu() -> None:
    from verl.workers.rollout import base
    from verl.workers.rollout.replica import RolloutReplicaRegistry

    from coding_framework.training.verl import cpu_platform

    cpu_platform.install()
    base._ROLLOUT_REGISTRY[(CPU_ROLLOUT, "async")] = (
        "coding_framework.training.verl.cpu_rollout.CPURolloutAdapter"
    )
    RolloutReplicaRegistry.register(CPU_ROLLOUT, _load_replica)


def _load_replica() -> type:
    from coding_framework.training.verl.cpu_rollout import CPURolloutReplica

    return CPURolloutReplica


def check_registered(device: str) -> None:
    """Make sure that this process's verl knows all that a run on `device` needs.

    Raises:
        TrainingError: naming the first thing that is missing and how to load the plug-in.
    """
    import verl.trainer.ppo.core_algos as algos
    from verl.experimental.agent_loop import agent_loop as loops
    from verl.plugin.platform.platform_manager import PlatformRegistry
    from verl.workers.rollout.replica import RolloutReplicaRegistry

    missing = []
    if "turn_grpo" not in algos.ADV_ESTIMATOR_REGISTRY:
        missing.append("advantage estimator 'turn_grpo'")
    if "kernel_turns" not in loops._agent_loop_registry:
        missing.append("agent loop 'kernel_turns'")
    if device == "cpu":
        if "cpu" not in PlatformRegistry.registered_names():
            missing.append("platform 'cpu'")
        if CPU_ROLLOUT not in RolloutReplicaRegistry._registry:
            missing.append(f"rollout '{CPU_ROLLOUT}'")
    if missing:
        raise TrainingError(
            f"the verl plug-in did not register {', '.join(missing)}: set "
            f"VERL_USE_EXTERNAL_MODULES={MODULE}"
            + (" and VERL_PLATFORM=cpu" if device == "cpu" else "")
            + " before verl is imported (cuda-rl and the training scripts do)"
        )


_register()
