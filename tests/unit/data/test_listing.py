"""The list of tasks is kept between runs, and says what the tasks say."""

from __future__ import annotations

import json

import pytest

from coding_framework.data import listing
from coding_framework.data.kept import FOLDER
from coding_framework.data.synthesis import catalog

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_RL_CACHE", str(tmp_path))
    listing._all_rows.cache_clear()
    yield
    listing._all_rows.cache_clear()


def test_the_names_are_kept(tmp_path, monkeypatch):
    made = [{"name": "made", "family": "f", "tier": 0, "split": "train"}]
    monkeypatch.setattr(listing, "_made", lambda: made)
    assert listing.names() == ["made"]
    (kept,) = (tmp_path / FOLDER).iterdir()
    kept.write_text(json.dumps([{**made[0], "name": "kept"}]))
    listing._all_rows.cache_clear()
    assert listing.names() == ["kept"]


def test_a_row_has_what_the_task_has():
    function = catalog.all_functions()[0]
    task = catalog.build_task(function)
    row = next(row for row in listing.rows() if row["name"] == task.name)
    assert row == json.loads(task.model_dump_json(include=listing.LISTED))
