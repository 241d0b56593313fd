"""What every run tells of itself while it goes on, whatever it is there for: who it is (run.json),
where it stands (heartbeat.json), what the machine and the judge do (system.jsonl, judge.jsonl) and
what it noticed (alerts.jsonl), all in the run's folder.

A run that an older version made has none of these files: a reader gives None, or nothing. Fields
that a newer version added are left out. Times `t` and `at` are seconds since 1970, UTC.
"""

from __future__ import annotations

import itertools
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Literal, TypeVar

import psutil
from pydantic import ConfigDict, Field, ValidationError

from coding_framework.paths import write_atomic
from coding_framework.store.folder import WatchFolder
from coding_framework.store.lines import append_line, parsed_lines
from coding_framework.types import Record

T = TypeVar("T")

BEAT_S = 5.0
"""Between heartbeats."""
OLD_BEAT_S = 30.0
"""A run of another host is alive where its heartbeat is younger."""
SYSTEM_BYTES = 50 << 20
"""Of system.jsonl, beyond which its older half is thinned into system.1.jsonl; that one likewise
keeps every second line where it grows beyond."""
_CLOCKS_APART_S = 2.0
"""Most by which two readings of when a process started differ: the kernel derives it from the clock
of the machine, which may have been set since."""

RunState = Literal["alive", "finished", "failed", "interrupted", "dead", "unknown"]
Ended = Literal["finished", "failed", "interrupted"]


class _Told(Record):
    """Base of what is told: a reader passes over fields of a newer version."""

    model_config = ConfigDict(extra="ignore")


class GPUIdentity(_Told):
    name: str
    memory_bytes: int | None = None
    driver: str | None = None


class RunIdentity(_Told):
    """run.json: which run this is, as of its last start."""

    kind: str
    """"whole" (from the base model to the report), "sft", "rl" or "eval"."""
    command: tuple[str, ...] = ()
    """The command line."""
    version: str = ""
    commit: str | None = None
    """Of the repository that the code ran from; None where it ran from no repository."""
    host: str = ""
    pid: int = 0
    process_started: float = 0.0
    started_at: str = ""
    """UTC, ISO 8601: of the first start."""
    starts: int = 1
    """How often the run was started."""
    python: str = ""
    torch: str | None = None
    cuda: str | None = None
    """The version of the bindings of the driver's API."""
    gpus: tuple[GPUIdentity, ...] = ()
    judge: Mapping[str, str] = Field(default_factory=dict)
    """Its backend, sandbox and protocol, as far as they are known at the start."""
    parent: str | None = None
    """The folder of the run of which this is a stage, relative to this one's."""


class Heartbeat(_Told):
    """heartbeat.json: where the run stands. Written anew every `BEAT_S`."""

    at: float
    host: str
    pid: int
    start_time: float
    """Of the process: an id alone may be another process's by now."""
    stage: str = ""
    """Words of the progress line."""
    step: int | None = None
    of: int | None = None
    """None: nobody knows how many there are."""
    unit: str = ""
    rate: float | None = None
    """Units a second, of this start."""
    eta_s: float | None = None
    """Of the stage."""
    note: str = ""
    ended: Ended | None = None
    """How the process said that it ended; one that was killed says nothing."""


class ProcessGroup(_Told):
    """The processes of one role."""

    n: int
    rss: int
    """Bytes; pages that processes share are counted in each."""
    pss: int | None = None
    """Bytes, shared pages counted once; None where it was too slow to ask."""
    cpu: float | None = None
    """Cores that were busy since the sample before."""


class GPUSample(_Told):
    """One GPU. None: the driver did not tell."""

    index: int
    uuid: str | None = None
    util: float | None = None
    """Percent of the time in which a kernel ran."""
    mem_used: int | None = None
    mem_total: int | None = None
    """Bytes."""
    sm_clock: int | None = None
    mem_clock: int | None = None
    """MHz."""
    power_w: float | None = None
    energy_j: float | None = None
    """Since the driver was loaded."""
    temp: int | None = None
    """Degrees Celsius."""
    throttle: tuple[str, ...] | None = None
    """Why its clocks are lower than they could be, in NVML's words; idle is no reason."""
    ecc: int | None = None
    """Uncorrected memory errors since the driver was loaded."""
    processes: int | None = None
    """That compute on it."""


