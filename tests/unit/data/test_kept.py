"""What is drawn is kept between runs, and is never that of other code."""

from __future__ import annotations

import json

import pytest

from coding_framework.data import kept as module
from coding_framework.data.kept import FOLDER, digest, kept
from coding_framework.data.synthesis import catalog

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_RL_CACHE", str(tmp_path))


def test_a_kept_list_is_read_and_one_of_other_code_is_not(tmp_path, monkeypatch):
    assert kept("a", lambda: ["made"]) == ["made"]
    (file,) = (tmp_path / FOLDER).iterdir()
    file.write_text(json.dumps(["kept"]))
    assert kept("a", lambda: ["made"]) == ["kept"]
    assert kept("b", lambda: ["other"]) == ["other"]
    monkeypatch.setattr(module, "digest", lambda: "other")
    assert kept("a", lambda: ["made"]) == ["made"]


def test_a_damaged_list_is_made_again(tmp_path):
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / f"{digest()}.a.json").write_text("[{")
    assert kept("a", lambda: ["made"]) == ["made"]
    assert kept("a", lambda: ["again"]) == ["made"]


def test_a_list_that_cannot_be_kept_is_made_all_the_same(monkeypatch):
    monkeypatch.setenv("CUDA_RL_CACHE", "/proc/x")
    assert kept("a", lambda: ["made"]) == ["made"]


def test_the_catalogue_is_the_same_drawn_and_kept(monkeypatch):
    drawn = catalog._drawn_names(0, 6)
    catalog.catalog.cache_clear()
    made = catalog.catalog(0, 6)
    catalog.catalog.cache_clear()
    monkeypatch.setattr(catalog, "_drawn_names", lambda *_: pytest.fail("it was drawn again"))
    assert catalog.catalog(0, 6) == made
    assert [program.name for program in made] == drawn
    assert all(catalog.parse_function(program.name) == program for program in made)
    catalog.catalog.cache_clear()
