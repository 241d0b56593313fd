"""Which nvcc is found, and what is said where there is none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from coding_framework.cuda.toolchain.toolkit import (
    find_host_compiler,
    find_toolkit,
    packaged_nvcc,
)
from coding_framework.errors import MissingToolError

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_RL_NVCC", raising=False)


def test_the_named_nvcc_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    nvcc = packaged_nvcc()
    assert nvcc is not None
    monkeypatch.setenv("CUDA_RL_NVCC", str(nvcc))
    toolkit = find_toolkit()
    assert (toolkit.origin, toolkit.nvcc) == ("CUDA_RL_NVCC", nvcc.resolve())
    assert (toolkit.include / "cuda_runtime.h").is_file()
    assert toolkit.version.startswith("13.")


def test_the_packages_serve_where_path_has_no_nvcc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    toolkit = find_toolkit()
    if Path("/usr/bin/nvcc").exists():
        pytest.skip("this system's own nvcc is in /usr/bin")
    assert toolkit.origin == "PyPI packages"


def test_a_script_on_path_leads_to_the_toolkit_it_calls(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = tmp_path / "nvcc"
    script.write_text(f'#!/bin/sh\nexec {packaged_nvcc()} "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    toolkit = find_toolkit()
    assert toolkit.origin == "PATH"
    assert toolkit.root != tmp_path


def test_nothing_found_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("coding_framework.cuda.toolchain.toolkit.packaged_nvcc", lambda: None)
    with pytest.raises(MissingToolError, match="make setup"):
        find_toolkit()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("#!/bin/sh\nexit 0\n", "does not answer as nvcc does"),
        ("#!/bin/sh\necho '#$ TOP=/nowhere'\necho V11.8.89\n", "too old"),
        ("#!/bin/sh\necho '#$ TOP=/nowhere'\necho V13.0.88\n", "lacks bin/nvcc"),
        ("no program", "cannot be run"),
    ],
)
def test_an_nvcc_that_is_none_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, complaint: str
) -> None:
    fake = tmp_path / "nvcc"
    fake.write_text(text)
    fake.chmod(0o755)
    monkeypatch.setenv("CUDA_RL_NVCC", str(fake))
    with pytest.raises(MissingToolError, match=complaint):
        find_toolkit()


def test_a_path_that_is_not_executable_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CUDA_RL_NVCC", str(tmp_path / "missing"))
    with pytest.raises(MissingToolError, match="not an executable file"):
        find_toolkit()


def test_a_missing_host_compiler_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert os.access(find_host_compiler(), os.X_OK)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(MissingToolError, match=r"g\+\+"):
        find_host_compiler()


def test_an_old_nvcc_on_path_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    old = tmp_path / "nvcc"
    old.write_text("#!/bin/sh\necho '#$ TOP=/nowhere'\necho V11.8.89\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert find_toolkit().origin == "PyPI packages"
    monkeypatch.setattr("coding_framework.cuda.toolchain.toolkit.packaged_nvcc", lambda: None)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    with pytest.raises(MissingToolError, match="too old"):
        find_toolkit()