class SystemSample(_Told):
    """A line of system.jsonl: the machine as it is. None: the system did not tell."""

    t: float
    cpu: tuple[float, ...] = ()
    """Percent that each core was busy since the sample before."""
    load: float | None = None
    """Processes that ran or waited to run, the mean over a minute."""
    ram: int | None = None
    swap: int | None = None
    """Bytes in use."""
    ram_total: int | None = None
    disk_free: int | None = None
    """Bytes, where the run's folder is."""
    disk_read: float | None = None
    disk_write: float | None = None
    """Bytes a second, of all disks, since the sample before."""
    net: float | None = None
    """Bytes a second, sent and received, since the sample before."""
    processes: Mapping[str, ProcessGroup] = Field(default_factory=dict)
    """Of this run, by role: run, stage (a child that does its work), trainer, rollout,
    ray, judge, device, sandbox, compiler, other."""
    gpus: tuple[GPUSample, ...] | None = None
    """None: there is no driver, or it did not answer."""


class JudgeSample(_Told):
    """A line of judge.jsonl: what a judge did since its line before. Several judges may write to
    one file: each has a name."""

    t: float
    pool: str
    """Host and process of the judge, "gpu-7/1234"."""
    queued: int
    running: int
    workers: int
    done: int
    """Verdicts since the judge was made."""
    done_per_s: float
    """Since the line before."""
    statuses: Mapping[str, int] = Field(default_factory=dict)
    """Verdicts since the judge was made, by status."""
    compile_s: Mapping[str, float] = Field(default_factory=dict)
    judge_s: Mapping[str, float] = Field(default_factory=dict)
    wait_s: Mapping[str, float] = Field(default_factory=dict)
    """Quantiles ("p50", "p95") over the last verdicts: the compiler's time, the judge's work
    without it, and the time in the queue; empty where there was none."""
    cache_hits: int = 0
    """Of `done`, verdicts that were known before."""
    faults: int = 0
    """Candidates without a verdict, by a fault of ours."""
    gpus_quarantined: tuple[str, ...] = ()
    """UUIDs of GPUs that are left alone for a while."""


class Alert(_Told):
    """A line of alerts.jsonl: what the run noticed."""

    t: float
    rule: str
    """Its name, of `monitoring.alerts.RULES`."""
    text: str
    """What was noticed, with its numbers, in a sentence."""
    advice: str
    """What to do."""
    values: Mapping[str, float | None] = Field(default_factory=dict)
    """The numbers."""
    step: int | None = None
    """The training step at which it was noticed."""


# --- written ------------------------------------------------------------------------------------


def write_identity(run: Path, identity: RunIdentity) -> None:
    """Raises InfrastructureError where the folder cannot be written."""
    write_atomic(WatchFolder(run).identity, identity.model_dump_json(indent=1))


def write_heartbeat(run: Path, beat: Heartbeat) -> None:
    """Raises InfrastructureError where the folder cannot be written."""
    write_atomic(WatchFolder(run).heartbeat, beat.model_dump_json(indent=1))


def append_judge(run: Path, sample: JudgeSample) -> None:
    """Several processes may do so at once. Raises InfrastructureError where the disk is full."""
    append_line(WatchFolder(run).judge, sample.model_dump_json())


def append_alert(run: Path, alert: Alert) -> None:
    """Raises InfrastructureError where the disk is full."""
    append_line(WatchFolder(run).alerts, alert.model_dump_json())


def append_system(run: Path, sample: SystemSample, most_bytes: int = SYSTEM_BYTES) -> None:
    """Append a sample, and thin what is old where there is more than `most_bytes` of it. One
    process of a run does so. Raises InfrastructureError where the disk is full."""
    files = WatchFolder(run)
    append_line(files.system, sample.model_dump_json())
    if files.system.stat().st_size > most_bytes:
        _thin(files, most_bytes)


def _thin(files: WatchFolder, most_bytes: int) -> None:
    """A kill between the two writes leaves samples in both files: `read_system` gives them once."""
    lines = files.system.read_bytes().splitlines(keepends=True)
    middle = len(lines) // 2
    before = files.system_before.read_bytes() if files.system_before.exists() else b""
    kept = before + b"".join(lines[:middle:2])
    if len(kept) > most_bytes:
        kept = b"".join(kept.splitlines(keepends=True)[::2])
    write_atomic(files.system_before, kept)
    write_atomic(files.system, b"".join(lines[middle:]))


# --- read ---------------------------------------------------------------------------------------


def read_identity(run: Path) -> RunIdentity | None:
    """None where there is none, or none that can be read."""
    return _read(WatchFolder(run).identity, RunIdentity.model_validate_json)


