"""`python -m coding_framework.training.verl.main DEVICE OVERRIDE...`: verl's own trainer.

Checks that the plug-in registered, then calls `verl.trainer.main_ppo`. It ends with its parent:
standard input is a pipe that the trainer never writes to, and its end means that the parent is
gone, however it died. Ray's processes of this run share this process's fate.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from coding_framework.errors import TrainingError


def _die_with_parent() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(10)
    os._exit(143)


def _exit_on_sigterm(*_: object) -> None:
    sys.exit(143)


def main() -> None:
    """Run verl's trainer with the overrides of the command line."""
    device, sys.argv = sys.argv[1], [sys.argv[0], *sys.argv[2:]]
    signal.signal(signal.SIGTERM, _exit_on_sigterm)
    threading.Thread(target=_die_with_parent, daemon=True).start()
    from verl.trainer import main_ppo

    from coding_framework.training.verl.plugin import check_registered

    try:
        check_registered(device)
    except TrainingError as e:
        print(f"error: {e}", file=sys.stderr, flush=True)
        sys.exit(4)
    main_ppo.main()


if __name__ == "__main__":
    main()
