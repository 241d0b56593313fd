"""Tasks and kernels are those that were written down: what changes them says so in its commit.

After a change that is meant: `uv run scripts/freeze_tasks.py`.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.unit

SCRIPT = Path(__file__).parents[3] / "scripts/freeze_tasks.py"
SAMPLE = 2
"""Tasks of a family whose kernels are made in each run of the tests."""


@pytest.fixture(scope="module")
def script() -> Any:
    spec = importlib.util.spec_from_file_location("freeze_tasks", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["freeze_tasks"] = module
    spec.loader.exec_module(module)
    return module


def test_names_families_splits_and_canonical_keys_are_the_frozen_ones(script: Any) -> None:
    frozen = {name: facts[:3] for name, facts in script.read().items()}
    now = {name: facts[:3] for name, facts, _ in script.tasks()}
    assert not script.changes(
        {name: script.Facts(*facts) for name, facts in frozen.items()},
        {name: script.Facts(*facts) for name, facts in now.items()},
    )


def test_a_sample_of_each_family_is_the_frozen_one(script: Any) -> None:
    assert not _changes(script, SAMPLE)


@pytest.mark.slow
def test_every_task_and_kernel_is_the_frozen_one(script: Any) -> None:
    assert not _changes(script, sys.maxsize)


def _changes(script: Any, each: int) -> list[str]:
    families: dict[str, int] = {}
    now = {}
    for name, facts, make in script.tasks():
        families[facts.family] = families.get(facts.family, 0) + 1
        if families[facts.family] <= each:
            now[name] = script.whole(facts, *make())
    frozen = {name: facts for name, facts in script.read().items() if name in now}
    return list(script.changes(frozen, now))


def test_what_changed_is_named(script: Any) -> None:
    facts = script.Facts("row_sum", "train", "k", "r", "c", "naive=1|shared=2")
    other = facts._replace(part="held_out", kernels="naive=3|shared=2")
    found = script.changes({"a": facts, "b": facts}, {"a": other, "c": facts})
    assert found == [
        "row_sum: another kernels: 1 (a)",
        "row_sum: another part: 1 (a)",
        "row_sum: new tasks: 1 (c)",
        "row_sum: tasks that are no more: 1 (b)",
    ]


def test_what_is_written_is_read_again(script: Any, tmp_path: Path) -> None:
    rows = dict(list(script.read().items())[:20])
    script.write(rows, tmp_path / "tasks.tsv.xz")
    assert script.read(tmp_path / "tasks.tsv.xz") == rows
