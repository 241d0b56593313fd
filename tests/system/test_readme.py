"""Every command of README.md and CONTRIBUTING.md works: the cheap ones here, the two big ones and
the checks in .ci/run, which this file makes sure of."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RUN_BY_CI = {"make quickstart", "make test"}
"""What .ci/run calls itself."""
NOT_RUN_INSIDE_A_TEST = {"bash .ci/run", "make format"}
"""The run that this test is part of, and what rewrites the working tree."""

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")

pytestmark = pytest.mark.system


def commands_of(document: str) -> list[str]:
    """The command lines of a document's ```bash blocks, without their comments."""
    blocks = re.findall(r"^```bash\n(.*?)^```", (ROOT / document).read_text(), re.M | re.S)
    lines = [
        shlex.join(shlex.split(line, comments=True)) for b in blocks for line in b.splitlines()
    ]
    return [line for line in lines if line]


def cheap(document: str) -> list[str]:
    return [
        c
        for c in commands_of(document)
        if c not in RUN_BY_CI | NOT_RUN_INSIDE_A_TEST
        and not c.startswith(("make test", "make lint"))
    ]


def environment() -> dict[str, str]:
    """Ours, with the places where set-up may have put uv, and nothing resolved anew."""
    places = [os.environ["PATH"], str(ROOT / ".tools/bin"), str(Path.home() / ".local/bin")]
    return {**os.environ, "PATH": os.pathsep.join(places), "UV_FROZEN": "1"}


def test_ci_runs_the_two_commands_of_the_readme() -> None:
    steps = (ROOT / ".ci/run").read_text().replace(" --no-print-directory", "")
    assert set(commands_of("README.md")) >= RUN_BY_CI
    (run,) = re.findall(r"^step \w+ make test (?:.*\\\n)*.*", steps, re.M)
    assert "-m 'not slow and (ci or not browser)'" in run, "the smoke run is marked ci"
    smoke = (ROOT / "tests/system/test_quickstart.py").read_text()
    assert 'AGAIN = ["make", "quickstart", "--smoke"]' in smoke
    assert 'AGAIN, id="quickstart", marks=pytest.mark.ci' in smoke


SCRIPTS = sorted(path.name for path in ROOT.glob("*.py"))
HELP = [f"uv run python {script} --help" for script in SCRIPTS]


@pytest.mark.ci
@pytest.mark.parametrize("command", [*cheap("README.md"), *HELP])
def test_readme_command_works(command: str) -> None:
    done = subprocess.run(
        command,
        shell=True,
        cwd=ROOT,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=540,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert done.stdout.strip()


def shown(document: str) -> dict[str, list[str]]:
    """What a document says that each command prints: the lines of the ```text block behind it."""
    pairs = re.findall(
        r"^```bash\n([^\n]+)\n```\n+```text\n(.*?)^```", (ROOT / document).read_text(), re.M | re.S
    )
    return {
        command: [line for line in printed.splitlines() if line.strip() != "..."]
        for command, printed in pairs
    }


@pytest.mark.ci
@pytest.mark.parametrize("command", shown("README.md"))
def test_readme_shows_what_a_command_prints(command: str) -> None:
    """But for the numbers: the inputs are drawn anew."""
    done = subprocess.run(
        shlex.split(command),
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    printed = [_NUMBER.sub("N", line) for line in done.stdout.splitlines()]
    told = [_NUMBER.sub("N", line) for line in shown("README.md")[command]]
    assert [line for line in told if line not in printed] == []


def test_every_make_target_of_the_documents_is_there() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    named = {
        shlex.split(c)[1]
        for d in ("README.md", "CONTRIBUTING.md")
        for c in commands_of(d)
        if c.startswith("make ")
    }
    assert named
    assert named <= targets


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md"])
def test_files_that_a_document_names_are_there(document: str) -> None:
    text = (ROOT / document).read_text()
    linked = re.findall(r"\]\((?!https?:)([^)#]+)\)", text)
    tree = re.findall(r"^(\S+\.(?:py|md|toml)|\S+/)(?:\s{2,}|$)", text, re.M)
    missing = [name for name in {*linked, *tree} if not (ROOT / name).exists()]
    assert not missing


@pytest.mark.parametrize("path", ["README.md", "CONTRIBUTING.md", "Makefile", ".ci/run"])
def test_documents_name_only_files_that_are_there(path: str) -> None:
    top = "src/coding_framework|tests|scripts|docs|examples"
    named = set(re.findall(rf"\b(?:{top})/[\w/.]*\w", (ROOT / path).read_text()))
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_python_is_the_one_of_the_environment() -> None:
    assert Path(sys.prefix).name == ".venv", "run by `make test` or `uv run pytest`"
