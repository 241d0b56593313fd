"""The list of tasks is kept between runs, and is never that of other code."""

from __future__ import annotations

import json

import pytest

from coding_framework.data import listing
from coding_framework.data.synthesis import catalog

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_RL_CACHE", str(tmp_path))
    listing._all_rows.cache_clear()
    yield
    listing._all_rows.cache_clear()


def test_a_kept_list_is_read_and_one_of_other_code_is_not(tmp_path, monkeypatch):
    made = [{"name": "made", "family": "f", "tier": 0, "split": "train"}]
    monkeypatch.setattr(listing, "_made", lambda: made)
    assert listing.names() == ["made"]
    (kept,) = (tmp_path / listing.FOLDER).iterdir()
    kept.write_text(json.dumps([{**made[0], "name": "kept"}]))
    listing._all_rows.cache_clear()
    assert listing.names() == ["kept"]
    monkeypatch.setattr(listing, "_digest", lambda: "other")
    listing._all_rows.cache_clear()
    assert listing.names() == ["made"]


def test_a_damaged_list_is_made_again(tmp_path, monkeypatch):
    monkeypatch.setattr(listing, "_made", lambda: [{"name": "made"}])
    (tmp_path / listing.FOLDER).mkdir()
    (tmp_path / listing.FOLDER / f"{listing._digest()}.json").write_text("[{")
    assert listing.names() == ["made"]


def test_a_list_that_cannot_be_kept_is_made_all_the_same(monkeypatch):
    monkeypatch.setenv("CUDA_RL_CACHE", "/proc/x")
    monkeypatch.setattr(listing, "_made", lambda: [{"name": "made"}])
    assert listing.names() == ["made"]


def test_a_row_has_what_the_task_has():
    function = catalog.all_functions()[0]
    task = catalog.build_task(function)
    row = next(row for row in listing.rows() if row["name"] == task.name)
    assert row == json.loads(task.model_dump_json(include=listing.LISTED))
