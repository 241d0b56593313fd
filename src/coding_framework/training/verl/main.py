"""`python -m coding_framework.training.verl.main DEVICE OVERRIDE...`: verl's own trainer.

Checks that the plug-in registered, then calls `verl.trainer.main_ppo`. It ends with its parent:
standard input is a pipe that the trainer never writes to, and its end means that the parent is
gone, however it died. It ends too when an actor of the run has died (`watch_actors`). Ray's
processes of this run share this process's fate.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from coding_framework.errors import TrainingError
from coding_framework.monitoring.child import adopt_orphans, descendants, kill_all
from coding_framework.training.verl.overrides import CPU_ROLLOUT, OWN_RAY, PLUGIN

_LOOK_S = 1.0
_SAID = 200
_ON_PURPOSE = "Worker exit type: INTENDED"


def _die_with_parent() -> None:
    """Whoever started us is gone; checkpoints are whole at any moment."""
    while os.read(0, 4096):
        pass
    _leave(143)


def _exit_on_sigterm(*_: object) -> None:
    sys.exit(143)


def check_registered(device: str) -> None:
    """Make sure that this process's verl loaded the plug-in, as all workers' will.

    A plug-in loaded as an entry point may fail without a word: verl swallows its import error at
    debug level, and then fails far away. Imports verl, but not the plug-in.

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
            f"VERL_USE_EXTERNAL_MODULES={PLUGIN} before verl is imported"
        )


def main() -> None:
    """Run verl's trainer with the overrides of the command line."""
    name, device, *overrides = sys.argv
    sys.argv = [name, *overrides]
    signal.signal(signal.SIGTERM, _exit_on_sigterm)
    adopt_orphans()
    threading.Thread(target=_die_with_parent, daemon=True).start()
    watch_actors(lambda said: _leave(1, f"error: {said}"))
    try:
        check_registered(device)
    except TrainingError as e:
        print(f"error: {e}", file=sys.stderr, flush=True)
        sys.exit(4)
    _leave(_train(own_ray=OWN_RAY in overrides))


def _train(own_ray: bool) -> int:
    from verl.trainer import main_ppo

    from coding_framework.training.verl import patches
    from coding_framework.training.verl.trainer import TaskRunner

    if own_ray:
        patches.use_own_job_id()
    patches.use_runner(TaskRunner)
    try:
        main_ppo.main()
    except SystemExit as e:
        return e.code if isinstance(e.code, int) else 1
    except BaseException:  # the process ends here, with the reason in its log
        traceback.print_exc()
        return 1
    return 0


_leaving = threading.Lock()


def _leave(code: int, why: str = "") -> None:
    """End at once, and all of Ray with us: its own teardown waits for ever where its start had
    failed, and its agents outlive a raylet that ends early. The first thread to come does it.

    why: the log's last word: others say meanwhile what they see of it. The log may be on a disk
    that is full.
    """
    _leaving.acquire()
    try:
        kill_all(descendants)
        with suppress(OSError):
            if why:
                print(why, file=sys.stderr)
            sys.stdout.flush()
            sys.stderr.flush()
    finally:
        os._exit(code)


def watch_actors(ended: Callable[[str], None]) -> None:
    """Watch, in a thread of its own, for Ray actors of the run that have died: nobody else does.

    verl's trainer hands conversations to its rollout workers and polls a queue for their rows. A
    dead worker never sends them, and the run would wait for ever. This finds an actor that crashed,
    or was lost with its node, within two seconds; `ended` is called with what happened. It ignores
    actors that Ray restarts (the judges), that were ended on purpose, or with their owner.
    """
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


if __name__ == "__main__":
    main()
