"""How long a step of RL takes, and where: steps of one-turn rollouts, by the root script.

    uv run python benchmarks/training.py --generator-checkpoint DIR [--config configs/one_gpu.yaml]
        [--steps 12] [--rollouts 256] [--folder DIR] [--output FILE] [--read]

Runs `run_multiturn_rl_training.py` with `--max-turns 1` in --folder (goes on from there; --read
starts nothing) and prints, over the steps from the third on, the median of each part of a step with
the mean answer length, the tokens sampled a second and how verdicts waited. The bar is that of one
H200: 256 rollouts in at most 35 s. On a CPU it shows the machinery alone. Writes
benchmarks/results/training.json; exits 1 where a bar does not hold.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench_io import ROOT, at_most, bar, finish, head

from coding_framework.store.records import StepRecord

WARM_FROM = 3
STEP_S = 35.0
SAMPLES = 8


def run(args: argparse.Namespace, folder: Path) -> None:
    prompts = args.rollouts // SAMPLES
    command = [
        sys.executable, str(ROOT / "run_multiturn_rl_training.py"), "--config", str(args.config),
        "--generator-checkpoint", str(args.generator_checkpoint), "--output-dir", str(folder),
        "--num-episodes", str(args.steps), "--max-turns", "1", "--save-every", str(args.steps),
        "--samples-per-prompt", str(SAMPLES), "--rl-batch-size", str(prompts),
    ]  # fmt: skip
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def median_of(values: list[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return round(statistics.median(known), 3) if known else None


def figures(steps: list[StepRecord]) -> dict[str, Any]:
    """Medians over the warm steps."""
    parts = sorted({name for step in steps for name in step.times})
    return {
        "steps": [step.step for step in steps],
        "median_s": {part: median_of([step.times.get(part) for step in steps]) for part in parts},
        "rollouts": median_of([float(step.conversations) for step in steps]),
        "response_tokens_mean": median_of([s.measures.response_tokens_mean for s in steps]),
        "tokens_per_s_of_rollout": median_of(
            [s.response_tokens / s.times["rollout_s"] for s in steps if s.times.get("rollout_s")]
        ),
        "verdict_p50_s": median_of([s.measures.verdict_s.get("p50") for s in steps]),
        "verdict_wait_p95_s": median_of([s.measures.verdict_wait_s.get("p95") for s in steps]),
        "rows_learnt": median_of([float(step.rows_learnt) for step in steps]),
        "faults": sum(step.faults for step in steps),
        "gpu_memory_gib": max((s.gpu_memory_gib for s in steps if s.gpu_memory_gib), default=None),
        "gpu_arithmetic_share": median_of([s.gpu_arithmetic_share for s in steps]),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--generator-checkpoint", type=Path, default=None)
    parser.add_argument("--read", action="store_true", help="a run of the root script in --folder")
    parser.add_argument("--config", type=Path, default=ROOT / "configs" / "one_gpu.yaml")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--rollouts", type=int, default=256, help="a multiple of 8")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    if args.generator_checkpoint is None and not args.read:
        parser.error("give --generator-checkpoint, or --read and --folder")
    report = head("training", packages=("verl", "ray", "torch", "transformers"))
    with tempfile.TemporaryDirectory() as name:
        folder = (args.folder or Path(name) / "run").resolve()
        if not args.read:
            run(args, folder)
        lines = (folder / "steps.jsonl").read_text().splitlines()
        config = json.loads((folder / "config.json").read_text())
    records = [StepRecord.model_validate(json.loads(line)) for line in lines]
    warm = [record for record in records if record.step >= WARM_FROM]
    if not warm:
        raise SystemExit(f"{len(records)} steps were made: give --steps {WARM_FROM} at least")
    found = figures(warm)
    for part, seconds in found["median_s"].items():
        print(f"{part:<16} {seconds:8.2f} s")
    bars = [
        bar("warm steps, at least", 10, len(found["steps"]), len(found["steps"]) >= 10),
        bar("rollouts a step, at least", 256, found["rollouts"], (found["rollouts"] or 0) >= 256),
        at_most("median step in s", STEP_S, found["median_s"]["step_s"]),
        at_most("turns lost to faults of ours", 0, found["faults"]),
    ]
    curve = [
        {
            "step": r.step,
            "reward": r.reward_mean,
            "compile": r.compile_rate,
            "correct": r.correct_rate,
            "s": r.times.get("step_s"),
        }
        for r in records
    ]
    whole = {**report, "bars": bars, **found, "curve": curve, "config": config}
    return 0 if finish(whole, args.output) else 1


if __name__ == "__main__":
    sys.exit(main())
