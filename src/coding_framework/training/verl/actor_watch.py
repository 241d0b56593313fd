"""Finds Ray actors of a run that have died: nobody else does.

verl's trainer hands conversations to its rollout workers and polls a queue for their rows. A dead
worker never sends them, and the run would wait for ever. This watch finds an actor that crashed, or
was lost with its node, within two seconds. It ignores actors that Ray restarts (the judges), that
were ended on purpose, or that ended with their owner.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

_LOOK_S = 1.0
_SAID = 200
_ON_PURPOSE = "Worker exit type: INTENDED"


def watch_actors(ended: Callable[[str], None]) -> None:
    """Watch in a thread of its own for as long as this process lives. `ended` is called with what
    happened."""
    threading.Thread(target=_watch, args=(ended,), daemon=True).start()


def _watch(ended: Callable[[str], None]) -> None:
    while True:
        time.sleep(_LOOK_S)
        reasons: list[str | None] = []
        with suppress(Exception):  # Ray is not there yet, or not any more
            reasons = [why_it_died(dead) for dead in _dead_actors()]
        for said in filter(None, reasons):
            ended(said)
            return


def _dead_actors() -> list[dict[str, Any]]:
    import ray
    from ray._private import state  # the public way needs Ray's dashboard, which does not run here

    if not ray.is_initialized():
        return []
    job = ray.JobID.from_hex(ray.get_runtime_context().get_job_id())
    return list(state.actors(job_id=job, actor_state_name="DEAD").values())


def why_it_died(actor: dict[str, Any]) -> str | None:
    """Why an actor died, in words; None where nothing is wrong. actor: an entry of Ray's table."""
    cause = actor["DeathCause"]
    who = f"{actor['ActorClassName'].rpartition('.')[2]} (process {actor['Pid']})"
    if cause.HasField("oom_context"):
        return f"{who} was killed for want of memory: {_first_line(cause.oom_context)}"
    died = cause.actor_died_error_context
    if died.reason == died.NODE_DIED:
        return f"{who} was lost with its node {died.node_ip_address}"
    if died.reason == died.WORKER_DIED and _ON_PURPOSE not in died.error_message:
        return f"{who} died: {_first_line(died)}"
    return None


def _first_line(context: Any) -> str:
    return " ".join(context.error_message.split())[:_SAID]
