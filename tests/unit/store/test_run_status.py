"""What a run tells of itself is read back, also where it is cut, newer, or of a dead process."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from coding_framework.store.folder import WatchFolder
from coding_framework.store.run_status import (
    Alert,
    Heartbeat,
    JudgeSample,
    ProcessGroup,
    RunIdentity,
    SystemSample,
    append_alert,
    append_judge,
    append_system,
    enclosing_run,
    is_alive,
    latest_system,
    parent_of,
    process_started,
    read_alerts,
    read_heartbeat,
    read_identity,
    read_judge,
    read_system,
    run_state,
    write_heartbeat,
    write_identity,
)

pytestmark = pytest.mark.unit


def beat(**changes: object) -> Heartbeat:
    mine = {
        "at": 100.0,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "start_time": process_started(),
    }
    return Heartbeat.model_validate({**mine, **changes})


def test_a_run_of_an_older_version_tells_nothing(tmp_path: Path) -> None:
    assert read_identity(tmp_path) is None
    assert read_heartbeat(tmp_path) is None
    assert [*read_system(tmp_path), *read_judge(tmp_path), *read_alerts(tmp_path)] == []
    assert run_state(tmp_path) == "unknown"


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    identity = RunIdentity(kind="rl", command=("a", "b"), pid=3, judge={"backend": "emulator"})
    write_identity(tmp_path, identity)
    assert read_identity(tmp_path) == identity
    group = ProcessGroup(n=2, rss=7)
    append_system(tmp_path, SystemSample(t=1.0, cpu=(1.0, 2.0), processes={"judge": group}))
    append_judge(tmp_path, JudgeSample(
        t=1.0, pool="h/1", queued=1, running=2, workers=2, done=3, done_per_s=0.5,
    ))  # fmt: skip
    append_alert(tmp_path, Alert(t=1.0, rule="disk", text="x", advice="y", values={"gib": None}))
    assert [s.processes for s in read_system(tmp_path)] == [{"judge": group}]
    assert [j.done for j in read_judge(tmp_path)] == [3]
    assert [a.values for a in read_alerts(tmp_path)] == [{"gib": None}]


def test_a_newer_versions_fields_are_passed_over_and_a_cut_line_left_out(tmp_path: Path) -> None:
    files = WatchFolder(tmp_path)
    files.system.write_text('{"t": 1.0, "moon": 3}\nnonsense\n{"t": 2.0}\n{"t": 3.')
    files.identity.write_text(json.dumps({"kind": "rl", "new": 1}))
    files.heartbeat.write_text("{")
    assert [s.t for s in read_system(tmp_path)] == [1.0, 2.0]
    assert read_identity(tmp_path).kind == "rl"
    assert read_heartbeat(tmp_path) is None


def test_a_run_lives_while_its_process_does_and_not_when_another_has_its_id(tmp_path: Path) -> None:
    write_heartbeat(tmp_path, beat())
    assert run_state(tmp_path, now=1e12) == "alive"
    write_heartbeat(tmp_path, beat(start_time=process_started() - 60.0))
    assert run_state(tmp_path, now=100.0) == "dead"
    write_heartbeat(tmp_path, beat(ended="interrupted"))
    assert run_state(tmp_path) == "interrupted"


def test_a_process_that_ended_and_was_not_waited_for_is_dead() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    told = beat(pid=child.pid, start_time=process_started(child.pid))
    assert is_alive(told)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it is a zombie now
    assert not is_alive(told)
    child.communicate()


def test_of_another_host_the_age_of_its_word_decides() -> None:
    elsewhere = beat(host="another")
    assert is_alive(elsewhere, now=125.0)
    assert not is_alive(elsewhere, now=131.0)


def test_samples_of_the_machine_stay_bounded_and_thin_out_towards_the_past(tmp_path: Path) -> None:
    files = WatchFolder(tmp_path)
    for t in range(2000):
        append_system(tmp_path, SystemSample(t=float(t)), most_bytes=20_000)
    assert files.system.stat().st_size <= 20_000
    assert files.system_before.stat().st_size <= 20_000
    times = [s.t for s in read_system(tmp_path)]
    assert times == sorted(set(times))
    assert times[0] == 0.0
    assert times[-10:] == [float(t) for t in range(1990, 2000)]
    assert latest_system(tmp_path).t == 1999.0


def test_the_latest_sample_is_the_last_whole_one(tmp_path: Path) -> None:
    assert latest_system(tmp_path) is None
    WatchFolder(tmp_path).system.write_text('{"t": 1.0}\n{"t": 2.0}\n{"t": 3')
    assert latest_system(tmp_path).t == 2.0


def test_a_kill_between_the_two_writes_of_thinning_repeats_no_sample(tmp_path: Path) -> None:
    files = WatchFolder(tmp_path)
    files.system_before.write_text('{"t": 1.0}\n{"t": 3.0}\n')
    files.system.write_text("".join(f'{{"t": {t}.0}}\n' for t in range(1, 7)))
    assert [s.t for s in read_system(tmp_path)] == [1.0, 3.0, 4.0, 5.0, 6.0]


def test_a_stage_finds_the_run_that_it_belongs_to(tmp_path: Path) -> None:
    stage = tmp_path / "rl_checkpoints"
    (stage / "judge").mkdir(parents=True)
    assert parent_of(stage) is None
    write_identity(tmp_path, RunIdentity(kind="quickstart"))
    assert parent_of(stage) == tmp_path.resolve()
    assert enclosing_run(stage / "judge") == tmp_path.resolve()
    assert enclosing_run(tmp_path) == tmp_path
