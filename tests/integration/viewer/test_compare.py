"""The page that compares runs, and the cut of a chart's axis."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coding_framework.store.records import StepRecord
from coding_framework.store.training_log import write_steps
from coding_framework.viewer.charts import Options, chart
from support.viewed import Viewed, make_rl_run, repaired

pytestmark = pytest.mark.integration


def seeds(folder: Path) -> Path:
    """Two configurations of two seeds each; a run of seed s has solved (s + step) / 10."""
    for loss in ("grpo", "gspo"):
        for seed in (0, 1):
            run = make_rl_run(folder / f"{loss}-{seed}", [repaired(f"{loss}{seed}")])
            config = {"seed": seed, "output_dir": str(run), "loss": loss, "model": f"{run}/model"}
            (run / "config.json").write_text(json.dumps({"config": config}))
            steps = range(1, 5 + seed)
            write_steps(
                run / "steps.jsonl",
                [StepRecord(step=s, solved_rate=(seed + s) / 10, solved_error=0.1) for s in steps],
            )
    return folder


def asked(viewed: Viewed, count: int = 4) -> str:
    runs = [row["run"]["id"] for row in viewed.data("?sort=name")["rows"]]
    return "&".join(f"runs={run}" for run in runs[:count])


def test_of_many_runs_each_has_its_row_and_its_line(tmp_path: Path) -> None:
    viewed = Viewed(seeds(tmp_path / "runs"), index=tmp_path / "index")
    page = viewed.page(f"/compare?{asked(viewed)}")
    assert all(name in page for name in ("grpo-0", "grpo-1", "gspo-0", "gspo-1", "against A"))
    (solved,) = (
        c for c in viewed.data(f"/compare/charts?{asked(viewed)}") if c["id"] == "rl-solved-solved"
    )
    names = [part["series"][0]["name"] for part in solved["parts"]]
    assert names == ["A grpo-0", "B grpo-1", "C gspo-0", "D gspo-1"]
    assert solved["parts"][1]["series"][0]["values"] == [0.2, 0.3, 0.4, 0.5, 0.6]


def test_runs_that_differ_in_their_seed_are_one_line_with_a_band(tmp_path: Path) -> None:
    viewed = Viewed(seeds(tmp_path / "runs"), index=tmp_path / "index")
    found = viewed.data(f"/compare/charts?{asked(viewed)}&group=seed")
    (solved,) = (c for c in found if c["id"] == "rl-solved-solved")
    first, second = solved["parts"]
    assert [s["name"] for s in first["series"]] == ["mean of AB", "least", "largest"]
    assert second["series"][0]["name"] == "mean of CD"
    mean, least, largest = (s["values"] for s in first["series"])
    assert first["x"] == [1, 2, 3, 4], "as far as both have come"
    assert mean == pytest.approx([0.15, 0.25, 0.35, 0.45])
    assert (least[0], largest[-1]) == pytest.approx((0.1, 0.5))
    (alone,) = viewed.data(f"/compare/charts?{asked(viewed)}&group=folder")[0]["parts"]
    assert alone["series"][0]["name"] == "mean of ABCD"


def test_two_runs_are_paired_and_drawn_too_many_are_refused(tmp_path: Path) -> None:
    viewed = Viewed(seeds(tmp_path / "runs"), index=tmp_path / "index")
    page = viewed.page(f"/compare?{asked(viewed, 2)}")
    assert "Paired over 1 task" in page
    assert "Task by run" in page
    assert page.count("✓ 1 of 1</a>") == 2, "a cell a run"
    assert "data-charts" in page
    many = "&".join(f"runs=r{i}" for i in range(9))
    assert viewed.client.get(f"/compare?{many}").status_code == 400
    assert viewed.client.get("/compare?runs=nothing").status_code == 404
    assert "Choose two to eight runs" in viewed.page("/compare")


def test_the_cut_of_an_axis_is_in_the_address_and_keeps_the_points_beside_it(
    tmp_path: Path,
) -> None:
    viewed = Viewed(seeds(tmp_path / "runs"), index=tmp_path / "index")
    own = f"/run/{viewed.run()}"
    solved = viewed.data(f"{own}/charts?from=2&to=3")[0]
    assert (solved["x"], solved["cut"]) == ([1, 2, 3, 4], [2, 3])
    assert viewed.data(f"{own}/charts?from=3.5&to=9")[0]["x"] == [3, 4]
    other = viewed.data(f"{own}/charts?from=2&to=3&axis=seconds")[0]
    assert (other["x"], other["cut"]) == ([1, 2, 3, 4], [None, None])
    assert 'name="from" value="2"' in viewed.page(f"{own}?from=2")


@pytest.mark.parametrize("cut", ["from=nan&to=inf", "from=x", "from=9&to=2", "from=1e400", "to=-5"])
def test_a_cut_that_cannot_be_is_none(tmp_path: Path, cut: str) -> None:
    viewed = Viewed(seeds(tmp_path / "runs"), index=tmp_path / "index")
    assert viewed.data(f"/run/{viewed.run()}/charts?{cut}")[0]["x"]


def test_within_a_cut_there_are_more_points_than_of_the_whole() -> None:
    x = [float(i) for i in range(100_000)]
    line = {"a": [v % 7 for v in x]}
    cut = chart("c", "c", "", line, {}, x, "step", Options(low=500.0, high=900.0))
    assert cut is not None
    assert cut["x"] == x[499:902]
