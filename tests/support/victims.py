"""Processes of an RL run to be killed, in tests and in `tests/soak/rl_kills.py`."""

from __future__ import annotations

from contextlib import suppress

import psutil

from coding_framework.training.verl.process import run_processes


def kill_one(run: str, name: str) -> bool:
    """SIGKILL a process of the run in this folder whose command line has the name; whether there
    was one. Ray's actors go by the names of their classes."""
    for process in run_processes(run):
        with suppress(psutil.Error):
            if name in " ".join(process.cmdline()):
                process.kill()
                return True
    return False
