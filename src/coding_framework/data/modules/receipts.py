"""The judge's receipts of module kernels: those that ship, and this machine's own.

They lie apart from those of the synthesised functions: only who asks for modules pays for reading
them, some seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from coding_framework.data.synthesis.receipts import (
    KernelReceipt,
    Key,
    all_receipts,
    load_receipts,
)

PACKED_PATH = Path(__file__).with_name("receipts.jsonl.xz")
"""The receipts that ship with the package: of kernels that were judged and timed on an H200."""


@lru_cache(maxsize=1)
def packaged_module_receipts() -> Mapping[Key, KernelReceipt]:
    """The package's, read once."""
    return load_receipts(PACKED_PATH)


def module_receipts(built: Path | None = None) -> dict[Key, KernelReceipt]:
    """The package's receipts and those of `built` (default: this machine's), which win."""
    return {**packaged_module_receipts(), **all_receipts(built)}
