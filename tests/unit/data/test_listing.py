"""The list of tasks is kept between runs, and says what the tasks say."""

from __future__ import annotations

import json

import pytest

from coding_framework.commands.build_data import selected_tasks, statistics
from coding_framework.commands.options import TaskSelection
from coding_framework.data import listing
from coding_framework.data.kept import FOLDER
from coding_framework.data.modules.catalog import all_drafts
from coding_framework.data.modules.tasks import find_module_task
from coding_framework.data.synthesis import catalog
from coding_framework.errors import UsageError
from coding_framework.types import Split

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_RL_CACHE", str(tmp_path))
    listing._all_rows.cache_clear()
    yield
    listing._all_rows.cache_clear()


def test_the_names_are_kept(tmp_path, monkeypatch):
    made = [{"name": "made", "family": "f", "tier": 0, "split": "train"}]
    monkeypatch.setattr(listing, "_made", lambda of: made)
    assert listing.names() == ["made"]
    (kept,) = (tmp_path / FOLDER).iterdir()
    kept.write_text(json.dumps([{**made[0], "name": "kept"}]))
    listing._all_rows.cache_clear()
    assert listing.names() == ["kept"]


def test_a_row_has_what_the_task_has():
    function = catalog.all_functions()[0]
    of_module = find_module_task(all_drafts()[0].name)
    for of, task in (("synthesis", catalog.build_task(function)), ("modules", of_module)):
        row = next(row for row in listing.rows(of) if row["name"] == task.name)
        assert row == json.loads(task.model_dump_json(include=set(row)))


def test_modules_are_listed_and_counted_as_functions_are():
    chosen = TaskSelection(scope="modules", family="scan", split=Split.TRAIN)
    names = {row["name"] for row in listing.rows("modules", family="scan", split=Split.TRAIN)}
    assert {task.name for task in selected_tasks(chosen)} == names
    (family,) = statistics(chosen).families
    assert (family.family, family.train, family.held_out) == ("scan", len(names), 0)
    assert family.judged == family.correct > len(names)
    with pytest.raises(UsageError, match="no family is called 'scam'; did you mean scan"):
        listing.rows("modules", family="scam")
