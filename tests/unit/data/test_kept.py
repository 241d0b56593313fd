"""What is drawn is kept between runs, and is never that of other code."""

from __future__ import annotations

import json

import pytest

from coding_framework.data import kept as module
from coding_framework.data.kept import FOLDER, digest, kept

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
