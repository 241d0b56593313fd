"""Things that text names for other processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from coding_framework.errors import UsageError
from coding_framework.training.import_paths import absolute, build, named

pytestmark = pytest.mark.unit


def test_paths_that_name_nothing_are_refused(tmp_path: Path) -> None:
    assert build("builtins:dict", a=1) == {"a": 1}
    with pytest.raises(UsageError, match="write it as 'module:callable'"):
        build("json.loads")
    for path in ("json:no_such_thing", "no_such_module:x", f"{tmp_path}/gone.py:x"):
        with pytest.raises(UsageError, match="names nothing"):
            build(path)
    broken = tmp_path / "broken.py"
    broken.write_text("import no_such_module\n")
    for _ in range(2):  # a module that could not be made is not kept half
        with pytest.raises(UsageError, match="No module named 'no_such_module'"):
            named(f"{broken}:x")


def test_a_file_of_the_users_is_a_module_with_its_neighbours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "beside_it.py").write_text("VALUE = 3\n")
    (tmp_path / "mine.py").write_text("from beside_it import VALUE\ndef f():\n    return VALUE\n")
    monkeypatch.chdir(tmp_path)
    assert build(absolute("mine.py:f")) == 3
    assert named("mine.py:f") is named(f"{tmp_path}/mine.py:f")
