"""`new-task`, `cache`, the line that tells what takes long, and the watch on a file."""

from __future__ import annotations

import json
import os
import threading
import time

import pytest

from coding_framework import cli
from coding_framework.commands.judge_watch import versions
from coding_framework.data.registry import find_task

pytestmark = pytest.mark.unit


def test_a_new_task_is_a_problem_that_is_found_and_a_kernel_with_its_binding(tmp_path, capsys):
    assert cli.main(["new-task", "mine", "--output-dir", str(tmp_path)]) == 0
    task = find_task(str(tmp_path / "mine.py"))
    assert len({case.inputs[0].shape for case in task.cases}) >= 3
    kernel = (tmp_path / "mine.cu").read_text()
    assert "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m)" in kernel
    assert "cuda-rl judge --task" in capsys.readouterr().out


def test_a_new_task_is_made_of_a_module(tmp_path, capsys):
    mine = tmp_path / "layers.py"
    mine.write_text(
        "import torch\n\nclass Scaled(torch.nn.Module):\n"
        "    def forward(self, x):\n        return torch.relu(x) * 2\n"
    )
    asked = ["new-task", "--from", f"{mine}:Scaled", "--output-dir", str(tmp_path)]
    assert cli.main(asked) == 2
    assert "forward of Scaled takes x: give --inputs" in capsys.readouterr().err
    assert cli.main([*asked, "--inputs", "8x96"]) == 0
    assert find_task(str(tmp_path / "scaled.py")).cases[0].inputs[0].shape == (8, 96)
    assert "torch::Tensor forward(torch::Tensor" in (tmp_path / "scaled.cu").read_text()


def test_a_new_task_overwrites_nothing(tmp_path, capsys):
    (tmp_path / "mine.cu").write_text("of the user's")
    assert cli.main(["new-task", "mine", "--output-dir", str(tmp_path)]) == 2
    assert "is there already" in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["mine.cu"]
    assert cli.main(["new-task", "../mine", "--output-dir", str(tmp_path)]) == 2


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_RL_CACHE", str(tmp_path))
    now = time.time()
    for name, days in (("old", 40), ("new", 1)):
        entry = tmp_path / "builds" / "entries" / "aa" / name
        entry.mkdir(parents=True)
        (entry / "device.ptx").write_text("x" * 1000)
        os.utime(entry / "device.ptx", (now - days * 86400,) * 2)
    (tmp_path / "models" / "m" / "weights").mkdir(parents=True)
    return tmp_path


def test_the_cache_is_listed_by_parts(cache, capsys):
    assert cli.main(["cache", "list", "--json"]) == 0
    rows = {row["part"]: row for row in map(json.loads, capsys.readouterr().out.splitlines())}
    assert (rows["builds"]["bytes"], rows["builds"]["entries"]) == (2000, 2)
    assert set(rows) == {"builds", "models"}


def test_pruning_removes_what_was_not_used_for_long_and_nothing_else(cache, capsys):
    entries = cache / "builds" / "entries" / "aa"
    assert cli.main(["cache", "prune", "--dry-run"]) == 0
    assert {p.name for p in entries.iterdir()} == {"old", "new"}
    assert cli.main(["cache", "prune"]) == 0
    assert {p.name for p in entries.iterdir()} == {"new"}
    assert (cache / "models" / "m" / "weights").is_dir()
    assert not list(cache.glob(".pruned-*"))
    said = capsys.readouterr().out
    assert "1 entries would be removed" in said
    assert "1 entries removed" in said


def test_a_watched_file_gives_each_content_once(tmp_path):
    path, seen = tmp_path / "k.cu", []
    path.write_text("one")
    watched = versions(path)
    seen.append(next(watched))

    def save() -> None:
        time.sleep(0.5)
        path.unlink()  # as editors do
        time.sleep(0.5)
        path.write_text("two")

    thread = threading.Thread(target=save)
    thread.start()
    seen.append(next(watched))
    thread.join()
    assert seen == ["one", "two"]


def test_a_dry_run_of_rft_counts_its_conversations_and_starts_nothing(tmp_path, capsys):
    wanted = ["--tasks", "3", "--max-task-ops", "1", "--samples", "2"]
    folder = tmp_path / "rft"
    command = ["rft", "no/model", "--dry-run", "--output-dir", str(folder), *wanted]
    assert cli.main(command) == 0
    assert capsys.readouterr().out.endswith("3 tasks, 6 conversations; nothing was started\n")
    assert not folder.exists()


def test_a_dry_run_of_the_quickstart_prints_its_recipe_and_starts_nothing(tmp_path, capsys):
    folder = tmp_path / "out"
    assert cli.main(["quickstart", "--smoke", "--dry-run", "--output-dir", str(folder)]) == 0
    said = capsys.readouterr().out
    assert "stages: " in said
    assert "nothing was started" in said
    assert not folder.exists()
