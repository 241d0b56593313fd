"""The index follows files that are written, cut, replaced and broken."""

from __future__ import annotations

import itertools
import os
import re
from pathlib import Path
from typing import Any

import pytest

from coding_framework.store.conversations import append_rollout
from coding_framework.store.records import StepRecord
from coding_framework.store.run_status import (
    JudgeSample,
    SystemSample,
    append_judge,
    append_system,
)
from coding_framework.store.training_log import write_steps
from coding_framework.viewer import app
from coding_framework.viewer import index as index_module
from coding_framework.viewer.index import IndexWriter, connect, index_file
from coding_framework.viewer.indexer import Indexer, pause_s
from coding_framework.viewer.runs import find_runs, rl_folders, sources_of, steps_of
from coding_framework.viewer.search import Filter, listed, matching, neighbours
from support.viewed import Viewed, make_rl_run, repaired, rollout

pytestmark = pytest.mark.integration


def line(name: str, speedup: float = 2.0) -> str:
    return rollout(repaired(name, speedup)).model_dump_json() + "\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "made.jsonl"


def names(viewed: Viewed) -> list[str]:
    return sorted(row["name"] for row in viewed.rows())


def test_lines_that_are_added_are_found(file: Path, tmp_path: Path) -> None:
    file.write_text(line("a"))
    viewed = Viewed(file, index=tmp_path / "index")
    with file.open("a") as out:
        out.write(line("b"))
    viewed.look()
    assert names(viewed) == ["a", "b"]


@pytest.mark.parametrize(
    ("backend", "device", "said"),
    [
        ("emulator", "emulator of T4", "the emulator, times modelled for T4"),
        ("emulator", "T4", "the emulator, times modelled for T4"),  # as verdicts of before say
        ("cuda", "T4", "T4"),
    ],
)
def test_a_run_without_a_gpu_is_not_said_to_be_judged_on_one(
    file: Path, tmp_path: Path, backend: str, device: str, said: str
) -> None:
    text = line("a").replace('"backend":"emulator"', f'"backend":"{backend}"')
    file.write_text(re.sub(r'"device":"[^"]*"', f'"device":"{device}"', text))
    viewed = Viewed(file, index=tmp_path / "index")
    assert viewed.data("")["rows"][0]["device"] == said


def test_an_unfinished_line_waits_for_its_end(file: Path, tmp_path: Path) -> None:
    whole = line("b")
    file.write_text(line("a") + whole[:200])
    viewed = Viewed(file, index=tmp_path / "index")
    assert names(viewed) == ["a"]
    with file.open("a") as out:
        out.write(whole[200:])
    viewed.look()
    assert names(viewed) == ["a", "b"]


def test_a_file_that_was_cut_and_written_anew_is_read_anew(file: Path, tmp_path: Path) -> None:
    file.write_text(line("a") + line("b"))
    viewed = Viewed(file, index=tmp_path / "index")
    file.write_text(line("c"))
    viewed.look()
    assert names(viewed) == ["c"]
    file.write_text("".join(line(f"d{i}") for i in range(5)))  # longer than before, the same inode
    viewed.look()
    assert names(viewed) == [f"d{i}" for i in range(5)]


def test_a_file_that_was_replaced_is_read_anew(file: Path, tmp_path: Path) -> None:
    file.write_text(line("a"))
    viewed = Viewed(file, index=tmp_path / "index")
    other = file.with_name("other")
    other.write_text(line("a")[:-1].replace('"a"', '"z"') + "\n" + line("y"))
    os.replace(other, file)
    viewed.look()
    assert names(viewed) == ["y", "z"]


def test_broken_lines_are_counted_with_their_place(file: Path, tmp_path: Path) -> None:
    deep = "[" * 100_000
    file.write_text(line("a") + '{"half": \n' + "[]\n" + deep + "\n\n" + line("b"))
    viewed = Viewed(file, index=tmp_path / "index")
    assert names(viewed) == ["a", "b"]
    assert "3 lines of" in viewed.page(f"/run/{viewed.run()}")
    assert "the first is line 2" in viewed.page(f"/run/{viewed.run()}")


def test_a_line_beyond_the_limit_is_passed_over(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_module, "MAX_LINE", 3 << 20)
    with file.open("w") as out:
        out.write(line("a"))
        for _ in range(12):
            out.write("x" * (1 << 20))
        out.write("\n" + line("b"))
    viewed = Viewed(file, index=tmp_path / "index")
    assert names(viewed) == ["a", "b"]
    assert "1 line of" in viewed.page(f"/run/{viewed.run()}")


