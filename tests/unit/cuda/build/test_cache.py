"""The cache: hits are whole or not at all, writers may die, the size stays bounded."""

from __future__ import annotations

import multiprocessing
import os
import time
from pathlib import Path

import pytest

from coding_framework.cuda.build.cache import KernelCompilationCache
from coding_framework.errors import InfrastructureError
from coding_framework.types import CompilationResult, Status

pytestmark = pytest.mark.unit

DIGEST = "ab" * 32


@pytest.fixture
def cache(tmp_path: Path) -> KernelCompilationCache:
    return KernelCompilationCache(tmp_path / "builds")


def store(cache: KernelCompilationCache, digest: str, content: bytes = b"code") -> Path:
    made = cache.folder / "made"
    made.write_bytes(content)
    result = CompilationResult(success=True, binary_path="elsewhere", latency_s=1.5)
    stored = cache.put(digest, result, {"host.so": made})
    return Path(str(stored.binary_path))


def test_what_was_stored_is_found_and_marked_as_a_hit(cache: KernelCompilationCache) -> None:
    assert cache.get(DIGEST) is None
    entry = store(cache, DIGEST)
    hit = cache.get(DIGEST)
    assert hit is not None
    assert (hit.cache_hit, hit.latency_s, hit.binary_path) == (True, 0.0, str(entry))
    assert (entry / "host.so").read_bytes() == b"code"


def test_a_failed_compilation_is_found_too(cache: KernelCompilationCache) -> None:
    refused = CompilationResult(success=False, status=Status.COMPILE_ERROR, reason="no")
    cache.put(DIGEST, refused, {})
    hit = cache.get(DIGEST)
    assert hit is not None
    assert (hit.success, hit.reason, hit.cache_hit) == (False, "no", True)


@pytest.mark.parametrize("damage", ["truncate", "change", "remove", "result", "manifest", "empty"])
def test_a_damaged_entry_is_removed_and_not_used(
    cache: KernelCompilationCache, damage: str
) -> None:
    entry = store(cache, DIGEST)
    for file in entry.iterdir():
        file.chmod(0o644)
    match damage:
        case "truncate":
            os.truncate(entry / "host.so", 2)
        case "change":
            (entry / "host.so").write_bytes(b"evil")
        case "remove":
            (entry / "host.so").unlink()
        case "result":
            (entry / "result.json").write_text("{}")
        case "manifest":
            (entry / "manifest.json").write_text("[]")
        case "empty":
            for file in entry.iterdir():
                file.unlink()
    assert cache.get(DIGEST) is None
    assert not entry.exists()
    store(cache, DIGEST)
    assert cache.get(DIGEST) is not None


def test_an_entry_under_another_address_is_not_used(cache: KernelCompilationCache) -> None:
    entry = store(cache, DIGEST)
    other = "cd" * 32
    (cache.folder / "entries" / "cd").mkdir()
    entry.rename(cache.folder / "entries" / "cd" / other)
    assert cache.get(other) is None


def test_the_least_recently_used_entries_go_first(tmp_path: Path) -> None:
    cache = KernelCompilationCache(tmp_path, max_bytes=25_000)
    digests = [f"{i:02x}" * 32 for i in range(5)]
    for age, digest in enumerate(digests):
        entry = store(cache, digest, b"x" * 10_000)
        old = time.time() - 10_000 + age
        os.utime(entry / "manifest.json", (old, old))
    assert cache.get(digests[0]) is not None  # used again: now the youngest
    cache.sweep()
    assert [d for d in digests if cache.get(d) is not None] == [digests[0], digests[4]]


def test_entries_in_use_are_kept_even_over_the_bound(tmp_path: Path) -> None:
    cache = KernelCompilationCache(tmp_path, max_bytes=10)
    store(cache, DIGEST, b"x" * 1000)
    assert cache.sweep() == 0
    assert cache.get(DIGEST) is not None


def test_processes_that_follow_each_other_look_at_the_size_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[Path] = []
    plain = KernelCompilationCache.sweep
    monkeypatch.setattr(
        KernelCompilationCache, "sweep", lambda self: looks.append(self.folder) or plain(self)
    )
    for _ in range(3):
        store(KernelCompilationCache(tmp_path), DIGEST)
    assert len(looks) == 1
    old = time.time() - 1000
    os.utime(tmp_path / "swept", (old, old))
    store(KernelCompilationCache(tmp_path), DIGEST)
    assert len(looks) == 2
    busy = KernelCompilationCache(tmp_path)
    for _ in range(64):
        store(busy, DIGEST)
    assert len(looks) == 3


def _write_until_killed(folder: Path, started: Path) -> None:
    with KernelCompilationCache(folder).scratch() as scratch:
        (scratch / "kernel.cu").write_text("half")
        started.write_text(scratch.name)
        time.sleep(600)


def test_what_a_killed_writer_left_is_removed_when_the_next_cache_is_opened(
    cache: KernelCompilationCache, tmp_path: Path
) -> None:
    started, partial = tmp_path / "started", cache.folder / "partial"
    writer = multiprocessing.get_context("fork").Process(
        target=_write_until_killed, args=(cache.folder, started)
    )
    writer.start()
    while not started.exists() or not started.read_text():
        time.sleep(0.01)
    KernelCompilationCache(cache.folder)
    assert (partial / started.read_text() / "kernel.cu").exists()  # it is still writing
    writer.kill()
    writer.join(30)
    with cache.scratch() as ours:
        KernelCompilationCache(cache.folder)
        assert {p.stem for p in partial.iterdir()} == {ours.name}
    assert list(partial.iterdir()) == []


def test_a_scratch_folder_goes_with_its_block_whatever_happens_in_it(
    cache: KernelCompilationCache,
) -> None:
    with pytest.raises(UnicodeEncodeError), cache.scratch() as folder:
        (folder / "file").write_text("\udc80", "utf-8")
    with pytest.raises(InfrastructureError, match="cannot be written"), cache.scratch() as folder:
        (folder / "no" / "file").write_text("x")
    assert list((cache.folder / "partial").iterdir()) == []


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InfrastructureError, match="choose a folder that can be written"):
        KernelCompilationCache(tmp_path / "file" / "builds")


def _count_builds(folder: Path, counter: Path) -> None:
    cache = KernelCompilationCache(folder)
    with cache.building(DIGEST):
        if cache.get(DIGEST) is None:
            with counter.open("a") as file:
                file.write("x")
            time.sleep(0.05)
            source = folder / f"made-{os.getpid()}"
            source.write_bytes(b"code")
            result = CompilationResult(success=True, binary_path="x")
            cache.put(DIGEST, result, {"host.so": source})


def test_processes_that_want_the_same_build_make_it_once(tmp_path: Path) -> None:
    counter = tmp_path / "count"
    context = multiprocessing.get_context("fork")
    workers = [
        context.Process(target=_count_builds, args=(tmp_path / "builds", counter)) for _ in range(6)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(30)
    assert counter.read_text() == "x"
