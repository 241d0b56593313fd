"""Archives of kernels: the same bytes everywhere, and nothing taken on trust."""

from __future__ import annotations

import contextlib
import io
import random
import shutil
import tarfile
from pathlib import Path

import pytest

from coding_framework.errors import UsageError
from coding_framework.registry.archive import export_kernels, import_kernels
from coding_framework.registry.kernels import KernelRegistry
from support.registered import add_kernel, registry_in

pytestmark = pytest.mark.unit


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    registry, key = registry_in(tmp_path / "from")
    for code in ("// one\n", "// two\n"):
        add_kernel(registry, key, code)
    path = tmp_path / "kernels.tar"
    assert export_kernels(registry, registry.snapshot(), path) == 2
    return path


def _empty(tmp_path: Path, name: str = "to") -> KernelRegistry:
    return KernelRegistry(tmp_path / name, keys=tmp_path / "from" / "judge")


def test_an_archive_of_an_import_has_the_same_bytes(archive: Path, tmp_path: Path) -> None:
    registry = _empty(tmp_path)
    assert import_kernels(registry, archive) == (2, [])
    assert registry.damage() == []
    again = tmp_path / "again.tar"
    export_kernels(registry, reversed(registry.snapshot()), again)
    assert again.read_bytes() == archive.read_bytes()


def test_statuses_do_not_travel(archive: Path, tmp_path: Path) -> None:
    origin = KernelRegistry(tmp_path / "from" / "registry")
    for kernel in origin.snapshot():
        origin.move(kernel, "active", "here")
    export_kernels(origin, origin.snapshot(), archive)
    registry = _empty(tmp_path)
    import_kernels(registry, archive)
    assert {kernel.status for kernel in registry.snapshot()} == {"verified"}


def test_an_archive_signed_by_a_stranger_is_left_out(archive: Path, tmp_path: Path) -> None:
    registry_in(tmp_path / "other")
    registry = KernelRegistry(tmp_path / "to", keys=tmp_path / "other" / "judge")
    count, left_out = import_kernels(registry, archive)
    assert count == 0
    assert len(left_out) == 2
    assert "the signature does not hold" in left_out[0]
    assert registry.snapshot() == ()


def test_flipped_bits_add_nothing_that_was_not_signed(archive: Path, tmp_path: Path) -> None:
    whole, rng = archive.read_bytes(), random.Random(3)
    reference = _empty(tmp_path)
    import_kernels(reference, archive)
    known = {(k.kernel, t.sha256) for k in reference.snapshot() for t in k.templates}
    for number in range(25):
        data = bytearray(whole)
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        archive.write_bytes(data)
        with _empty(tmp_path, f"to{number}") as registry:
            with contextlib.suppress(UsageError):
                import_kernels(registry, archive)
            assert registry.damage() == []
            assert {(k.kernel, t.sha256) for k in registry.snapshot() for t in k.templates} <= known
        shutil.rmtree(tmp_path / f"to{number}", ignore_errors=True)


@pytest.mark.parametrize(
    "name", ["../outside", "/etc/passwd", "objects/aa/../../x", "objects/aa/aa.cu", "note.txt"]
)
def test_a_path_of_another_form_is_refused(archive: Path, tmp_path: Path, name: str) -> None:
    with tarfile.open(archive, "a") as tar:
        entry = tarfile.TarInfo(name)
        tar.addfile(entry, io.BytesIO())
    with pytest.raises(UsageError, match="which no archive of kernels does"):
        import_kernels(_empty(tmp_path), archive)


def test_a_link_is_refused(archive: Path, tmp_path: Path) -> None:
    with tarfile.open(archive, "a") as tar:
        entry = tarfile.TarInfo(f"objects/aa/{'a' * 64}.cu")
        entry.type, entry.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(entry)
    with pytest.raises(UsageError, match="it is not used"):
        import_kernels(_empty(tmp_path), archive)


def test_what_is_no_archive_is_named(tmp_path: Path, archive: Path) -> None:
    (tmp_path / "text").write_text("no tar")
    with pytest.raises(UsageError, match="no whole tar file"):
        import_kernels(_empty(tmp_path), tmp_path / "text")
    with pytest.raises(UsageError, match="cannot be read"):
        import_kernels(_empty(tmp_path), tmp_path / "none")
