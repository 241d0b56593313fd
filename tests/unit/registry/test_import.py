"""Kernels of another registry: nothing is taken on trust."""

from __future__ import annotations

from pathlib import Path

import pytest

from coding_framework.cli import main
from coding_framework.registry.kernels import KernelRegistry
from support.registered import add_kernel, registry_in

pytestmark = pytest.mark.unit


@pytest.fixture
def origin(tmp_path: Path) -> KernelRegistry:
    registry, key = registry_in(tmp_path / "from")
    for code in ("// one\n", "// two\n"):
        add_kernel(registry, key, code)
    return registry


def imported(tmp_path: Path, keys: Path) -> int:
    to = ["--registry", str(tmp_path / "to"), "--keys", str(keys)]
    return main(["kernel", "import", str(tmp_path / "from" / "registry"), *to])


def test_what_holds_comes_whole_and_as_verified(origin: KernelRegistry, tmp_path: Path) -> None:
    for kernel in origin.snapshot():
        origin.move(kernel, "active", "here")
    keys = tmp_path / "from" / "judge"
    assert imported(tmp_path, keys) == 0
    registry = KernelRegistry(tmp_path / "to", keys=keys)
    assert registry.damage() == []
    as_verified = [k.model_copy(update={"status": "verified"}) for k in origin.snapshot()]
    assert list(registry.snapshot()) == as_verified


def test_what_is_retired_or_in_quarantine_there_stays_there(
    origin: KernelRegistry, tmp_path: Path
) -> None:
    for kernel, status in zip(origin.snapshot(), ("retired", "quarantined"), strict=True):
        origin.move(kernel, status, "here")  # type: ignore[arg-type]
    assert imported(tmp_path, tmp_path / "from" / "judge") == 0
    assert not list((tmp_path / "to").rglob("*.cu"))


def test_what_a_stranger_signed_is_left_out(
    origin: KernelRegistry, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    registry_in(tmp_path / "other")
    assert imported(tmp_path, tmp_path / "other" / "judge") == 1
    assert capsys.readouterr().err.count("the signature does not hold") == 2
    assert KernelRegistry(tmp_path / "to").snapshot() == ()


def test_a_changed_source_is_refused(origin: KernelRegistry, tmp_path: Path) -> None:
    for path in (tmp_path / "from" / "registry" / "objects").rglob("*.cu"):
        path.chmod(0o644)
        path.write_text("// another\n")
    assert imported(tmp_path, tmp_path / "from" / "judge") == 3
    assert KernelRegistry(tmp_path / "to").snapshot() == ()
