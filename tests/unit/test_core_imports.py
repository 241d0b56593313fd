"""The judge runs without any extra: nothing that it imports is a package of one."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from coding_framework.commands.failures import EXTRAS

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
RELU = ROOT / "examples" / "relu.cu"
CORE = {
    *("cryptography", "cuda-bindings", "cuda-toolkit", "jinja2", "numpy", "nvidia-ml-py", "psutil"),
    *("nvidia-cuda-cccl", "pydantic", "pyyaml", "rich", "structlog", "torch"),
}
HIDE = f"""
import importlib.abc, sys

class Hidden(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {sorted(" ".join(EXTRAS.values()).split())}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

import importlib.util
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, *a: None if name == "verl" else find_spec(name, *a)
sys.meta_path.insert(0, Hidden())
"""
RUN = "from coding_framework.cli import main; sys.exit(main(sys.argv[1:]))"


def without_extras(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python in which the packages of the extras cannot be found."""
    return subprocess.run(
        [sys.executable, "-c", HIDE + code, *arguments],
        capture_output=True,
        text=True,
        timeout=540,
        check=False,
    )


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_the_core_asks_for_what_the_judge_needs_alone() -> None:
    asked = [Requirement(text) for text in project()["project"]["dependencies"]]
    assert {one.name for one in asked} == CORE


def test_torch_is_a_range_here_and_a_pin_where_we_train() -> None:
    """Who has a torch keeps it: pip would put another one in its place."""
    asked = project()["project"]
    (core,) = (one for one in map(Requirement, asked["dependencies"]) if one.name == "torch")
    (pinned,) = (
        one
        for one in map(Requirement, asked["optional-dependencies"]["train"])
        if one.name == "torch"
    )
    assert all(core.specifier.contains(v) for v in ("2.6.0", "2.13.0+cpu", "2.15.0"))
    assert not any(core.specifier.contains(v) for v in ("2.5.1", "2.16.0"))
    assert {one.operator for one in pinned.specifier} == {"=="}


def test_uv_run_widens_no_environment() -> None:
    """`uv run` installs the default groups: there is none, and `make setup` names its own."""
    assert project()["tool"]["uv"]["default-groups"] == []
    assert "--group dev --group train" in (ROOT / "scripts" / "setup.sh").read_text()


def test_what_judges_imports_no_package_of_an_extra() -> None:
    done = without_extras(
        "import coding_framework.wiring\n"
        "from coding_framework.commands import doctor, judge, judge_many, tasks\n"
        "from coding_framework.cuda.judge import Judge\n"
        "from coding_framework.cuda.many import pool, worker\n"
        "from coding_framework.data.registry import find_task\n"
        "find_task('relu')\n"
    )
    assert done.returncode == 0, done.stderr


def test_tasks_are_listed_without_the_extras() -> None:
    done = without_extras(RUN, "tasks", "list", "--family", "activation")
    assert done.returncode == 0, done.stderr
    assert "relu" in done.stdout


def test_a_command_that_needs_a_trainer_names_it_and_how_to_get_it() -> None:
    needs_trl = "from coding_framework.commands import judge\ndef run(args):\n    import trl\n"
    done = without_extras(
        needs_trl + "judge.run = run\n" + RUN, "judge", "--task", "relu", "--kernel", "x.cu"
    )
    assert done.returncode == 3
    assert "needs trl" in done.stderr
    assert "coding-framework[train]" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("command", "package", "extra"),
    [
        (["judge-server", "--port", "0"], "orjson", "serve"),
        (["view", "examples"], "orjson", "serve"),
        (["judge", "--task", "relu", str(RELU), "--sandbox", "docker"], "", "docker"),
    ],
)
def test_a_command_whose_extra_is_missing_names_it(
    command: list[str], package: str, extra: str
) -> None:
    done = without_extras(RUN, *command)
    assert done.returncode != 0
    assert package in done.stderr
    assert f"coding-framework[{extra}]" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_main_job_says_before_its_first_stage_that_the_trainers_are_missing(
    tmp_path: Path,
) -> None:
    done = without_extras(RUN, "quickstart", "--smoke", "--output-dir", str(tmp_path / "out"))
    assert done.returncode == 3
    assert "only the judge is installed" in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_servers_own_process_does_without_pytorch() -> None:
    """It takes 470 MB; the judge's processes have it."""
    program = "import sys, coding_framework.deployment.server; sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], timeout=300, check=False)
    assert done.returncode == 0
