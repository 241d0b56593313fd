"""SIGKILL in the middle of an RL run on the CPU: is the resumed one the uninterrupted one?

    uv run python tests/soak/rl_kills.py [--kills 20] [--seed 0] [--output FILE]

Each round starts `run_multiturn_rl_training.py` (PPO with a critic and a curriculum, greedy
sampling, a random model of 0.1M parameters, a judge of the tests) in a folder of its own, and at a
random moment between its first finished step and its last kills, in turn, the script, verl's
trainer, a training worker, the rollout server or the worker that runs the conversations and judges.
The script goes on by itself, or by the same command where it was killed. Compared
with a run that nobody killed: the order of tasks, every answer, the losses and gradient norms of
every step, and the curriculum's state. A run starts Ray and takes a minute or so, 20 rounds most
of an hour; a round whose result is in --folder is not run again. Prints a table, writes
benchmarks/results/rl_kills.json; exits 1 where a bar does not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
from bench_io import ROOT, bar, finish, head

TESTS = ROOT / "tests"
sys.path.insert(0, str(TESTS))

from support import tiny_rl  # noqa: E402
from support.victims import kill_one  # noqa: E402

STEPS = 6
LATEST_S = 3.0
"""After the step that a kill waits for: a step takes 2 to 3 s on 2 cores."""
VICTIMS = {
    "script": "",
    "trainer": "TaskRunner",
    "training worker": "WorkerDict",
    "rollout server": "TransformersServer",
    "rollout worker": "TurnRowsWorker",
}
"""What is killed, and what its process is called."""
NUMBERS = ("loss", "critic_loss", "grad_norm", "reward_mean", "kl")
RECIPE = {
    "device": "cpu",
    "rl": {
        "algorithm": "ppo",
        "num_episodes": STEPS,
        "prompts_per_step": 2,
        "samples_per_prompt": 1,
        "greedy": True,
        "reuse_rollout_logprobs": False,
        "curriculum": "three_tier",
        "kl_coefficient": 0.02,
        "learning_rate": 1e-3,
        "max_prompt_tokens": 256,
        "max_response_tokens": 16,
        "compute_dtype": "float32",
        "threads": 1,
        "judge": "support.tiny_rl:make_judge",
        "agents": "support.tiny_rl:make_agents",
        "reward": "support.tiny_rl:TextReward",
    },
}


def command(work: Path, output: Path) -> list[str]:
    return [
        sys.executable, str(ROOT / "run_multiturn_rl_training.py"),
        "--config", str(work / "recipe.yaml"), "--generator-checkpoint", str(work / "model"),
        "--output-dir", str(output), "--num-tasks", "24",
    ]  # fmt: skip


def start(work: Path, output: Path) -> subprocess.Popen[bytes]:
    path = os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")]))
    output.parent.mkdir(parents=True, exist_ok=True)
    with output.with_suffix(".log").open("ab") as log:
        return subprocess.Popen(
            command(work, output),
            env={**os.environ, "PYTHONPATH": path},
            stdout=log,
            stderr=subprocess.STDOUT,
        )


def whole_run(work: Path, output: Path) -> float:
    """Run to the end; seconds."""
    begun = time.monotonic()
    process = start(work, output)
    if process.wait(timeout=1800):
        raise SystemExit(f"the run in {output} failed: see {output.with_suffix('.log')}")
    return time.monotonic() - begun


def told(output: Path) -> dict[str, Any]:
    """What a finished run did, without times and random names."""
    from coding_framework.store.checkpoints import CURRICULUM, whole_checkpoints
    from coding_framework.store.conversations import run_rollouts

    steps = [json.loads(line) for line in (output / "steps.jsonl").read_text().splitlines()]
    rollouts = sorted(run_rollouts(output), key=lambda r: (r.step, r.prompt, r.session))
    last = whole_checkpoints(output / "checkpoints")[-1]
    return {
        "tasks": [[r.step, r.state.task.name] for r in rollouts],
        "answers": [[t.generation.text for t in r.state.turns] for r in rollouts],
        "numbers": [[step[name] for name in NUMBERS] for step in steps],
        "curriculum": json.loads((last / CURRICULUM).read_text()),
    }


def finished_steps(output: Path) -> int:
    steps = output / "steps.jsonl"
    return len(steps.read_text().splitlines()) if steps.exists() else 0


def kill(process: subprocess.Popen[bytes], output: Path, victim: str) -> bool:
    """SIGKILL it; whether it was there."""
    if victim == "script":
        process.kill()
        process.wait()
        return True
    return kill_one(str(output.resolve()), VICTIMS[victim])


def one_kill(
    work: Path, number: int, victim: str, draw: random.Random, wanted: dict[str, Any]
) -> dict[str, Any]:
    output = work / f"kill_{number:02d}"
    shutil.rmtree(output, ignore_errors=True)
    after, wait_s = draw.randrange(1, STEPS), draw.uniform(0.0, LATEST_S)
    process = start(work, output)
    while finished_steps(output) < after and process.poll() is None:
        time.sleep(0.02)
    time.sleep(wait_s)
    killed, before = kill(process, output, victim), finished_steps(output)
    if victim == "script":
        whole_run(work, output)
    elif process.wait(timeout=1800):
        raise SystemExit(f"the run in {output} failed: see {output.with_suffix('.log')}")
    found = told(output)
    same = {f"same_{name}": found[name] == wanted[name] for name in wanted}
    worst = max(
        (abs(a - b) for x, y in zip(found["numbers"], wanted["numbers"], strict=False)
         for a, b in zip(x, y, strict=True) if a is not None and b is not None),
        default=float("inf"),
    )  # fmt: skip
    return {
        "kill": number,
        "victim": victim,
        "killed": killed,
        "steps_before": before,
        "attempts": len(list((output / "attempts").iterdir())),
        "steps": len(found["numbers"]),
        **same,
        "largest_difference_of_numbers": worst,
    }


def bars_of(rounds: list[dict[str, Any]]) -> list[dict[str, Any]]:
    def count(name: str) -> int:
        return sum(bool(r[name]) for r in rounds)

    n = len(rounds)
    whole = sum(r["steps"] == STEPS for r in rounds)
    amid = sum(r["killed"] and 0 < r["steps_before"] < STEPS for r in rounds)
    return [
        bar("kill points between the first finished step and the last", 20, amid, amid >= 20),
        bar("runs that ended with every step once", n, whole, whole == n),
        *(
            bar(f"runs with identical {what}", n, count(f"same_{name}"), count(f"same_{name}") == n)
            for name, what in (
                ("tasks", "data order"),
                ("answers", "answers"),
                ("numbers", "losses and gradient norms"),
                ("curriculum", "curriculum state"),
            )
        ),
    ]


def prepare(work: Path) -> tuple[float, dict[str, Any]]:
    """Model, recipe and the run that nobody kills: (its seconds, what it did)."""
    if not (work / "model" / "config.json").exists():
        tiny_rl.write_tiny_model(work / "model")
    (work / "recipe.yaml").write_text(yaml.safe_dump(RECIPE))
    known = work / "whole.json"
    if known.exists():
        found = json.loads(known.read_text())
        return float(found["seconds"]), found["told"]
    seconds = whole_run(work, work / "whole")
    record = {"seconds": seconds, "told": told(work / "whole")}
    known.write_text(json.dumps(record))
    return seconds, json.loads(known.read_text())["told"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="kept, and gone on from")
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    report = head(
        "rl_kills",
        packages=("verl", "ray", "torch"),
        command=f"python tests/soak/rl_kills.py --kills {args.kills} --seed {args.seed}",
    )
    with tempfile.TemporaryDirectory() as name:
        work = (args.folder or Path(name)).resolve()
        work.mkdir(parents=True, exist_ok=True)
        length_s, wanted = prepare(work)
        print(f"a run without a kill takes {length_s:.0f} s", flush=True)
        rounds: list[dict[str, Any]] = []
        for number in range(args.kills):
            known = work / f"round_{number:02d}.json"
            if not known.exists():
                victim = list(VICTIMS)[number % len(VICTIMS)]
                draw = random.Random(f"{args.seed} {number}")
                known.write_text(json.dumps(one_kill(work, number, victim, draw, wanted)))
            rounds.append(json.loads(known.read_text()))
            same = [name for name in wanted if rounds[-1][f"same_{name}"]]
            print(
                f"kill {number + 1:>2}, {rounds[-1]['victim']}, {rounds[-1]['steps_before']} steps "
                f"before: the same {', '.join(same) or 'nothing'}",
                flush=True,
            )
    return 0 if finish({**report, "bars": bars_of(rounds), "rounds": rounds}, args.output) else 1


if __name__ == "__main__":
    sys.exit(main())
