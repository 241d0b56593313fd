"""KernelCompilationCache: builds by content address, shared by processes.

Guaranteed: an entry that is found is whole and unchanged since it was written (a manifest of
SHA-256 digests is checked at each hit; a damaged entry is removed and built anew); a killed writer
leaves nothing that is later found, and what it leaves is removed when the next cache is opened; the
folder is never mounted writable into a sandbox. The size is bounded: the least recently used
entries go, but none that was used in the last ten minutes.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import math
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from pydantic import ValidationError

from coding_framework.paths import alone, cache_dir, write_error
from coding_framework.store.events import log
from coding_framework.types import CompilationResult

DEFAULT_MAX_BYTES = 2 << 30
MIN_UNUSED_S = 600.0
_MANIFEST = "manifest.json"
RESULT_NAME = "result.json"
"""File of a build: its result. The emulator finds the registers there."""
_LOCK = ".lock"
_SWEEP_EVERY, _SWEEP_S = 64, 600.0
"""A process's writes, or the seconds of all processes, between two looks at the size: one costs a
pass over the entries."""
_SWEPT = "swept"
"""File that is touched by each look."""


class KernelCompilationCache:
    """Folder of finished compilations, successful or refused for a reason that cannot change."""

    def __init__(self, folder: Path | None = None, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self.folder = folder if folder is not None else cache_dir() / "builds"
        self.max_bytes = max_bytes
        self._writes = 0
        for part in ("entries", "partial", "locks"):
            try:
                (self.folder / part).mkdir(parents=True, exist_ok=True)
            except OSError as e:
                raise write_error(self.folder / part, e) from e
        self._remove_orphans()

    def get(self, digest: str) -> CompilationResult | None:
        """The stored result, marked as a hit, or None."""
        entry = self._entry(digest)
        try:
            manifest = json.loads((entry / _MANIFEST).read_text())
            files = manifest["files"]
            if manifest["digest"] != digest or any(
                _sha256(entry / name) != value for name, value in files.items()
            ):
                raise ValueError("a file differs from its digest")
            result = CompilationResult.model_validate_json((entry / RESULT_NAME).read_text())
            os.utime(entry / _MANIFEST)
        except FileNotFoundError:
            if entry.exists():
                self._discard(entry)
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError, ValidationError) as e:
            log.warning("cache entry damaged, building again", digest=digest[:16], error=str(e))
            self._discard(entry)
            return None
        path = str(entry) if result.success else None
        return result.model_copy(update={"binary_path": path, "cache_hit": True, "latency_s": 0.0})

    def put(
        self, digest: str, result: CompilationResult, files: dict[str, Path]
    ) -> CompilationResult:
        """Store a result with its files (name -> where they lie now); returns it with its path."""
        entry = self._entry(digest)
        with self.scratch() as partial:
            for name, source in files.items():
                shutil.copyfile(source, partial / name)
                (partial / name).chmod(0o444)
            stored = result.model_copy(
                update={"binary_path": str(entry) if result.success else None, "digest": digest}
            )
            (partial / RESULT_NAME).write_text(stored.model_dump_json())
            names = [*files, RESULT_NAME]
            manifest = {"digest": digest, "files": {n: _sha256(partial / n) for n in names}}
            (partial / _MANIFEST).write_text(json.dumps(manifest))
            partial.chmod(0o755)  # no fsync: the digests tell a torn entry after a power cut
            entry.parent.mkdir(exist_ok=True)
            if entry.exists():
                self._discard(entry)
            os.rename(partial, entry)
        self._writes += 1
        if self._writes % _SWEEP_EVERY == 0 or self._unswept_for() > _SWEEP_S:
            self.sweep()
        return stored

    def _unswept_for(self) -> float:
        """Seconds since a process has looked at the size, which takes it a look at each entry."""
        try:
            return time.time() - (self.folder / _SWEPT).stat().st_mtime
        except FileNotFoundError:
            return math.inf

    def building(self, digest: str) -> AbstractContextManager[None]:
        """Hold the right to build `digest`: a second process waits, and then finds the entry."""
        return alone(self.folder / "locks" / digest[:3])

    def sweep(self) -> int:
        """Bring the size under the bound; returns how many entries were removed."""
        (self.folder / _SWEPT).touch()
        now = time.time()
        entries: list[tuple[float, int, Path]] = []
        for entry in (self.folder / "entries").glob("*/*"):
            try:
                used = (entry / _MANIFEST).stat().st_mtime
                size = sum(f.stat().st_size for f in entry.iterdir())
            except OSError:
                continue
            entries.append((used, size, entry))
        total = sum(size for _, size, _ in entries)
        removed = 0
        for used, size, entry in sorted(entries):
            if total <= self.max_bytes or now - used < MIN_UNUSED_S:
                break
            self._discard(entry)
            total -= size
            removed += 1
        return removed

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """A fresh folder, gone at the end of the block, or, where this process is killed, when the
        next cache is opened. Raises InfrastructureError where it, or in it, cannot be written."""
        partial = self.folder / "partial"
        try:
            with _owned(partial) as name:
                folder = partial / name
                folder.mkdir(mode=0o700)
                try:
                    yield folder
                finally:
                    shutil.rmtree(folder, ignore_errors=True)
        except OSError as e:
            raise write_error(partial, e) from e

    def _remove_orphans(self) -> None:
        """Scratch folders whose owner is gone: nobody holds their lock."""
        for lock in (self.folder / "partial").glob(f"*{_LOCK}"):
            with contextlib.suppress(OSError), lock.open("rb+") as file:  # or removed meanwhile
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                folder = lock.with_suffix("")
                shutil.rmtree(folder, ignore_errors=True)
                if not folder.exists():  # a dying compiler may still have been writing there
                    lock.unlink()

    def _entry(self, digest: str) -> Path:
        return self.folder / "entries" / digest[:2] / digest

    def _discard(self, entry: Path) -> None:
        with self.scratch() as grave, contextlib.suppress(OSError):  # another process was faster
            os.rename(entry, grave / "entry")


@contextmanager
def _owned(folder: Path) -> Iterator[str]:
    """A name that is new in `folder`, ours as long as the block runs: its lock file is locked. The
    lock ends with this process, and holds between machines that share the folder."""
    while True:
        handle, path = tempfile.mkstemp(suffix=_LOCK, dir=folder)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            if os.fstat(handle).st_nlink == 0:  # taken for an orphan before it was locked
                continue
            try:
                yield Path(path).stem
            finally:
                Path(path).unlink(missing_ok=True)
            return
        finally:
            os.close(handle)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
