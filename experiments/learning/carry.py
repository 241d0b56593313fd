"""Takes an experiment's folder from one machine to the next, in parts of a size that can travel.

What is left out can be made again: merged models (`models/` is made of `adapters/`), caches,
checkpoints of finished trainings, and older ones of the others. A file that is there twice travels
once. Parts are whole or not there; `unpack` checks each by its SHA-256 before it changes anything.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

from coding_framework.errors import UsageError
from coding_framework.paths import write_atomic, write_json_atomic
from coding_framework.store.checkpoints import file_digest, whole_checkpoints

MANIFEST = "parts.json"
_LEFT_OUT = {"models", "model", "final_model", "start_model", "cache", "generator", "optimizer"}
"""Folders that are made again, or that `adapters/` has in another form."""
_LOCKS = {"eval.lock", "run.lock", ".lock"}


def pack(work: Path, to: Path, part_mib: float) -> list[Path]:
    """Write the folder as parts of at most `part_mib` MiB; gives their paths. Raises UsageError
    where there is nothing to pack."""
    files = list(_files(work))
    if not files:
        raise UsageError(f"{work} holds nothing of an experiment: run an arm first")
    to.mkdir(parents=True, exist_ok=True)
    for old in to.glob("part.*"):
        old.unlink()
    size, parts, names = int(part_mib * 2**20), list[Path](), dict[str, str]()
    with tempfile.TemporaryFile(dir=to) as whole:
        with (
            gzip.open(whole, "wb", compresslevel=1) as packed,
            tarfile.open(fileobj=packed, mode="w|") as t,
        ):
            first: dict[str, str] = {}
            for path in files:
                name = str(path.relative_to(work))
                digest = file_digest(path) if path.stat().st_size > 2**16 else ""
                info = t.gettarinfo(path, arcname=name)
                info.uid = info.gid = 0
                info.uname = info.gname = ""
                if digest and digest in first:
                    info.type, info.linkname, info.size = tarfile.LNKTYPE, first[digest], 0
                    t.addfile(info)
                    continue
                if digest:
                    first[digest] = name
                with path.open("rb") as content:
                    t.addfile(info, content)
        whole.seek(0)
        while chunk := whole.read(size):
            part = to / f"part.{len(parts):03d}"
            write_atomic(part, chunk)
            parts.append(part)
            names[part.name] = hashlib.sha256(chunk).hexdigest()
    write_json_atomic(to / MANIFEST, names)
    return parts


def unpack(source: Path, work: Path) -> int:
    """Put the parts' files into the folder; how many. What it has besides stays. Raises UsageError
    where a part is missing or damaged."""
    try:
        names: dict[str, str] = json.loads((source / MANIFEST).read_text())
    except (OSError, ValueError) as e:
        raise UsageError(f"{source} has no readable {MANIFEST}: copy all that `pack` wrote") from e
    for name, digest in names.items():
        path = source / name
        if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != digest:
            raise UsageError(f"{path} is missing or damaged: copy it again")
    with tempfile.TemporaryFile() as whole:
        for name in sorted(names):
            whole.write((source / name).read_bytes())
        whole.seek(0)
        work.mkdir(parents=True, exist_ok=True)
        with gzip.open(whole, "rb") as packed, tarfile.open(fileobj=packed, mode="r|") as archive:
            count = 0
            for member in archive:
                archive.extract(member, work, filter="data")
                count += 1
    return count


def _files(work: Path) -> Iterator[Path]:
    older = {c for run in work.rglob("checkpoints") for c in whole_checkpoints(run)[:-1]}
    for path in sorted(work.rglob("*")):
        inside = path.relative_to(work).parts
        folders = inside[:-1]
        if not path.is_file() or path.is_symlink() or path.name in _LOCKS:
            continue
        if _LEFT_OUT & set(folders) or any(f.startswith("best_model_episode") for f in folders):
            continue
        if not older.isdisjoint(path.parents):  # RL goes on from the newest
            continue
        if "checkpoints" in folders and _finished(
            work.joinpath(*inside[: inside.index("checkpoints")])
        ):
            continue
        yield path


def _finished(run: Path) -> bool:
    """Whether a training has ended, and its policy been kept: `learning.py` says so beside it."""
    return (run / "kept").exists()