def read_heartbeat(run: Path) -> Heartbeat | None:
    """None where there is none, or none that can be read."""
    return _read(WatchFolder(run).heartbeat, Heartbeat.model_validate_json)


def read_system(run: Path) -> Iterator[SystemSample]:
    """The samples of the machine, oldest first; of old ones some were dropped."""
    files = WatchFolder(run)
    last = -1.0
    for sample in parsed_lines(files.system_before, SystemSample.model_validate_json):
        last = sample.t
        yield sample
    new = parsed_lines(files.system, SystemSample.model_validate_json)
    yield from itertools.dropwhile(lambda sample: sample.t <= last, new)


def read_system_thinned(run: Path, most: int = 4_000) -> list[SystemSample]:
    """Likewise, of many samples about `most`, evenly apart, whatever the files' size."""
    if WatchFolder(run).system.is_file() and sum(_sizes(run)) <= most * _SHORT_SAMPLE:
        return list(read_system(run))
    found = {}
    for path, size in zip(_system_files(run), _sizes(run), strict=True):
        step = max(1, sum(_sizes(run)) // most)
        with path.open("rb") as file:
            for place in range(0, size, step):
                file.seek(place)
                if place:
                    file.readline()  # the rest of a line
                try:
                    sample = SystemSample.model_validate_json(file.readline())
                except ValidationError:
                    continue
                found[sample.t] = sample
    return [found[t] for t in sorted(found)]


def _system_files(run: Path) -> list[Path]:
    files = WatchFolder(run)
    return [path for path in (files.system_before, files.system) if path.is_file()]


def _sizes(run: Path) -> list[int]:
    return [path.stat().st_size for path in _system_files(run)]


def read_judge(run: Path) -> Iterator[JudgeSample]:
    """What the judges of the run did, in the order in which it was written."""
    return parsed_lines(WatchFolder(run).judge, JudgeSample.model_validate_json)


def read_alerts(run: Path) -> Iterator[Alert]:
    """What the run noticed, oldest first."""
    return parsed_lines(WatchFolder(run).alerts, Alert.model_validate_json)


def latest_system(run: Path) -> SystemSample | None:
    """The last sample of the machine, whatever the file's size; None where there is none."""
    path = WatchFolder(run).system
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL))
            *_, last = [line for line in file.read().splitlines() if line.endswith(b"}")]
        return SystemSample.model_validate_json(last)
    except (OSError, ValueError):
        return None


def is_alive(beat: Heartbeat, now: float | None = None) -> bool:
    """Whether the process that wrote it still runs: on this host its id and the time at which it
    started say so; of another host only the age of what it wrote."""
    if beat.ended is not None:
        return False
    if beat.host == socket.gethostname():
        return _runs(beat.pid, beat.start_time)
    return (time.time() if now is None else now) - beat.at < OLD_BEAT_S


def run_state(run: Path, now: float | None = None) -> RunState:
    """How a run stands by its own word: "dead" is one whose process is gone without a word,
    "unknown" one that never said anything, as runs of an older version."""
    beat = read_heartbeat(run)
    if beat is None:
        return "unknown"
    if beat.ended is not None:
        return beat.ended
    return "alive" if is_alive(beat, now) else "dead"


def parent_of(run: Path) -> Path | None:
    """The nearest folder above with a run.json: the run of which this one is a stage."""
    above = itertools.islice(run.resolve().parents, _LEVELS)
    return next((p for p in above if WatchFolder(p).identity.is_file()), None)


def enclosing_run(path: Path) -> Path | None:
    """The nearest folder with a run.json: this one, or one above."""
    return path if WatchFolder(path).identity.is_file() else parent_of(path)


_LEVELS = 4
_SHORT_SAMPLE = 500
"""Bytes of a sample of a small machine."""
_TAIL = 1 << 18
"""Bytes in which there is a whole line: one of a machine with 8 GPUs and 256 cores has 8,000."""


def process_started(pid: int | None = None) -> float:
    """When a process started, this one where none is named."""
    return float(psutil.Process(os.getpid() if pid is None else pid).create_time())


def _runs(pid: int, started: float) -> bool:
    try:
        process = psutil.Process(pid)
        gone = process.status() == psutil.STATUS_ZOMBIE
        return not gone and abs(process.create_time() - started) <= _CLOCKS_APART_S
    except psutil.Error:
        return False


def _read(path: Path, parse: Callable[[str], T]) -> T | None:
    try:
        return parse(path.read_text(encoding="utf-8"))
    except (OSError, ValidationError, UnicodeDecodeError):
        return None
