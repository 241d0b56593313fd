"""Archives of kernels: the same bytes everywhere, and nothing taken on trust."""

from __future__ import annotations

import contextlib
import io
import json
import random
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from coding_framework.errors import UsageError
from coding_framework.registry.archive import MANIFEST, _tar, export_kernels, import_kernels
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


def test_a_file_that_grows_when_it_is_read_is_refused(archive: Path, tmp_path: Path) -> None:
    """20 KB of a sparse tar became 503 MB."""
    entry = tarfile.TarInfo(f"objects/aa/{'a' * 64}.cu")
    entry.type, entry.size = tarfile.GNUTYPE_SPARSE, 512
    header = bytearray(entry.tobuf(tarfile.GNU_FORMAT))
    header[386:410] = b"%011o\0%011o\0" % (0, 512)  # one piece, at the start
    header[483:495] = b"%011o\0" % (60 << 20)  # the size that it claims
    header[148:156] = b"        "
    header[148:156] = b"%06o\0 " % sum(header)
    archive.write_bytes(bytes(header) + b"x" * 512 + bytes(1024))
    with tarfile.open(archive) as tar:
        (read,) = tar.getmembers()
        assert read.size == 60 << 20
    with pytest.raises(UsageError, match="it is not used"):
        import_kernels(_empty(tmp_path), archive)


class Mutations:
    """Archives with something wrong: bytes, blocks, headers whose sums are right, the manifest."""

    ODD = (None, True, -1, 2**70, "", "x", "../x", "objects", [], {}, [[]], {"a": {}}, 1e308, "\0")

    def __init__(self, whole: bytes, seed: int) -> None:
        self.whole, self.rng = whole, random.Random(seed)
        self.files = list(self._files())

    def _files(self) -> Iterator[tuple[str, bytes]]:
        with tarfile.open(fileobj=io.BytesIO(self.whole)) as tar:
            for entry in tar:
                opened = tar.extractfile(entry)
                assert opened is not None
                yield entry.name, opened.read()

    def one(self) -> bytes:
        kinds = (self._bytes, self._cut, self._blocks, self._header, self._manifest, self._json)
        return self.rng.choice(kinds)()

    def _bytes(self) -> bytes:
        data = bytearray(self.whole)
        for _ in range(self.rng.randint(1, 8)):
            data[self.rng.randrange(len(data))] = self.rng.randrange(256)
        return bytes(data)

    def _cut(self) -> bytes:
        at = self.rng.randrange(len(self.whole))
        return self.whole[:at] + self.rng.randbytes(self.rng.choice((0, 0, 40)))

    def _blocks(self) -> bytes:
        blocks = [self.whole[i : i + 512] for i in range(0, len(self.whole), 512)]
        one, other = (self.rng.randrange(len(blocks)) for _ in range(2))
        if self.rng.random() < 0.5:
            blocks[one], blocks[other] = blocks[other], blocks[one]
        else:
            blocks.insert(one, blocks[other])
        return b"".join(blocks)

    def _header(self) -> bytes:
        data = bytearray(self.whole)
        block = bytearray(data[:512])
        start, length = self.rng.choice(((0, 100), (124, 12), (156, 1), (257, 8), (345, 155)))
        for _ in range(self.rng.randint(1, 4)):
            block[start + self.rng.randrange(length)] = self.rng.randrange(256)
        block[148:156] = b"        "
        block[148:156] = b"%06o\0 " % sum(block)
        data[:512] = block
        return bytes(data)

    def _manifest(self) -> bytes:
        return _tar({**dict(self.files), MANIFEST: self._odd(dict(self.files)[MANIFEST])})

    def _json(self) -> bytes:
        """A template or a task, under the digest of its new bytes or under the old one."""
        name, data = self.rng.choice([f for f in self.files if f[0].endswith(".json")])
        return _tar({**dict(self.files), name: self._odd(data)})

    def _odd(self, data: bytes) -> bytes:
        value = json.loads(data)
        spot = value
        while isinstance(spot, dict | list) and spot:
            key = self.rng.choice(list(spot) if isinstance(spot, dict) else range(len(spot)))
            if self.rng.random() < 0.3 or not isinstance(spot[key], dict | list):
                spot[key] = self.rng.choice(self.ODD)
                break
            spot = spot[key]
        text = json.dumps(value).encode()
        at = self.rng.randrange(len(text))
        return text if self.rng.random() < 0.8 else text[:at] + b"[" * 3000 + text[at:]


@pytest.mark.parametrize(
    "count", [200, pytest.param(10_000, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])]
)
def test_a_mutated_archive_is_taken_or_refused_in_a_sentence(
    archive: Path, tmp_path: Path, count: int
) -> None:
    mutations, refused = Mutations(archive.read_bytes(), count), 0
    with _empty(tmp_path) as registry:
        for _ in range(count):
            archive.write_bytes(mutations.one())
            try:
                told = import_kernels(registry, archive)[1]
            except UsageError as e:
                told = [str(e)]
            refused += bool(told)
            assert all(len(said) < 1000 and "\n" not in said for said in told)
        assert registry.damage() == []
    assert refused > count / 4


def test_what_is_no_archive_is_named(tmp_path: Path, archive: Path) -> None:
    (tmp_path / "text").write_text("no tar")
    with pytest.raises(UsageError, match="no whole tar file"):
        import_kernels(_empty(tmp_path), tmp_path / "text")
    with pytest.raises(UsageError, match="cannot be read"):
        import_kernels(_empty(tmp_path), tmp_path / "none")
