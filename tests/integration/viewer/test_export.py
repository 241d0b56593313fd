"""Static pages to share."""

from __future__ import annotations

from pathlib import Path

import pytest

from coding_framework.errors import UsageError
from coding_framework.viewer.serve import export
from support.viewed import make_rl_run, repaired

pytestmark = pytest.mark.integration


def test_static_pages_need_no_script_and_no_server(tmp_path: Path) -> None:
    run = make_rl_run(tmp_path / "rl", [repaired("a"), repaired("b", task="gelu")])
    target = tmp_path / "pages"
    export([run], target, "task=gelu", tmp_path / "index", code=False)
    pages = sorted(target.rglob("*.html"))
    assert len(pages) == 3, "the list, the run, and the conversation that the filter passes"
    for page in pages:
        text = page.read_text()
        assert "<script" not in text
        assert 'href="/' not in text
    assert "<mark>" in "".join(page.read_text() for page in pages)


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    run = make_rl_run(tmp_path / "rl", [repaired("a")])
    with pytest.raises(UsageError, match="is not empty"):
        export([run], run, "", tmp_path / "index", code=False)
