"""The viewer's pages over real run folders, by HTTP."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from coding_framework.store.conversations import episodes
from coding_framework.store.records import StepRecord
from coding_framework.store.training_log import write_steps
from coding_framework.types import Status
from support.made_conversations import make_state, make_turn, make_verdict
from support.viewed import KERNEL, Viewed, make_rl_run, repaired

pytestmark = pytest.mark.integration
OLD_RUN = Path(__file__).parents[2] / "unit/store/old_run"
VIEWS = ("diff", "code", "prompt", "compiler", "tests", "profile", "reward", "raw")


@pytest.fixture
def viewed(tmp_path: Path) -> Viewed:
    lost = make_state(make_turn(0, None, masked="the device process was lost"), name="lost")
    failed = make_verdict(Status.COMPILE_ERROR, reason='identifier "partal" is undefined')
    states = [repaired("a", 2.0), repaired("b", 3.0, task="gelu"), lost]
    states.append(make_state(make_turn(0, failed.model_copy(update={"tests": ()})), name="broken"))
    make_rl_run(tmp_path / "runs" / "rl", states)
    return Viewed(tmp_path / "runs", index=tmp_path / "index")


def test_the_list_of_runs_tells_what_each_came_to(viewed: Viewed) -> None:
    page = viewed.page("/")
    assert ">rl</b>" in page
    assert "67%" in page, "2 of 3 judged conversations are solved"


def test_a_run_begins_with_a_judgement_and_tells_how_it_was_made(viewed: Viewed) -> None:
    folder = viewed.library.run(viewed.run()).root
    rates = (0.1, 0.1, 0.2, 0.4, 0.6, 0.6)
    steps = [StepRecord(step=i, solved_rate=r, solved_error=0.05) for i, r in enumerate(rates)]
    write_steps(folder / "steps.jsonl", steps)
    told = {
        "kind": "rl",
        "command": ["train.py", "--seed", "3"],
        "commit": "80ae68a4",
        "host": "box",
    }
    (folder / "run.json").write_text(json.dumps(told))
    page = viewed.page(f"/run/{viewed.run()}")
    assert "up: 10% solved in the first third of the steps, 60% in the last." in page
    assert all(text in page for text in ("train.py --seed 3", "80ae68a4", "box, no GPU"))


def test_a_conversation_tells_the_cause_and_shows_what_must_be_computed(viewed: Viewed) -> None:
    key = viewed.rows("?status=correct")[0]["key"]
    page = viewed.page(f"/run/{viewed.run()}/conversations/{key}?turn=1&view=code")
    assert "What it must compute" in page
    assert "<dt>try</dt>" in page


def test_replay_counts_the_conversations_that_the_viewer_counts(viewed: Viewed) -> None:
    assert len(list(episodes(viewed.library.run(viewed.run()).root))) == len(viewed.rows())
    old = Viewed(OLD_RUN, index=viewed.library.run(viewed.run()).root.parent / "index2")
    listed = old.data(f"/run/{old.run()}/conversations")["matching"]
    assert listed == len(list(episodes(OLD_RUN)))


def test_a_filter_of_the_address_decides_what_is_listed(viewed: Viewed) -> None:
    assert {r["name"] for r in viewed.rows()} == {"a", "b", "lost", "broken"}
    assert {r["name"] for r in viewed.rows("?status=correct")} == {"a", "b"}
    assert {r["name"] for r in viewed.rows("?min_speedup=2.5")} == {"b"}
    assert {r["name"] for r in viewed.rows("?task=gelu")} == {"b"}
    assert [r["name"] for r in viewed.rows("?sort=speedup&status=correct")] == ["b", "a"]


def test_a_search_finds_compiler_messages_and_reasons(viewed: Viewed) -> None:
    assert {r["name"] for r in viewed.rows("?q=partal")} == {"broken"}
    assert {r["name"] for r in viewed.rows("?q=elements differ")} == {"a", "b"}
    assert viewed.rows('?q=") OR 1=1 --') == []


def test_tokens_are_those_of_the_ids_or_what_a_server_counted(tmp_path: Path) -> None:
    def answered(name: str, **how: Any) -> Any:
        turn = make_turn(0, make_verdict(Status.CORRECT))
        told = turn.generation.model_copy(update={"logprobs": (), **how})
        return make_state(turn.model_copy(update={"generation": told}), name=name)

    states = [
        answered("ids", response_ids=(1, 2, 3)),
        answered("served", response_ids=(), counted=7),
        answered("unknown", response_ids=()),
    ]
    make_rl_run(tmp_path / "runs" / "rl", states)
    viewed = Viewed(tmp_path / "runs", index=tmp_path / "index")
    rows = {row["name"]: row for row in viewed.rows()}
    assert {name: row["tokens"] for name, row in rows.items()} == {
        "ids": 3, "served": 7, "unknown": 0,
    }  # fmt: skip
    address = f"/run/{viewed.run()}/conversations/{rows['served']['key']}?view=prompt"
    assert "<small>7 tokens" in viewed.page(address)


def test_every_view_of_every_turn_is_a_page(viewed: Viewed) -> None:
    run = viewed.run()
    for row in viewed.rows():
        for turn in range(1, row["turns"] + 1):
            for view in VIEWS:
                viewed.page(f"/run/{run}/conversations/{row['key']}?turn={turn}&view={view}")


def test_a_diff_shows_what_changed_within_the_line(viewed: Viewed) -> None:
    row = viewed.rows("?task=gelu")[0]
    page = viewed.page(f"/run/{viewed.run()}/conversations/{row['key']}?turn=2&view=diff")
    assert '<tr class="removed">' in page
    assert "<mark>" in page


def test_next_stays_within_the_filter(viewed: Viewed) -> None:
    first = viewed.rows("?status=correct&sort=speedup")[0]
    own = f"/run/{viewed.run()}/conversations/"
    moved = viewed.client.get(f"{own}{first['key']}/next?status=correct&sort=speedup")
    assert moved.status_code == 303
    page = viewed.page(moved.headers["location"])
    assert "2.00×" in page.replace('<span class="m">', "") or "2×" in page
    assert 'rel="next"' not in page


def test_the_pages_of_a_run_and_their_data_answer(viewed: Viewed) -> None:
    run = viewed.run()
    for path in ("", "/conversations", "/steps", "/steps/1", "/tasks", "/task?task=relu"):
        viewed.page(f"/run/{run}{path}")
        viewed.data(f"/run/{run}{path}")
    charts = viewed.data(f"/run/{run}/charts")
    assert {"rl-solved", "rl-reward"} <= {chart["id"] for chart in charts}


def test_a_reward_is_recomputed_by_another_preset(viewed: Viewed) -> None:
    key = viewed.rows("?task=relu&status=correct")[0]["key"]
    page = viewed.page(f"/run/{viewed.run()}/conversations/{key}?view=reward&preset=correct")
    assert "1.000" in page, "the preset `correct` pays 1 for a correct kernel"


def test_old_runs_are_shown(tmp_path: Path) -> None:
    viewed = Viewed(OLD_RUN, index=tmp_path / "index")
    assert "old_run" in viewed.page("/")
    steps = [r["step"] for r in viewed.rows("?label=rl")]
    assert len(steps) == len(set(steps)), "of a repeated step the latest attempt counts"
    assert len(viewed.rows("?past=1&label=rl")) > len(steps)


def test_a_conversation_of_a_newer_version_is_shown_as_it_is(tmp_path: Path) -> None:
    run = make_rl_run(tmp_path / "rl", [repaired()])
    file = next(run.glob("attempts/*/rollouts/*.jsonl"))
    file.write_text(
        file.read_text().replace('"tests":[', '"tests":[7,').replace('"turns":', '"new":1,"turns":')
    )
    viewed = Viewed(run, index=tmp_path / "index")
    key = viewed.rows()[0]["key"]
    for view in VIEWS:
        viewed.page(f"/run/{viewed.run()}/conversations/{key}?view={view}")


def test_nothing_is_written_below_the_path(tmp_path: Path) -> None:
    run = make_rl_run(tmp_path / "rl", [repaired()])
    before = {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in run.rglob("*")}
    viewed = Viewed(run, index=tmp_path / "index")
    viewed.page(f"/run/{viewed.run()}")
    assert {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in run.rglob("*")} == before


def test_every_answer_forbids_scripts_of_others(viewed: Viewed) -> None:
    for address in ("/", f"/run/{viewed.run()}", "/run/nope", "/static/x/style.css"):
        headers = viewed.client.get(address).headers
        assert "script-src 'self'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"


def test_only_get_is_answered_and_only_under_known_names(viewed: Viewed) -> None:
    assert viewed.client.post("/").status_code == 405
    assert viewed.client.get("/", headers={"host": "evil.example"}).status_code == 421


def test_a_token_is_asked_for_and_kept_in_a_cookie(tmp_path: Path) -> None:
    viewed = Viewed(tmp_path, index=tmp_path / "index", token="a long secret")
    assert viewed.client.get("/").status_code == 401
    first = viewed.client.get("/?token=a long secret")
    assert (first.status_code, first.headers["location"]) == (303, "/")
    assert viewed.client.get("/").status_code == 200


def test_ids_of_an_address_are_looked_up_and_never_paths(viewed: Viewed) -> None:
    for address in (
        "/run/..%2f..%2fetc",
        f"/run/{viewed.run()}/conversations/..%2f..",
        "/static/x/../app.py",
    ):
        assert viewed.client.get(address).status_code == 404


def test_vendored_files_are_those_that_were_published() -> None:
    folder = Path(__file__).parents[3] / "src/coding_framework/viewer/static/vendor"
    for package in json.loads((folder / "VENDOR.json").read_text()).values():
        for name, told in package["files"].items():
            assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == told["sha256"]


def test_code_can_be_downloaded_as_text(viewed: Viewed) -> None:
    key = viewed.rows("?task=gelu")[0]["key"]
    response = viewed.client.get(f"/run/{viewed.run()}/conversations/{key}/code?turn=2")
    assert response.text == KERNEL
    assert response.headers["content-type"].startswith("text/plain")
    assert response.headers["content-disposition"].startswith("attachment")


def test_figures_that_are_no_numbers_are_shown_as_none(tmp_path: Path) -> None:
    run = make_rl_run(tmp_path / "runs" / "rl", [repaired()])
    nan, inf = float("nan"), float("inf")
    steps = [
        StepRecord(step=1, solved_rate=0.5),
        StepRecord(step=2, solved_rate=nan, kl=nan, grad_norm=inf, times={"step_s": -inf}),
    ]
    lines = "".join(json.dumps(step.model_dump(mode="python")) + "\n" for step in steps)
    (run / "steps.jsonl").write_text(lines)
    viewed = Viewed(tmp_path / "runs", index=tmp_path / "index")
    for page in ("", "/steps", "/steps/2"):
        assert "nan%" not in viewed.page(f"/run/{viewed.run()}{page}")
    solved = viewed.data(f"/run/{viewed.run()}/charts")[0]
    assert solved["series"][0]["values"] == [0.5, None]


@pytest.mark.parametrize("place", ["²", "~²", "nan~3", "None~5", "٣", "1~-1", "x"])
def test_a_place_in_a_list_that_no_page_gave_is_its_start_or_none(
    tmp_path: Path, place: str
) -> None:
    make_rl_run(tmp_path / "runs" / "rl", [repaired()])
    viewed = Viewed(tmp_path / "runs", index=tmp_path / "index")
    viewed.page(f"/run/{viewed.run()}/conversations?after={quote(place)}")


def test_the_fastest_kernels_are_of_different_tasks(tmp_path: Path) -> None:
    states = [
        *(repaired(f"r{n}", 3.0 + n / 100) for n in range(8)),
        repaired("t", 2.0, "tanh"),
        repaired("e", 1.0, "exp"),
    ]
    make_rl_run(tmp_path / "run", states)
    viewed = Viewed(tmp_path, index=tmp_path.with_name("index"))
    best = viewed.data(f"/run/{viewed.run()}")["best"]
    assert [(row["task"], row["speedup"]) for row in best] == [
        ("relu", 3.07),
        ("tanh", 2.0),
        ("exp", 1.0),
    ]
