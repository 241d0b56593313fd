"""The judge runs without the extra `train`: nothing that it imports is one of its packages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from coding_framework.commands.failures import TRAINING_MODULES

pytestmark = pytest.mark.unit

HIDE = f"""
import importlib.abc, sys

class Hidden(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {sorted(TRAINING_MODULES)}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

import importlib.util
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, *a: None if name == "verl" else find_spec(name, *a)
sys.meta_path.insert(0, Hidden())
"""
RUN = "from coding_framework.cli import main; sys.exit(main(sys.argv[1:]))"


def without_trainers(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python in which the packages of the extra cannot be found."""
    return subprocess.run(
        [sys.executable, "-c", HIDE + code, *arguments],
        capture_output=True,
        text=True,
        timeout=540,
        check=False,
    )


def test_what_judges_imports_no_package_of_the_trainers() -> None:
    done = without_trainers(
        "import coding_framework.wiring\n"
        "from coding_framework.commands import doctor, judge, judge_many, tasks\n"
        "from coding_framework.cuda.judge import Judge\n"
        "from coding_framework.cuda.many import pool, worker\n"
        "from coding_framework.data.registry import find_task\n"
        "find_task('relu')\n"
    )
    assert done.returncode == 0, done.stderr


def test_tasks_are_listed_without_the_trainers() -> None:
    done = without_trainers(RUN, "tasks", "list", "--family", "activation")
    assert done.returncode == 0, done.stderr
    assert "relu" in done.stdout


def test_a_command_that_needs_a_trainer_names_it_and_how_to_get_it() -> None:
    needs_trl = "from coding_framework.commands import judge\ndef run(args):\n    import trl\n"
    done = without_trainers(
        needs_trl + "judge.run = run\n" + RUN, "judge", "--task", "relu", "--kernel", "x.cu"
    )
    assert done.returncode == 3
    assert "needs trl" in done.stderr
    assert "coding-framework[train]" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_main_job_says_before_its_first_stage_that_the_trainers_are_missing(
    tmp_path: Path,
) -> None:
    done = without_trainers(RUN, "quickstart", "--smoke", "--output-dir", str(tmp_path / "out"))
    assert done.returncode == 3
    assert "only the judge is installed" in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_servers_own_process_does_without_pytorch() -> None:
    """It takes 470 MB; the judge's processes have it."""
    program = "import sys, coding_framework.deployment.server; sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], timeout=300, check=False)
    assert done.returncode == 0
