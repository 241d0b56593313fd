"""Rollouts whose candidate changes on the way: harm that begins late, effects that fade or swing.

    python benchmarks/changing_rollouts.py [--runs 2000] [--output FILE]

By the rules of `deployment.decisions`, without a store. It has no bars: it says what a user must
know before such a candidate (docs/deployment.md). Writes benchmarks/results/changing_rollouts.json.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from ab_simulation import CONFIG
from bench_io import finish, head, this_machine

from coding_framework.deployment.decisions import LOOKS, breaks, look_at, wins
from coding_framework.deployment.statistics import Effect

GUARDRAIL = next(m for m in CONFIG.metrics if m.name == "error")
UNITS = 2500
NEVER = 10_000
SWINGS = 0.1 * np.sign(np.sin(2 * np.pi * np.arange(UNITS) / 100))
FADES = np.where(np.arange(UNITS) < 2 * UNITS // 5, 0.3, -0.1)


def units_until_stopped(begins: int, rate: float, base: float, seed: int) -> int:
    """Units of the candidate from the beginning of its errors, after so many units of both arms,
    until the guardrail breaks."""
    chance = np.random.default_rng(seed)
    of_candidate = bad = served = 0
    for n in range(begins + 2 * NEVER):
        candidate = n % 2 == 1
        late = candidate and n >= begins
        served += late
        if chance.random() < (rate if late else base):
            of_candidate, bad = of_candidate + candidate, bad + 1
            if breaks(of_candidate, bad, GUARDRAIL, CONFIG):
                return int(served)
    return NEVER


def promoted(effects: np.ndarray[Any, Any], runs: int, seed: int) -> float:
    """Share of the rollouts that win at a look, where unit i has the effect `effects[i]`."""
    chance = np.random.default_rng(seed)
    effect, won = Effect(), np.zeros(runs, bool)
    for n, lift in enumerate(effects, 1):
        arm = chance.random(runs) < 0.5
        value = (chance.random(runs) < 0.5 + arm * lift).astype(float)
        effect = effect.after(arm.astype(float), value, 0.5)
        look = look_at(n, len(effects))
        if look is not None:
            won |= np.asarray(wins(effect, look, CONFIG.alpha))
    return float(won.mean())


def late_errors(begins: int, base: float, runs: int) -> dict[str, Any]:
    found = [units_until_stopped(begins, 0.5, base, seed) for seed in range(runs)]
    return {
        "begins_after_units": begins, "base": base, "runs": runs, "errors": 0.5,
        "candidate_units_median": float(np.median(found)),
        "candidate_units_95": float(np.quantile(found, 0.95)), "most": max(found),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=2000, help="rollouts of an effect")
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    machine = this_machine()
    report = head("changing_rollouts", packages=("numpy", "scipy"), machine=machine)
    report["late_errors"] = [
        late_errors(begins, base, 100) for base in (0.002, 0.05) for begins in (0, 5000)
    ]
    report["promoted"] = {
        "units": UNITS, "looks": LOOKS, "runs": args.runs,
        "swings by 10 points about zero": promoted(SWINGS, args.runs, 1),
        "30 points for two fifths, then -10": promoted(FADES, args.runs, 1),
    }  # fmt: skip
    finish(report | {"bars": []}, args.output)


if __name__ == "__main__":
    main()
