"""Receipts of module kernels: packed with the kernels, and this machine's own beside them."""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest

from coding_framework.data.synthesis.receipts import (
    MODULES_PATH,
    load_receipts,
    module_receipts,
    pack_receipts,
    packaged_receipts,
)
from coding_framework.errors import UsageError

pytestmark = pytest.mark.unit
SOME = list(packaged_receipts(MODULES_PATH).values())[:200]


def test_packed_receipts_come_back_in_few_bytes(tmp_path: Path) -> None:
    path = tmp_path / "receipts.jsonl.xz"
    size = pack_receipts(SOME, path)
    assert size == path.stat().st_size
    assert size / len(SOME) <= 400
    assert load_receipts(path) == {receipt.key: receipt for receipt in SOME}
    first = path.read_bytes()
    pack_receipts(reversed(SOME), path)
    assert path.read_bytes() == first


def test_a_packed_file_that_is_cut_off_is_refused_in_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "receipts.jsonl.xz"
    path.write_bytes(lzma.compress(b"{}\n" * 100)[:-9])
    with pytest.raises(UsageError, match=r"no whole \.xz file"):
        load_receipts(path)


def test_this_machines_receipts_win_over_the_packages(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    own = SOME[0].model_copy(update={"why": "judged here"})
    path.write_text(own.model_dump_json(exclude_defaults=True) + '\n{"cut')
    assert module_receipts(path)[own.key] == own
    assert module_receipts(path)[SOME[1].key] == SOME[1]
