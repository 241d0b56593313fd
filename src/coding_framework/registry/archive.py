"""A registry as one tar file: the same bytes for the same kernels, on every machine.

What comes out of an archive is checked like everything else: digests by their names, receipts by
the public keys of whoever imports, never by keys that came along. Statuses are decisions of the
place where they were taken, and do not travel: what is imported is `verified`.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import ValidationError

from coding_framework.errors import UsageError
from coding_framework.monitoring.text import one_line
from coding_framework.paths import write_atomic
from coding_framework.registry.files import MAX_FILE_BYTES, DamagedError, StoredFile, parse_path
from coding_framework.registry.kernels import KernelRegistry
from coding_framework.registry.receipts import KernelReceipt, ReceiptError, check_receipt
from coding_framework.registry.records import RegisteredKernel
from coding_framework.registry.templates import (
    LaunchTemplate,
    MadeTemplates,
    TemplateError,
    TemplateRefusal,
)
from coding_framework.types import Candidate, Record, Task, source_bytes, source_text

MANIFEST = "manifest.json"
_MAX_FILES = 100_000


class _Line(Record):
    """One kernel of an archive."""

    source: str
    """Path of its source."""
    task: str
    """Path of its task."""
    receipts: tuple[dict[str, Any], ...]
    """As they were signed."""
    refusals: tuple[TemplateRefusal, ...] = ()


class _Manifest(Record):
    archive: int = 1
    kernels: tuple[_Line, ...]


def export_kernels(
    registry: KernelRegistry, kernels: Iterable[RegisteredKernel], output: Path
) -> int:
    """Write kernels with all that belongs to them to a tar file; gives their number. Raises
    DamagedError where a file is not as it was stored."""
    files: dict[str, bytes] = {}
    lines = []
    for kernel in sorted(kernels, key=lambda k: (k.kernel, k.task)):
        source = registry.source(kernel)
        suffix = "py" if Candidate.model_construct(code=source).is_python else "cu"
        sha256 = kernel.kernel.removeprefix("sha256:")
        path = StoredFile("objects", sha256, suffix).path
        files[path] = source_bytes(source)
        task_path = StoredFile("tasks", kernel.task.removeprefix("sha256:"), "json").path
        files[task_path] = registry.task(kernel).model_dump_json().encode()
        for template in kernel.templates:
            files[StoredFile("templates", template.sha256, "json").path] = template.canonical_json()
            for part in template.code:
                code_path = StoredFile("cubins", part.sha256, part.form).path
                files[code_path] = registry.code(part)
        lines.append(
            _Line(
                source=path,
                task=task_path,
                receipts=tuple(registry.signed(kernel)),
                refusals=kernel.refusals,
            ).model_dump(mode="json")
        )
    manifest = {"archive": 1, "kernels": lines}
    files[MANIFEST] = json.dumps(manifest, sort_keys=True, indent=1).encode() + b"\n"
    write_atomic(output, _tar(files))
    return len(lines)


def import_kernels(registry: KernelRegistry, archive: Path) -> tuple[int, list[str]]:
    """Add what an archive holds; gives the number of kernels, and a sentence for each that was left
    out. Raises UsageError where it is no such archive."""
    files = _read(archive)
    try:
        manifest = _Manifest.model_validate_json(files.pop(MANIFEST, b""))
    except ValidationError as e:
        raise UsageError(
            f"{archive} is no archive of kernels: make one with `cuda-rl kernel export`"
        ) from e
    added, left_out = 0, []
    for line in manifest.kernels:
        try:
            for signed in line.receipts:
                receipt = check_receipt(signed, registry.keys)
                registry.add(*_parts(files, line, receipt, signed))
        except (DamagedError, ReceiptError, TemplateError, UsageError) as e:
            name = Path(line.source).stem[:12]
            left_out.append(one_line(f"{name} was left out: {e}", 600))
        else:
            added += bool(line.receipts)
    return added, left_out


def _parts(
    files: dict[str, bytes], line: _Line, receipt: KernelReceipt, signed: dict[str, Any]
) -> tuple[str, Task, dict[str, Any], MadeTemplates]:
    """What `KernelRegistry.add` checks and stores."""
    code = source_text(_get(files, line.source))
    try:
        task = Task.model_validate_json(_get(files, line.task))
    except ValidationError as e:
        raise DamagedError(f"{line.task} is no task") from e
    templates = []
    for shape in receipt.shapes:
        if shape.template is not None:
            path = StoredFile("templates", shape.template.removeprefix("sha256:"), "json").path
            templates.append(LaunchTemplate.from_json(_get(files, path)))
    parts = {part for template in templates for part in template.code}
    made = MadeTemplates(
        templates=tuple(templates),
        refusals=line.refusals,
        code={p.sha256: _get(files, StoredFile("cubins", p.sha256, p.form).path) for p in parts},
    )
    return code, task, signed, made


def _get(files: dict[str, bytes], path: str) -> bytes:
    if path not in files:
        raise DamagedError(f"{path} is not in the archive")
    return files[path]


def _tar(files: dict[str, bytes]) -> bytes:
    """Sorted, without times, owners and rights of this machine."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o644
            tar.addfile(entry, io.BytesIO(data))
    return made.getvalue()


def _read(archive: Path) -> dict[str, bytes]:
    """The plain files of an archive that may be anybody's, by the names that we give ours: nothing
    is unpacked to a path that it names, and no file is larger than the archive."""
    try:
        with archive.open("rb") as file:
            return dict(_entries(archive, file))
    except OSError as e:
        raise UsageError(f"{archive} cannot be read ({e.strerror}): check its name") from e
    except (tarfile.TarError, ValueError) as e:
        said = one_line(str(e), 200)
        raise UsageError(f"{archive} is no whole tar file ({said}): copy it again") from e


def _entries(archive: Path, file: BinaryIO) -> Iterator[tuple[str, bytes]]:
    """Name and bytes of each. Headers are read one by one: what tar has beyond plain files (links,
    sparse files, long names) has no place in an archive of ours. Raises UsageError, TarError."""
    for _ in range(_MAX_FILES):
        header = file.read(tarfile.BLOCKSIZE)
        if header == bytes(tarfile.BLOCKSIZE):
            return
        entry = tarfile.TarInfo.frombuf(header, "utf-8", "strict")
        ours = entry.name == MANIFEST or parse_path(entry.name) is not None
        plain = entry.type in (tarfile.REGTYPE, tarfile.AREGTYPE)
        if not (ours and plain and 0 <= entry.size <= MAX_FILE_BYTES):
            raise UsageError(
                f"{archive} holds {one_line(entry.name, 80)!r}, which no archive of kernels does: "
                "it is not used"
            )
        data = file.read(-entry.size % tarfile.BLOCKSIZE + entry.size)
        if len(data) < entry.size:
            raise tarfile.ReadError("it ends in the middle of a file")
        yield entry.name, data[: entry.size]
    raise UsageError(f"{archive} holds over {_MAX_FILES} files: it is not used")
