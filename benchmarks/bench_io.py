"""What the benchmarks of conversations share: the report's head, and where it goes."""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"


def bar(what: str, target: float, value: float, holds: bool) -> dict[str, Any]:
    """One bar; a bar that does not hold is written as such."""
    return {"bar": what, "target": target, "value": value, "holds": holds}


def write_report(
    name: str,
    command: str,
    bars: Sequence[Mapping[str, Any]],
    figures: Mapping[str, Any],
    output: Path | None,
    *,
    packages: Sequence[str] = (),
) -> bool:
    """Print the bars, write the report (default benchmarks/results/NAME.json); whether all hold."""
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    report = {
        "benchmark": name,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": platform.processor() or platform.machine(),
        "versions": {p: version(p) for p in ("coding-framework", *packages)},
        "command": command,
        "commit": commit.stdout.strip(),
        "bars": list(bars),
        **figures,
    }
    for each in bars:
        print(f"{each['bar']}: {each['value']} (target {each['target']}, holds: {each['holds']})")
    path = output or RESULTS / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=2) + "\n")
    return all(each["holds"] for each in bars)
