"""What benchmarks, experiments and soak programs share: a report's head, its bars, its place."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from coding_framework.paths import write_json_atomic

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # as a user has it: each process compiled all of us


def bar(what: str, target: Any, value: Any, holds: bool) -> dict[str, Any]:
    """One bar; a bar that does not hold is written as such. Fractions to four places."""
    target, value = (round(x, 4) if isinstance(x, float) else x for x in (target, value))
    return {"bar": what, "target": target, "value": value, "holds": holds}


def at_most(what: str, target: float, value: float) -> dict[str, Any]:
    """A bar that holds up to its target."""
    return bar(what, target, value, value <= target)


STAND_INS = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS")
"""Variables by which a processor stands in for one that has fewer instructions."""


def this_machine() -> dict[str, Any]:
    """The machine now: ask before the work begins, since the load is told."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return {
        "cpu": next(names, platform.processor()),
        "cores": len(os.sched_getaffinity(0)),
        "system": platform.platform(),
        "load": round(os.getloadavg()[0], 1),
        "niceness": os.nice(0),
        **{name: os.environ[name] for name in STAND_INS if name in os.environ},
    }


def head(
    name: str,
    *,
    packages: Sequence[str] = (),
    machine: Mapping[str, Any] | None = None,
    versions: Mapping[str, str] | None = None,
    command: str | None = None,
) -> dict[str, Any]:
    """What every report begins with. machine: default as it is now. versions: beside those of
    `packages` and this project. command: default this one, without the folders of data files."""
    said = (Path(a).name if a.endswith(".jsonl") else a for a in sys.argv[1:])
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return {
        "benchmark": name,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": dict(machine if machine is not None else this_machine()),
        "versions": _versions("coding-framework", *packages) | dict(versions or {}),
        "command": command or " ".join(["python", _program(), *said]),
        "commit": commit.stdout.strip(),
    }


def _program() -> str:
    """The program that runs, as a path from the repository's root."""
    path = Path(sys.argv[0]).resolve()
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name


def _versions(*packages: str) -> dict[str, str]:
    """Of those that are installed: a tool may come from the system instead."""
    found = {}
    for package in packages:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def finish(report: Mapping[str, Any], output: Path | None = None) -> bool:
    """Print the bars, write the report (default benchmarks/results/NAME.json); whether all hold."""
    for each in report["bars"]:
        state = "holds" if each["holds"] else "DOES NOT HOLD"
        print(f"{state:13}  {each['bar']}: {each['value']} (target {each['target']})")
    path = output or RESULTS / f"{report['benchmark']}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json_atomic(path, report)
    return all(each["holds"] for each in report["bars"])
