"""A function in a process of its own."""

from __future__ import annotations

import operator
import os
import signal
import subprocess
import sys

import pytest

from coding_framework.data.registry import find_task
from coding_framework.errors import InfrastructureError, UsageError
from coding_framework.monitoring.child import run_in_child
from support.waiting import PATIENCE_S, ended, until

pytestmark = pytest.mark.unit


def test_the_result_comes_from_another_process():
    assert run_in_child(os.getpid) != os.getpid()


def test_an_error_of_ours_passes_through():
    with pytest.raises(UsageError, match="no task is called 'relu_nosuch'"):
        run_in_child(find_task, "relu_nosuch")


def test_another_error_is_a_sentence():
    with pytest.raises(InfrastructureError, match=r"getitem failed \(KeyError: 'key'\)"):
        run_in_child(operator.getitem, {}, "key")


def test_a_child_that_is_killed_is_a_sentence():
    with pytest.raises(InfrastructureError, match=r"ended with signal 9: see that there is memory"):
        run_in_child(signal.raise_signal, signal.SIGKILL)


@pytest.mark.parametrize("stop", [signal.SIGKILL, signal.SIGINT])
def test_the_child_ends_with_its_parent(tmp_path, stop):
    script = tmp_path / "parent.py"
    script.write_text(
        "import os, sys, time\n"
        "from pathlib import Path\n"
        "from coding_framework.monitoring.child import run_in_child\n"
        "def sleeper(note):\n"
        "    Path(note).write_text(str(os.getpid()))\n"
        "    time.sleep(1000)\n"
        "if __name__ == '__main__': run_in_child(sleeper, sys.argv[1])\n"
    )
    note = tmp_path / "pid"
    parent = subprocess.Popen(
        [sys.executable, str(script), str(note)],
        stderr=subprocess.DEVNULL,
    )
    until(lambda: parent.poll() is not None or (note.exists() and note.read_text()))
    child = int(note.read_text())
    parent.send_signal(stop)
    parent.wait(PATIENCE_S)
    until(lambda: ended(child))
