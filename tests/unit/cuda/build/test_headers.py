"""A build sees the headers that its address names, whatever happens to the package meanwhile."""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from coding_framework.cuda.build import headers as compiler_headers
from coding_framework.cuda.build.headers import INCLUDE_FOLDER, small_headers, torch_headers

pytestmark = pytest.mark.unit


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The headers of a package that may be updated."""
    folder = tmp_path / "include"
    shutil.copytree(INCLUDE_FOLDER, folder)
    monkeypatch.setattr(compiler_headers, "INCLUDE_FOLDER", folder)
    return folder


def test_an_update_makes_another_address_and_leaves_the_old_headers(
    package: Path, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    before = small_headers(store)
    header = package / "torch" / "extension.h"
    old = header.read_text()
    header.write_text("#error half written")
    after = small_headers(store)
    assert after.digest != before.digest
    assert (before.folders[0].host / "torch" / "extension.h").read_text() == old
    assert "half written" in (after.folders[0].host / "torch" / "extension.h").read_text()
    header.write_text(old)
    assert small_headers(store) == before


@pytest.mark.parametrize("change", ["add", "remove", "rename"])
def test_which_files_there_are_counts_too(package: Path, tmp_path: Path, change: str) -> None:
    before = small_headers(tmp_path / "store")
    file = package / "cudnn.h"
    match change:
        case "add":
            (package / "cusparse.h").write_text("")
        case "remove":
            file.unlink()
        case "rename":
            file.rename(package / "cudnn2.h")
    assert small_headers(tmp_path / "store").digest != before.digest


def test_a_damaged_copy_is_made_again(package: Path, tmp_path: Path) -> None:
    before = small_headers(tmp_path / "store")
    (before.folders[0].host / "torch" / "extension.h").write_text("")
    after = small_headers(tmp_path / "store")
    assert after == before
    copied = sorted(p.name for p in after.folders[0].host.rglob("*") if p.is_file())
    assert copied == sorted(p.name for p in package.rglob("*") if p.is_file())
    assert (after.folders[0].host / "torch" / "extension.h").stat().st_size > 0


def test_copies_that_nobody_used_for_long_are_removed(package: Path, tmp_path: Path) -> None:
    old = small_headers(tmp_path / "store").folders[0].host
    os.utime(old, (0, 0))
    (package / "more.h").write_text("")
    small_headers(tmp_path / "store")
    assert not old.exists()


def test_the_real_headers_are_torchs_and_pythons() -> None:
    headers = torch_headers()
    found = [mount.host for mount in headers.folders]
    assert any((folder / "torch" / "extension.h").is_file() for folder in found)
    assert any((folder / "Python.h").is_file() for folder in found)


def test_a_copy_that_somebody_compiles_from_is_never_moved(package: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    copies: list[int] = []

    def use(_: int) -> None:
        folder = small_headers(store).folders[0].host
        copies.append((folder / "torch" / "extension.h").stat().st_ino)

    for _ in range(5):
        shutil.rmtree(store, ignore_errors=True)
        copies.clear()
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(use, range(8)))
        assert len(set(copies)) == 1
