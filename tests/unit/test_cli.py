"""`cuda-rl`: wrong use is one sentence with the choices; what a user reads is harmless."""

from __future__ import annotations

import errno
import json
import signal
import subprocess
import sys

import pytest

from coding_framework import cli
from coding_framework.commands import judge_many, tasks
from coding_framework.errors import InfrastructureError

pytestmark = pytest.mark.unit


def run(capsys, *argv: str) -> tuple[int, str, str]:
    """Exit status, stdout and stderr of a command in this process."""
    status = cli.main(argv)
    captured = capsys.readouterr()
    return status, captured.out, captured.err


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (
            [],
            "choose one of quickstart, judge, explain, judge-many, judge-server, mcp, skill, "
            "new-task, write, solve, replay, eval, rft, serve, serve-policy, kernel, token, "
            "tasks, data, export-modelnew, import-modelnew, view, deploy, cache, doctor",
        ),
        (["train"], "choose one of quickstart, judge"),
        (["judge", "--task", "relu"], "required: --kernel"),
        (["judge", "--task", "relu", "--kernel", "k", "--backend", "tpu"], "auto, cuda, emulator"),
        (
            ["judge", "--task", "relu", "--kernel", "k", "--sandbox", "vm"],
            "bubblewrap, docker, native",
        ),
        (["judge", "--task", "relu", "--kernel", "k", "--sed", "1"], "did you mean --seed?"),
        (
            ["judge", "--task", "relu", "--kernel", "k", "--seed", "x"],
            "--seed cannot be x: give a whole number of at least 0",
        ),
        (
            ["judge", "--task", "relu", "--kernel", "/nowhere/k.cu"],
            "'/nowhere/k.cu' cannot be read",
        ),
        (["judge", "--task", "relu", "--kernel", "/tmp"], "cannot be read (Is a directory)"),
        (["judge", "--task", "relu_nosuch", "--kernel", "k"], "no task is called 'relu_nosuch'"),
        (
            ["judge", "--task", "nofile.json", "--kernel", "k"],
            "the task file nofile.json cannot be read",
        ),
        (["judge", "--taks", "relu", "--kernel", "k"], "no flag '--taks': did you mean --task?"),
        (["eval", "comapre", "a", "b"], "did you mean `cuda-rl eval compare`?"),
        (["eval", "--json", "compare", "a", "b"], "give compare first, its flags after it"),
        (["eval", "compare", "a"], "required: B (see `cuda-rl eval compare --help`)"),
        (["eval", "report", "a", "--suite", "relu"], "has no flag '--suite': there are --help"),
        (["tasks"], "choose one of list, show, build, stats"),
        (["tasks", "list", "--family", "nosuch"], "no family is called 'nosuch'; there are:"),
        (["tasks", "list", "--tier", "9"], "--tier cannot be 9: give a whole number from 0 to 3"),
        (["tasks", "show"], "required: TASK"),
        (["tasks", "show", "relu", "more"], "takes no further argument 'more'"),
        (["tasks", "build", "--family", "nosuch"], "no family is called 'nosuch'"),
        (["data"], "choose one of build-sft, audit, card"),
        (["data", "build-sft", "--allow-synthetic"], "are for --source archive"),
        (["data", "build-sft", "--source", "web"], "choose one of synthesis, archive"),
        (["data", "card", "--examples", "/nowhere.jsonl"], "build it with"),
        (["data", "audit", "--outside", "/nowhere"], "give problem files"),
        (["judge-many", "--tasks-and-kernels", "/nowhere.jsonl"], "cannot be read"),
        (["judge-many", "--tasks-and-kernels", "p", "--workers", "0"], "at least 1"),
        (
            ["judge-many", "--tasks-and-kernels", "p", "--no-docker", "--sandbox", "docker"],
            "--no-docker and --sandbox docker exclude each other: choose one",
        ),
        (["solve", "--task", "relu", "--turns", "17"], "give a whole number from 1 to 16"),
        (["solve", "--task", "relu", "--temperature", "-1"], "give a number of at least 0"),
        (["quickstart", "--smok"], "did you mean --smoke?"),
    ],
)
def test_wrong_use_is_one_sentence_and_exit_2(capsys, argv, told):
    status, out, err = run(capsys, *argv)
    assert status == 2
    assert out == ""
    said = err.splitlines()
    assert len(said) == 1
    assert said[0].startswith("cuda-rl: ")
    assert told in said[0]


