"""Do the real manager and its database decide as the simulation does, in every scenario?

    uv run python benchmarks/ab_through_store.py [--runs 10] [--units 1000]

Writes benchmarks/results/ab_through_store.json; exit 1 where a rollout differs.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path

from ab_simulation import BROKEN, SCENARIOS, steady
from bench_io import RESULTS, at_most, finish, head, this_machine

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from support.through_store import Scenario, compare

WINS = Scenario("+20 points", steady(0.3), lift=0.2)
WITH_BOT = [replace(s, name=f"{s.name}, a bot", bot=True) for s in (WINS, *BROKEN.values())]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=10, help="rollouts a scenario")
    parser.add_argument("--units", type=int, default=1000, help="units of a rollout")
    args = parser.parse_args()
    report = head("ab_through_store", packages=["numpy", "scipy"], machine=this_machine())
    rows = []
    for scenario in (*SCENARIOS, *BROKEN.values(), *WITH_BOT):
        start = time.process_time()
        found = {
            "scenario": scenario.name,
            "runs": args.runs,
            **compare(scenario, args.runs, args.units),
        }
        rows.append({**found, "cpu_s": round(time.process_time() - start, 1)})
        print(rows[-1], flush=True)
    differ = sum(len(row["differing"]) for row in rows)
    bars = [at_most("rollouts that differ from the simulation", 0, differ)]
    report |= {"units": args.units, "bars": bars, "scenarios": rows}
    return 0 if finish(report, RESULTS / "ab_through_store.json") else 1


if __name__ == "__main__":
    sys.exit(main())
