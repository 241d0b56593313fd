"""What the judges of a run did, as one line over time."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from coding_framework.store.run_status import JudgeSample

HELD = 1.5
"""For so many usual pauses a judge's line counts: one that works writes again by then."""


@dataclass(frozen=True, slots=True)
class Judges:
    """The judges of a run as one, at each time at which one of them wrote a line: queues and rates
    are sums, times those of the slowest. They write on their own, so that their lines, drawn as
    one, would leap from judge to judge."""

    samples: Sequence[JudgeSample]
    most: int
    """Judges that worked at the same time."""
    pause: float
    """Usual seconds between two lines of a judge."""

    @classmethod
    def of(cls, lines: Sequence[JudgeSample]) -> Judges:
        times: dict[str, list[float]] = {}
        for line in lines:
            times.setdefault(line.pool, []).append(line.t)
        pause = usual_pause(b - a for told in times.values() for a, b in itertools.pairwise(told))
        last: dict[str, JudgeSample] = {}
        found, most = [], 0
        for line in sorted(lines, key=lambda each: each.t):
            last[line.pool] = line
            last = {pool: each for pool, each in last.items() if line.t - each.t <= HELD * pause}
            found.append(_together(line, list(last.values())))
            most = max(most, len(last))
        return cls(found, most, pause)


def _together(line: JudgeSample, judges: Sequence[JudgeSample]) -> JudgeSample:
    """The line with what all these judges do."""
    if len(judges) == 1:
        return line
    return line.model_copy(
        update={
            "queued": sum(judge.queued for judge in judges),
            "running": sum(judge.running for judge in judges),
            "done_per_s": sum(judge.done_per_s for judge in judges),
            "compile_s": _largest(judge.compile_s for judge in judges),
            "judge_s": _largest(judge.judge_s for judge in judges),
            "wait_s": _largest(judge.wait_s for judge in judges),
        }
    )


def _largest(quantiles: Iterable[Mapping[str, float]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, value in (item for each in quantiles for item in each.items()):
        found[name] = max(value, found.get(name, value))
    return found


def usual_pause(pauses: Iterable[float]) -> float:
    """The median of those above 0; 0 where there is none."""
    known = sorted(pause for pause in pauses if pause > 0)
    return known[len(known) // 2] if known else 0.0