def test_an_index_that_is_deleted_or_broken_is_made_again(file: Path, tmp_path: Path) -> None:
    file.write_text(line("a"))
    viewed = Viewed(file, index=tmp_path / "index")
    path = index_file(viewed.folder, viewed.run())
    runs = find_runs([file])
    indexer = Indexer([file], viewed.folder)
    indexer.look(runs)
    for end in ("", "-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)
    assert viewed.client.get(f"/run/{viewed.run()}/conversations").status_code == 503
    indexer.look(runs)
    assert names(viewed) == ["a"]
    indexer.close()
    path.write_bytes(b"no database" * 1000)
    assert viewed.client.get(f"/run/{viewed.run()}/conversations").status_code == 503
    viewed.look()  # finds it broken and removes it
    viewed.look()
    assert names(viewed) == ["a"]


def test_of_two_viewers_one_writes(file: Path, tmp_path: Path) -> None:
    file.write_text(line("a"))
    folder = tmp_path / "index"
    folder.mkdir()
    first, second = Indexer([file], folder), Indexer([file], folder)
    runs = find_runs([file])
    first.look(runs)
    second.look(runs)
    assert not second._writers
    first.close()
    second.look(runs)
    assert second._writers
    second.close()


def test_symbolic_links_are_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret.jsonl"
    secret.write_text(line("secret"))
    run = make_rl_run(tmp_path / "runs" / "rl", [repaired("a")])
    (run / "attempts/000/rollouts/step_000009.jsonl").symlink_to(secret)
    (tmp_path / "runs" / "elsewhere").symlink_to(tmp_path)
    assert len(find_runs([tmp_path / "runs"])) == 1
    assert names(Viewed(tmp_path / "runs", index=tmp_path / "index")) == ["a"]
    (run / "steps.jsonl").rename(tmp_path / "steps.jsonl")
    (run / "steps.jsonl").symlink_to(tmp_path / "steps.jsonl")
    (found,) = find_runs([tmp_path / "runs"])
    assert [steps_of(folder) for _, folder in rl_folders(found)] == [[]]


def test_pages_of_a_list_hold_each_conversation_once_in_every_order(
    file: Path, tmp_path: Path
) -> None:
    file.write_text("".join(line(f"c{i}", 1 + i % 3) for i in range(23)))
    run = find_runs([file])[0]
    path = tmp_path / "x.sqlite"
    writer = IndexWriter(path)
    list(writer.update(list(sources_of(run))))
    writer.close()
    with connect(path) as db:
        for sort in ("newest", "oldest", "speedup", "reward", "turns", "task", "step"):
            wanted, after, seen = Filter(sort=sort), "", []
            while True:
                page = listed(db, wanted, after, limit=5)
                seen += page.rows
                after = page.after
                if not after:
                    break
            assert len({row["key"] for row in seen}) == len(seen) == 23, sort
            for earlier, later in itertools.pairwise(seen):
                assert neighbours(db, wanted, earlier)[1] == later["key"], sort
                assert neighbours(db, wanted, later)[0] == earlier["key"], sort


def test_a_look_at_many_files_asks_for_each_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_rl_run(tmp_path / "rl", [repaired("a")])
    rollouts = run / "attempts/000/rollouts"
    for step in range(2, 2_000):
        (rollouts / f"step_{step:06d}.jsonl").touch()
    indexer, runs = Indexer([run], tmp_path / "index"), find_runs([run])
    (tmp_path / "index").mkdir()
    indexer.look(runs)
    asked: list[object] = []
    real = os.stat

    def counted(path: Any, **more: Any) -> os.stat_result:
        asked.append(path)
        return real(path, **more)

    monkeypatch.setattr(os, "stat", counted)
    indexer.look(runs)
    monkeypatch.undo()
    indexer.close()
    assert len(asked) < 2_050
    assert [pause_s(took) for took in (0.01, 2.0, 60.0)] == [0.5, 6.0, 30.0]


def test_sums_are_those_of_the_conversations(tmp_path: Path) -> None:
    run = make_rl_run(tmp_path / "rl", [repaired(f"c{i}", 1.0 + i) for i in range(3)])
    viewed = Viewed(run, index=tmp_path / "index")

    def told() -> tuple[int, int, float | None]:
        found = viewed.library.totals(viewed.library.run(viewed.run()))
        rows = viewed.rows()
        assert found.count == found.judged == found.correct == found.compiled == len(rows)
        assert found.best == max(row["speedup"] for row in rows)
        assert found.last_step == max(row["step"] for row in rows)
        return found.count, found.last_step, found.best

    assert told() == (3, 1, 3.0)
    first = run / "attempts/000/rollouts"
    append_rollout(first, rollout(repaired("c0", 9.0), session=0))  # the same one again
    viewed.look()
    assert told() == (3, 1, 9.0)
    append_rollout(run / "attempts/001/rollouts", rollout(repaired("later", 2.0), step=1))
    append_rollout(run / "attempts/001/rollouts", rollout(repaired("more", 5.0), step=2))
    viewed.look()
    assert told() == (2, 2, 5.0), "of a repeated step the latest attempt counts"


def test_times_that_run_backwards_and_restarts_are_drawn_in_order(tmp_path: Path) -> None:
    run = make_rl_run(tmp_path / "rl", [repaired("a")])
    write_steps(run / "steps.jsonl", [StepRecord(step=n, solved_rate=0.5) for n in (1, 2, 3)])
    for attempt, step, ended in (
        (0, 2, "2026-01-01T10:00:00+00:00"),
        (1, 2, "2026-01-01T09:00:00"),
    ):
        made = rollout(repaired(f"s{step}{attempt}"), step=step)
        late = made.model_copy(update={"began_at": "2026-01-02T00:00:00", "ended_at": ended})
        append_rollout(run / f"attempts/{attempt:03d}/rollouts", late)
    for t in (1e9 + 5, 1e9 + 9, 1e9 + 2):  # the clock was set back
        append_system(run, SystemSample(t=t, load=1.0))
    viewed = Viewed(run, index=tmp_path / "index")
    charts = {c["id"]: c for c in viewed.data(f"/run/{viewed.run()}/charts")}
    assert charts["rl-solved"]["marks"] == [2.0], "the second start began with step 2"
    system = {c["id"]: c for c in viewed.data(f"/system/{viewed.run()}/charts")}
    assert system["load"]["x"] == [0.0, 3.0, 7.0]
    assert len(system["load"]["marks"]) == 1
    viewed.page(f"/system/{viewed.run()}")


class Asleep:
    """A request of a browser that is there for some looks."""

    def __init__(self, looks: int) -> None:
        self.looks = looks

    async def is_disconnected(self) -> bool:
        self.looks -= 1
        return self.looks < 0


async def test_a_browser_that_slept_is_told_what_it_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "LOOK_S", 0.0)

    async def told(last: str) -> list[str]:
        now = {"steps": "7", "state": "alive"}
        return [e.decode() async for e in app.changes(lambda: now, last, Asleep(2))]  # type: ignore[arg-type]

    known = "steps=7;state=alive"
    assert await told(known) == [], "nothing has changed"
    (missed,) = await told("steps=2;state=alive;gone=1")  # of a server that is no more
    assert 'data: ["steps"]' in missed
    assert f"id: {known}" in missed
    (hello,) = await told("what; ever=\x00")
    assert "event: changed" in hello or "event: hello" in hello


