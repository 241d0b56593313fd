"""The whole run with tiny counts, for real: killed in the middle of RL, and gone on from there.

.ci/run makes the run of the README's command; `make test-all` also that of TRAINING_GUIDE.md.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import psutil
import pytest

from support.time_bar import crowding
from support.waiting import PATIENCE_S, left_of

pytestmark = [pytest.mark.system, pytest.mark.timeout(3900)]

ROOT = Path(__file__).parents[2]
STAGES = ["model", "eval_base", "sft", "eval_sft", "rl", "eval_rl"]


QUICKSTART = [str(Path(sys.executable).with_name("cuda-rl")), "quickstart", "--smoke"]
LAUNCH = [sys.executable, str(ROOT / "launch_complete_cuda_training.py"), "--quick-test"]


def start(command: list[str], folder: Path, log: Path) -> subprocess.Popen[bytes]:
    """The command, with this output folder, in a session of its own."""
    given = [*command, "--output-dir", str(folder)]
    if command[0] == "make":  # its arguments for the program are one argument of make
        given = [*command[:-1], f"ARGS={shlex.join([command[-1], *given[-2:]])}"]
    with log.open("ab") as file:
        return subprocess.Popen(
            given, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )


def finished(folder: Path) -> list[str]:
    path = folder / "stages.json"
    return list(json.loads(path.read_text())["stages"]) if path.exists() else []


def started(folder: Path) -> list[str]:
    path = folder / "stages.json"
    return list(json.loads(path.read_text())["started"]) if path.exists() else []


def wait_until(condition, run: subprocess.Popen[bytes], log: Path, limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert run.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.2)


def descendants_until_end(run: subprocess.Popen[bytes], limit_s: float) -> set[psutil.Process]:
    """Every descendant that a look twice a second has met. Not by environment: Ray's agents write
    their titles over it."""
    deadline = time.monotonic() + limit_s
    ever: set[psutil.Process] = set()
    while run.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(psutil.NoSuchProcess):
            ever.update(psutil.Process(run.pid).children(recursive=True))
        time.sleep(0.5)
    return ever


@pytest.fixture
def runs() -> Iterator[list[subprocess.Popen[bytes]]]:
    """What a test has started; what still runs at its end is killed, and its children with it."""
    begun: list[subprocess.Popen[bytes]] = []
    yield begun
    for run in begun:
        if run.poll() is None:
            os.killpg(run.pid, signal.SIGKILL)
            run.wait()


AGAIN = ["make", "quickstart", "--smoke"]


@pytest.mark.parametrize(
    ("command", "again"),
    [
        pytest.param(QUICKSTART, AGAIN, id="quickstart", marks=pytest.mark.ci(longest=True)),
        pytest.param(LAUNCH, LAUNCH, id="launch", marks=pytest.mark.slow),
    ],
)
def test_a_killed_smoke_run_goes_on_and_ends_with_everything(tmp_path, runs, command, again):
    folder, log = tmp_path / "out", tmp_path / "log"
    runs.append(first := start(command, folder, log))
    wait_until(lambda: "rl" in started(folder), first, log, 900 * min(2.5, crowding()))
    time.sleep(8)  # Ray and verl are starting
    descendants = psutil.Process(first.pid).children(recursive=True)
    assert descendants
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    assert finished(folder) == STAGES[:4]
    assert left_of(descendants) == [], "children must end with a killed parent"

    runs.append(second := start(again, folder, log))
    ever = descendants_until_end(second, limit_s=1200)
    assert second.returncode == 0, log.read_text()
    assert left_of(ever) == [], "a run that ends well leaves nothing"
    text = log.read_text()
    assert "[3/6] supervised fine-tuning: done before" in text
    assert "Traceback" not in text
    assert f"view {folder}" in text.splitlines()[-2], "what to do next"
    check_output(folder)

    runs.append(third := start(command, folder, log))
    assert third.wait(PATIENCE_S) == 0, log.read_text()


def check_output(folder: Path) -> None:
    assert finished(folder) == STAGES
    summary = json.loads((folder / "summary.json").read_text())
    for label in ("base", "sft", "rl"):
        stage = summary["stages"][label]
        assert stage["samples"] + stage["masked"] + stage["unsupported"] == 4
        assert 0 <= stage["correct"]["count"] <= stage["compiled"]["count"] <= 4
        assert bool(stage["speeds"]) == (stage["correct"]["count"] > 0)
        shown = (folder / "evaluations" / label / "report.html").read_text()
        check_report(shown)
        assert "<details" in shown
    assert summary["rl"]["steps"] >= 1
    assert summary["peak_memory_gib"] < 12
    assert (folder / "sft_checkpoints" / "generator" / "adapter_config.json").exists()
    assert (folder / "sft_checkpoints" / "optimizer" / "adapter_config.json").exists()
    assert (folder / "sft_checkpoints" / "config.json").exists()
    assert (folder / "rl_checkpoints" / "final_model" / "config.json").exists()
    assert list((folder / "rl_checkpoints").glob("best_model_episode_*/config.json"))
    check_report((folder / "report.html").read_text())


def check_report(html: str) -> None:
    tags: list[str] = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attrs: tags.append(tag)  # type: ignore[method-assign]
    parser.feed(html)
    assert "svg" in tags
    assert "script" not in tags
