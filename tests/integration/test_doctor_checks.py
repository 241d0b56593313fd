"""The doctor finds real faults: tools off PATH, a sandbox that lets through, a broken import."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest

from coding_framework.commands.doctor import run_check
from coding_framework.commands.doctor_checks import (
    Check,
    State,
    check_compiler,
    check_disk,
    check_emulator,
    check_gpu,
    check_sandbox,
    check_verdicts,
    escapes_of,
    import_apart,
)
from coding_framework.cuda.sandbox import choose_sandbox
from coding_framework.cuda.sandbox.base import Job, Mount

pytestmark = pytest.mark.integration


Hide = Callable[..., None]


@pytest.fixture
def path_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hide]:
    """A PATH that has everything but the named tools."""

    def hide(*tools: str) -> None:
        folder = tmp_path / "bin"
        folder.mkdir()
        seen = set(tools)
        for place in os.environ["PATH"].split(os.pathsep):
            for tool in Path(place).glob("*"):
                if tool.name not in seen:
                    seen.add(tool.name)
                    (folder / tool.name).symlink_to(tool)
        monkeypatch.setenv("PATH", str(folder))
        choose_sandbox.cache_clear()

    yield hide
    choose_sandbox.cache_clear()


def test_compiler_compiles_on_this_machine() -> None:
    found = check_compiler()
    assert found.state is State.WORKS, found
    assert "registers" in found.detail


def test_without_nvcc_on_path_the_packaged_one_compiles(path_without: Hide) -> None:
    path_without("nvcc")
    found = check_compiler()
    assert found.state is State.WORKS, found
    assert "PyPI" in found.detail


def test_without_gxx_the_compiler_is_missing_and_the_fix_says_what_to_install(
    path_without: Hide,
) -> None:
    path_without("g++")
    found = run_check(Check("compiler", True, check_compiler))
    assert found.state is State.MISSING
    assert "g++" in found.fix


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
def test_bubblewrap_lets_nothing_through() -> None:
    assert escapes_of(choose_sandbox("bubblewrap")) == []


class NoSandbox:
    """Runs a job as it is: what the probe must see through."""

    name = "none"

    def missing(self) -> str | None:
        return None

    def path(self, mount: Mount) -> str:
        return str(mount.host)

    def start(
        self, job: Job, *, stdin: int | IO[bytes], output: int | IO[bytes]
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            list(job.command),
            cwd=job.folder.host,
            stdin=stdin,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def test_where_nothing_isolates_the_probe_gets_out_in_every_way() -> None:
    assert escapes_of(NoSandbox()) == ["files", "processes", "network", "writing"]


def test_without_bubblewrap_the_sandbox_is_weaker_and_the_fix_says_what_to_install(
    path_without: Hide,
) -> None:
    path_without("bwrap", "docker")
    found = check_sandbox()
    assert found.state is State.WEAK
    assert "bubblewrap" in found.fix


def test_import_that_fails_names_what_is_missing() -> None:
    found = import_apart("import no_such_package")
    assert found.state is State.BROKEN
    assert "no_such_package" in found.detail


def test_disk_names_the_folder_and_what_is_free(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CUDA_RL_CACHE", str(tmp_path))
    assert str(tmp_path) in check_disk().detail


def test_machine_without_nvidia_smi_has_no_gpu_and_says_what_happens(path_without: Hide) -> None:
    path_without("nvidia-smi")
    found = check_gpu()
    assert found.state is State.MISSING
    assert "emulator" in found.detail


def test_emulator_runs_a_kernel_and_its_result_is_right() -> None:
    found = check_emulator()
    assert found.state is State.WORKS, found


def test_judge_tells_a_right_kernel_from_a_wrong_one() -> None:
    found = check_verdicts()
    assert found.state is State.WORKS, found
    assert "wrong_output" in found.detail
