"""`cuda-rl solve` from end to end: a real server's answers, the real judge, the files it leaves."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from coding_framework.cli import main
from coding_framework.registry.kernels import KernelRegistry
from coding_framework.types import CUDAConversationState, Verdict

pytestmark = pytest.mark.system

RELU = (Path(__file__).parents[2] / "examples" / "relu.cu").read_text()
WRONG = (Path(__file__).parents[2] / "examples" / "relu_wrong.cu").read_text()


class Handler(BaseHTTPRequestHandler):
    """Answers chats from a list; 400 when it is empty."""

    answers: list[str]
    temperatures: list[float]
    """Of the requests."""
    counts: bool
    """Whether it says how many tokens an answer has."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.temperatures.append(asked["temperature"])
        if not self.answers:
            self.send_error(400, "no more answers")
            return
        content = self.answers.pop(0)
        whole = not content.startswith("```") or content.endswith("```")
        choice = {
            "message": {"content": content}, "finish_reason": "stop" if whole else "length"
        }  # fmt: skip
        usage = {"usage": {"prompt_tokens": 100, "completion_tokens": 50}} if self.counts else {}
        body = json.dumps({"choices": [choice], **usage}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def server(
    *answers: str, temperatures: list[float] | None = None, counts: bool = True
) -> Iterator[str]:
    told = [] if temperatures is None else temperatures
    scripted = {"answers": list(answers), "temperatures": told, "counts": counts}
    handler = type("Scripted", (Handler,), scripted)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{http.server_port}/v1"
        finally:
            http.shutdown()


def command(url: str, folder: Path, *more: str, start: str = "--from-scratch") -> list[str]:
    # the conversation's id comes from the options: the port must not change between two runs
    return ["solve", "--task", "relu", "--model", "m", "--server", url, "--turns", "2",
            "--output-dir", str(folder), *filter(None, (start,)), *more]  # fmt: skip


def test_solve_leaves_the_best_kernel_its_verdict_and_the_transcript(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    with server(f"```cuda\n{WRONG}```", f"```cuda\n{RELU}```") as url:
        assert main(command(url, tmp_path)) == 0
        said = capsys.readouterr().out
        # finished: the server has no answer left
        into = ["--into", str(tmp_path / "registry"), "--keys", str(tmp_path / "keys")]
        assert main(["kernel", "key", "new", "judge", "--keys", str(tmp_path / "keys")]) == 0
        again = main(command(url, tmp_path, *into))
    assert again == 0
    with KernelRegistry(tmp_path / "registry", read_only=True) as registry:
        (kept,) = registry.snapshot()
        assert len(kept.templates) == 3
        assert registry.source(kept).strip() == RELU.strip()
    assert "turn 1: wrong_output" in said
    assert "correct, " in said
    assert "modelled" in said
    assert (tmp_path / "kernel.cu").read_text().strip() == RELU.strip()
    verdict = Verdict.model_validate_json((tmp_path / "verdict.json").read_text())
    assert verdict.correct
    state = CUDAConversationState.model_validate_json((tmp_path / "transcript.json").read_text())
    assert len(state.turns) == 2
    assert state.turns[0].probes, "the tester looked at the failing kernel"
    assert main(["replay", str(tmp_path), "0", "--reward", "gated"]) == 0


def test_the_compilers_kernel_is_the_first_and_stays_where_no_agent_finds_a_faster_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = f"```cuda\n{WRONG}```"
    with server(wrong, wrong, wrong, wrong, wrong) as url:
        assert main(command(url, tmp_path, "--tester", "off", start="")) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "turn 1: the compiler writes" in said
    assert "the compiler's own kernel: no agent found a faster one" in said
    state = CUDAConversationState.model_validate_json((tmp_path / "transcript.json").read_text())
    assert [turn.role.value for turn in state.turns] == ["compiler", "optimizer", "optimizer"]
    assert state.turns[0].code == (tmp_path / "kernel.cu").read_text()
    assert state.turns[0].reward is not None
    assert Verdict.model_validate_json((tmp_path / "verdict.json").read_text()).correct


def test_where_the_compiler_has_no_kernel_the_generator_begins_and_no_kernel_is_a_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "module.py").write_text(MODULE.replace("torch.relu(x)", "torch.fft.fft(x).real"))
    task = ["--task", str(tmp_path / "module.py"), "--turns", "1", "--tester", "off"]
    with server(f"```cuda\n{WRONG}```") as url:
        assert main(command(url, tmp_path / "out", *task, start="")) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "the generator begins: there is no kernel for" in said
    assert "turn 1: the generator writes" in said


MODULE = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return torch.cat([torch.relu(x), x[:, ::2]], dim=1)

def get_inputs():
    return [torch.randn(256, 512)]

def get_init_inputs():
    return []
"""


def test_a_module_is_solved_in_parts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "module.py").write_text(MODULE)
    folder = tmp_path / "out"
    words = ["--task", str(tmp_path / "module.py"), "--parts", "--tester", "off", "--turns", "1"]
    with server(f"```cuda\n{RELU}```") as url:
        assert main(command(url, folder, *words)) == 0
        said = capsys.readouterr().out
        assert main(command(url, folder, *words)) == 0, "the server has no answer left"
    steps = ["parts: relu", "relu: turn 1: the generator writes", "relu: turn 1: judging"]
    steps += ["relu: turn 1: correct", "part 1 of 1 (relu): correct"]
    lines = iter(said.splitlines())
    assert all(any(line.startswith(step) for line in lines) for step in steps), said
    assert "joined" in said
    assert Verdict.model_validate_json((folder / "verdict.json").read_text()).correct
    assert "namespace part1" in (folder / "kernel.cu").read_text()
    (part,) = (folder / "parts").iterdir()
    assert part.read_text().strip() == RELU.strip()
    with server("```cuda\nno kernel```") as url:
        assert main(command(url, tmp_path / "none", *words)) == 1, "no kernel was found"
    assert "no kernel of the whole: a part was not solved" in capsys.readouterr().out
    monkeypatch.setattr("coding_framework.data.parts.whole.MOST_OPERATIONS", 15)
    many = "[x := x * 1.01 for _ in range(16)][-1]"
    (tmp_path / "module.py").write_text(MODULE.replace("torch.relu(x)", many))
    assert main(command("http://127.0.0.1:9/v1", tmp_path / "none", *words)) == 2
    assert "more than 15 operations" in capsys.readouterr().err, "no model was asked"
    assert not (tmp_path / "none" / "kernel.cu").exists()


def test_equal_kernels_are_judged_once(tmp_path: Path) -> None:
    same = f"```cuda\n{RELU}```"
    with server(same, same, f"```cuda\n{WRONG}```") as url:
        words = ["--turns", "1", "--candidates", "3", "--tester", "off"]
        assert main(command(url, tmp_path, *words)) == 0
    assert len([*tmp_path.glob("verdicts/*/*.json")]) == 2
    state = CUDAConversationState.model_validate_json((tmp_path / "transcript.json").read_text())
    (turn,) = state.turns
    found = [t.verdict.status for t in (turn, *turn.alternatives) if t.verdict is not None]
    assert sorted(found) == ["correct", "correct", "wrong_output"]


@pytest.mark.parametrize(
    ("wanted", "temperatures", "statuses"),
    [
        ((), [0.7, 0.7, 1.0], ["wrong_output", "correct"]),
        (("--redraws", "0"), [0.7, 0.7], ["wrong_output", "wrong_output"]),
    ],
    ids=["as it is", "switched off"],
)
def test_a_kernel_that_is_there_is_drawn_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], wanted: tuple[str, ...],
    temperatures: list[float], statuses: list[str],
) -> None:  # fmt: skip
    answers = [f"```cuda\n{kernel}```" for kernel in (WRONG, WRONG, RELU)]
    asked: list[float] = []
    with server(*answers, temperatures=asked) as url:
        main(command(url, tmp_path, *wanted))
    assert asked == temperatures
    assert ("repeats drawn again: 50 tokens" in capsys.readouterr().out) == (not wanted)
    state = CUDAConversationState.model_validate_json((tmp_path / "transcript.json").read_text())
    assert [turn.verdict.status for turn in state.turns if turn.verdict is not None] == statuses


@pytest.mark.parametrize(("counts", "most"), [(True, "50 tokens"), (False, "the most tokens")])
def test_an_answer_that_was_cut_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], counts: bool, most: str
) -> None:
    with server(*[f"```cuda\n{RELU[:200]}"] * 2, counts=counts) as url:
        words = ["--turns", "1", "--candidates", "2", "--tester", "off"]
        main(command(url, tmp_path, *words))
    said = capsys.readouterr().out
    assert f"cut at {most}: raise --max-new-tokens; " in said
    assert "judging the fastest kernels again" not in said, "there is none"


def test_a_server_that_fails_is_our_fault_and_the_same_command_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    answers = ["I cannot."]
    with server(*answers) as url:
        assert main(command(url, tmp_path, "--tester", "off")) == 3
    assert "refused the request" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--turns", "0"], "--turns cannot be 0"),
        (["--candidates", "99"], "--candidates cannot be 99"),
        (["--reward", "none"], "unknown reward preset 'none'"),
        (["--prompts", "v9"], "--prompts cannot be v9"),
    ],
)
def test_wrong_use_is_one_sentence(
    tmp_path: Path, arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
):
    assert main(command("http://127.0.0.1:1", tmp_path, *arguments)) == 2
    assert sentence in capsys.readouterr().err.replace("'v9'", "v9")
