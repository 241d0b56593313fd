"""Half-widths of GrowthBook's sequential intervals, against which ours are tested.

In an environment of its own, for gbstats refuses our scipy:
    uv run --isolated --no-project --with gbstats==0.8.0 scripts/gbstats_oracle.py
"""

from __future__ import annotations

import json
import random
from pathlib import Path

from gbstats.frequentist.tests import (  # type: ignore[import-not-found]
    SequentialConfig,
    SequentialTwoSidedTTest,
)
from gbstats.models.statistics import SampleMeanStatistic  # type: ignore[import-not-found]

TARGET = Path(__file__).parents[1] / "tests/unit/deployment/golden/gbstats.json"


def main() -> None:
    draws = random.Random(0)
    rows = []
    for _ in range(200):
        arms = [_arm(draws) for _ in range(2)]
        tuned_to, alpha = draws.choice([100.0, 1250.0, 5000.0]), draws.choice([0.1, 0.05, 0.01])
        config = SequentialConfig(
            alpha=alpha, difference_type="absolute", sequential_tuning_parameter=tuned_to
        )
        low, high = SequentialTwoSidedTTest(*arms, config).confidence_interval
        variance = sum(arm.variance / arm.n for arm in arms) * sum(arm.n for arm in arms)
        units = sum(arm.n for arm in arms)
        rows.append([float(variance), units, tuned_to, alpha, float(high - low) / 2])
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(json.dumps(rows).replace("], ", "],\n") + "\n")


def _arm(draws: random.Random) -> SampleMeanStatistic:
    units, mean = draws.randint(20, 10**6), draws.random()
    squares = units * (mean**2 + draws.uniform(0.01, 1))
    return SampleMeanStatistic(n=units, sum=units * mean, sum_squares=squares)


if __name__ == "__main__":
    main()
