"""Time and size of an installation from an empty cache: the judge alone, and all of it.

    uv run python benchmarks/install.py [--folder FOLDER]

`uv sync --frozen`, with what compiles to bytecode as `make setup` does, into an environment that is
removed at the end. The time is mostly the network's. Writes benchmarks/results/install.json.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from bench_io import ROOT, bar, finish, head, this_machine

KINDS = {"the judge alone": ["--no-default-groups"], "with the trainers": ["--no-group", "dev"]}


def install(options: list[str], within: Path) -> dict[str, Any]:
    """What one installation took."""
    with tempfile.TemporaryDirectory(dir=within) as folder:
        environment = {
            **os.environ,
            "UV_PROJECT_ENVIRONMENT": f"{folder}/venv",
            "UV_CACHE_DIR": f"{folder}/cache",
        }
        environment.pop("VIRTUAL_ENV", None)
        started = time.perf_counter()
        command = ["uv", "sync", "--frozen", "--compile-bytecode", "--quiet", *options]
        subprocess.run(command, cwd=ROOT, env=environment, check=True)
        wall_s = time.perf_counter() - started
        shutil.rmtree(f"{folder}/cache")
        size = subprocess.run(
            ["du", "-sb", f"{folder}/venv"], capture_output=True, text=True, check=True
        )
        packages = len(list(Path(folder).glob("venv/lib/*/site-packages/*.dist-info")))
    return {
        "wall_s": round(wall_s, 1),
        "megabytes": round(int(size.stdout.split()[0]) / 1e6),
        "packages": packages,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    folder = parser.parse_args().folder
    report = head("install", machine=this_machine())
    report["installations"] = {kind: install(options, folder) for kind, options in KINDS.items()}
    for kind, took in report["installations"].items():
        print(f"{kind:18} {took['wall_s']:7.1f} s  {took['megabytes']} MB  {took['packages']}")
    small, whole = (report["installations"][kind]["megabytes"] for kind in KINDS)
    report["bars"] = [bar("the judge alone is the smaller one, MB", whole, small, small < whole)]
    return 0 if finish(report) else 1


if __name__ == "__main__":
    raise SystemExit(main())
