"""Logs, progress, JSON lines, memory: what a watcher and a rerun rely on."""

from __future__ import annotations

import io
import json
import subprocess
import sys

import pytest
import structlog

from coding_framework.monitoring.logs import configure_logging
from coding_framework.monitoring.memory import PeakMemory
from coding_framework.monitoring.progress import Progress, duration
from coding_framework.monitoring.text import one_line, visible
from coding_framework.store.lines import JsonlSink, read_lines
from support.waiting import until

pytestmark = pytest.mark.unit


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_tells_rate_and_time_left():
    clock = Clock()
    with Progress("sft", 100, "steps", stream=io.StringIO(), clock=clock) as progress:
        clock.now = 10.0
        progress.advance(50, note="loss 0.3")
        assert progress.line() == "sft: 50/100 steps, 5.0/s, 10 s left, 10 s so far, loss 0.3"


def test_what_an_earlier_run_did_counts_for_the_share_and_not_for_the_rate():
    clock = Clock()
    progress = Progress("sft", 100, "steps", done=90, stream=io.StringIO(), clock=clock)
    clock.now = 10.0
    progress.advance(5)
    assert "95/100 steps, 2.0 s each, 10 s left" in progress.line()


def test_a_log_gets_a_line_now_and_then_and_a_terminal_one_line():
    clock = Clock()
    log, terminal = io.StringIO(), Terminal()
    with (
        Progress("a", 1000, "x", stream=log, clock=clock) as in_log,
        Progress("a", 1000, "x", stream=terminal, clock=clock) as in_terminal,
    ):
        for _ in range(1000):
            clock.now += 0.1
            in_log.advance()
            in_terminal.advance()
    assert 7 <= len(log.getvalue().splitlines()) <= 10
    assert terminal.getvalue().count("\n") == 1


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59, "59 s"), (185, "3:05 min"), (3723, "1:02:03 h")]
)
def test_durations_are_for_people(seconds, text):
    assert duration(seconds) == text


def test_a_line_cut_off_by_a_kill_is_dropped_and_the_next_is_whole(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"i": 1}\n{"i": 2')
    assert [json.loads(x) for x in read_lines(path)] == [{"i": 1}]
    with JsonlSink(path) as sink:
        sink.write({"i": 3})
    assert [json.loads(x)["i"] for x in read_lines(path)] == [1, 3]


def test_a_file_of_one_long_cut_line_is_emptied(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("x" * 200_000)
    JsonlSink(path).close()
    assert path.read_text() == ""


def test_logs_go_to_the_file_as_json_and_warnings_to_stderr(tmp_path, capsys):
    path = tmp_path / "run.log.jsonl"
    configure_logging(path)
    try:
        log = structlog.get_logger("test")
        log.info("judged", task="relu")
        log.warning("judge_failed", attempt=1)
    finally:
        structlog.reset_defaults()
    events = [json.loads(line) for line in path.read_text().splitlines()]
    assert [e["event"] for e in events] == ["judged", "judge_failed"]
    assert events[0]["task"] == "relu"
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "warning: judge_failed attempt=1\n"


def test_peak_memory_counts_children():
    with PeakMemory(interval_s=0.05) as peak:
        before = peak.peak_bytes
        code = "import sys; block = bytearray(200_000_000); sys.stdin.read()"
        with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE):
            until(lambda: peak.peak_bytes - before > 150_000_000)


def test_visible_keeps_newlines_tabs_and_letters():
    assert visible("a\tb\nä漢") == "a\tb\nä漢"
    assert visible("\u202e\x7f") == "<U+202E><U+007F>"


def test_one_line_is_one_line_and_bounded():
    assert one_line("a\nb\r\x1b[2Jc") == "a b<U+000D><U+001B>[2Jc"
    assert len(one_line("x" * 10_000, 80)) == 80
