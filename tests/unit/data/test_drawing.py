"""The catalogues are what the programs of `scripts/drawing` draw, and the draws are the same again.

After a change that is meant: `uv run scripts/draw_tasks.py`, then `scripts/freeze_tasks.py`.
"""

from __future__ import annotations

from itertools import islice

import pytest

from coding_framework.data.modules.catalog import all_drafts, spare_drafts, wider_drafts
from coding_framework.data.modules.records import draft_of
from coding_framework.data.synthesis.catalog import catalog, parse_function, workload_catalog
from drawing import functions, modules

pytestmark = pytest.mark.unit


def test_functions_are_those_that_are_drawn() -> None:
    assert [f.name for f in catalog()] == functions.programs()
    assert [f.name for f in workload_catalog()] == functions.workloads()


def test_another_seed_draws_other_functions() -> None:
    small, other = (functions.programs(seed, per_family=3) for seed in (0, 1))
    assert small == functions.programs(0, per_family=3) != other
    assert all(parse_function(name) for name in other)


def test_modules_of_one_layer_are_those_of_the_grids() -> None:
    drawn = {d.key: d for d in modules.grid()}
    first = [d for d in all_drafts() if d.level == 1]
    assert len(first) > 2000
    for draft in first:
        assert repr(draft) == repr(drawn[draft.key]).replace("part='train'", f"part='{draft.part}'")
        assert modules.part_of_combination(draft) == draft.part


def test_a_module_is_read_as_it_was_written() -> None:
    for draft in (*all_drafts()[::40], *spare_drafts(3), *islice(wider_drafts(20), 100)):
        assert draft_of(modules.row_of(draft)) == draft


@pytest.mark.slow
def test_all_modules_are_those_that_are_drawn() -> None:
    assert all_drafts() == modules.catalogue()
    for stored, drawn in (
        (spare_drafts(1200), modules.spare()),
        (wider_drafts(200), modules.wider()),
    ):
        assert {d.key for d in stored} <= {d.key for group in drawn for d in group}
