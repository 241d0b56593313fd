"""Ray started early on the CPU, with processes that import verl while the trainer does.

Each of verl's processes imports verl first, about 10 s of one core, and verl starts them one after
the other. Started here instead, Ray's idle workers do their imports side by side with the
trainer's, and verl's actors then move into them. Measured alone on 2 cores, a start takes about
20 s less. Nothing depends on it: an actor that finds no such worker gets a new one.
"""

from __future__ import annotations

from typing import Any

WARM_WORKERS = 4
"""The trainer's process, two of the transfer queue, and one of rollout: those that verl starts
without an environment of their own, which Ray can place in a process that is there."""


def start_ray(options: dict[str, Any]) -> None:
    """Start an instance of Ray of our own and let its first workers import what verl needs."""
    import ray

    ray.init(**options)
    warm = ray.remote(num_cpus=1)(_import_verl)
    for _ in range(WARM_WORKERS):
        warm.remote()


def _import_verl() -> None:
    import verl.trainer.ppo.v1  # noqa: F401
