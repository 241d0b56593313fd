"""The published schemas are those of the records."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit
ROOT = Path(__file__).parents[3]


def test_the_published_schemas_are_current() -> None:
    spec = importlib.util.spec_from_file_location("schemas", ROOT / "scripts/write_schemas.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, record in module.SCHEMAS.items():
        written = json.loads((module.FOLDER / name).read_text())
        assert written == record.model_json_schema(mode="serialization"), (
            "run scripts/write_schemas.py"
        )
