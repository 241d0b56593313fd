"""`cuda-rl`: wrong use is one sentence with the choices; what a user reads is harmless."""

from __future__ import annotations

import io
import json
import subprocess
import sys

import pytest

from coding_framework import cli
from coding_framework.errors import InfrastructureError, UsageError
from coding_framework.types import (
    CompileSummary,
    Diagnostic,
    Finding,
    Status,
    TestResult,
    Verdict,
)

pytestmark = pytest.mark.unit


def run(capsys, *argv: str) -> tuple[int, str, str]:
    """Exit status, stdout and stderr of a command in this process."""
    status = cli.main(argv)
    captured = capsys.readouterr()
    return status, captured.out, captured.err


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        ([], "choose one of quickstart, judge, judge-many, solve, replay, tasks, data, doctor"),
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
            "'x' is not a whole number of at least 0",
        ),
        (
            ["judge", "--task", "relu", "--kernel", "/nowhere/k.cu"],
            "'/nowhere/k.cu' cannot be read",
        ),
        (["judge", "--task", "relu", "--kernel", "/tmp"], "cannot be read (Is a directory)"),
        (["judge", "--task", "relu_nosuch", "--kernel", "k"], "no task is called 'relu_nosuch'"),
        (["judge", "--task", "nofile.json", "--kernel", "k"], "cannot read the task file"),
        (["tasks"], "choose one of list, show, build, stats"),
        (["tasks", "list", "--family", "nosuch"], "no family is called 'nosuch'; there are:"),
        (["tasks", "list", "--tier", "9"], "choose one of 0, 1, 2, 3"),
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
        (["quickstart", "--smok"], "did you mean --smoke?"),
    ],
)
def test_wrong_use_is_one_sentence_and_exit_2(capsys, argv, told):
    status, out, err = run(capsys, *argv)
    assert status == 2
    assert out == ""
    assert told in err
    assert err.startswith("cuda-rl: ")
    assert err.count("\n") == 1


def test_our_fault_is_one_sentence_and_exit_3(capsys, monkeypatch):
    def broken(*_, **__):
        raise InfrastructureError("nvcc is not installed: run `make setup`")

    monkeypatch.setattr(cli, "run_tasks_list", broken)
    status, _, err = run(capsys, "tasks", "list")
    assert (status, err) == (3, "cuda-rl: nvcc is not installed: run `make setup`\n")


def test_a_bug_of_ours_shows_no_traceback_unless_asked_for(capsys, monkeypatch):
    def broken(*_, **__):
        raise ExceptionGroup("tasks", [RuntimeError("two\nlines")])

    monkeypatch.setattr(cli, "run_tasks_list", broken)
    status, _, err = run(capsys, "tasks", "list")
    assert status == 3
    assert err.count("\n") == 1
    assert "RuntimeError: two lines" in err
    monkeypatch.setenv("CUDA_RL_DEBUG", "1")
    assert "Traceback" in run(capsys, "tasks", "list")[2]


def test_ctrl_c_is_one_sentence_and_exit_130(capsys, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "run_tasks_list", interrupted)
    status, _, err = run(capsys, "tasks", "list")
    assert (status, err.count("\n")) == (130, 1)


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
    tasks = [json.loads(line) for line in out.splitlines()]
    assert status == 0
    assert tasks
    assert {task["split"] for task in tasks} == {"held_out"}


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


# --- kernels and pairs ----------------------------------------------------------------------------


def test_a_kernel_that_is_not_utf8_is_read(tmp_path):
    path = tmp_path / "k.cu"
    path.write_bytes(b"// \xff\x00\nint a;")
    assert cli.read_kernel(str(path)) == "// \ufffd\x00\nint a;"


def test_a_kernel_is_read_from_stdin(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"int a;")))
    assert cli.read_kernel("-") == "int a;"


def test_an_endless_file_is_refused():
    with pytest.raises(UsageError, match="over 16 MiB"):
        cli.read_kernel("/dev/zero")


def test_pairs_are_read_relative_to_their_file(tmp_path):
    (tmp_path / "k.cu").write_text("int k;")
    pairs = tmp_path / "pairs.jsonl"
    lines = [
        {"id": 1, "task": "relu", "kernel": "k.cu"},
        {"id": "b", "task": "t.json", "code": "int b;"},
    ]
    pairs.write_text("\n".join(json.dumps(line) for line in lines) + "\n\n")
    assert cli.read_pairs(pairs) == [
        {"id": "1", "task": "relu", "code": "int k;"},
        {"id": "b", "task": str(tmp_path / "t.json"), "code": "int b;"},
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "line 1: not JSON"),
        ("[]", 'line 1: give an object with "id", "task"'),
        ('{"id": 1, "task": "relu"}', 'either "kernel" or "code"'),
        ('{"id": 1, "task": "relu", "code": "", "kernel": "k"}', 'either "kernel" or "code"'),
        ('{"id": 1, "task": "r", "code": ""}\n' * 2, "the id '1' is there twice"),
        ('{"id": 1, "task": "r", "kernel": "nosuch.cu"}', "cannot be read"),
    ],
)
def test_wrong_pairs_are_named_by_line(tmp_path, text, told):
    path = tmp_path / "pairs.jsonl"
    path.write_text(text)
    with pytest.raises(UsageError) as error:
        cli.read_pairs(path)
    assert told in str(error.value)


# --- the verdict for people -----------------------------------------------------------------------


def test_a_verdict_for_people_cannot_act_on_the_terminal():
    hostile = "\x1b[2J\x1b]0;owned\x07 line\nbreak \u202e"
    verdict = Verdict(
        status=Status.WRONG_OUTPUT,
        reason=hostile,
        task="relu",
        candidate_sha256="0" * 64,
        backend="emulator",
        compile=CompileSummary(
            errors=(Diagnostic(severity="error", line=1, message=hostile),), warnings=(hostile,)
        ),
        tests=(
            TestResult(
                case="main",
                seed=1,
                shapes=((4,),),
                dtype="float32",
                max_abs_error=1.0,
                max_rel_error=1.0,
                tolerance=1e-6,
                passed=False,
                detail=hostile,
            ),
        ),
        pitfalls=(Finding(rule="r", severity="low", line=None, message=hostile, basis="source"),),
    )
    text = cli.verdict_text(verdict)
    assert text.startswith("wrong_output: <U+001B>[2J")
    assert not set(text) & {"\x1b", "\x07", "\u202e"}
    assert "0 of 1 passed" in text
