"""The likeliest first mistakes on the command line: each gets the sentence that helps.

Those in a kernel are in tests/integration/test_first_mistakes.py, before the real judge.
"""

from __future__ import annotations

import pytest

from coding_framework import cli

pytestmark = pytest.mark.unit

MISTAKES = {
    "a command misspelt": (["juge"], "did you mean judge?"),
    "a task misspelt": (["judge", "--task", "reluu", "--kernel", "k.cu"], "close names: relu"),
    "an action misspelt": (["tasks", "lsit"], "did you mean list?"),
    "a flag misspelt": (["judge", "--task", "relu", "--kernal", "k.cu"], "did you mean --kernel?"),
    "no kernel": (["judge", "--task", "relu"], "required: --kernel FILE"),
    "a kernel that is not there": (
        ["judge", "--task", "relu", "k.cu"],
        "'k.cu' cannot be read (No such file or directory)",
    ),
    "a task file that is not there": (
        ["judge", "--task", "mine.yaml", "k.cu"],
        "cannot read the task file mine.yaml",
    ),
    "a number out of its limits": (
        ["solve", "--task", "relu", "--turns", "0"],
        "--turns cannot be 0: give a whole number from 1 to 16",
    ),
    "a folder that cannot be written": (
        ["new-task", "mine", "--output-dir", "/proc/x"],
        "choose a folder that can be written",
    ),
    "a run that is not there": (["replay", "nothere"], "there is no run nothere"),
    "two names of the kernel": (
        ["judge", "--task", "relu", "a.cu", "--kernel", "b.cu"],
        "give one",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_first_mistake_gets_the_sentence_that_helps(capsys, mistake):
    argv, helps = MISTAKES[mistake]
    status = cli.main(argv)
    said = capsys.readouterr()
    assert helps in said.err
    assert (status, said.out, said.err.count("\n")) == (2, "", 1)
