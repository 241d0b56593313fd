"""The measured speeds that ship with the package, and the kernels that they choose."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from coding_framework.data.examples import training_examples
from coding_framework.data.synthesis.catalog import family_names
from coding_framework.data.synthesis.measured import MEASURED_PATH, measured_speeds
from coding_framework.data.synthesis.receipts import packaged_kernels
from coding_framework.errors import UsageError
from coding_framework.types import Role

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[3]


def _shipped() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(MEASURED_PATH.read_text())
    return found


def _script(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("pairs_speed")


def test_the_shipped_speeds_are_what_the_named_result_gives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shipped = _shipped()
    source = ROOT / shipped["source"]
    figures = json.loads(source.read_text())
    assert shipped == _script(monkeypatch).shipped(source.name, figures)
    medians = {(row["family"], row["level"]): row["median"] for row in figures["rows"]}
    assert medians == {
        (family, level): speed
        for family, levels in shipped["speeds"].items()
        for level, speed in levels.items()
    }
    assert set(shipped["speeds"]) == set(family_names())


def test_a_modelled_result_is_not_shipped(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "pairs_speed.json"
    figures = json.loads((ROOT / "benchmarks" / "results" / name).read_text())
    with pytest.raises(UsageError, match="modelled"):
        _script(monkeypatch).shipped(name, figures)


def test_naive_is_one_and_an_unknown_family_has_nothing_else() -> None:
    assert measured_speeds("histogram") == {"naive": 1.0, "shared": 128.206}
    assert measured_speeds("no such family") == {"naive": 1.0}


def test_generator_and_optimizer_end_at_the_level_that_was_measured_fastest() -> None:
    ends: dict[Role, dict[str, str]] = {}
    for role in (Role.GENERATOR, Role.OPTIMIZER):
        drawn = training_examples(role, 400, target="best")
        ends[role] = {e.task.name: e.code for e in drawn if e.kind != "repair"}
        for example in drawn:
            made = {r.code: r.level for r in packaged_kernels(example.task)}
            speeds = measured_speeds(example.task.family)
            judged = [level for level in made.values() if not level.startswith("broken")]
            if example.kind != "repair" and set(judged) <= speeds.keys():
                assert speeds[made[example.code]] == max(speeds[level] for level in judged)
    both = ends[Role.GENERATOR].keys() & ends[Role.OPTIMIZER].keys()
    assert len(both) > 100
    assert all(ends[Role.GENERATOR][name] == ends[Role.OPTIMIZER][name] for name in both)
