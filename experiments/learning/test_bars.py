"""The table of bars says what the results say."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))
import bars
from bench_io import RESULTS

pytestmark = pytest.mark.unit


def test_the_committed_table_is_that_of_the_results() -> None:
    assert json.loads((RESULTS / "learning.h200.json").read_text()) == bars.told()


def test_a_bar_that_left_its_file_is_told(tmp_path: Path) -> None:
    asked = bars.Asked("steps", 14, "run", ("bars", "a step, s", "value"), "at most")
    (tmp_path / "run.json").write_text(json.dumps({"bars": []}))
    with pytest.raises(KeyError, match=r"run\.json has no bar 'a step, s'"):
        bars.value_of(asked, tmp_path)
    (tmp_path / "run.json").write_text(json.dumps({"bars": [{"bar": "a step, s", "value": 15}]}))
    assert bars.value_of(asked, tmp_path) == 15
