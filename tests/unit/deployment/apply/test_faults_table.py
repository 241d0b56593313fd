"""The table of faults in docs/apply.md names tests that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit
ROOT = Path(__file__).resolve().parents[4]
FOLDERS = ("unit/deployment/apply", "unit/registry", "integration")


def test_every_fault_of_the_documents_table_has_its_tests() -> None:
    text = (ROOT / "docs" / "apply.md").read_text().partition("## Faults that are survived")[2]
    rows = [line for line in text.partition("\n## ")[0].splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 20
    for row in rows:
        named = re.findall(r"`(test_\w+\.py)::(test_\w+)`", row)
        assert named, row
        for file, test in named:
            places = [ROOT / "tests" / folder / file for folder in FOLDERS]
            sources = [place.read_text() for place in places if place.exists()]
            assert any(f"def {test}(" in source for source in sources), test
