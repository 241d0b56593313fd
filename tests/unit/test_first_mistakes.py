"""The likeliest first mistakes on the command line: each gets the sentence that helps.

Those in a kernel are in tests/integration/test_first_mistakes.py, before the real judge.
"""

from __future__ import annotations

import subprocess
import sys

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
        "the task file mine.yaml cannot be read",
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
    "a task without its flag": (["solve", "relu"], "did you mean --task relu?"),
    "a kernel without its flag": (
        ["judge", "examples/relu.cu"],
        "did you mean --task NAME --kernel examples/relu.cu?",
    ),
    "a kernel as the task": (["judge", "--task", "a.cu", "a.cu"], "give it as --kernel a.cu"),
    "a flag of another command": (["rft", "--task", "relu"], "has no flag '--task'"),
    "half a flag": (["judge", "--task", "relu", "--wrong", "k.cu"], "mean --fail-on-wrong?"),
    "a function as a task": (["judge", "--task", "FUNCTION", "k.cu"], "has no get_inputs"),
    "a task file with a name alone": (["judge", "--task", "NAMED", "k.cu"], "lacks reference"),
    "an empty task file": (["judge", "--task", "EMPTY", "k.cu"], "does not parse: it is empty"),
    "a task file of a list": (["judge", "--task", "LIST", "k.cu"], "holds no fields of a task"),
    "a task file with an open bracket": (["judge", "--task", "OPEN", "k.cu"], "does not parse:"),
    "a family misspelt": (["tasks", "list", "--family", "activaton"], "did you mean activation"),
    "a place given as a flag": (["rft", "--model", "m"], "give MODEL alone, without --model"),
    "a folder as the task": (["judge", "--task", ".", "k.cu"], "is a folder and no task"),
    "a task whose size depends on values": (
        ["judge", "--task", "NONZERO", "k.cu"], "decides by the values of its inputs",
    ),
    "a kernel to view": (["view", "FUNCTION"], "no folder and no .jsonl of conversations"),
    "a file where a folder is wanted": (
        ["new-task", "mine", "--output-dir", "FUNCTION"], "FUNCTION is a file): choose a folder",
    ),
    "an adapter that is not there": (
        ["solve", "--task", "relu", "--adapter", "nowhere", "--output-dir", "out"],
        "there is no adapter in nowhere",
    ),
    "no pairs": (["judge-many", "--tasks-and-kernels", "k.jsonl"], "k.jsonl cannot be read"),
    "a part of the cache misspelt": (["cache", "prune", "--part", "build"], "did you mean builds?"),
    "a GPU where there is none": (
        ["judge", "--task", "relu", "--backend", "gpu", "k.cu"], "choose one of auto, cuda",
    ),
}  # fmt: skip
FILES = {
    "FUNCTION": ("function.py", "import torch\ndef double(x):\n    return 2 * x\n"),
    "NAMED": ("named.json", '\ufeff{"name": "mine"}'),  # the mark that some editors put first
    "EMPTY": ("empty.json", ""),
    "LIST": ("list.yaml", "- 1\n- 2\n"),
    "OPEN": ("open.yaml", "name: [1,\n"),
    "NONZERO": (
        "nonzero.py",
        "\ufeffimport torch\n\nclass Model(torch.nn.Module):\n"
        "    def forward(self, x):\n        return torch.nonzero(x)\n"
        "def get_inputs():\n    return [torch.rand(4, 4)]\n"
        "def get_init_inputs():\n    return []\n",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_first_mistake_gets_the_sentence_that_helps(capsys, tmp_path, monkeypatch, mistake):
    argv, helps = MISTAKES[mistake]
    monkeypatch.chdir(tmp_path)
    for name, (path, text) in FILES.items():
        (tmp_path / path).write_text(text)
        argv, helps = [path if word == name else word for word in argv], helps.replace(name, path)
    assert_one_sentence(capsys, argv, helps)


def test_a_sandbox_that_is_not_here_is_told_before_the_first_stage(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "")
    helps = "the docker sandbox was asked for, but"
    assert_one_sentence(capsys, ["quickstart", "--sandbox", "docker"], helps)
    assert not list(tmp_path.iterdir())


def test_a_misspelt_task_is_told_without_pytorch():
    run = "import sys; from coding_framework.cli import main; main(sys.argv[1:])"
    code = f"{run}; sys.exit(9 if 'torch' in sys.modules else 0)"
    command = [sys.executable, "-c", code, "judge", "--task", "reluu", "k.cu"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=540, check=False)
    assert (done.returncode, "close names: relu" in done.stderr) == (0, True), done.stderr


def assert_one_sentence(capsys, argv, helps):
    status = cli.main(argv)
    said = capsys.readouterr()
    assert helps in said.err
    lines = said.err.splitlines()
    assert (status, said.out, len(lines)) == (2, "", 1), said.err