def test_a_search_is_never_syntax() -> None:
    assert matching('a" OR b*') == '"a"* AND "OR"* AND "b"*'
    assert matching('"*()') == ""


def test_a_whole_runs_evaluation_and_its_training_of_one_name_are_told_apart(
    tmp_path: Path,
) -> None:
    run = tmp_path / "runs" / "whole"
    make_rl_run(run / "rl_checkpoints", [repaired(f"trained{i}") for i in range(2)])
    (run / "stages.json").write_text(
        '{"stages": {"eval_rl": {"wall_s": 5.0}}, "started": {"eval_rl": 1}}'
    )
    (run / "evaluations").mkdir()
    (run / "evaluations/rl.jsonl").write_text(repaired("rl/relu/0").model_dump_json() + "\n")
    viewed = Viewed(tmp_path / "runs", index=tmp_path / "index")
    parts = {p["name"]: p for p in viewed.data(f"/run/{viewed.run()}")["parts"]}
    assert {name: part["count"] for name, part in parts.items()} == {"eval rl": 1, "rl": 2}
    assert parts["eval rl"]["wall_s"] == 5.0


def test_a_pause_in_what_the_judge_wrote_is_a_gap(tmp_path: Path) -> None:
    run = make_rl_run(tmp_path / "runs" / "rl", [repaired()])
    for t in (0, 5, 10, 15, 900, 905):
        told = {"pool": "a", "running": 0, "workers": 1, "done": 0, "done_per_s": 0.0}
        append_judge(run, JudgeSample(t=1e9 + t, queued=t, **told))
    viewed = Viewed(tmp_path / "runs", index=tmp_path / "index")
    (queue,) = (c for c in viewed.data(f"/system/{viewed.run()}/charts") if c["id"] == "queue")
    assert queue["series"][0]["values"] == [0, 5, 10, 15, None, 900, 905]
    assert 15 < queue["x"][4] < 900
