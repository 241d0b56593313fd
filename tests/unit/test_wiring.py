"""The factories that join the layers."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from coding_framework.errors import InfrastructureError, UsageError
from coding_framework.wiring import make_judge, run_secret

pytestmark = pytest.mark.unit


def test_a_run_has_one_secret_that_only_its_user_may_read(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with ThreadPoolExecutor(8) as threads:
        secrets = set(threads.map(lambda _: run_secret(folder), range(32)))
    (secret,) = secrets
    assert len(bytes.fromhex(secret)) == 32
    assert stat.S_IMODE((folder / ".secret").stat().st_mode) == 0o600
    assert [path.name for path in folder.iterdir()] == [".secret"]
    assert run_secret(tmp_path / "other") != secret


def test_judges_of_one_run_draw_alike_and_keep_their_verdicts_there(tmp_path: Path) -> None:
    judges = [make_judge(run_folder=tmp_path) for _ in range(2)]
    assert judges[0].config.secret == judges[1].config.secret
    alone = make_judge()
    assert alone.config.secret != judges[0].config.secret
    for judge in (*judges, alone):
        judge.close()


def test_a_run_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InfrastructureError, match="cannot be written"):
        run_secret(tmp_path / "file")


def test_a_setting_that_no_judge_has_is_one_sentence() -> None:
    with pytest.raises(UsageError, match="there is no setting profil"):
        make_judge("emulator", profil=True)
