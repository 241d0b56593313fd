"""Which architecture candidates are compiled for, by what the driver's own tool says."""

from __future__ import annotations

from pathlib import Path

import pytest

from coding_framework.cuda.toolchain.architecture import detect_architecture
from coding_framework.cuda.toolchain.toolkit import find_toolkit

pytestmark = pytest.mark.unit


def driver_says(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """An nvidia-smi that runs `script`, first on PATH."""
    tool = folder / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("echo 8.0", 80),
        ("echo 9.0; echo 9.0", 90),
        ("echo 10.0", 100),
        ("echo 12.0", 120),
        ("echo 3.5; echo 8.9", 89),
        ("echo 3.5", 90),
        ("echo 'No devices were found'; exit 6", 90),
        ("echo '[N/A]'", 90),
    ],
)
def test_the_first_gpu_that_nvcc_supports_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, expected: int
) -> None:
    toolkit = find_toolkit()
    driver_says(tmp_path, monkeypatch, script)
    assert detect_architecture(toolkit) == expected


def test_without_a_driver_it_is_sm_90(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toolkit = find_toolkit()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert detect_architecture(toolkit) == 90