def test_our_fault_is_one_sentence_and_exit_3(capsys, monkeypatch):
    def broken(*_, **__):
        raise InfrastructureError("nvcc is not installed: run `make setup`")

    monkeypatch.setattr(tasks, "run_list", broken)
    status, _, err = run(capsys, "tasks", "list")
    assert (status, err) == (3, "cuda-rl: nvcc is not installed: run `make setup`\n")


def test_a_bug_of_ours_shows_no_traceback_unless_asked_for(capsys, monkeypatch):
    def broken(*_, **__):
        raise ExceptionGroup("tasks", [RuntimeError("two\nlines")])

    monkeypatch.setattr(tasks, "run_list", broken)
    status, _, err = run(capsys, "tasks", "list")
    assert status == 3
    assert err.count("\n") == 1
    assert "RuntimeError: two lines" in err
    monkeypatch.setenv("CUDA_RL_DEBUG", "1")
    assert "Traceback" in run(capsys, "tasks", "list")[2]


def test_ctrl_c_is_one_sentence_and_exit_130(capsys, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(tasks, "run_list", interrupted)
    status, _, err = run(capsys, "tasks", "list")
    assert (status, err.count("\n")) == (130, 1)


def test_ctrl_c_promises_to_go_on_only_where_an_output_was_kept(capsys, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(judge_many, "run", interrupted)
    pairs = ("judge-many", "--tasks-and-kernels", "p.jsonl")
    assert run(capsys, *pairs)[2] == "cuda-rl: stopped\n"
    assert "goes on from where it was" in run(capsys, *pairs, "--output=o.jsonl")[2]


def test_a_copy_that_does_not_fit_names_the_disk_that_it_goes_to(capsys, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device", "from/a", None, "to/a")

    monkeypatch.setattr(tasks, "run_list", full)
    status, _, err = run(capsys, "tasks", "list")
    assert (status, "the disk of to is full" in err) == (3, True)


def test_a_task_of_the_users_own_is_shown_with_its_call(tmp_path, capsys):
    problem = tmp_path / "mine.py"
    problem.write_text(
        "import torch\nfrom torch import nn\nrows, columns = 8, 32\n\n"
        "class Model(nn.Module):\n"
        "    def __init__(self, columns):\n"
        "        super().__init__()\n"
        "        self.norm = nn.LayerNorm(columns)\n"
        "    def forward(self, x):\n"
        "        return self.norm(x)\n\n"
        "def get_inputs():\n    return [torch.randn(rows, columns)]\n\n"
        "def get_init_inputs():\n    return [columns]\n"
    )
    _, out, _ = run(capsys, "tasks", "show", str(problem))
    assert (
        "forward(Tensor x[8, 32], Tensor norm_weight[32], Tensor norm_bias[32], int columns)" in out
    )
    assert "may be left out" in out
    assert "def __init__(self, columns): ..." in out
    assert "in Triton" in out


def test_help_and_errors_load_nothing_heavy():
    code = (
        "import sys; from coding_framework import cli;"
        "cli.main(['judge', '--task', 'relu', '--kernel', 'k', '--backend', 'tpu']);"
        "print([m for m in ('torch', 'numpy', 'ray', 'jinja2') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_tasks_are_listed_as_json_lines(capsys):
    status, out, _ = run(capsys, "tasks", "list", "--split", "held_out", "--tier", "0", "--json")
    listed = [json.loads(line) for line in out.splitlines()]
    assert status == 0
    assert listed
    assert {task["split"] for task in listed} == {"held_out"}


def test_a_task_is_shown_as_json(capsys):
    _, out, _ = run(capsys, "tasks", "show", "relu", "--json")
    assert json.loads(out)["name"] == "relu"


def test_a_full_stdout_is_one_sentence():
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "coding_framework.cli", "tasks", "list"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 3
    assert "is full: free some space" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_closed_pipe_is_quiet():
    command = f"{sys.executable} -m coding_framework.cli tasks list | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    assert "Broken" not in done.stderr


def test_ctrl_c_while_cuda_rl_works_is_one_line_and_130_and_ends_threads_that_work_on():
    """A library's thread that never ends must not keep the user's shell."""
    code = (
        "import sys, threading, time; from coding_framework import cli\n"
        "def work(args):\n"
        "    threading.Thread(target=time.sleep, args=(600,)).start()\n"
        "    print(flush=True); time.sleep(600)\n"
        "cli.tasks.run_list = work; sys.argv = ['cuda-rl', 'tasks', 'list']; sys.exit(cli.main())"
    )
    command = [sys.executable, "-c", code]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as running:
        assert running.stdout is not None
        running.stdout.readline()
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=120)
    assert running.returncode == 130
    assert said == "cuda-rl: stopped\n"
