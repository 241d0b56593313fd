"""Which checkpoints count after a kill."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from coding_framework.errors import UsageError
from coding_framework.store.checkpoints import (
    damage,
    finish,
    is_whole,
    keep_as,
    latest_checkpoint,
    manifest_of,
    prune,
    step_of,
    whole_checkpoints,
)
from coding_framework.store.folder import copy_linked

pytestmark = pytest.mark.unit


def checkpoint(root: Path, step: int, world: int = 1) -> Path:
    folder = root / f"global_step_{step}"
    (folder / "actor" / "huggingface").mkdir(parents=True)
    (folder / "actor" / "huggingface" / "config.json").write_text("{}")
    names = [
        f"actor/{part}_world_size_{world}_rank_{rank}.pt"
        for part in ("model", "optim", "extra_state")
        for rank in range(world)
    ]
    for name in [*names, "data.pt"]:
        with zipfile.ZipFile(folder / name, "w") as archive:
            archive.writestr("data", b"x" * 1000)
    finish(folder, manifest_of(folder))
    return folder


def test_newest_whole_checkpoint_is_taken(tmp_path: Path) -> None:
    checkpoint(tmp_path, 9)
    newest = checkpoint(tmp_path, 10)
    assert latest_checkpoint(tmp_path, 1) == newest
    assert step_of(newest) == 10


def test_nothing_to_resume_from(tmp_path: Path) -> None:
    assert latest_checkpoint(tmp_path, 1) is None
    assert latest_checkpoint(tmp_path / "missing", 1) is None


@pytest.mark.parametrize(
    "name",
    [
        "actor/model_world_size_1_rank_0.pt",
        "actor/optim_world_size_1_rank_0.pt",
        "actor/extra_state_world_size_1_rank_0.pt",
        "data.pt",
    ],
)
@pytest.mark.parametrize("kept_bytes", [None, 0, 600])
def test_checkpoint_cut_off_anywhere_does_not_count(
    tmp_path: Path, name: str, kept_bytes: int | None
) -> None:
    older = checkpoint(tmp_path, 3)
    cut = checkpoint(tmp_path, 4) / name
    if kept_bytes is None:
        cut.unlink()
    else:
        cut.write_bytes(cut.read_bytes()[:kept_bytes])
    with capture_logs() as said:
        assert latest_checkpoint(tmp_path, 1) == older
    (warning,) = said
    assert warning["event"] == "checkpoint_damaged"
    assert f"global_step_4: {name}" in warning["damage"]
    assert warning["going_on_from"] == older


def test_checkpoint_whose_content_changed_does_not_count(tmp_path: Path) -> None:
    older = checkpoint(tmp_path, 3)
    path = checkpoint(tmp_path, 4) / "actor" / "optim_world_size_1_rank_0.pt"
    data = bytearray(path.read_bytes())
    data[500] ^= 1
    path.write_bytes(data)
    assert is_whole(path.parent.parent), "sizes alone do not tell"
    assert damage(path.parent.parent) == (
        "the content of actor/optim_world_size_1_rank_0.pt has changed"
    )
    assert latest_checkpoint(tmp_path, 1) == older


def test_checkpoint_that_was_not_finished_does_not_count(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, 3)
    manifest = folder / "manifest.json"
    for text in (None, "", manifest.read_text()[:100]):
        manifest.write_text(text) if text is not None else manifest.unlink()
        assert not is_whole(folder)
        assert damage(folder) == "it was not finished (a kill, or a full disk)"
        assert latest_checkpoint(tmp_path, 1) is None


def test_critics_files_are_part_of_a_checkpoint(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, 3)
    (folder / "critic").mkdir()
    critic = folder / "critic" / "model_world_size_1_rank_0.pt"
    critic.write_bytes(b"x" * 10)
    finish(folder, manifest_of(folder))
    assert damage(folder) is None
    critic.write_bytes(b"x" * 9)
    assert damage(folder) == "critic/model_world_size_1_rank_0.pt has 9 bytes and had 10"


def test_missing_rank_does_not_count(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, 2, world=2)
    assert is_whole(folder)
    (folder / "actor" / "optim_world_size_2_rank_1.pt").unlink()
    assert not is_whole(folder)


def test_other_world_size_is_refused_with_what_to_do(tmp_path: Path) -> None:
    checkpoint(tmp_path, 2, world=2)
    command = r"python -m coding_framework.training.verl.export \S+/actor \S+/model_step_2"
    with pytest.raises(UsageError, match=rf"made by 2 .* rerun with 2, .*{command}"):
        latest_checkpoint(tmp_path, 1)


def test_prune_keeps_the_newest_whole_ones(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        checkpoint(tmp_path, step)
    (checkpoint(tmp_path, 4) / "data.pt").unlink()
    prune(tmp_path, keep=2)
    assert [step_of(p) for p in whole_checkpoints(tmp_path)] == [2, 3]
    assert not (tmp_path / "global_step_4").exists()


def test_best_policy_outlives_its_checkpoint(tmp_path: Path) -> None:
    for step in (1, 2):
        folder = checkpoint(tmp_path, step)
        keep_as(folder, tmp_path / "best")
    prune(tmp_path, keep=0)
    names = sorted(p.name for p in (tmp_path / "best").iterdir())
    assert "model_world_size_1_rank_0.pt" in names
    assert not any(name.startswith("optim") for name in names)
    assert zipfile.is_zipfile(tmp_path / "best" / "model_world_size_1_rank_0.pt")


def test_a_linked_folder_replaces_the_old_one_and_outlives_its_source(tmp_path: Path) -> None:
    final, best = tmp_path / "final_model", tmp_path / "best_model"
    (final / "deep").mkdir(parents=True)
    (final / "deep" / "weights").write_text("new")
    best.mkdir()
    (best / "old").write_text("old")
    copy_linked(final, best)
    assert (best / "deep" / "weights").samefile(final / "deep" / "weights")
    (final / "deep" / "weights").unlink()
    assert [p.read_text() for p in best.rglob("*") if p.is_file()] == ["new"]
