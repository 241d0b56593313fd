"""What the root scripts say before they load anything: of checkpoints, flags and Ctrl-C."""

from __future__ import annotations

import runpy
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from coding_framework.errors import UsageError
from coding_framework.store.folder import RLFolder
from coding_framework.training.recipes import RecipeFile
from coding_framework.types import Role
from support.waiting import PATIENCE_S

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
RL = runpy.run_path(str(ROOT / "run_multiturn_rl_training.py"))


def adapter(folder: Path, weights: bytes) -> Path:
    folder.mkdir(parents=True)
    (folder / "adapter_config.json").write_text("{}")
    (folder / "adapter_model.safetensors").write_bytes(weights)
    return folder


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """`start_models` with merging replaced, in an empty folder."""

    def merge(source: Path, target: Path) -> None:
        target.mkdir(parents=True)
        (target / "config.json").write_text(source.name)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(RL["start_models"].__globals__, "merge", merge)

    def models(**given: object) -> dict[str, Any]:
        return RL["start_models"](given, RecipeFile(), tmp_path / "run")

    return models


def test_the_adapters_that_sft_leaves_are_what_rl_starts_from(start: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is missing, and there is no sft_checkpoints/generator"):
        start()
    adapter(tmp_path / "sft_checkpoints/generator", b"1")
    adapter(tmp_path / "sft_checkpoints/optimizer", b"1")
    assert start() == {"model_path": str(RLFolder(tmp_path / "run").start_model)}


def test_a_checkpoint_that_is_missing_is_not_called_different(start: Any, tmp_path: Path) -> None:
    one = adapter(tmp_path / "one", b"1")
    with pytest.raises(UsageError, match=r"^there is no gone: make one"):
        start(generator_checkpoint="gone", optimizer_checkpoint="gone too")
    with pytest.raises(UsageError, match=r"^there is no gone too: make one"):
        start(generator_checkpoint=str(one), optimizer_checkpoint="gone too")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="empty is neither a model nor an adapter"):
        start(generator_checkpoint=str(tmp_path / "empty"))


def test_two_checkpoints_are_where_two_policies_start(start: Any, tmp_path: Path) -> None:
    one, two = adapter(tmp_path / "one", b"1"), adapter(tmp_path / "two", b"2")
    given = {"generator_checkpoint": str(one), "optimizer_checkpoint": str(two)}
    with pytest.raises(UsageError, match=r"differ, and one policy .* choose --policy per_role"):
        start(**given)
    run = RLFolder(tmp_path / "run")
    assert start(**given, policy="per_role") == {
        "model_path": str(run.start_model),
        "role_models": {"optimizer": str(run.start_model_of(Role.OPTIMIZER))},
    }
    assert (run.start_model / "config.json").read_text() == "one"
    assert (run.start_model_of(Role.OPTIMIZER) / "config.json").read_text() == "two"


def test_ctrl_c_while_a_script_imports_is_one_line_and_130() -> None:
    """A model library is imported for seconds; here one that never ends."""
    line = "import coding_framework.commands.interrupts, time; print(flush=True); time.sleep(3600)"
    with subprocess.Popen(
        [sys.executable, "-c", line], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as script:
        assert script.stdout is not None
        script.stdout.readline()
        script.send_signal(signal.SIGINT)
        _, said = script.communicate(timeout=PATIENCE_S)
    assert script.returncode == 130
    assert said == "error: stopped: the same command goes on from where it was\n"


def _stopped_with(lines: str, tmp_path: Path) -> tuple[int, str]:
    """Status and stderr of a program that Ctrl-C ends once it has written a line."""
    hook = "import coding_framework.commands.interrupts\n"
    with subprocess.Popen(
        [sys.executable, "-c", hook + lines],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as script:  # fmt: skip
        assert script.stdout is not None
        script.stdout.readline()
        script.send_signal(signal.SIGINT)
        _, said = script.communicate(timeout=PATIENCE_S)
    return script.returncode, said


def test_an_import_that_catches_everything_does_not_swallow_ctrl_c(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("import time; print(flush=True); time.sleep(3600)")
    (tmp_path / "greedy.py").write_text("try:\n    import slow\nexcept BaseException:\n    pass")
    status, said = _stopped_with("import greedy; print('went on')", tmp_path)
    assert (status, said.count("\n")) == (130, 1)


@pytest.mark.parametrize(
    ("command", "said"), [("rft", ": the same command goes on from where it was"), ("doctor", "")]
)
def test_ctrl_c_while_a_command_imports_says_whether_it_goes_on(
    tmp_path: Path, command: str, said: str
) -> None:
    (tmp_path / "slow.py").write_text("import time; print(flush=True); time.sleep(3600)")
    program = f"""
import sys
from coding_framework import cli
def run(argv):
    import slow
cli._run = run
sys.argv = ["cuda-rl", "{command}"]
cli.main()
"""
    assert _stopped_with(program, tmp_path) == (130, f"cuda-rl: stopped{said}\n")


def test_ctrl_c_while_the_module_that_ends_processes_is_imported_is_one_line(
    tmp_path: Path,
) -> None:
    (tmp_path / "psutil.py").write_text("import time; print(flush=True); time.sleep(3600)")
    status, said = _stopped_with("import psutil", tmp_path)
    assert (status, said.count("\n")) == (130, 1)


def test_ctrl_c_still_lets_an_event_loop_clean_up(tmp_path: Path) -> None:
    program = """
import asyncio, sys
async def main():
    try:
        print(flush=True)
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        print("cleaned up", file=sys.stderr)
        raise
asyncio.run(main())
"""
    status, said = _stopped_with(program, tmp_path)
    assert (status, said.splitlines()[0]) == (130, "cleaned up")


@pytest.mark.parametrize(
    "name",
    [
        "run_multiturn_rl_training.py",
        "run_sft_training.py",
        "launch_complete_cuda_training.py",
        "test_complete_system.py",
    ],
)
def test_every_script_takes_care_of_ctrl_c_first(name: str) -> None:
    lines = (ROOT / name).read_text().splitlines()
    first = next(line for line in lines if line.startswith("import "))
    assert first.startswith("import coding_framework.commands.interrupts")


def test_a_flag_with_an_impossible_value_is_named_as_it_was_given(
    capsys: pytest.CaptureFixture[str],
) -> None:
    launch = runpy.run_path(str(ROOT / "launch_complete_cuda_training.py"))
    assert launch["main"](["--sft-batch-size", "0"]) == 2
    assert "--sft-batch-size cannot be 0" in capsys.readouterr().err
