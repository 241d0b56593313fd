"""JSON lines that survive short writes, full disks and kills."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from coding_framework.errors import InfrastructureError
from coding_framework.store import lines
from coding_framework.store.lines import JsonlSink, append_line, parsed_lines

pytestmark = pytest.mark.unit


def numbers(path: Path) -> list[int]:
    return [record["i"] for record in parsed_lines(path, json.loads)]


def run_python(code: str, *args: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_a_short_write_is_finished(tmp_path, monkeypatch):
    real = os.write
    monkeypatch.setattr(lines.os, "write", lambda fd, data: real(fd, bytes(data)[:5]))
    append_line(tmp_path / "a.jsonl", '{"i": 1, "text": "longer than five bytes"}')
    append_line(tmp_path / "a.jsonl", '{"i": 2}')
    assert numbers(tmp_path / "a.jsonl") == [1, 2]


def test_a_fragment_never_joins_the_next_line_and_is_counted_once(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"i": 1}\n{"i": 2, "cut')
    append_line(path, '{"i": 3}')
    with capture_logs() as logs:
        assert numbers(path) == [1, 3]
    (warning,) = logs
    assert warning["event"] == "unreadable_lines"
    assert (warning["path"], warning["first"], warning["count"]) == (str(path), 2, 1)


def test_several_bad_lines_are_skipped_and_counted_in_one_warning(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"i": 1}\nnot json\n\xff\xfe\n{"i": 2}\n{"i": 3}')
    with capture_logs() as logs:
        assert numbers(path) == [1, 2]
    assert [(w["first"], w["count"]) for w in logs] == [(2, 2)]


def test_the_unfinished_last_line_of_a_writer_at_work_is_left_out_without_a_word(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"i": 1}\n{"i": 2, "c')
    with capture_logs() as logs:
        assert numbers(tmp_path / "a.jsonl") == [1]
    assert logs == []


def test_a_writer_killed_in_the_middle_of_a_write_costs_its_own_line_alone(tmp_path):
    path = tmp_path / "a.jsonl"
    code = """
import os, signal, sys
from pathlib import Path
from coding_framework.store.lines import append_line
path, real = Path(sys.argv[1]), os.write
append_line(path, '{"i": 1}')
def half(fd, data):
    real(fd, bytes(data)[: len(data) // 2])
    os.kill(os.getpid(), signal.SIGKILL)
os.write = half
append_line(path, '{"i": 2, "text": "some more"}')
"""
    assert run_python(code, path).returncode == -signal.SIGKILL
    assert not path.read_bytes().endswith(b"\n"), "the kill came too late"
    append_line(path, '{"i": 3}')
    append_line(path, '{"i": 4}')
    assert numbers(path) == [1, 3, 4]


def test_a_full_disk_is_said_and_leaves_no_fragment(tmp_path):
    path = tmp_path / "a.jsonl"
    code = """
import resource, signal, sys
from pathlib import Path
from coding_framework.errors import InfrastructureError
from coding_framework.store.lines import append_line
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
path = Path(sys.argv[1])
append_line(path, '{"i": 1}')
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
try:
    append_line(path, '{"i": 2, "text": "' + 200 * "x" + '"}')
except InfrastructureError as e:
    print(e)
"""
    ended = run_python(code, path)
    assert "cannot be written (File too large)" in ended.stdout, ended.stderr
    assert path.read_text() == '{"i": 1}\n'
    append_line(path, '{"i": 3}')
    assert numbers(path) == [1, 3]


def test_a_device_without_room_is_named():
    with pytest.raises(InfrastructureError, match="the disk of /dev is full"):
        append_line(Path("/dev/full"), '{"i": 1}')
    with JsonlSink(Path("/dev/full")) as sink, pytest.raises(InfrastructureError, match="is full"):
        sink.write({"i": 1})


def test_writers_of_one_file_do_not_mix_their_lines(tmp_path):
    path = tmp_path / "a.jsonl"
    code = """
import os, sys
from pathlib import Path
from coding_framework.store.lines import append_line
real = os.write
os.write = lambda fd, data: real(fd, bytes(data)[:1000])
for i in range(50):
    append_line(Path(sys.argv[1]), '{"i": %d, "text": "%s"}' % (i, 5000 * sys.argv[2]))
"""
    writers = [
        subprocess.Popen([sys.executable, "-c", code, str(path), letter]) for letter in "abc"
    ]
    assert [w.wait(timeout=60) for w in writers] == [0, 0, 0]
    assert sorted(numbers(path)) == sorted([*range(50)] * 3)
