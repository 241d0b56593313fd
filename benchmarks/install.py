"""Time and size of an installation from an empty cache, and how soon the judge answers after it.

    uv run python benchmarks/install.py [--folder FOLDER] [--only TEXT]

Each goes into an environment that is removed at the end, with what compiles to bytecode. With pip:
torch's CPU build (`--torch`, from where pip finds it), then the judge beside it, then a verdict on
examples/relu.cu and a second one in the same process, with an empty cache of ours. With uv: the
lock's versions. The time is mostly the network's. Writes benchmarks/results/install.json.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench_io import ROOT, at_most, finish, head, this_machine

LOCKED = {"the judge, locked": [], "with the trainers, locked": ["--group", "train"]}
BESIDE = "the judge, beside torch"
VERDICTS = """
import json, sys, time
start = time.perf_counter()
from coding_framework.cli import main
took = []
for kernel in sys.argv[1:]:
    before = time.perf_counter() if took else start
    assert main(["judge", "--task", "relu", "--kernel", kernel, "--fresh"]) == 0
    took.append(round(time.perf_counter() - before, 1))
print(json.dumps(took))
"""


def size_of(environment: Path) -> dict[str, int]:
    """Megabytes and packages of an environment."""
    size = subprocess.run(["du", "-sb", environment], capture_output=True, text=True, check=True)
    packages = len(list(environment.glob("lib/*/site-packages/*.dist-info")))
    return {"megabytes": round(int(size.stdout.split()[0]) / 1e6), "packages": packages}


def locked(options: list[str], folder: Path) -> dict[str, Any]:
    """What one installation by uv took."""
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
    return {"wall_s": round(wall_s, 1), **size_of(folder / "venv")}


def beside_torch(torch: str, folder: Path) -> dict[str, Any]:
    """What torch took by pip, what the judge took and added to it, and the first verdicts."""
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    pip = [folder / "venv/bin/python", "-m", "pip", "install", "--quiet", "--no-cache-dir"]
    found: dict[str, Any] = {"torch": torch}
    before = size_of(folder / "venv")
    for what, wanted in (("torch", torch), ("judge", str(ROOT))):
        started = time.perf_counter()
        subprocess.run([*pip, wanted], check=True)
        found[f"{what}_wall_s"] = round(time.perf_counter() - started, 1)
        after = size_of(folder / "venv")
        found[f"{what}_megabytes"] = after["megabytes"] - before["megabytes"]
        before = after
    kernels = [str(ROOT / "examples" / name) for name in ("relu.cu", "relu_wrong.cu")]
    done = subprocess.run(
        [folder / "venv/bin/python", "-c", VERDICTS, *kernels],
        env={**os.environ, "CUDA_RL_CACHE": f"{folder}/made"},
        cwd=folder, stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    first, second = json.loads(done.stdout.splitlines()[-1])
    return {**found, **before, "first_verdict_s": first, "second_verdict_s": second}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--only", default="", help="installations whose name has this in it")
    parser.add_argument("--torch", default="torch==2.13.0", help="what pip is asked for")
    args = parser.parse_args()
    report = head("install", machine=this_machine())
    rows: dict[str, dict[str, Any]] = {}
    for kind in (BESIDE, *LOCKED):
        if args.only not in kind:
            continue
        with tempfile.TemporaryDirectory(dir=args.folder) as made:
            folder = Path(made)
            if kind in LOCKED:
                rows[kind] = locked(LOCKED[kind], folder)
            else:
                rows[kind] = beside_torch(args.torch, folder)
        print(kind, rows[kind])
    report["installations"] = rows
    if light := rows.get(BESIDE):
        both = light["torch_wall_s"] + light["judge_wall_s"]
        report["bars"] = [
            at_most("the judge beside torch, seconds", 40.0, light["judge_wall_s"]),
            at_most("what it adds, MB", 500, light["judge_megabytes"]),
            at_most("torch's CPU build and the judge, seconds", 75.0, both),
            at_most("both, MB", 1300, light["megabytes"]),
            at_most("packages", 45, light["packages"]),
            at_most("the first verdict, seconds", 10.0, light["first_verdict_s"]),
            at_most("another one, seconds", 1.0, light["second_verdict_s"]),
        ]
    return 0 if finish(report) else 1


if __name__ == "__main__":
    raise SystemExit(main())
