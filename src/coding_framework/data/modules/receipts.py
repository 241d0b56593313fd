"""The judge's receipts of module kernels: those that ship compressed, and this machine's own.

They lie apart from those of the synthesised functions: only who asks for modules pays for reading
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from coding_framework.data.synthesis.receipts import (
    Job,
    KernelReceipt,
    Key,
    all_receipts,
    load_receipts,
    pack_receipts,
)

PACKED_PATH = Path(__file__).with_name("receipts.jsonl.xz")
"""The receipts that ship with the package, where it has any."""


def module_receipts(built: Path | None = None) -> dict[Key, KernelReceipt]:
    """The package's receipts and those of `built` (default: this machine's), which win."""
    return {**load_receipts(PACKED_PATH), **all_receipts(built)}


def shard_of(jobs: Iterable[Job], number: int, count: int) -> list[Job]:
    """The jobs of machine `number` of `count`, from 1: each job is one machine's, the same in every
    run, however many jobs there are besides."""
    return [job for job in jobs if int(job.key[1][:8], 16) % count == number - 1]


def pack(receipts: Mapping[Key, KernelReceipt], jobs: Iterable[Job], path: Path) -> tuple[int, int]:
    """Write the receipts of `jobs` as one compressed file, without the kernels' text; (how many,
    how many bytes). Receipts of kernels that are no longer written are left out."""
    wanted = {job.key for job in jobs}
    bare = {"code": "", "why": ""}
    kept = [r.model_copy(update=bare) for key, r in receipts.items() if key in wanted]
    return len(kept), pack_receipts(kept, path)
