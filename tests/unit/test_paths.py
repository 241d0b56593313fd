"""Files are written whole or not at all; a disk that is full is one sentence."""

from __future__ import annotations

import errno
import json
import shutil
import subprocess
import sys
import time

import pytest

from coding_framework.errors import InfrastructureError
from coding_framework.paths import (
    cache_dir,
    cannot_write,
    program,
    write_atomic,
    write_json_atomic,
)

pytestmark = pytest.mark.unit


def test_a_file_is_replaced_whole(tmp_path):
    path = tmp_path / "new" / "a.json"
    write_json_atomic(path, {"a": 1})
    write_json_atomic(path, {"a": 2})
    assert json.loads(path.read_text()) == {"a": 2}
    assert [p.name for p in path.parent.iterdir()] == ["a.json"]


def test_a_kill_leaves_the_old_content_or_the_new(tmp_path):
    path = tmp_path / "a"
    code = (
        "from pathlib import Path; from coding_framework.paths import write_atomic\n"
        f"path = Path({str(path)!r})\n"
        "while True:\n"
        "    for letter in 'ab': write_atomic(path, letter * 3_000_000)"
    )
    for _ in range(3):
        writer = subprocess.Popen([sys.executable, "-c", code])
        while not path.exists():
            time.sleep(0.01)
        time.sleep(0.15)
        writer.kill()
        writer.wait()
        text = path.read_text()
        assert len(text) == 3_000_000
        assert len(set(text)) == 1


def test_a_value_that_json_cannot_hold_leaves_the_file(tmp_path):
    path = tmp_path / "a.json"
    write_json_atomic(path, {"a": 1})
    with pytest.raises(ValueError, match="JSON"):
        write_json_atomic(path, {"a": float("nan")})
    assert json.loads(path.read_text()) == {"a": 1}


def test_a_full_disk_is_told_and_leaves_nothing_half_written(tmp_path):
    if shutil.which("unshare") is None:
        pytest.skip("unshare is not installed")
    code = (
        "from pathlib import Path; from coding_framework.paths import write_atomic\n"
        f"path = Path({str(tmp_path)!r}) / 'a'\n"
        "write_atomic(path, 'old')\n"
        "try: write_atomic(path, 'x' * 1_000_000)\n"
        "except Exception as e: print(type(e).__name__, e)\n"
        "print(path.read_text(), len(list(path.parent.iterdir())))"
    )
    shell = f'mount -t tmpfs -o size=64k none {tmp_path} && {sys.executable} -c "$0"'
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", shell, code], capture_output=True, text=True, check=False
    )
    if "mount" in done.stderr or "unshare" in done.stderr:
        pytest.skip(f"no private mount here: {done.stderr.strip()}")
    told, left = done.stdout.splitlines()
    assert told.startswith("InfrastructureError the disk of ")
    assert "is full: free some space" in told
    assert left == "old 1"


def test_a_folder_that_cannot_be_made_is_told(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(InfrastructureError, match="choose a folder that can be written"):
        write_atomic(tmp_path / "file" / "a", "x")
    monkeypatch.setenv("CUDA_RL_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(InfrastructureError, match="set CUDA_RL_CACHE"):
        cache_dir()


def test_a_quota_counts_as_a_full_disk(tmp_path):
    error = OSError(errno.EDQUOT, "Disk quota exceeded")
    assert "is full: free some space" in cannot_write(tmp_path / "a", error)


def test_a_command_is_named_as_a_shell_here_can_call_it(tmp_path, monkeypatch):
    folder = tmp_path / ".venv" / "bin"
    folder.mkdir(parents=True)
    (folder / "cuda-rl").touch(mode=0o755)
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert program() == ".venv/bin/cuda-rl"
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert program() == str(folder / "cuda-rl")
    monkeypatch.setenv("PATH", str(folder))
    assert program() == "cuda-rl"
