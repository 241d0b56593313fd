"""`python -m coding_framework.training.verl.main DEVICE OVERRIDE...`: verl's own trainer.

Checks that the plug-in registered, then calls `verl.trainer.main_ppo`. It ends with its parent:
standard input is a pipe that the trainer never writes to, and its end means that the parent is
gone, however it died. It ends too when an actor of the run has died (`actor_watch`). Ray's
processes of this run share this process's fate.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from contextlib import suppress

from coding_framework.errors import TrainingError
from coding_framework.monitoring.child import adopt_orphans, descendants, kill_all
from coding_framework.training.verl.actor_watch import watch_actors
from coding_framework.training.verl.overrides import CPU_ROLLOUT, OWN_RAY, PLUGIN


def _die_with_parent() -> None:
    """Whoever started us is gone; checkpoints are whole at any moment."""
    while os.read(0, 4096):
        pass
    _leave(143)


def use_own_job_id() -> None:
    """Let Ray's job have this process's id for its number.

    Each instance of Ray counts its jobs from 1, and verl names the socket in /tmp, by which a
    trainer hands its weights to vLLM, by that number: two runs on one machine would remove each
    other's socket, and wait for ever or sample from each other's weights.
    """
    import ray
    import ray._private.state

    ray._private.state.next_job_id = lambda: ray.JobID.from_int(os.getpid())


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
    if OWN_RAY in overrides:
        use_own_job_id()
    watch_actors(lambda said: _leave(1, f"error: {said}"))
    try:
        check_registered(device)
    except TrainingError as e:
        print(f"error: {e}", file=sys.stderr, flush=True)
        sys.exit(4)
    _leave(_train())


def _train() -> int:
    from verl.trainer import main_ppo

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


if __name__ == "__main__":
    main()
