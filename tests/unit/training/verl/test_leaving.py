"""How verl's trainer process ends where its log cannot be written."""

from __future__ import annotations

import subprocess
import sys

import pytest

from support.waiting import PATIENCE_S

pytestmark = pytest.mark.unit

DIES = """
import threading, time
from coding_framework.training.verl import main
leaving = threading.Event()
main.kill_all = lambda found: (leaving.set(), time.sleep(0.2))
main._LOOK_S = 0.01
main._dead_actors = lambda: [{}]
main.why_it_died = lambda actor: "TurnRowsWorker died"
main.watch_actors(lambda said: main._leave(1, f"error: {said}"))
leaving.wait()
print("error: the queue is gone", file=__import__("sys").stderr)
main._leave(0)
"""


def test_the_reason_of_who_leaves_first_is_the_last_word() -> None:
    done = subprocess.run([sys.executable, "-c", DIES], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "error: TurnRowsWorker died"


def test_a_log_on_a_full_disk_holds_nobody_up() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-u", "-c", DIES.replace('print("', '0 and print("')],
            stderr=full, stdout=full, check=False, timeout=PATIENCE_S,
        )  # fmt: skip
    assert done.returncode == 1
